"""The output of `show`, `tree`, `why`, `events` and the other read commands."""

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import pytest

from iris.cli import main
from iris.cli.commands.look.events import details, whose
from iris.cli.commands.look.show import (
    ATTEMPTS,
    TASKS,
    outcome,
    show_original,
    task_columns,
    why_pending,
)
from iris.cli.commands.look.top import USED
from iris.cli.commands.look.why import explain_lines
from iris.cli.commands.operate.quota import describe
from iris.cli.output.tables import print_table
from iris.cli.output.times import show_millis
from iris_core.spec.jobs import JobSpec
from tests.support.answers import Said, answering, job_view

SKIPPED = {
    "entity": "j7-0",
    "handler": "ScheduleNewSessions",
    "from": "pending",
    "to": "pending",
    "result": "SKIPPED",
    "reason": "waiting for chips",
    "attempts": 42,
    "first_at": "2026-01-02T12:03:00Z",
    "last_at": "2026-01-02T12:09:00Z",
}
RUNNING = {
    "pending_tasks": 3,
    "replicas": 4,
    "task_counts": {"running": 1, "pending": 3},
    "started_at": (datetime.now(UTC) - timedelta(days=2)).isoformat(),
}
WENT_WELL = {**SKIPPED, "to": "scheduled", "result": "SUCCESS", "reason": "", "attempts": 1}
ATTEMPTED = {
    "task": "/train/0",
    "job": "/train",
    "index": 0,
    "state": "pending",
    "pending_reason": None,
    "failure_count": 0,
    "preemption_count": 0,
    "worker": None,
    "attempts": [],
}
DEPLOYED = {
    "id": "4",
    "type": "deployment.state.ready",
    "deployment": "chat",
    "state": "ready",
    "previous": "scaling",
    "revision": 1,
    "at_ms": 1767351845000,
    "seq": 9,
}
EVENT = {
    "id": "3",
    "type": "task.state.succeeded",
    "task": "/train/0",
    "attempt": 0,
    "job": "/train",
    "state": "succeeded",
    "previous": "running",
    "cause": "exited",
    "exit_code": 0,
    "worker": "w0",
    "at_ms": 1767351845000,
    "seq": 9,
}
WORKER = {
    "id": "w0",
    "state": "healthy",
    "attributes": {"zone": "a"},
    "total": {"cpu_millis": 1000, "memory_bytes": 0, "disk_bytes": 0, "chips": 0},
    "committed": {"cpu_millis": 0, "memory_bytes": 0, "disk_bytes": 0, "chips": 0},
    "tasks": [],
    "task_ids": [],
    "building": 0,
    "last_heartbeat_at": "2026-01-02T12:03:00Z",
    "detail": "",
}
SESSION = {
    "id": "j7-0",
    "job": "/train",
    "status": "pending",
    "since": None,
    "tries": {},
    "kernels": [],
}
QUOTA = {
    "user": "ann",
    "max_running_cpu": 0,
    "max_running_memory": 0,
    "max_running_accelerators": 0,
    "max_pending_tasks": 0,
    "max_band": "production",
    "running_cpu": 0,
    "running_memory": 0,
    "running_accelerators": 0,
    "pending_tasks": 0,
}


