"""Follows a job with a terminal from this one: says why it waits, then is its terminal until it has
ended.

The job ends with this command. A broken connection is made again for as long as the job goes on
without one.
Source: docs/adr/0044-commands-beside-tasks-are-read-by-requests.md.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import click

from iris.cli.exit_codes import JOB_EXITS, ExitCode
from iris.cli.follow import Waiting, note, print_event_line, summarise
from iris.cli.output.lines import LinePrinter
from iris.cli.output.progress import Progress
from iris.cli.remote_terminal import TypedInput, raw_terminal, resizes, terminal_size, write_all
from iris.client.client import Client
from iris.client.executions import RemoteTerminal
from iris.client.http.events import read_events
from iris.client.jobs import TERMINAL, Job
from iris.client.problems import (
    ClientError,
    Conflict,
    ExecutionLost,
    NotFound,
    TryAgain,
    Unreachable,
)
from iris_core.limits import clipped
from iris_core.views.events import TaskEvent

SHELL = 'for shell in "$0" /bin/bash; do [ -x "$shell" ] && exec "$shell"; done; exec /bin/sh'
"""Runs the shell that it is given, or else one that is where the task is."""
_NOT_KEPT = "iris: it reads and writes a terminal"
_ALIVE_S = 5.0
_RECONNECT_S = 90.0
"""Longer than a task goes on without a terminal, by default."""
_PAUSE_S = 0.5
_END_S = 10.0


class HungUp(Exception):
    """This command was told to end; the text says how."""


def default_command() -> tuple[str, ...]:
    """The user's shell, if the task has that too, or another one."""
    return ("/bin/sh", "-c", SHELL, os.environ.get("SHELL", "/bin/sh"))


def check_plain(*, detach: bool) -> None:
    """Raises UsageError for options that do not go together with a terminal."""
    if detach:
        raise click.UsageError("--interactive is a terminal here, which --detach would leave")


def use_terminal(client: Client, job: Job) -> int:
    """Wait for the job's task, and be its terminal; returns the exit code of its program, or that
    of the job's end.

    However this command ends, so does the job, unless another client has taken the terminal.
    """
    session = _Session(client, job)
    with _hang_ups():
        try:
            while (task := running(client, job)) is not None:
                if not session.connected(task):
                    return ExitCode.EXECUTION_LOST
            if session.given is None:
                _print_unseen(job)
            summarise(job)
        except (KeyboardInterrupt, HungUp, OSError) as error:
            _cancel(client, job, str(error) or "it was interrupted before it ran")
            return ExitCode.DETACHED
        except BaseException:
            _cancel(client, job, "its terminal has failed")
            raise
    return _exit_code(client, job)


def running(client: Client, job: Job) -> str | None:
    """Wait until the task runs, and return it; None when the job has ended."""
    name = f"{job.id}/0"
    progress = Progress(sys.stderr)
    try:
        with job.stream() as stream, Waiting(client, job, progress):
            job.refresh()
            if job.ended:
                return None
            task = client.task(name)
            if task.state == "running":
                note(f"{task.task} runs on {task.worker}")
                return name
            for event in read_events(stream):
                with progress.above():
                    print_event_line(event, places=True)
                if (
                    isinstance(event, TaskEvent)
                    and event.state == "running"
                    and event.job == job.name
                ):
                    return name
                if job.is_end(event) and job.refresh().state in TERMINAL:
                    return None
    finally:
        progress.end()
    return None


class _Session:
    """This terminal at the tasks of one job, one after the other.

    Attributes:
        given: what is typed here; None: it was not connected yet.
    """

    def __init__(self, client: Client, job: Job) -> None:
        self.given: TypedInput | None = None
        self._client = client
        self._job = job

    def connected(self, task: str) -> bool:
        """Be the terminal of a running task until it is not running any more; False when another
        client has taken it.

        Raises ClientError when nothing answers for so long that the task has ended.
        """
        lost_s: float | None = None
        while True:
            try:
                with RemoteTerminal(self._client, task, terminal_size()) as remote:
                    given = self._use(remote)
                    if lost_s is not None:
                        note("connected again")
                    lost_s = None
                    _show(remote, given)
                if remote.error and remote.exit_code == ExitCode.EXECUTION_LOST:
                    note(remote.error)
                    return False
                _settle(self._client, task)
                return True
            except (Conflict, NotFound) as refused:
                if self._client.task(task).state != "running":
                    return True
                error: ClientError = refused
            except (ExecutionLost, Unreachable, TryAgain) as lost:
                error = lost
            now_s = time.monotonic()
            if lost_s is None:
                lost_s = now_s
                note(f"{self._job.name}: {error}; connecting again. Without a terminal it ends")
            elif now_s - lost_s > _RECONNECT_S:
                raise error
            time.sleep(_PAUSE_S)

    def _use(self, remote: RemoteTerminal) -> TypedInput:
        """What is typed here goes there from now on."""
        if self.given is None:
            self.given = TypedInput(remote)
            self.given.start()
            self.given.read_stdin()
        self.given.remote = remote
        return self.given


def _show(remote: RemoteTerminal, given: TypedInput) -> None:
    """Be its terminal until it has ended. Raises ExecutionLost."""
    left = threading.Event()
    threading.Thread(target=_stay, args=(given, left), daemon=True).start()
    try:
        with raw_terminal(), resizes(given):
            for line in remote:
                write_all(1, line.stdout)
    finally:
        left.set()


def _stay(given: TypedInput, left: threading.Event) -> None:
    """Say that this client is there, which does not read while its screen is stopped (Ctrl-S)."""
    while not left.wait(_ALIVE_S):
        given.put(given.alive)


def _print_unseen(job: Job) -> None:
    """Print what a task has shown that ended before this terminal was connected."""
    printer = LinePrinter(prefix=False)
    for line in job.logs(follow=False):
        if not line.line.startswith(_NOT_KEPT):
            printer.print(line)


def _settle(client: Client, task: str) -> None:
    """Its terminal has ended; wait a while until its task has."""
    deadline_s = time.monotonic() + _END_S
    while client.task(task).state == "running" and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S / 10)


@contextlib.contextmanager
def _hang_ups() -> Iterator[None]:
    """Raise HungUp when this terminal is closed, or this command is told to end."""

    def hang_up(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise HungUp(f"its terminal was closed ({signal.Signals(number).name})")

    numbers = (signal.SIGHUP, signal.SIGTERM)
    before = {number: signal.signal(number, hang_up) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel(client: Client, job: Job, why: str) -> None:
    """End the job; a gateway that is silent leaves that to the worker."""
    client.transport.retry_for_s = _END_S
    with contextlib.suppress(ClientError, OSError):
        job.cancel(clipped(why))
        note(f"{job.name} is cancelled: {why}")


def _exit_code(client: Client, job: Job) -> int:
    if job.state != "failed":
        return JOB_EXITS.get(job.state, ExitCode.UNEXPECTED)
    task = client.task(f"{job.id}/0")
    return task.exit_code if task.exit_code is not None else JOB_EXITS[job.state]
