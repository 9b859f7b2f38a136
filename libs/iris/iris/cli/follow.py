"""Follows a job on a terminal: its output goes to stdout and stderr, its events as lines to stderr.

Ctrl-C detaches; the job continues. Out of scope: submitting (`commands.run.run`).
"""

from __future__ import annotations

import sys
import threading
from contextlib import closing, suppress

import click

from iris.cli.errors import warn
from iris.cli.exit_codes import JOB_EXITS, ExitCode
from iris.cli.output.lines import LinePrinter
from iris.cli.output.progress import Progress
from iris.cli.output.tables import state_word
from iris.cli.output.times import show_span
from iris.client.causes import cause_lines
from iris.client.client import Client
from iris.client.decode import from_json
from iris.client.deployments import Deployment
from iris.client.http.events import Event, read_lines
from iris.client.jobs import Job
from iris.client.problems import ClientError, NotAllowed, TryAgain, Unreachable
from iris_core.errors import IrisError
from iris_core.spec.exit_rules import signal_name
from iris_core.states import Cause
from iris_core.views.events import JobEvent, TaskEvent
from iris_core.views.jobs import JobView
from iris_core.views.streams import LogEnd

_LOOK_S = 0.5
_COUNTED_S = 3.0
"""How long the rest of the output is counted when someone stops its printing."""
_WAITING_S = 2.0
_DRAWN_S = 0.5
_PLACES_SHOWN = 16
"""For jobs with at most so many tasks their workers are printed."""
_AT_WORK = ("assigned", "building", "running")
_TROUBLE = frozenset({"failed", "worker_failed", "preempted", "unschedulable"})


def follow_to_end(client: Client, job: Job, *, of_task: bool = False) -> int:
    """Print output and events until the job has ended; returns its exit code, 130 after Ctrl-C,
    which detaches. ``of_task``: of one that failed that of its tasks.

    When the job has ended, the rest of its output is printed however long that takes; Ctrl-C then
    ends the printing. On a terminal also print the workers of tasks, the counts by state, and the
    task of each line.

    Raises Problem, Unreachable: a gateway that is away for too long detaches, too.
    """
    progress = Progress(sys.stderr)
    transport = client.transport
    transport.on_wait, transport.on_back = (
        progress.printing(transport.on_wait),
        progress.printing(transport.on_back),
    )
    try:
        code = _follow(client, job, progress)
        return task_exit_code(job) or code if of_task and code == ExitCode.JOB_FAILED else code
    except KeyboardInterrupt:
        progress.end()
        if not job.ended:
            detached(job)
        return ExitCode.DETACHED
    except (
        Unreachable,
        TryAgain,
        NotAllowed,
    ) as error:  # the last: the token has expired meanwhile
        progress.end()
        raise left_alone(job, error) from None


def _follow(client: Client, job: Job, progress: Progress) -> int:
    with closing(FollowOutput(client, job, progress)) as output:
        try:
            with Waiting(client, job, progress):
                for event in job.follow():
                    if not job.is_end(event):
                        with progress.above():
                            print_event_line(
                                event, places=progress.on and job.view.replicas <= _PLACES_SHOWN
                            )
            output.join()
        except KeyboardInterrupt:
            if not job.ended:
                raise
            progress.end()
            output.stop()
        progress.end()
        missing = output.missing()
        summarise(job, output=job.view.replicas > 1 or bool(job.view.children or missing))
        if missing:
            note(f"  {missing}; print it: iris logs {job.id}")
    return JOB_EXITS.get(job.state, ExitCode.UNEXPECTED)


def task_exit_code(job: Job) -> int:
    """The highest exit code of the tasks that failed, 128 and the signal that ended one; 0 when
    none has a code.
    """
    failed = job.tasks(state="failed")
    codes = [128 + task.signal if task.signal else task.exit_code or 0 for task in failed]
    return max(codes, default=0)


