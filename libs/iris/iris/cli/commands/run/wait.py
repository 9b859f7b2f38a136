"""`iris wait`: until jobs have ended."""

from __future__ import annotations

import time

import click

from iris.cli.exit_codes import JOB_EXITS, ExitCode
from iris.cli.follow import detached, left_alone, note, summarise
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client
from iris.client.http.events import read_events
from iris.client.jobs import TERMINAL, Job, resumable
from iris.client.options.units import parse_duration
from iris.client.problems import TryAgain, Unreachable, WaitTimeout, gave_up
from iris_core.units import DURATION

_SHOW_S = 0.5


@click.command(cls=CliCommand)
@click.argument("jobs", nargs=-1, required=True, type=NAME, metavar="JOB...")
@click.option(
    "--timeout",
    help="Stop waiting after this time, with exit code 7; jobs go on.",
    metavar=DURATION,
)
@click.option("--progress", is_flag=True, help="Show progress.")
@connected
def wait(client: Client, jobs: tuple[str, ...], timeout: str | None, progress: bool) -> int:
    """Wait for JOBs to end; the exit code is that of the first one that did not succeed."""
    limit = None if timeout is None else parse_duration(timeout)
    deadline = None if limit is None else time.monotonic() + limit
    codes = [wait_for(client.job(job), deadline, limit, progress) for job in jobs]
    return next((code for code in codes if code), ExitCode.SUCCEEDED)


def wait_for(job: Job, deadline: float | None, limit: float | None, progress: bool) -> int:
    """The end of one job. Raises WaitTimeout, which names ``limit`` seconds, Problem,
    Unreachable.
    """
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    try:
        if progress:
            show_progress(job, left)
        job.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
    except WaitTimeout:
        raise gave_up(job.name, job.state, limit) from None
    except KeyboardInterrupt:
        detached(job)
        return ExitCode.DETACHED
    except (Unreachable, TryAgain) as error:
        raise left_alone(job, error) from None
    summarise(job)
    return JOB_EXITS.get(job.state, ExitCode.UNEXPECTED)


def show_progress(job: Job, timeout: float | None) -> None:
    """Print the counts by state when they change, at most twice a second, until the job has
    ended.
    """
    shown = ""
    shown_at = 0.0
    with resumable(job), job.stream(timeout) as stream:
        for event in read_events(stream):
            if time.monotonic() - shown_at < _SHOW_S and not job.is_end(event):
                continue
            view = job.refresh()
            shown_at = time.monotonic()
            counts = ", ".join(
                f"{count} {state}" for state, count in view.task_counts.items() if count
            )
            why = (
                view.interrupted.message
                if view.interrupted and not view.task_counts.get("running")
                else ""
            )
            line = f"{counts} ({why})" if why else counts
            if line != shown:
                note(f"{job.name}: {line}")
            shown = line
            if view.state in TERMINAL:
                return
