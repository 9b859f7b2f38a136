"""`iris show`: one job with its tasks, or one task with its attempts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import click

from iris.cli.commands.look.why import ENDED
from iris.cli.output.tables import (
    Column,
    Row,
    print_facts,
    print_object,
    print_table,
    reason_words,
    state_word,
)
from iris.cli.output.times import show_moment, show_span, span_between, standing
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected, form_option
from iris.client.causes import cause_lines, causes_of
from iris.client.client import Client
from iris.client.decode import from_builtins
from iris.client.http.api import is_task
from iris.client.http.transport import in_path
from iris.client.jobs import TERMINAL
from iris_core.spec.jobs import JobSpec, Level
from iris_core.units import counted, show_bytes
from iris_core.views.jobs import JobView
from iris_core.views.spec_facts import facts_of

_TASKS_SHOWN = 40
_JUDGEMENTS_SHOWN = 20


def outcome(row: Row) -> str:
    """``exit 3``, ``signal 9``, or nothing."""
    if row.get("signal"):
        return f"signal {row['signal']}"
    return f"exit {row['exit_code']}" if row.get("exit_code") is not None else ""


def why_pending(task: Row) -> str:
    """The pending reason's sentence and how its last attempt ended, the error or cause of a task's
    end, or what is odd about it.
    """
    if reason := reason_words(task):
        return "; its last attempt: ".join(filter(None, (reason, outcome(task))))
    return cause_of(task) or task.get("error") or task.get("note") or ""


def cause_of(task: Row) -> str:
    """``cancelled by mia: too slow``: by whom and why a task was ended otherwise than by its own
    exit.
    """
    if task["state"] not in ENDED - {"succeeded", "failed"} or not task.get("cause"):
        return ""
    cause = task["cause"].replace("_", " ")
    by = name_of(task.get("by"))
    error = task.get("error")
    if not by:
        return str(error or cause)
    return f"{cause} by {by}: {error}" if error else f"{cause} by {by}"


def name_of(by: Row | None) -> str:
    """``mia``, or nothing when nobody's command caused it."""
    return by["name"] if by else ""


TASKS = (
    Column("TASK", lambda task: str(task["index"]), right=True),
    Column("STATE", lambda task: state_word(task["state"])),
    Column("WORKER", lambda task: task["worker"] or ""),
    Column("FAILED", lambda task: str(task["failure_count"]), right=True, gives=2),
    Column("PREEMPTED", lambda task: str(task["preemption_count"]), right=True, gives=1),
    Column("END", lambda task: outcome(task) if task["state"] in ENDED else ""),
    Column("WHY", why_pending, wraps=True),
)
ATTEMPTS = (
    Column("ATTEMPT", lambda attempt: str(attempt["number"]), right=True),
    Column(
        "STATE",
        lambda attempt: state_word("requeued" if attempt.get("requeued") else attempt["state"]),
    ),
    Column("CAUSE", lambda attempt: attempt["cause"] or ""),
    Column("BY", lambda attempt: name_of(attempt.get("by")) or attempt["initiator"] or ""),
    Column("CHARGED", lambda attempt: attempt["charged_to"] or "", gives=1),
    Column("WORKER", lambda attempt: attempt["worker"]),
    Column("END", outcome),
    Column(
        "RAN",
        lambda attempt: span_between(attempt["started_at"], attempt["finished_at"]),
        right=True,
    ),
    Column(
        "PEAK",
        lambda attempt: show_bytes(attempt["peak_rss_bytes"]) if attempt["peak_rss_bytes"] else "",
        gives=4,
    ),
    Column(
        "CPU",
        lambda attempt: show_span(attempt["cpu_ms"] / 1000) if attempt.get("cpu_ms") else "",
        right=True,
        gives=3,
    ),
    Column("ERROR", lambda attempt: attempt["error"] or "", wraps=True),
    Column("STAGE", lambda attempt: attempt["stage"].lower(), wide=True),
    Column("STARTED", lambda attempt: show_moment(attempt["started_at"]), wide=True),
)
HISTORY = (
    Column("HANDLER", lambda row: row["handler"]),
    Column(
        "RESULT",
        lambda row: f"{row['result'].lower()}{f' x {n}' if (n := row['attempts']) > 1 else ''}",
    ),
    Column("FROM", lambda row: row["from"]),
    Column("TO", lambda row: row["to"]),
    Column("FIRST", lambda row: show_moment(row["first_at"]), gives=1),
    Column("LAST", lambda row: show_moment(row["last_at"]), gives=2),
    Column("BY", lambda row: name_of(row.get("by"))),
    Column("REASON", lambda row: row["reason"], wraps=True),
)