@pytest.fixture
def iris(tmp_path, monkeypatch, capfd):
    """Run one command line against a gateway that holds one of each; its exit code, stdout and
    stderr.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")

    def page(*items):
        return Said(200, {"items": list(items), "next_cursor": None})

    def answer(request):
        path, _, asked = request.path.partition("?")
        others = (
            []
            if "task=0" in asked.split("&")
            else [{**SKIPPED, "entity": "j7-1", "reason": "another task's"}]
        )
        views = {
            "history": page(WENT_WELL, SKIPPED, *others),
            "tasks": page(ATTEMPTED),
            "events": page(DEPLOYED) if "deployment=chat" in asked.split("&") else page(EVENT),
            "tree": Said(200, {"job": job_view(), "children": []}),
            "why": Said(
                200,
                {
                    "job": "/train",
                    "task": "/train/0",
                    "state": "failed",
                    "job_state": "running",
                    **RUNNING,
                },
            ),
            "w0": Said(200, WORKER),
            "j7-0": Said(200, SESSION),
            "ann": Said(200, QUOTA),
            "meta": Said(200, {"limits": LIMITS}),
        }
        if path.startswith("/v1/tasks/") and path.endswith("0"):
            return Said(200, {**ATTEMPTED, "job_id": "j7"})
        return views.get(path.rpartition("/")[2], Said(200, job_view()))

    with answering(answer) as server:

        def run(*words):
            code = main([*words, "--url", server.url])
            out, err = capfd.readouterr()
            assert code == 0, err
            return out

        yield run


def test_show_tells_what_has_kept_a_job(iris):
    assert "skipped x 42" in iris("show", "/train")
    assert "waiting for chips" in iris("show", "/train")


def test_a_pending_task_has_no_end_but_its_last_attempt_had_one():
    reason = {"code": "retry_backoff", "message": "tried again at 12:00"}
    cells = {column.title: column.cell for column in TASKS}
    for state, why, end, text in (
        ("pending", reason, "", "tried again at 12:00; its last attempt: exit 3"),
        ("failed", None, "exit 3", ""),
    ):
        task = {**ATTEMPTED, "state": state, "pending_reason": why, "exit_code": 3}
        assert (cells["END"](task), cells["WHY"](task)) == (end, text)


def test_show_leaves_out_what_went_well(iris):
    assert "success" not in iris("show", "/train")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"rerun_of": "j3", "spec": {}}, "j3"),
        (
            {"rerun_of": "j3", "spec": {"replicas": 6, "indexes": "1,3,5"}, "replicas": 3},
            "j3, tasks 1, 3, 5 of 6",
        ),
        (
            {"rerun_of": "j3", "spec": {"replicas": 6, "indexes": "5"}, "replicas": 1},
            "j3, task 5 of 6",
        ),
    ],
)
def test_show_names_the_job_that_a_rerun_repeats(changes, text):
    assert show_original({**job_view(), **changes}) == text


def test_show_tells_of_a_task_what_has_kept_that_task(iris):
    shown = iris("show", "/train/0")
    assert "waiting for chips" in shown
    assert "another task's" not in shown
    assert "another task's" in iris("show", "/train")


def test_an_event_is_printed_with_its_time_and_exit_code(iris):
    assert iris("events").split() == [
        "2026-01-02",
        "11:04:05",
        "task.state.succeeded",
        "/train/0",
        "succeeded",
        "attempt=0",
        "worker=w0",
        "cause=exited",
        "exit_code=0",
    ]


def test_why_tells_how_much_of_a_running_job_runs_and_since_when(iris):
    assert iris("why", "/train/0") == "/train/0 has ended: failed\n"
    assert iris("why", "/train") == "/train is running: 1 of 4 tasks, 3 pending, started 2d ago\n"


def test_top_of_a_job_shows_what_its_running_tasks_use(capsys):
    started = datetime.now(UTC) - timedelta(seconds=100)
    used = {
        "cpu_ms": 150_000,
        "rss_bytes": 1 << 30,
        "peak_rss_bytes": 2 << 30,
        "read_bytes": 0,
        "written_bytes": 4096,
    }
    attempt = {"index": 3, "worker": "w0", "started_at": started.isoformat(), **used}
    print_table([attempt, {"index": 4, "worker": "w1", "started_at": None}], USED)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["TASK", "WORKER", "CORES", "CPU", "MEMORY", "PEAK", "READ", "WRITTEN"],
        ["3", "w0", "1.50", "2m30s", "1GiB", "2GiB", "0B", "4KiB"],
        ["4", "w1"],
    ]


def test_an_attempt_that_was_requeued_is_shown_as_that(capsys):
    attempt = {"state": "failed", "requeued": True}
    print_table(
        [attempt, {"state": "failed"}], [column for column in ATTEMPTS if column.title == "STATE"]
    )
    assert capsys.readouterr().out.split() == ["STATE", "requeued", "failed"]


def test_why_tells_of_each_pool_what_keeps_it_from_making_a_slice():
    pools = [
        {"pool": "cpu", "code": "at_max", "message": "at its maximum (4)", "until": None},
        {"pool": "v5e", "code": "device_only", "message": "it is for devices", "until": None},
    ]
    reason = {"code": "no_workers", "message": "no worker", "facts": {"hosts": 0, "pools": pools}}
    found = {"task": "/a/0", "state": "pending", "pending_reason": reason}
    assert explain_lines(found, of_task=True)[2:5] == [
        "    hosts: 0",
        "    pool cpu: at its maximum (4)",
        "    pool v5e: it is for devices",
    ]


@pytest.mark.parametrize(
    ("until_ms", "shown"),
    [(1_795_885_107_896, [f"    until: {show_millis(1_795_885_107_896)}"]), (None, [])],
)
def test_why_shows_lists_and_moments_as_a_person_reads_them(until_ms, shown):
    """A reason without a moment has none to show; a word in Python's notation is no answer."""
    reason = {
        "code": "host_reserved",
        "message": "w0 is reserved for it",
        "facts": {"worker": "w0", "tasks": ["/a/0", "/a/1"], "until_ms": until_ms},
    }
    found = {"task": "/b/0", "state": "pending", "pending_reason": reason}
    lines = explain_lines(found, of_task=True)
    assert lines[2:-1] == ["    worker: w0", "    tasks: /a/0, /a/1", *shown]


