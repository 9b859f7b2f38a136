"""`iris fetch`: what tasks left in their output directories."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from iris.cli.errors import complain, explain_problem, warn
from iris.cli.exit_codes import ExitCode
from iris.cli.output.progress import CountedBytes
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client
from iris.client.http.api import is_task
from iris.client.jobs import Job
from iris.client.problems import Problem
from iris_core.admission.archive_paths import InvalidArchive
from iris_core.spec.index_set import IndexSet
from iris_core.units import counted

_REPLACED_SHOWN = 5


@click.command(cls=CliCommand)
@click.argument("name", type=NAME, metavar="JOB|TASK")
@click.argument(
    "directory", type=click.Path(file_okay=False, path_type=Path), required=False, metavar="[DIR]"
)
@click.option(
    "--attempt", type=click.IntRange(0), help="This attempt of each task.  [default: the last one]"
)
@connected
def fetch(client: Client, name: str, directory: Path | None, attempt: int | None) -> int:
    """Fetch what tasks left in their --output directories, into DIR: that of each of several tasks
    below its index.

    DIR is NAME-output by default. Files there with the same names are replaced, with a warning
    where they differ: those of two jobs of several tasks need two directories. Artifacts are kept
    for a week, unless the cluster is set up otherwise.
    """
    into = directory or Path(
        f"{name.strip('/').rpartition('/')[2] if not is_task(name) else _task_word(name)}-output"
    )
    replaced: list[str] = []
    try:
        if is_task(name):
            return _fetch(client, name, into, attempt, replaced=replaced)
        job = client.job(name)
        if job.view.spec.replicas == 1:
            return _fetch(client, f"{job.id}/0", into, attempt, replaced=replaced)
        return _fetch_all(client, job, into, attempt, replaced=replaced)
    finally:
        if replaced:
            more = ", ..." if len(replaced) > _REPLACED_SHOWN else ""
            shown = ", ".join(replaced[:_REPLACED_SHOWN]) + more
            warn(f"replaced {counted(len(replaced), 'file')} that differed: {shown}")


def _fetch_all(
    client: Client, job: Job, into: Path, attempt: int | None, replaced: list[str]
) -> ExitCode:
    """Fetch the artifact of each task; a problem of several is printed once, with their indexes."""
    code = ExitCode.SUCCEEDED
    problems: dict[str, tuple[Problem, list[int]]] = {}
    for index in job.view.spec.index_set:
        try:
            code = max(
                code,
                _fetch(client, f"{job.id}/{index}", into / str(index), attempt, replaced=replaced),
            )
        except Problem as problem:
            alike = str(problem).replace(f"{job.name}/{index}", "")
            problems.setdefault(alike, (problem, []))[1].append(index)
    for first, indexes in problems.values():
        complain(f"not fetched: {counted(len(indexes), 'task')}, {IndexSet.of(indexes)}")
        code = max(code, explain_problem(first))
    return code


def _task_word(name: str) -> str:
    """``train-3`` of ``/team/train/3``."""
    return "-".join(name.strip("/").split("/")[-2:])


def _fetch(
    client: Client, task: str, into: Path, attempt: int | None, replaced: list[str]
) -> ExitCode:
    """Fetch one artifact, and print where it is; an error of this machine is printed. Raises
    Problem.
    """
    try:
        with CountedBytes(sys.stderr, str(into)) as progress:
            files = client.fetch(
                task,
                into,
                attempt=attempt,
                on_read=progress.show,
                on_replace=lambda path: replaced.append(str(into / path)),
            )
    except (InvalidArchive, OSError) as error:
        complain(f"{into}: {error}")
        return ExitCode.UNEXPECTED
    click.echo(f"{into}  {counted(files, 'file')}")
    return ExitCode.SUCCEEDED
