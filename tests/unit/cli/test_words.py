from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.cli.commands.look.ls import show_note
from iris.cli.commands.look.show import job_facts
from iris.cli.commands.look.tree import draw
from iris.cli.commands.look.why import explain_lines
from iris.cli.commands.operate.audit import describe
from iris.cli.exit_codes import ExitCode
from iris.cli.output.tables import Column, print_table
from iris.cli.output.times import show_span, span_between
from iris_core.placement.reasons import EXPLANATIONS, ReasonCode
from iris_core.units import show_bytes
from tests.support.answers import job_view


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0s"),
        (-1, "0.0s"),
        (9.94, "9.9s"),
        (12, "12s"),
        (60, "1m"),
        (185, "3m05s"),
        (7800, "2h10m"),
        (86_400 * 4 + 3 * 3600, "4d03h"),
    ],
)
def test_a_span_is_told_in_two_digits_that_matter(seconds, words):
    assert show_span(seconds) == words


def test_durations_are_zero_before_a_start_and_last_until_now():
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)

    assert span_between(None, None, now) == ""
    assert span_between("2026-01-01T00:00:00Z", None, now) == "1m"
    assert span_between("2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z", now) == "30s"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1536, "1.5KiB"),
        (4 << 30, "4GiB"),
        (3 << 50, "3PiB"),
        (99_999_999 << 40, "97656PiB"),
    ],
)
def test_bytes_are_told_in_binary_units(count, words):
    assert show_bytes(count) == words


def test_a_tree_is_drawn_with_its_branches():
    def node(name, *children):
        return {"job": job_view(name, "succeeded"), "children": list(children)}

    tree = node("/a", node("/a/b", node("/a/b/c")), node("/a/d"))

    assert [click.unstyle(line) for line in draw(tree)] == [
        "/a  succeeded  1 task (1 succeeded)",
        "├─ b  succeeded  1 task (1 succeeded)",
        "│  └─ c  succeeded  1 task (1 succeeded)",
        "└─ d  succeeded  1 task (1 succeeded)",
    ]


def test_why_tells_the_reason_and_its_numbers():
    reason = {
        "code": "no_match",
        "message": "none matches",
        "facts": {"removed_by": {"zone eq eu-1": 7}},
    }

    why = {"job": "/a", "job_state": "pending", "pending_tasks": 2, "pending_reason": reason}

    assert [click.unstyle(line) for line in explain_lines(why, of_task=False)] == [
        "/a is pending",
        "  none matches  (no_match)",
        "    removed_by: zone eq eu-1 7",
        f"    what to do: {EXPLANATIONS[ReasonCode.NO_MATCH].remedy}",
    ]


def test_why_says_whose_tasks_come_first():
    note = "behind 19,750 tasks: 19,750 of bob, submitted before"
    side = "near side: within what is guaranteed to /nlp, so it goes before what borrows"
    why = {"job": "/a", "job_state": "pending", "pending_tasks": 2, "ahead_note": note}
    why["side_note"] = side
    assert [click.unstyle(line) for line in explain_lines(why, of_task=False)] == [
        "/a is pending",
        f"  {note}",
        f"  {side}",
    ]


def test_the_audit_says_how_often_a_command_was_given():
    row = {"detail": "for rest", "times": 1200, "first_at": "2026-11-01T10:00:00Z"}
    assert describe(row).startswith("for rest; 1,200 times since ")
    assert describe({"detail": "for rest"}) == "for rest"


def test_why_prints_a_reason_of_a_newer_gateway_without_advice():
    why = {
        "job": "/a",
        "job_state": "pending",
        "pending_tasks": 2,
        "pending_reason": {"code": "new", "message": "x"},
    }

    assert [click.unstyle(line) for line in explain_lines(why, of_task=False)] == [
        "/a is pending",
        "  x  (new)",
    ]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"a": st.text("xy", max_size=9), "b": st.text("xy", min_size=1, max_size=9)}
        )
    )
)
def test_every_column_of_a_table_begins_at_one_place(rows):
    lines: list[str] = []
    columns = (Column("A", lambda row: row["a"]), Column("B", lambda row: row["b"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(click, "echo", lines.append)
        print_table(rows, columns)

    place = lines[0].index("B")
    assert [line[place:] for line in lines[1:]] == [row["b"] for row in rows]


WAITS = {"code": "not_enough_cpu", "message": "not enough cpu"}
INTERRUPTED = {
    "task": "/a/3",
    "cause": "preempted",
    "message": "preempted for /boss",
    "worker": "w1",
}


def requeued():
    at = datetime.now(UTC) - timedelta(seconds=40)
    job = job_view("/a", "running", replicas=4, task_counts={"pending": 4}, pending_reason=WAITS)
    return {**job, "interrupted": {**INTERRUPTED, "at": at.isoformat()}}


def test_a_running_job_of_which_nothing_runs_says_so_wherever_it_is_shown():
    job = requeued()
    assert show_note(job) == "0 of 4 now, preempted for /boss 40s ago; not enough cpu"
    assert (
        click.unstyle(dict(job_facts(job))["state"])
        == "running: 0 of 4 now, preempted for /boss 40s ago"
    )
    (line,) = draw({"job": job, "children": []})
    assert line.endswith("0 of 4 now, preempted for /boss 40s ago")


def test_why_of_a_preempted_job_tells_of_the_preemption():
    job = requeued()
    row = {
        "handler": "PrepareSessions",
        "result": "EXPIRED",
        "attempts": 2,
        "reason": "PREPARING for more than 900 s",
    }
    found = {
        **job,
        "job": "/a",
        "task": "/a/0",
        "job_state": "running",
        "pending_tasks": 4,
        "history": [{**row, "last_at": job["interrupted"]["at"]}, {**row, "result": "SUCCESS"}],
    }
    assert [click.unstyle(line) for line in explain_lines(found, of_task=False)] == [
        "/a is running: 0 of 4 now, preempted for /boss 40s ago",
        "  not enough cpu  (not_enough_cpu)",
        f"    what to do: {EXPLANATIONS[ReasonCode.NOT_ENOUGH_CPU].remedy}",
        "  /a/3: preempted for /boss 40s ago",
        "  PrepareSessions expired x 2 40s ago: PREPARING for more than 900 s",
    ]


def test_a_command_is_shown_as_a_shell_would_read_it():
    job = job_view("/a")
    job["spec"]["command"] = ["sh", "-c", "echo 'a b'"]
    assert dict(job_facts(job))["command"] == """sh -c 'echo '"'"'a b'"'"''"""


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("-e", "NOT_HERE", "-e", "=1", "-e", "NOR_HERE"), ("NOT_HERE", "'=1'", "NOR_HERE")),
        (("-l", "a", "-l", "b=1", "-l", "c"), ("'a'", "'c'")),
        (("-e", "NOT_HERE", "-l", "a"), ("NOT_HERE", "'a'")),
        (("--gpu", "H100x0,A100,-x2"), ("'H100x0'", "'-x2'")),
        (("--array", "5-2,x,7"), ("'5-2'", "'x'")),
        (("-c", "a b", "-c", "ok=1", "-c", ">=3"), ("'a b'", "'>=3'")),
        (("--on-exit", "2=stop", "--on-exit", "75"), ("'2=stop'", "'75'")),
    ],
)
def test_a_refusal_names_all_mistakes_of_an_option(iris, words, named):
    code, _, err = iris("run", "-d", "--url", "http://127.0.0.1:9", *words, "--", "true")
    assert code == ExitCode.USAGE
    assert all(word in err for word in named), err
