"""`iris requeue`: stop running tasks and return them to the queue."""

from __future__ import annotations

import click

from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.indexes import for_each
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client


@click.command(cls=CliCommand)
@click.argument("names", nargs=-1, required=True, type=NAME, metavar="JOB|TASK...")
@click.option("--reason", default="", help="Reason shown with the attempts.")
@connected
def requeue(client: Client, names: tuple[str, ...], reason: str) -> int:
    """Stop the running tasks of jobs, or single tasks, and return them to the queue, whatever they
    exit with.

    sweep/0-2,7 names several tasks. A gang is requeued whole.

    A task returns at most --max-requeues times; after that it fails.
    """

    def requeue_one(name: str) -> None:
        client.requeue(name, reason)
        click.echo(f"{name} requeued", err=True)

    return for_each(client, names, requeue_one)
