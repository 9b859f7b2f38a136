"""`iris cancel`: kill jobs and everything below them."""

from __future__ import annotations

import click

from iris.cli.options import NAME, connected
from iris.cli.parsing import CliCommand
from iris.client.client import Client


@click.command(cls=CliCommand)
@click.argument("jobs", nargs=-1, required=True, type=NAME, metavar="JOB...")
@click.option("--reason", default="", help="Reason stored with the job.")
@connected
def cancel(client: Client, jobs: tuple[str, ...], reason: str) -> None:
    """Kill jobs and everything below them; killing what has ended changes nothing."""
    for job in jobs:
        found = client.cancel(job, reason)
        click.echo(f"{found.name} {found.state}", err=True)