def test_why_suggests_a_memory_request_after_an_oom_kill():
    short = {
        "task": "/a/0",
        "limit_bytes": 512 << 20,
        "peak_bytes": 511 << 20,
        "suggested_bytes": 1 << 30,
    }
    assert explain_lines({"task": "/a/0", "state": "failed", "out_of_memory": short}, of_task=True)[
        1:
    ] == [
        "  /a/0: memory limit 512MiB reached, peak 511MiB",
        "    what to do: request more memory, for example --memory 1GiB",
    ]


def test_show_reads_the_whole_history_of_a_job_to_tell_the_newest(capfd):
    """Rows of a job of many tasks are listed by tasks."""
    newest = [
        {**SKIPPED, "reason": f"the {word} newest", "first_at": "2026-01-03"}
        for word in ("last but one", "very")
    ]
    pages = {
        "": {"items": [newest[0], *[SKIPPED] * 499], "next_cursor": "more"},
        "more": {"items": [newest[1]], "next_cursor": None},
    }

    def answer(request):
        path, _, query = request.path.partition("?")
        if path.endswith("/history"):
            return Said(200, pages["more" if "cursor=more" in query else ""])
        return Said(
            200, {"items": [], "next_cursor": None} if path.endswith("/tasks") else job_view()
        )

    with answering(answer) as server:
        assert main(["show", "/train", "--url", server.url]) == 0
    printed = capfd.readouterr().out
    assert "history, the newest 20 of 501:" in printed
    assert [
        "last but one newest" in printed.splitlines()[-2],
        "very newest" in printed.splitlines()[-1],
    ] == [
        True,
        True,
    ]


LISTINGS = [
    "ls",
    "events",
    "queue",
    "queue --gated",
    "deploy list",
    "deploy routes chat",
    "audit",
    "session list",
]


