"""Who is told of a job, and when: the rules of a specification and of subscriptions. Pure.

A rule names a target, never an address: targets are records of the notifier. Source:
docs/design/notifications.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from iris_core.spec.field_rules import at_most, text
from iris_core.states import JobState, display_name

MAX_NOTIFY = 16
"""Rules of one job."""
MAX_WORDS = 16
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_WORD = "started|succeeded|failed|ended|waiting_[1-9][0-9]{0,5}[smh]|time_[1-9][0-9]?"
_HINT = "started, succeeded, failed, ended, waiting_1h or time_80"
_TIMED = re.compile(r"(waiting|time)_([0-9]+)([smh]?)\Z")

TargetName = Annotated[
    str,
    text(
        "[a-z0-9][a-z0-9._-]{0,62}",
        "bad_target",
        "is not the name of a target",
        hint="1 to 63 of a-z 0-9 . _ -, starting with a letter or digit",
    ),
]
NotifyWord = Annotated[
    str, text(_WORD, "bad_word", "is not something that is told", hint=f"one of {_HINT}")
]
NotifyWords = Annotated[
    tuple[NotifyWord, ...],
    at_most(MAX_WORDS, f"at most {MAX_WORDS} words"),
    Meta(extra_json_schema={"minItems": 1}),
]


class NotifyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target that is told of a job.

    Attributes:
        to: the name of a target of the job's user, or of a shared one.
        on: what is told: ``started``, ``succeeded``, ``failed``, ``ended``; ``waiting_1h``: it has
            waited for so long; ``time_80``: a task has used so many per cent of its time limit.
    """

    to: TargetName
    on: NotifyWords


class TimedWord(NamedTuple):
    """A word that time makes true: a job has waited for ``seconds``, or a task has used ``percent``
    of its time limit; the other one is 0.
    """

    word: str
    seconds: int
    percent: int


def timed(words: Sequence[str]) -> list[TimedWord]:
    """Those of ``words`` that time makes true."""
    found = ((word, match) for word in words if (match := _TIMED.match(word)) is not None)
    return [
        TimedWord(word, int(match[2]) * _SECONDS[match[3]], 0)
        if match[1] == "waiting"
        else TimedWord(word, 0, int(match[2]))
        for word, match in found
    ]


def words_of_end(state: str, *, is_by_owner: bool) -> frozenset[str]:
    """The words that the end of a job in ``state`` makes true. What its owner has cancelled has not
    failed.
    """
    if state == display_name(JobState.SUCCEEDED):
        return frozenset({"succeeded", "ended"})
    if state == display_name(JobState.KILLED) and is_by_owner:
        return frozenset({"ended"})
    return frozenset({"failed", "ended"})


def read_rule(given: str) -> NotifyRule:
    """``ops:failed,succeeded``. Raises ValueError, with a text for a person."""
    to, colon, words = given.partition(":")
    if not (to and colon and words):
        raise ValueError(f"{given[:80]!r} is not NAME:WORDS, for example ops:failed,{_HINT[9:18]}")
    return NotifyRule(to, tuple(word.strip() for word in words.split(",")))
