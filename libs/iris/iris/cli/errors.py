"""Prints every error as text on stderr, and returns its exit code."""

from __future__ import annotations

import click

from iris.cli.exit_codes import JOB_EXITS, ExitCode, exit_of_answer
from iris.cli.extras import MissingExtra, missing_of, remedy
from iris.client.problems import (
    DeploymentFailed,
    ExecutionLost,
    FieldMistake,
    InvalidOption,
    JobEnded,
    NoGateway,
    NotFound,
    Problem,
    Rejected,
    Unreachable,
    WaitTimeout,
)
from iris_core.errors import Refused

_SIMPLE: tuple[tuple[type[Exception], ExitCode], ...] = (
    (InvalidOption, ExitCode.USAGE),
    (Refused, ExitCode.USAGE),
    (NoGateway, ExitCode.UNREACHABLE),
    (Unreachable, ExitCode.UNREACHABLE),
    (WaitTimeout, ExitCode.WAIT_TIMEOUT),
    (DeploymentFailed, ExitCode.JOB_FAILED),
    (ExecutionLost, ExitCode.EXECUTION_LOST),
    (MissingExtra, ExitCode.UNEXPECTED),
)

_EXPLAIN_THEMSELVES = (NotFound, Rejected)
"""Problems whose detail tells everything that the page about their type does."""


def explain(error: Exception) -> ExitCode | None:
    """Print an error and return the exit code; None for an error that is a bug."""
    if isinstance(error, Problem):
        return explain_problem(error)
    if isinstance(error, JobEnded):
        complain(str(error))
        return JOB_EXITS.get(error.state, ExitCode.UNEXPECTED)
    if missing := missing_of(error):
        complain(remedy("server", "this command", missing))
        return ExitCode.UNEXPECTED
    for kind, code in _SIMPLE:
        if isinstance(error, kind):
            for line in str(error).splitlines() or [""]:
                complain(line)
            return code
    return None


def explain_problem(problem: Problem) -> ExitCode:
    """A problem document as lines: the detail, each wrong field with its hint, the request id, the
    page of its type.
    """
    if len(problem.mistakes) == 1:
        complain(mistake_line(problem.mistakes[0]))
    else:
        complain(str(problem))
        for mistake in problem.mistakes:
            click.echo(f"  {mistake_line(mistake)}", err=True)
    if problem.status >= 500 and problem.document.request_id:
        click.echo(f"  request {problem.document.request_id}", err=True)
    if problem.type and not isinstance(problem, _EXPLAIN_THEMSELVES):
        click.echo(f"  see {problem.type}", err=True)
    return exit_of_answer(problem.status)


def mistake_line(mistake: FieldMistake) -> str:
    """``/resources/device/variant: no such variant (write for example v5litepod-16)``."""
    where = f"{mistake.pointer}: " if mistake.pointer else ""
    return f"{where}{mistake.message}{f' ({mistake.hint})' if mistake.hint else ''}"


def warn(text: str) -> None:
    """Print one line of warning."""
    click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {text}", err=True)


def complain(text: str) -> None:
    """Print one error line."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {text}", err=True)
