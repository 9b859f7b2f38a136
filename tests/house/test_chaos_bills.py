"""Chaos tells which processes ended by themselves, and what they said."""

import json

from tests.chaos.bills import last_words


def said(level: str, message: str, error: str = "") -> str:
    return json.dumps({"level": level, "message": message, "error": error})


def test_who_had_reached_nats_and_ends_by_itself_is_told():
    lines = [
        said("info", "recovered"),
        said("critical", "ended by an error", "KeyError: 7"),
        "no line of a log",
        said("critical", "cannot connect to NATS: no server answered in 30 s"),
        said("info", "started: tasks run as users of their own"),
        said("critical", "ended by an error", "LauncherGone: the launcher has ended"),
        said("critical", "no answer"),
    ]
    assert list(last_words(lines)) == ["ended by an error KeyError: 7"]