@click.command(cls=CliCommand)
@click.argument("name", type=NAME, metavar="JOB|TASK")
@form_option()
@connected
def show(client: Client, name: str, form: str) -> None:
    """Show a job with its tasks, or a task with its attempts and a timeline."""
    kind = "tasks" if is_task(name) else "jobs"
    found: Row = client.get(f"/v1/{kind}/{in_path(name)}", dict)
    if print_object(found, form, name="task" if kind == "tasks" else "name"):
        return
    if kind == "tasks":
        show_task(found, wide=form == "wide")
        show_history(client, found["job_id"], found["index"], wide=form == "wide")
    else:
        tasks = client.pages(f"/v1/jobs/{found['id']}/tasks", dict)
        show_job(found, tasks, wide=form == "wide")
        show_causes(client, found)
        show_history(client, found["id"], None, wide=form == "wide")


def show_job(job: Row, tasks: Iterable[Row], *, wide: bool) -> None:
    """Facts, then tasks; without ``wide`` the first of them."""
    print_facts(job_facts(job))
    click.echo()
    some = list(tasks if wide else islice(tasks, _TASKS_SHOWN))
    print_table(some, task_columns(from_builtins(job["spec"], JobSpec)))
    if len(some) < job["replicas"] and not wide:
        click.echo(f"... and {job['replicas'] - len(some)} more; see them with -o wide", err=True)


def task_columns(spec: JobSpec) -> Sequence[Column]:
    """Those of a job's tasks; with the values of an array, or the levels that a gang is placed
    by.
    """
    value = Column("VALUE", lambda task: str(spec.array_index(task["index"])), right=True)
    if spec.coscheduling is not None and spec.coscheduling.several:
        return (*TASKS[:3], *map(_level_column, spec.coscheduling.levels), *TASKS[3:])
    return (TASKS[0], value, *TASKS[1:]) if spec.array else TASKS


def _level_column(level: Level) -> Column:
    """What a task's worker has of one level that a gang is placed by."""
    return Column(level.key.upper(), lambda task: task.get("levels", {}).get(level.key, ""))


def show_causes(client: Client, job: Row) -> None:
    """Why its tasks, and those of its child jobs, failed."""
    view = from_builtins(job, JobView)
    lines = (
        cause_lines(view.name, causes_of(client, view))
        if view.state in TERMINAL - {"succeeded"}
        else []
    )
    for line in ["", "why tasks failed:", *lines] if lines else []:
        click.echo(line)


def show_history(client: Client, job: str, task: int | None, *, wide: bool) -> None:
    """What was judged last of a job's sessions, or of one task's; without ``wide`` only what did
    not succeed.
    """
    rows = client.pages(
        f"/v1/jobs/{in_path(job)}/history", dict, {} if task is None else {"task": task}
    )
    found = sorted(
        (row for row in rows if wide or row["result"] != "SUCCESS"), key=lambda row: row["first_at"]
    )
    if found:
        more = len(found) > _JUDGEMENTS_SHOWN
        click.echo(
            f"\nhistory, the newest {_JUDGEMENTS_SHOWN} of {len(found):,}:"
            if more
            else "\nhistory:"
        )
        print_table(found[-_JUDGEMENTS_SHOWN:], HISTORY)