class FollowOutput:
    """Prints a job's output from a thread, to its last line unless it is stopped or cannot be
    read.
    """

    def __init__(self, client: Client, job: Job, progress: Progress) -> None:
        several = job.view.replicas > 1
        unfinished = sys.stdout.isatty() or not several
        self._stream = client.open_logs(job.id, {"follow": True, "unfinished": unfinished})
        self._progress = progress
        self._printer = LinePrinter(prefix=several and sys.stdout.isatty())
        self._stream.before_wait = self._printer.flush
        progress.lines = self._printer
        self._stopped = False
        self._left = 0
        self._error: Exception | None = None
        self._done = threading.Event()  # an interrupted join would take the thread for ended
        threading.Thread(target=self._print, daemon=True).start()

    def join(self) -> None:
        """Wait until the last line is printed. Raises what printing raised."""
        while not self._done.wait(_LOOK_S):
            continue  # a signal that came just before a wait does not end it
        if self._error is not None and not isinstance(self._error, ClientError):
            raise self._error

    def stop(self) -> None:
        """Print no more lines; count the rest for a limited time."""
        self._stopped = True
        self._done.wait(_COUNTED_S)

    def missing(self) -> str:
        """What of the output is not printed; empty when it is whole."""
        if self._error is not None:
            return f"the output is not shown to its end: {self._error}"
        if self._left or not self._done.is_set():
            more = "" if self._done.is_set() else "more than "
            return f"{more}{self._left:,} lines of output are not shown"
        end = from_json(self._stream.end, LogEnd) if self._stream.end else None
        return "not all of its output has arrived" if end and end.unfinished else ""

    def close(self) -> None:
        """End the stream; wait for the line that is being printed, for a limited time."""
        self._stopped = True
        self._stream.close()
        self._done.wait(_LOOK_S)

    def _print(self) -> None:
        try:
            for line in read_lines(self._stream):
                if self._stopped:
                    self._left += not line.continued
                    continue
                with self._progress.above(output=True):
                    self._printer.print(line, flush=False)
            self._printer.flush()
        except Exception as error:  # noqa: BLE001 - the thread that joins raises or tells it
            self._error = error
        finally:
            self._done.set()


class Waiting:
    """Prints why a job is pending after a while, and whenever the reason changes; draws its
    progress.
    """

    def __init__(self, client: Client, job: Job, progress: Progress) -> None:
        self._client = client
        self._progress = progress
        self._path = f"/v1/jobs/{job.id}"
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Waiting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()

    def _watch(self) -> None:
        shown: object = ""
        while not self._left.wait(_DRAWN_S if self._progress.on else _WAITING_S):
            try:
                view = self._client.get(self._path, JobView)
            except ClientError:
                continue
            if self._progress.on and not self._left.is_set():
                self._progress.show(view)
            stands = not any(view.task_counts.get(state) for state in _AT_WORK)
            reason = view.pending_reason if stands else None
            if reason is None:
                continue
            means = reason.facts or reason.message  # words may say how long ago something was
            if means != shown:
                before = f"{view.interrupted.message}; " if view.interrupted else ""
                with self._progress.above():
                    note(f"{view.name} waits: {before}{reason.message}")
            shown = means


def print_event_line(event: Event, *, places: bool = False) -> None:
    """Print the important events: states of the job and its children, failed and requeued tasks.

    ``places``: also the worker of each task.
    """
    if isinstance(event, JobEvent):
        if event.previous:
            note(f"{event.job} {state_word(event.state)}")
        return
    if not isinstance(event, TaskEvent):
        return
    cause = event.cause if event.cause != event.state else None
    why = f"exit code {event.exit_code}" if event.exit_code else cause or ""
    if event.signal and event.cause == Cause.FAILED:
        why = f"signal {event.signal}, {signal_name(event.signal)}"
    why = f" ({why})" if why else ""
    if event.state in _TROUBLE:
        note(f"{event.task} {state_word(event.state)}{why}")
    elif event.state == "running" and places:
        note(f"{event.task} runs on {event.worker}")
    elif event.state == "pending" and event.previous:
        note(f"{event.task} goes back to the queue{why}")


def summarise(job: Job, *, output: bool = True) -> None:
    """``/train failed after 3.1s: 1 failed, 2 succeeded``, the reason if known, and the causes.

    ``output``: with the last lines of a task; False when they have just been printed.
    """
    view = job.view
    end = view.finished_at or view.started_at
    after = (
        f" after {show_span((end - view.submitted_at).total_seconds())}"
        if end and view.submitted_at
        else ""
    )
    counts = ", ".join(f"{count} {state}" for state, count in view.task_counts.items() if count)
    note(f"{view.name} {state_word(view.state)}{after}: {counts}")
    if view.error:
        note(f"  {view.error}")
    if output and job.state != "succeeded":
        with suppress(IrisError):
            for line in cause_lines(job.name, job.causes()):
                note(f"  {line}")


def detached(job: Job) -> None:
    """Print how to return to the job, by its id: its name may be another job's by then."""
    note(f"\ndetached; {job.name} goes on as {job.id}")
    note(
        f"  come back: iris logs -f {job.id}    wait: iris wait {job.id}    end it: iris cancel {job.id}"
    )


def left_alone(job: Job, error: Unreachable | TryAgain | NotAllowed) -> BaseException:
    """Print how to return to a job that can be followed no longer; returns the error, which need
    not say so too.
    """
    if not job.ended:
        detached(job)
    return without_return(error)


def without_return(error: Unreachable | TryAgain | NotAllowed) -> BaseException:
    """The error of a gateway that is away for too long, without how the SDK returns to what it
    followed.
    """
    return error.__cause__ if isinstance(error.__cause__, Unreachable | TryAgain) else error


def note_warnings(made: Job | Deployment) -> None:
    """Print what the answer to a submission, or to a command about a deployment, warns of."""
    for warning in made.view.warnings:
        warn(warning)


def note(text: str) -> None:
    """Print one line on stderr."""
    click.echo(text, err=True)
