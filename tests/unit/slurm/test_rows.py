"""What `squeue` and `sacct` print of a job. docs/howto/slurm-commands.md#numbers-and-names."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris_core.spec.jobs import JobSpec
from iris_slurm.commands.scontrol import EQUALS, facts_of
from iris_slurm.commands.sinfo import line_of
from iris_slurm.records import CODES, STATES, SlurmRow, code_of, read_states
from iris_slurm.tables import BAR, columns_of, format_rows, parsable, table
from iris_slurm.values import NotHonoured

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def row(state: str = "succeeded", index: int | None = None, **attempt: Any) -> SlurmRow:
    array = "" if index is None else "3-5"
    spec = JobSpec(name="/a-1", command=("true",), labels={"job-name": "train"}, array=array)
    facts = {
        "id": "j12",
        "name": "/a-1",
        "state": state,
        "user": "ada",
        "band": "batch",
        "replicas": 3,
        "spec": spec,
    }
    job = SimpleNamespace(
        **facts, submitted_at=AT, finished_at=AT, coscheduled=False, pending_reason=None
    )
    nothing = dict.fromkeys(
        ("exit_code", "signal", "cause", "peak_rss_bytes", "memory_limit_reached_bytes")
    )
    last = SimpleNamespace(
        **{**nothing, "worker": "n1", "started_at": AT, "finished_at": AT, **attempt}
    )
    reason = SimpleNamespace(code="array_limit") if state == "pending" else None
    attempts = [] if state == "pending" else [last]
    task = SimpleNamespace(index=index or 0, state=state, attempts=attempts, pending_reason=reason)
    return SlurmRow(cast(Any, job), cast(Any, task), index)


def test_squeue_prints_a_format_in_columns():
    lines = format_rows("%.6i|%5t|%R", [row("running"), row("pending", 2)], header=True)
    assert lines[1:] == ["    12|R    |n1", "  12_5|PD   |(JobArrayTaskLimit)"]
    assert lines[0] == " JOBID|ST   |NODELIST(REASON)"
    with pytest.raises(NotHonoured, match="%Z is not known"):
        format_rows("%i %Z", [], header=True)


def test_sacct_prints_columns_or_fields():
    columns = columns_of("JobID,State%-10,ExitCode")
    ended = [row(), row("failed", 0, exit_code=3)]
    assert table(columns, ended, header=False) == [
        "          12 COMPLETED           0:0",
        "        12_3 FAILED              3:0",
    ]
    assert parsable(columns, ended, header=True, end="|") == [
        "JobID|State|ExitCode|",
        "12|COMPLETED|0:0|",
        "12_3|FAILED|3:0|",
    ]
    with pytest.raises(NotHonoured, match="Priority is not known"):
        columns_of("JobID,Priority")


def test_a_state_says_why_a_task_has_ended():
    assert row("killed", cause="cancelled").state == "CANCELLED"
    assert row("killed", cause="timeout").state == "TIMEOUT"
    assert row("failed", memory_limit_reached_bytes=1).state == "OUT_OF_MEMORY"
    assert {*STATES.values(), "TIMEOUT", "OUT_OF_MEMORY"} == CODES.keys()
    assert read_states("PD,running") == {"PENDING", "RUNNING"}


def test_what_waits_for_a_job_ends_with_its_exit_code():
    ended = [row(index=0), row("failed", 1, exit_code=3), row("failed", 2, exit_code=2)]
    assert [code_of(rows) for rows in ([row()], ended)] == [0, 3]
    killed = row("failed", signal=15)
    assert (killed.exit_code, code_of([killed])) == ("0:15", 1)
    assert [code_of([one]) for one in (row("killed"), row("unschedulable"))] == [1, 1]


NAMED = "a\033[8m\n13 bob R|x=\u2028\r"
ESCAPED = "a\\x1b[8m\\x0a13 bob R|x=\\u2028\\x0d"


def named() -> SlurmRow:
    """A job that its owner has given a name which would be two rows."""
    found = row("running")
    labels = {"job-name": NAMED}
    job = SimpleNamespace(
        **{**vars(found.job), "spec": JobSpec(name="/a-1", command=("true",), labels=labels)}
    )
    return SlurmRow(cast(Any, job), found.task, None)


def test_a_name_makes_no_row_and_no_field():
    columns = columns_of("JobID,JobName%60")
    assert format_rows("%i %j", [named()], header=False) == [f"12 {ESCAPED}"]
    assert table(columns, [named()], header=False) == [f"          12 {ESCAPED:>60}"]
    assert parsable(columns, [named()], header=False, end="") == [f"12|{ESCAPED.replace('|', BAR)}"]
    assert f"JobName={ESCAPED.replace('=', EQUALS)}" in facts_of(named())


def test_a_host_makes_no_row():
    host = SimpleNamespace(
        id="n1", attributes={"partition": "gpu\nn9 idle"}, total={}, task_count=0, state="healthy"
    )
    assert line_of("%P %N", [cast(Any, host)]) == "gpu\\x0an9 idle n1"


@pytest.mark.parametrize(
    "command", ["squeue", "sacct", "scontrol", "sinfo", "scancel", "sacctmgr", "sshare"]
)
def test_every_command_prints_through_the_guard(command: str):
    """On a terminal, where the mistake names what was typed."""
    ours, theirs = pty.openpty()
    module = f"iris_slurm.commands.{command}"
    script = f"import sys; from {module} import main; sys.exit(main())"
    where = {"IRIS_URL": "http://127.0.0.1:1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, "-c", script, "--no\033[8m"],
        stdout=theirs,
        stderr=theirs,
        check=False,
        env={**os.environ, **where},
    )
    os.close(theirs)
    assert "\\x1b[8m" in os.read(ours, 1 << 16).decode()
    os.close(ours)
