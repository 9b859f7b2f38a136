"""`iris share`: the table, its forms, and what it says while there is no fair share."""

from __future__ import annotations

import json
from typing import Any

from iris.cli.exit_codes import ExitCode
from tests.support.answers import Said, answering, in_turn

NLP: dict[str, Any] = {
    "project": "/nlp",
    "user": None,
    "weight": 3.0,
    "weight_part": 0.75,
    "usage": 5400.0,
    "usage_part": 0.5,
    "share": 0.666667,
    "step": -1,
    "running": 0.25,
    "pending_tasks": 1200,
}
ADA = {**NLP, "user": "ada", "weight": 1.0, "weight_part": 1.0, "usage_part": 1.0, "share": 1.0}
PAGE = {"enabled": True, "items": [NLP, ADA], "next_cursor": None}


def test_a_row_says_what_was_had_and_what_is_just(iris):
    with answering(in_turn(Said(200, PAGE))) as server:
        code, out, err = iris("share", "nlp", "--url", server.url)
    assert (code, err) == (ExitCode.SUCCEEDED, "")
    assert out.splitlines() == [
        "PROJECT  USER  WEIGHT  OF WEIGHTS  USED HOURS  OF USE  SHARE  STEP  RUNNING  PENDING",
        "/nlp                3       75.0%         1.5   50.0%  0.667    -1    25.0%    1,200",
        "/nlp     ada        1      100.0%         1.5  100.0%      1    -1    25.0%    1,200",
    ]
    assert server.requests[0].path.startswith("/v1/share?")
    assert "project=nlp" in server.requests[0].path


def test_json_is_the_page(iris):
    with answering(in_turn(Said(200, PAGE))) as server:
        code, out, _ = iris("share", "-o", "json", "--url", server.url)
    assert code == ExitCode.SUCCEEDED
    assert json.loads(out) == PAGE


def test_pages_are_read_until_there_are_as_many_as_asked_for(iris):
    first = {**PAGE, "items": [NLP], "next_cursor": "7"}
    with answering(in_turn(Said(200, first), Said(200, {**PAGE, "items": [ADA]}))) as server:
        code, out, _ = iris("share", "-o", "json", "-n", "5", "--url", server.url)
    assert (code, json.loads(out)) == (ExitCode.SUCCEEDED, PAGE)
    assert ["cursor=7" in one.path for one in server.requests] == [False, True]


def test_while_there_is_none_it_says_when_it_begins(iris):
    off = {"enabled": False, "items": [], "next_cursor": None}
    for form in ("table", "json"):
        with answering(in_turn(Said(200, off))) as server:
            code, out, err = iris("share", "-o", form, "--url", server.url)
        assert code == ExitCode.SUCCEEDED
        assert "there is no fair share: it begins with the second project" in err
        assert form == "table" or json.loads(out) == off
