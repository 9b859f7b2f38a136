"""`iris logs`: the output of tasks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

import click

from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note
from iris.cli.output.lines import LinePrinter
from iris.cli.output.tables import print_json
from iris.cli.output.terminal import raw_option
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected, form_option
from iris.client.client import Client
from iris.client.http.api import is_task
from iris.client.http.events import log_lines, log_query
from iris.client.http.transport import UrlQuery, in_path
from iris.client.problems import TryAgain, Unreachable
from iris_core.units import MOMENT
from iris_core.views.jobs import TaskView
from iris_core.views.streams import LogLineView


@click.command(cls=CliCommand)
@click.argument("name", type=NAME, metavar="JOB|TASK")
@click.option("-f", "--follow", is_flag=True, help="Follow until it has ended.")
@click.option(
    "--attempt", help="One attempt's number, last, or all.  [default: last of a task]", metavar="N"
)
@click.option("-n", "--tail", type=click.IntRange(0), help="Only the last lines.")
@click.option("--since", help="Only what was printed since: 10m, or a time.", metavar=MOMENT)
@click.option("--grep", help="Only lines that match this pattern.", metavar="RE")
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), help="Only this stream.")
@click.option(
    "--prefix/--no-prefix",
    default=None,
    help="Begin each line with its task.  [default: for a job on a terminal]",
)
@click.option(
    "--timestamps", is_flag=True, help="Begin each line with the time when it was written."
)
@raw_option
@form_option(forms=("table", "jsonl"))
@connected
def logs(
    client: Client,
    name: str,
    follow: bool,
    attempt: str | None,
    tail: int | None,
    since: str | None,
    grep: str | None,
    stream: str | None,
    prefix: bool | None,
    timestamps: bool,
    form: str,
) -> int:
    """Print what a task, or all tasks of a job, wrote; stderr goes to stderr."""
    wanted = compiled(grep)
    query: UrlQuery = {"attempt": attempt, "tail": tail, "since": since, "stream": stream}
    unfinished = follow and wanted is None and form != "jsonl" and is_one_output(client, name)
    prefix = sys.stdout.isatty() if prefix is None else prefix
    printer = LinePrinter(prefix=prefix, timestamps=timestamps)
    try:
        with client.open_logs(name, log_query(query, follow, unfinished)) as answer:
            answer.before_wait = printer.flush
            lines = log_lines(answer, unfinished=unfinished)
            found = (line for line in lines if wanted is None or wanted.search(line.line))
            printed = print_lines(found, printer, as_json=form == "jsonl")
    except (Unreachable, TryAgain):
        if follow and client.transport.has_answered:
            note(f"{name} goes on unless it has ended; come back: iris logs -f {name}")
        raise
    if (
        not printed
        and attempt is not None
        and attempt.isdigit()
        and not has_attempt(client, name, int(attempt))
    ):
        note(f"no task of {name} has an attempt {attempt}")
        return ExitCode.NOT_FOUND
    return ExitCode.SUCCEEDED


def has_attempt(client: Client, name: str, number: int) -> bool:
    """Whether a task, or any task of a job, has made an attempt of this number."""
    tasks = (
        [client.task(name)]
        if is_task(name)
        else client.pages(f"/v1/jobs/{in_path(name)}/tasks", TaskView)
    )
    return any(attempt.number == number for task in tasks for attempt in task.attempts)


def is_one_output(client: Client, name: str) -> bool:
    """Whether lines that have not ended may be printed: to a person, or of one task only. A pipe
    gets the lines of several tasks whole.
    """
    return sys.stdout.isatty() or is_task(name) or client.job(name).view.replicas == 1


def compiled(pattern: str | None) -> re.Pattern[str] | None:
    """The pattern, or none. Raises UsageError for one that is wrong."""
    try:
        return re.compile(pattern) if pattern is not None else None
    except re.error as error:
        raise click.UsageError(f"--grep {pattern!r}: {error}") from None


def print_lines(lines: Iterable[LogLineView], printer: LinePrinter, *, as_json: bool) -> int:
    """Print each line to its stream, or as one JSON object on stdout. Returns the number of
    lines.
    """
    count = 0
    for line in lines:
        count += 1
        if as_json:
            print_json(line, indent=0)
        else:
            printer.print(line, flush=False)
    printer.flush()
    return count
