"""`iris attach`: the terminal of a job that runs already, from here."""

from __future__ import annotations

import click

from iris.cli.interactive import use_terminal
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client


@click.command(cls=CliCommand)
@click.argument("name", type=NAME, metavar="JOB")
@connected
def attach(client: Client, name: str) -> int:
    """Use the terminal of a job that `iris run --interactive` has started, in place of who uses it
    now.

    The job ends with this terminal then. Without one, a job goes on for a minute.
    """
    job = client.job(name)
    if not job.view.spec.terminal:
        raise click.UsageError(
            f"{job.name} has no terminal; a shell beside it: iris exec -t {job.name} -- sh"
        )
    return use_terminal(client, job)