@pytest.mark.parametrize("words", LISTINGS)
def test_a_listing_says_when_it_is_not_all(words, capfd):
    left = 0

    def answer(request):
        most = int(request.path.partition("limit=")[2].partition("&")[0])
        return Said(
            200,
            {
                "items": [{"id": "7"}] * min(left, most),
                "next_cursor": "more" if left > most else None,
            },
        )

    with answering(answer) as server:

        def listed(count, *more):
            nonlocal left
            left = count
            assert main([*words.split(), *more, "-o", "jsonl", "--url", server.url]) == 0
            printed = capfd.readouterr()
            return len(printed.out.splitlines()), printed.err

        rows, said = listed(400)
        assert said == f"there are more than these {rows}; list more with --limit N\n"
        assert listed(rows) == (rows, "")
        assert listed(400, "-n", "3") == (3, "")


@pytest.mark.parametrize("words", LISTINGS)
def test_a_listing_in_json_says_where_it_goes_on(words, capfd):
    """A page of the server may be followed by empty ones only; then the listing is whole."""
    pages = {"": ("1", "a"), "a": ("2", "b"), "b": ("", "c"), "c": ("3", "d"), "d": ("", None)}

    def answer(request):
        found, onward = pages[parse_qs(request.path.partition("?")[2]).get("cursor", [""])[0]]
        return Said(200, {"items": [{"id": one} for one in found], "next_cursor": onward})

    with answering(answer) as server:

        def listed(*more):
            assert main([*words.split(), "-o", "json", *more, "--url", server.url]) == 0
            found = json.loads(capfd.readouterr().out)
            return [row["id"] for row in found["items"]], found["next_cursor"]

        assert listed("-n", "2") == (["1", "2"], "b")
        assert listed("-n", "2", "--cursor", "b") == (["3"], None)
        assert listed("-n", "3") == (["1", "2", "3"], None)


LIMITS = {
    "requests_per_s": 2000,
    "intake_per_s": 64 << 20,
    "watchers_per_user": 7,
    "uploads_per_user": 4,
}
LOOKS = [
    (("show", "/train"), "/train"),
    (("show", "/train/0"), "/train/0"),
    (("tree", "/train"), "/train"),
    (("events",), "/train/0"),
    (("events", "--deployment", "chat"), "chat"),
    (("worker", "show", "w0"), "w0"),
    (("session", "show", "j7-0"), "j7-0"),
    (("quota", "show", "ann"), "ann"),
]


def test_a_limit_that_the_gateway_does_not_know_yet_is_unlimited():
    older = {"user": "ann", "max_band": "batch", "max_pending_tasks": 3, "pending_tasks": 1}
    shown = dict(describe(older))
    assert (shown["running accelerators"], shown["pending tasks"]) == ("0 of unlimited", "1 of 3")


def test_a_default_band_is_shown_with_whom_it_does_not_bound():
    own = {"user": "ann", "max_band": "interactive"}
    assert dict(describe(own))["best band"] == "interactive"
    default = dict(describe(own | {"is_default": True}))
    assert default["best band"] == "interactive (of users; admins are not bounded by the default)"


def test_a_quota_is_shown_with_what_holds_for_everybody(iris):
    shown = " ".join(iris("quota", "show", "ann").split())
    assert "requests a second 2000" in shown
    assert "bytes sent a second 64MiB" in shown
    assert "open streams at most 7" in shown


def test_a_limit_is_shown_with_where_it_comes_from():
    sources = {"max_running_cpu": "@ml", "max_pending_tasks": "default", "max_band": "@ml"}
    found = {"user": "ann", "max_band": "batch", "max_running_cpu": 8000, "is_default": True}
    shown = dict(describe({**found, "sources": sources, "groups": ["ml", "ops"]}))
    assert shown["groups"] == "ml, ops"
    assert shown["running cpu"] == "0 of 8, @ml"
    assert shown["pending tasks"] == "0 of unlimited, default"
    assert shown["running memory"] == "0B of unlimited, set for the user"
    band = "batch, @ml (of users; admins are not bounded by limits of groups)"
    assert shown["best band"] == band


def test_limits_of_a_group_are_shown_as_those_of_each_member():
    shown = dict(describe({"user": "@ml", "max_band": "batch", "max_running_cpu": 8000}))
    assert (shown["group"], shown["running cpu"], shown["running memory"]) == (
        "@ml",
        "8 each",
        "unlimited",
    )


