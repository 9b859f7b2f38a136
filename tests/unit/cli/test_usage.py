"""`iris usage`: the table, one job, CSV, and what it refuses."""

import pytest

from iris.cli.exit_codes import ExitCode
from tests.support.answers import Said, answering, in_turn
from tests.support.pages import STORED, USAGE

JOB = {**USAGE, "job": "/train", "job_id": "j7", "project": "vision", "cost": 12.5}


def test_a_row_says_what_was_held_used_and_lost(iris):
    with answering(in_turn(Said(200, {"items": [USAGE], "next_cursor": None}))) as server:
        code, out, err = iris("usage", "--url", server.url)
    assert (code, err) == (ExitCode.SUCCEEDED, "")
    assert out.splitlines() == [
        "USER  ATTEMPTS  CPU HOURS  USED  GIB HOURS  PEAK  DEVICE HOURS  LOST",
        "ada          3          2   25%          0     -  H100 1        25% of devices preempted",
    ]
    assert "since=30d" in server.requests[0].path


def test_by_pool_shows_users_what_idled_and_what_ran_elsewhere(iris):
    rows = [
        {**USAGE, "pool": "v5e", "cost": 1234.5},
        {**USAGE, "pool": "v5e", "user": None, "cost": 0.004},
        {**USAGE, "pool": None, "cost": None},
    ]
    with answering(in_turn(Said(200, {"items": rows, "next_cursor": None}))) as server:
        code, out, _ = iris("usage", "--by", "pool", "--url", server.url)
    assert code == ExitCode.SUCCEEDED
    shown = [line.split("H100 1")[0].split()[:2] for line in out.splitlines()]
    assert shown == [["POOL", "USER"], ["v5e", "ada"], ["v5e", "(idle)"], ["(no", "pool)"]]
    assert [("1,234.50" in line, "0.004" in line) for line in out.splitlines()[1:]] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert ["25%  " in line for line in out.splitlines()[1:]] == [True, False, True]
    assert "by=pool" in server.requests[0].path


def test_one_job_is_shown_whole(iris):
    with answering(in_turn(Said(200, JOB))) as server:
        code, out, _ = iris("usage", "train", "--url", server.url)
    assert code == ExitCode.SUCCEEDED
    assert [line.split(maxsplit=1) for line in out.splitlines()] == [
        ["job", "/train (j7) of ada"],
        ["project", "vision"],
        ["attempts", "3 attempts"],
        ["processors", "2 hours held; 25% of it used"],
        ["memory", "none was asked for"],
        ["devices", "H100 1 hours held"],
        ["lost", "25% of devices preempted"],
        ["cost", "12.50"],
    ]


@pytest.mark.parametrize("words", ["--by day", "--since 7d", "--user ann", "-o csv", "-n 3"])
def test_one_job_takes_no_filters(iris, words):
    with answering(in_turn(Said(200, JOB))) as server:
        code, _, err = iris("usage", "train", *words.split(), "--url", server.url)
    assert (code, "takes no other options" in err) == (ExitCode.USAGE, True)


def test_csv_is_the_gateways(iris):
    with answering(in_turn(Said(200, b"user,cost\nada,\n"))) as server:
        code, out, _ = iris("usage", "-o", "csv", "--url", server.url)
    assert (code, out) == (ExitCode.SUCCEEDED, "user,cost\nada,\n")
    assert server.requests[0].headers["Accept"] == "text/csv"


def test_a_project_says_whose_jobs_had_its_label(iris):
    users = ["ada", "bob", "cy", "di", "eve", "flo", "gus"]
    row = {**USAGE, "user": None, "project": "vision", "users": users}
    with answering(in_turn(Said(200, {"items": [row], "next_cursor": None}))) as server:
        _, out, _ = iris("usage", "--by", "label", "--url", server.url)
    assert "ada, bob, cy, di, eve and 2 more" in out


def test_what_is_stored_is_shown_by_user(iris):
    with answering(in_turn(Said(200, {"items": [STORED], "next_cursor": None}))) as server:
        code, out, err = iris("usage", "--stored", "--user", "ada", "--url", server.url)
    assert (code, err) == (ExitCode.SUCCEEDED, "")
    assert [line.split() for line in out.splitlines()] == [
        ["USER", "JOBS", "RECORDS", "ARTIFACTS", "OUTPUT", "RESULTS", "BUNDLES"],
        ["ada", "1", "700B", "0B", "3MiB", "2KiB", "5KiB"],
    ]
    assert server.requests[0].path.startswith("/v1/usage/stored?user=ada")


@pytest.mark.parametrize("words", ["--by day", "--since 7d", "-o csv"])
def test_what_is_stored_now_takes_no_days(iris, words):
    with answering(in_turn(Said(200, {"items": [], "next_cursor": None}))) as server:
        code, _, err = iris("usage", "--stored", *words.split(), "--url", server.url)
    assert (code, "what is kept now" in err) == (ExitCode.USAGE, True)
