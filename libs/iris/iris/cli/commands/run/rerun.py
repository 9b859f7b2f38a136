"""`iris rerun`: submit a job again."""

from __future__ import annotations

import click

from iris.cli.follow import follow_to_end, note_warnings
from iris.cli.interactive import use_terminal
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client


@click.command(cls=CliCommand)
@click.argument("job", type=NAME, metavar="JOB")
@click.option("--failed", is_flag=True, help="Only the tasks that did not succeed, under their indexes; a gang whole.")
@click.option("-d", "--detach", is_flag=True, help="Do not follow; print only the new job's name.")
@connected
def rerun(client: Client, job: str, failed: bool, detach: bool) -> int:
    """Submit again what JOB was, all of it or only what did not succeed.

    It waits for none of the jobs that JOB waited for.
    """
    again = client.rerun(job, failed_only=failed)
    note_warnings(again)
    if detach:
        click.echo(again.name)
        return 0
    return use_terminal(client, again) if again.view.spec.terminal else follow_to_end(client, again)