@pytest.mark.parametrize(("words", "name"), LOOKS)
def test_every_look_can_be_had_as_a_name(iris, words, name):
    assert iris(*words, "-o", "name") == f"{name}\n"


@pytest.mark.parametrize(("words", "name"), LOOKS)
def test_every_look_can_be_had_as_one_line_of_json(iris, words, name):
    assert name in json.dumps(json.loads(iris(*words, "-o", "jsonl")))


@pytest.mark.parametrize(("words", "name"), LOOKS)
def test_every_look_can_be_had_wide(iris, words, name):
    assert name in iris(*words, "-o", "wide")


def test_tasks_of_an_array_are_shown_with_their_values(capsys):
    spec = JobSpec(name="/a", command=("true",), array="0-15:4,20", indexes="1,4", replicas=5)
    print_table([{**ATTEMPTED, "index": 1}, {**ATTEMPTED, "index": 4}], task_columns(spec)[:2])
    assert capsys.readouterr().out.split() == ["TASK", "VALUE", "1", "4", "4", "20"]


def test_events_of_amendments_and_holds_say_what_and_why():
    amended = {"job": "/a", "changes": ["band batch, was interactive", "held"], "by": "mia"}
    assert (whose(amended), details(amended)) == (
        "/a",
        "changes=band batch, was interactive; held  by=mia",
    )
    held = {
        "hold": "h1",
        "user": "mia",
        "band": "",
        "label": "a=b",
        "reason": "data",
        "worker": None,
    }
    assert (whose(held), details(held)) == ("h1", "user=mia  label=a=b  reason=data")
    slice_ = {"type": "fleet.slice.ready", "slice": "cpu-0", "pool": "cpu", "cause": "registered"}
    assert (whose(slice_), details(slice_)) == ("cpu-0", "cause=registered")
    assert whose({"type": "fleet.pool.set", "pool": "cpu", "cause": None}) == "cpu"


def test_the_event_of_a_notice_says_until_when_the_attempt_runs():
    told = {"task": "/a/0", "attempt": 0, "reason": "drain", "deadline_ms": None}
    assert details(told) == "attempt=0  reason=drain"
    assert (
        details({**told, "deadline_ms": 1000})
        == f"attempt=0  reason=drain  until={show_millis(1000)}"
    )


@pytest.mark.parametrize(
    ("task", "end", "why"),
    [
        (
            {"state": "killed", "exit_code": None, "signal": 9, "error": "ran too long"},
            "signal 9",
            "ran too long",
        ),
        ({"state": "killed", "cause": "cancelled", "by": {"name": "mia"}}, "", "cancelled by mia"),
        (
            {"state": "killed", "cause": "cancelled", "by": {"name": "mia"}, "error": "too slow"},
            "",
            "cancelled by mia: too slow",
        ),
        ({"state": "killed", "cause": "timeout", "error": "ran too long"}, "", "ran too long"),
        ({"state": "killed", "cause": "job_ended", "note": "uncloned"}, "", "job ended"),
        ({"state": "succeeded", "exit_code": 0, "cause": "exited"}, "exit 0", ""),
        ({"state": "running", "cause": None, "note": "storing"}, "", "storing"),
    ],
)
def test_a_task_says_how_and_why_it_ended(task, end, why):
    assert (outcome(task), why_pending(task)) == (end, why)


def test_the_use_of_a_job_is_shown_until_it_has_ended():
    """Where it is piped nobody presses Ctrl-C."""
    states = iter(["running", "succeeded"])
    pages = {"items": [], "next_cursor": None}
    with answering(
        lambda asked: Said(200, pages if "/tasks" in asked.path else job_view(state=next(states)))
    ) as server:
        assert main(["top", "/train", "--interval", "0.2", "--url", server.url]) == 0
    assert list(states) == []
