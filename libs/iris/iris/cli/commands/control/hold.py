"""`iris hold` and `iris release`: keep pending tasks of jobs out of the queue, and let them in
again; `iris close`.
"""

from __future__ import annotations

import click

from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client
from iris_core.placement.reasons import ReasonCode

_OUTSIDE = {
    ReasonCode.DEPENDENCY,
    ReasonCode.NOT_BEFORE,
    ReasonCode.SINGLETON,
    ReasonCode.RETRY_BACKOFF,
}
"""What keeps a job out of the queue that nobody holds."""


@click.command(cls=CliCommand)
@click.argument("jobs", nargs=-1, required=True, type=NAME, metavar="JOB...")
@click.option("--reason", default="", help="Reason shown with the job.")
@click.option("--stop", is_flag=True, help="Stop what runs too; nothing is charged for it.")
@connected
def hold(client: Client, jobs: tuple[str, ...], reason: str, stop: bool) -> None:
    """Start no pending task of these jobs until they are released; what runs goes on."""
    for job in jobs:
        before = client.job(job).view.version
        view = client.hold(job, reason, stop=stop)
        already = ""
        if view.version == before:
            already = (
                " already"
                + ("; the reason stays" if reason else "")
                + ("; what runs is told to stop" if stop else "")
            )
        click.echo(f"{view.name} held{already}", err=True)


@click.command(cls=CliCommand)
@click.argument("jobs", nargs=-1, required=True, type=NAME, metavar="JOB...")
@click.option("--drop-after", is_flag=True, help="Wait for no other job any more either.")
@connected
def release(client: Client, jobs: tuple[str, ...], drop_after: bool) -> None:
    """Let the pending tasks of held jobs start."""
    for job in jobs:
        before = client.job(job).view.version
        view = client.release(job, drop_after=drop_after)
        why = view.pending_reason
        still = f"; it waits: {why.message}" if why is not None and why.code in _OUTSIDE else ""
        if why is not None and why.code is ReasonCode.HELD:
            still = f", and is still {why.message}"
        click.echo(
            f"{view.name} {'released' if view.version != before else 'had no hold of its own'}{still}",
            err=True,
        )


@click.command(cls=CliCommand)
@click.argument("jobs", nargs=-1, required=True, type=NAME, metavar="JOB...")
@click.option("--reason", default="", help="Reason shown with the job.")
@connected
def close(client: Client, jobs: tuple[str, ...], reason: str) -> None:
    """Let open maps take no further calls: they end with the calls that they have."""
    for job in jobs:
        click.echo(
            f"{client.close_map(job, reason or 'closed with iris close').name} takes no further calls",
            err=True,
        )
