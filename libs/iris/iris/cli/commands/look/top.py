"""`iris top`: hosts, usage and jobs, or what the tasks of one job use, refreshed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import click

from iris.cli.commands.look import ls
from iris.cli.commands.look.why import ENDED
from iris.cli.commands.operate import worker
from iris.cli.output.tables import Column, Row, print_table, state_word
from iris.cli.output.times import read_moment, show_span
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client
from iris.client.decode import from_builtins
from iris.client.http.transport import in_path
from iris_core.spec.resources import RESOURCES, ResourceRequest
from iris_core.units import counted, show_bytes
from iris_core.views.spec_facts import resource_facts

_ROWS = 15
_TASKS = 40


@click.command(cls=CliCommand)
@click.argument("job", type=NAME, required=False, metavar="[JOB]")
@click.option(
    "--interval",
    type=click.FloatRange(0.2),
    default=2.0,
    show_default=True,
    help="Seconds between updates.",
)
@click.option("--once", is_flag=True, help="Show it once.")
@connected
def top(client: Client, job: str | None, interval: float, once: bool) -> None:
    """Show hosts, what is committed on them, and what runs and waits; or what the running tasks of
    JOB use, until it has ended. Ctrl-C ends it.
    """
    while True:
        if not once:
            click.clear()
        if job is None:
            show_cluster(client)
        elif show_used(client, job) in ENDED:
            return
        if once:
            return
        time.sleep(interval)


def show_cluster(client: Client) -> None:
    """Print hosts, what is committed on them, and what runs and waits."""
    workers: list[Row] = list(client.pages("/v1/workers", dict))
    live = [
        job
        for state in ("running", "pending")
        for job in client.pages("/v1/jobs", dict, {"state": state}, _ROWS)
    ]
    click.echo(summary(workers))
    click.echo()
    print_table(workers[:_ROWS], worker.COLUMNS)
    click.echo()
    print_table(live[:_ROWS], ls.COLUMNS)


def show_used(client: Client, job: str) -> str:
    """Print what the running tasks of a job use, beside what each has requested; returns the job's
    state.
    """
    found = client.get(f"/v1/jobs/{in_path(job)}", dict)
    tasks = list(client.pages(f"/v1/jobs/{in_path(job)}/tasks", dict, {"state": "running"}, _TASKS))
    running = found["task_counts"].get("running", 0)
    total = counted(found["replicas"], "task")
    click.echo(f"{found['name']} {state_word(found['state'])}: {running} of {total} run")
    asked = from_builtins(found["spec"]["resources"], ResourceRequest)
    click.echo(
        f"each requests {', '.join(f'{name} {value}' for name, value in resource_facts(asked))}\n"
    )
    print_table([{"index": task["index"], **task["attempts"][-1]} for task in tasks], USED)
    if running > len(tasks):
        click.echo(f"... and {running - len(tasks)} more", err=True)
    return str(found["state"])


def mean_cores(attempt: Row, now: datetime | None = None) -> str:
    """The cores that a running attempt has used since its start, on average."""
    started = read_moment(attempt["started_at"])
    if started is None or attempt.get("cpu_ms") is None:
        return ""
    seconds = ((now or datetime.now(UTC)) - started).total_seconds()
    return f"{attempt['cpu_ms'] / 1000 / max(seconds, 0.001):.2f}"


def _bytes_of(name: str) -> Callable[[Row], str]:
    return lambda row: show_bytes(row[name]) if row.get(name) is not None else ""


USED = (
    Column("TASK", lambda row: str(row["index"]), right=True),
    Column("WORKER", lambda row: row["worker"]),
    Column("CORES", mean_cores, right=True),
    Column(
        "CPU",
        lambda row: show_span(row["cpu_ms"] / 1000) if row.get("cpu_ms") is not None else "",
        right=True,
        gives=4,
    ),
    Column("MEMORY", _bytes_of("rss_bytes"), right=True),
    Column("PEAK", _bytes_of("peak_rss_bytes"), right=True, gives=3),
    Column("READ", _bytes_of("read_bytes"), right=True, gives=2),
    Column("WRITTEN", _bytes_of("written_bytes"), right=True, gives=1),
)
"""What the present attempt of a task uses; its host reports it every few seconds."""


def summary(workers: list[Row]) -> str:
    """``3 healthy, 1 lost; cpu 12/32; memory 8GiB/64GiB; chips 4/8``."""
    states = Counter(row["state"] for row in workers)
    counts = (
        ", ".join(f"{count} {state_word(state)}" for state, count in states.items()) or "no workers"
    )
    live = [row for row in workers if row["state"] != "lost"]
    used = {
        resource.words: worker.show_used(resource, live)
        for resource in RESOURCES
        if not resource.wide
    }
    return "; ".join(
        [counts, *(f"{words} {amounts}" for words, amounts in used.items() if amounts)]
    )