def job_facts(job: Row) -> Iterator[tuple[str, str]]:
    """The fields of a job, by name."""
    spec = job["spec"]
    yield "name", job["name"]
    yield "id", job["id"]
    now = standing(job)
    yield "state", state_word(job["state"]) + (f": {now}" if now else "")
    yield "error", job["error"] or ""
    yield "waits", reason_words(job)
    yield "user", job["user"]
    submitter = name_of(job.get("submitted_by"))
    yield "submitted by", submitter if submitter != job["user"] else ""
    yield "ended by", name_of(job.get("ended_by"))
    yield "band", job["band"]
    yield "parent", job["parent"] or ""
    yield "rerun of", show_original(job)
    yield "run again as", job.get("next_run") or ""
    yield "command", shlex.join(spec["command"])
    yield from facts_of(from_builtins(spec, JobSpec), job.get("grace_s"))
    yield "labels", ", ".join(f"{key}={value}" for key, value in spec.get("labels", {}).items())
    yield (
        "tasks",
        ", ".join(f"{count} {state}" for state, count in job["task_counts"].items() if count),
    )
    yield "children", str(job.get("children") or "")
    yield "note", job.get("note") or ""
    yield "limits", "; ".join(job.get("limits", ()))
    yield (
        "waits for",
        ", ".join(show_gate(gate) for gate in job.get("gates", ()) if not gate["opened_at"]),
    )
    yield "awaited by", ", ".join(other["name"] for other in job.get("waiters", ()))
    yield "submitted", show_moment(job["submitted_at"])
    yield "started", show_moment(job["started_at"])
    yield "finished", show_moment(job["finished_at"])
    yield "ran", span_between(job["started_at"], job["finished_at"])


def show_gate(gate: Row) -> str:
    """``/prep (j3) ok``, ``not before 2026-...``, ``singleton nightly``, ``release, held by
    mia``.
    """
    if gate["kind"] == "dependency":
        job = gate["job"]
        each = ", task by task" if gate["each"] else ""
        return (
            f"{job['name']} ({job['id']}) {gate['when']}{each}"
            if job
            else "a job that is forgotten"
        )
    if gate["kind"] == "held":
        return "release" + (f", held by {name_of(gate['by'])}" if gate["by"] else "")
    return f"singleton {gate['key']}" if gate["key"] else show_moment(gate["until_at"])


def show_original(job: Row) -> str:
    """The job that it repeats, and which of its tasks: ``j3, tasks 1, 3, 5 of 6``; empty for no
    rerun.
    """
    before = job.get("rerun_of")
    spec = job["spec"]
    if not before or not spec.get("indexes"):
        return before or ""
    indexes = spec["indexes"].replace(",", ", ")
    return f"{before}, task{'s' if job['replicas'] > 1 else ''} {indexes} of {spec['replicas']}"


def show_task(task: Row, *, wide: bool) -> None:
    """Fields, attempts, the timeline of the last attempt, and the end of its stderr."""
    print_facts(
        (
            ("task", task["task"]),
            ("state", state_word(task["state"])),
            ("why", why_pending(task)),
            ("rerun of", task.get("rerun_of") or ""),
            ("failures", str(task["failure_count"])),
            ("preemptions", str(task["preemption_count"])),
            *([("requeues", str(task["requeue_count"]))] if task.get("requeue_count") else []),
            *([("reclaimed", str(task["reclaim_count"]))] if task.get("reclaim_count") else []),
        )
    )
    click.echo()
    print_table(task["attempts"], ATTEMPTS, wide=wide)
    for attempt in task["attempts"][-1:]:
        click.echo()
        print_facts([*timeline(attempt), ("artifact", show_artifact(attempt.get("artifact")))])
        if attempt["stderr_tail"]:
            click.echo("\nlast lines of stderr:")
            click.echo(attempt["stderr_tail"].rstrip("\n"))


def show_artifact(artifact: Row | None) -> str:
    """``3 files in 12KiB; left out: a.sock (...)``, or why it is not kept; nothing for an attempt
    that has none.
    """
    if artifact is None:
        return ""
    kept = (
        f"{counted(artifact['files'], 'file')} in {show_bytes(artifact['bytes'])}"
        if artifact["upload"]
        else "not kept"
    )
    return "; ".join(filter(None, (kept, artifact["note"])))


def timeline(attempt: Row) -> Iterator[tuple[str, str]]:
    """When an attempt reached each of its stages, and after how long."""
    before: str | None = None
    for stage in ("assigned", "building", "started", "finished"):
        at = attempt.get(f"{stage}_at")
        if at:
            after = f"  +{span_between(before, at)}" if before else ""
            yield stage, show_moment(at) + after
            before = at
