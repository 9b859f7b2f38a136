"""`iris top`: hosts, usage and jobs, refreshed."""

from __future__ import annotations

import time
from collections import Counter

import click

from iris.cli.commands import ls, worker
from iris.cli.options import connected
from iris.cli.parsing import CliCommand
from iris.cli.tables import Row, print_table, state_word
from iris.client.client import Client
from iris_core.resources import RESOURCES

_ROWS = 15


@click.command(cls=CliCommand)
@click.option("--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between updates.")
@click.option("--once", is_flag=True, help="Show it once.")
@connected
def top(client: Client, interval: float, once: bool) -> None:
    """Show hosts, what is committed on them, and what runs and waits; Ctrl-C ends it."""
    while True:
        workers: list[Row] = list(client.pages("/v1/workers", dict))
        live = [
            job for state in ("running", "pending") for job in client.pages("/v1/jobs", dict, {"state": state}, _ROWS)
        ]
        if not once:
            click.clear()
        click.echo(summary(workers))
        click.echo()
        print_table(workers[:_ROWS], [column for column in worker.COLUMNS if not column.wide])
        click.echo()
        print_table(live[:_ROWS], [column for column in ls.COLUMNS if not column.wide])
        if once:
            return
        time.sleep(interval)


def summary(workers: list[Row]) -> str:
    """``3 healthy, 1 lost; cpu 12/32; memory 8GiB/64GiB; chips 4/8``."""
    states = Counter(row["state"] for row in workers)
    counts = ", ".join(f"{count} {state_word(state)}" for state, count in states.items()) or "no workers"
    live = [row for row in workers if row["state"] != "lost"]
    used = {resource.words: worker.show_used(resource, live) for resource in RESOURCES if not resource.wide}
    return "; ".join([counts, *(f"{words} {amounts}" for words, amounts in used.items() if amounts)])
