"""`iris update`: change jobs that wait or run."""

from __future__ import annotations

from typing import Any

import click

from iris.cli.commands.run.run import read_pair
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.flags import job_flags, with_options
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client
from iris.client.options.updates import UpdateOptions
from iris_core.spec.option_table import JobOptions, rows_of

_OF_JOB: dict[str, dict[str, Any]] = {
    **{
        row.name: {"help": row.option.help}
        for row in rows_of(JobOptions)
        if row.name in UpdateOptions.__annotations__
    },
    "band": {"help": "Another band."},
    "timeout": {"help": "Kill a task that runs longer: 2h; none: no limit."},
    "max_parallel": {"help": "Tasks of the job that run at a time; all: no limit.", "type": str},
    "labels": {"help": "Add or replace a label."},
}
"""The options of a job that change it, with what is another word here than in `iris run`."""


@click.command(cls=CliCommand)
@click.argument("jobs", nargs=-1, required=True, type=NAME, metavar="JOB...")
@with_options(*job_flags(_OF_JOB))
@click.option("--drop-label", "dropped", multiple=True, help="Remove a label.", metavar="KEY")
@connected
def update(
    client: Client, jobs: tuple[str, ...], labels: list[str], dropped: list[str], **given: Any
) -> None:
    """Change jobs that wait or run, under the limits of a submission.

    Command, resources and replicas stay: cancel the job and submit it again for that. A new timeout
    counts from the start of each task, so one that has run longer is killed. What runs above a
    lower --max-parallel goes on.
    """
    wanted = {name: value for name, value in given.items() if value is not None}
    changed: dict[str, str | None] = dict.fromkeys(dropped)
    changed |= dict(read_pair(label, None) for label in labels)
    if changed:
        wanted["labels"] = changed
    if not wanted:
        raise click.UsageError(
            "specify what to change: --band, --timeout, --max-parallel, --label, ..."
        )
    for job in jobs:
        before = client.job(job).view.version
        view = client.update(job, **wanted)
        click.echo(
            f"{view.name} {'changed' if view.version != before else 'unchanged: that is what it has'}",
            err=True,
        )
