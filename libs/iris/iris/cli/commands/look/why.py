"""`iris why`: why a job is pending, or how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from iris.cli.output.tables import Row, print_json, state_word
from iris.cli.output.times import age, show_millis, standing
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected, form_option
from iris.client.causes import cause_lines
from iris.client.client import Client
from iris.client.http.api import is_task
from iris.client.http.transport import in_path
from iris.client.jobs import TERMINAL
from iris_core.placement.reasons import EXPLANATIONS
from iris_core.units import counted, show_bytes

_GIVEN_UP = frozenset({"GIVE_UP", "EXPIRED"})
_GIVEN_UP_SHOWN = 3
_POOLS = "pools"
"""The fact of a reason that lists pools, each with what keeps it from making a slice."""
_UNTIL = "until_ms"
"""The fact of a reason that is a moment."""
ENDED = TERMINAL | {"preempted"}


@click.command(cls=CliCommand)
@click.argument("name", type=NAME, metavar="JOB|TASK")
@form_option(forms=("table", "json"))
@connected
def why(client: Client, name: str, form: str) -> None:
    """Say why JOB or TASK waits, in words and numbers, or how it came to its end."""
    kind = "tasks" if is_task(name) else "jobs"
    found: Row = client.get(f"/v1/{kind}/{in_path(name)}/why", dict)
    if form == "json":
        print_json(found)
        return
    for line in explain_lines(found, is_task(name)):
        click.echo(line)
    if kind == "jobs" and found["job_state"] in TERMINAL - {"succeeded"}:
        job = client.job(name)
        for line in cause_lines(job.name, job.causes()):
            click.echo(f"  {line}")


def headline(found: Row, of_task: bool) -> str:
    """``/train/0 has ended: failed``, ``/train is running: 1 of 4 tasks, 3 pending, started 2m05s
    ago``.
    """
    name, state = (found["task"], found["state"]) if of_task else (found["job"], found["job_state"])
    if state in ENDED:
        by = found.get("by")
        return f"{name} has ended: {state_word(state)}" + (f" by {by['name']}" if by else "")
    now = "" if of_task else standing(found)
    if now:
        return f"{name} is {state_word(state)}: {now}"
    return f"{name} is {state_word(state)}{progress(found, of_task)}"


def progress(found: Row, of_task: bool) -> str:
    """``: 1 of 4 tasks, 3 pending, started 2m05s ago`` for a job, ``, started 2m05s ago`` for a
    task; empty before the start.
    """
    if not found.get("started_at"):
        return ""
    pending = f", {found['pending_tasks']} pending" if found["pending_tasks"] else ""
    tasks = (
        ""
        if of_task
        else f": {found['task_counts'].get('running', 0)} of {counted(found['replicas'], 'task')}{pending}"
    )
    return f"{tasks}, started {age(found['started_at'])} ago"


def interruption_lines(found: Row, of_task: bool) -> Iterator[str]:
    """Why it left its worker, and the latest judgements that failed its session."""
    interrupted = found.get("interrupted")
    if interrupted and (of_task or interrupted["task"] != found["task"]):
        yield f"  {interrupted['task']}: {interrupted['message']} {age(interrupted['at'])} ago"
    for row in [row for row in found.get("history", ()) if row["result"] in _GIVEN_UP][
        -_GIVEN_UP_SHOWN:
    ]:
        times = f" x {row['attempts']}" if row["attempts"] > 1 else ""
        yield f"  {row['handler']} {row['result'].lower()}{times} {age(row['last_at'])} ago: {row['reason']}"


def explain_lines(found: Row, of_task: bool) -> list[str]:
    """The answer as sentences."""
    lines = [headline(found, of_task)]
    reason = found.get("pending_reason")
    if reason:
        lines.append(f"  {reason['message']}  ({reason['code']})")
        facts: Row = reason.get("facts") or {}
        shown = ((fact, value) for fact, value in facts.items() if fact != _POOLS)
        lines += [f"    {show_fact(fact, value)}" for fact, value in shown if value is not None]
        lines += [f"    pool {one['pool']}: {one['message']}" for one in facts.get(_POOLS, ())]
        lines += (
            [f"    what to do: {EXPLANATIONS[reason['code']].remedy}"]
            if reason["code"] in EXPLANATIONS
            else []
        )
    lines += [f"  {found['ahead_note']}"] if found.get("ahead_note") else []
    lines += [f"  {found['side_note']}"] if found.get("side_note") else []
    lines += [f"  {found['job_note']}"] if found.get("job_note") else []
    if found.get("note"):
        lines.append(f"  {found['task']}: {found['note']}")
    if found["state" if of_task else "job_state"] not in ENDED:
        lines += interruption_lines(found, of_task)
    return lines + ([f"  {found['error']}"] if found.get("error") else []) + memory_lines(found)


def memory_lines(found: Row) -> list[str]:
    """What to request for a task that was killed for its memory."""
    short = found.get("out_of_memory")
    if not short:
        return []
    limit, peak, more = (
        show_bytes(short[f"{name}_bytes"]) for name in ("limit", "peak", "suggested")
    )
    return [
        f"  {short['task']}: memory limit {limit} reached, peak {peak}",
        f"    what to do: request more memory, for example --memory {more}",
    ]


def show_fact(fact: str, value: Any) -> str:
    """A number or word, a moment, or a list or small table on one line, behind its name."""
    if fact == _UNTIL:
        return f"until: {show_millis(value)}"
    if isinstance(value, dict):
        value = [f"{key} {count}" for key, count in value.items()]
    return f"{fact}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
