"""`iris rerun`: submit a job again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from iris.cli.commands.run.run import read_pair
from iris.cli.follow import follow_to_end, note_warnings
from iris.cli.interactive import use_terminal
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.flags import job_flags, with_options
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client
from iris_core.spec.resources import REQUESTED, Resource

F = TypeVar("F", bound=Callable[..., Any])


def _other(resource: Resource) -> Callable[[F], F]:
    """``--memory SIZE``, in place of what the job had."""
    words = (
        f"One task's {resource.words}, for example {resource.unit.example}.  [default: that of JOB]"
    )
    return click.option(f"--{resource.word}", help=words, metavar=resource.unit.metavar)


@click.command(cls=CliCommand)
@click.argument("job", type=NAME, metavar="JOB")
@click.option(
    "--failed",
    is_flag=True,
    help="Only the tasks that did not succeed, under their indexes; a gang whole.",
)
@click.option(
    "--tasks", default="", help="Only these tasks, by their indexes: 3-7,9.", metavar="INDEXES"
)
@with_options(*map(_other, REQUESTED))
@with_options(*job_flags({"env": {"help": "Add or replace an environment variable."}, "after": {}}))
@click.option("-d", "--detach", is_flag=True, help="Do not follow; print only the new job's name.")
@connected
def rerun(
    client: Client,
    job: str,
    failed: bool,
    tasks: str,
    env: tuple[str, ...],
    after: tuple[str, ...],
    detach: bool,
    **amounts: Any,
) -> int:
    """Submit again what JOB was, all of it or only some of its tasks, with other variables and
    resources.

    --tasks with --failed: those of these tasks that did not succeed. It waits for none of the jobs
    that JOB waited for, only for those of --after.
    """
    variables = dict(read_pair(pair, os.environ) for pair in env)
    again = client.rerun(
        job, failed_only=failed, tasks=tasks, env=variables, after=after, **amounts
    )
    note_warnings(again)
    if detach:
        click.echo(again.name)
        return 0
    return use_terminal(client, again) if again.view.spec.terminal else follow_to_end(client, again)
