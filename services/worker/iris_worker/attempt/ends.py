"""What the end of a process, or of its start, means for its attempt."""

from __future__ import annotations

import contextlib
import errno
import os

from msgspec import structs

from iris_core.messages.state_worker import Artifact, Ended, Stage, TaskUsage
from iris_core.states import Cause, KernelStatus
from iris_core.units import show_bytes
from iris_worker.attempt.artifacts.directory import NoDirectory
from iris_worker.attempt.artifacts.uploader import STOPPED
from iris_worker.attempt.output.tail import last_lines
from iris_worker.attempt.slots.error_file import read_error_file
from iris_worker.attempt.slots.isolation import NoAccount
from iris_worker.attempt.slots.workspaces import Workspace
from iris_worker.host import host
from iris_worker.launcher.records.process_table import StoredProcess
from iris_worker.launcher.records.records import Exit
from iris_worker.launcher.starts.spawn import NOT_EXECUTABLE, NOT_FOUND

NO_RESULT = 1
"""The exit code of a call that has returned something which cannot be kept."""
OF_DISK = frozenset({errno.EIO, errno.EROFS})
"""The errors of a disk that no task is the reason of."""
INTERRUPTED = Ended(
    Cause.INFRASTRUCTURE, error="its worker was restarted while its environment was built"
)
_UNKNOWN = "exit code unknown: the process that had started it ended while it ran"
_CANNOT_START = "could not be started on this host"
_NO_PYTHON = (
    "; the calls of a map run the `python` of their PATH: set PATH in the map's env, give it an image or packages, "
    "or set PATH of the worker's process"
)
_NO_EXEC = (
    "; the directories of tasks on its host are on a file system mounted noexec, where no file can be executed: "
    "run it by its interpreter, or have the worker's data on another file system"
)
_SIGNALS = {
    9: " (SIGKILL: perhaps out of memory)",
    11: " (SIGSEGV)",
    6: " (SIGABRT)",
    15: " (SIGTERM)",
}


def cannot_start(error: OSError) -> Ended:
    """The end of an attempt that could not start because of this host, or of what its user asks
    for.
    """
    if isinstance(error, NoAccount | NoDirectory):
        return Ended(Cause.EXITED, NOT_EXECUTABLE, error=str(error))
    return Ended(Cause.INFRASTRUCTURE, error=f"{_CANNOT_START}: {error}")


def was_started(entry: StoredProcess) -> Stage:
    """The stage of an attempt of an earlier worker process before its end; without a process it was
    not started.
    """
    started = entry.started
    if entry.is_build:
        return Stage(started.ref, KernelStatus.PULLING, started.at_ms)
    status = KernelStatus.RUNNING if started.pid else KernelStatus.PREPARING
    return Stage(started.ref, status, started.at_ms, notices=entry.notices)


def describe(slot: Workspace, exit_: Exit) -> Ended:
    """An exit as the end in a report. Where nothing can be written to the disk any more, a failure
    is the host's.
    """
    peak = exit_.peak_rss_bytes
    usage = exit_.usage
    if not exit_.known:
        return Ended(Cause.WORKER_CRASHED, error=_UNKNOWN, peak_rss_bytes=peak, usage=usage)
    if exit_.error and exit_.code is None:
        return Ended(Cause.INFRASTRUCTURE, error=f"{_CANNOT_START}: {exit_.error}")
    if exit_.error:
        exit_ = structs.replace(exit_, error=exit_.error + _remedy(slot, exit_))
        with contextlib.suppress(OSError):  # the disk is full: the report names that too
            os.write(slot.err, f"iris: {exit_.error}\n".encode(errors="replace"))
        return Ended(Cause.EXITED, exit_.code, error=exit_.error)
    if exit_.code == 0:
        return Ended(Cause.EXITED, 0, peak_rss_bytes=peak, usage=usage)
    oom = out_of_memory(peak, usage, sampled=exit_.sampled)
    tail = last_lines(slot.err)
    error = oom or read_error_file(slot.workdir)
    if not error and exit_.signal is not None:
        error = f"killed by signal {exit_.signal}{_SIGNALS.get(exit_.signal, '')}"
    how = error or f"exit code {exit_.code}"
    if cannot := _remedy(slot, exit_):
        error = how + cannot
    if not oom and (fault := disk_fault(slot.err)):
        error = f"{how}; the disk of its host takes nothing any more: {fault}"
        return Ended(
            Cause.INFRASTRUCTURE, error=error, stderr_tail=tail, peak_rss_bytes=peak, usage=usage
        )
    if lack := host.lack(os.fstatvfs(slot.err)):  # what it has printed about that may be lost
        error = f"{how}; on its host: {lack}"
    return Ended(
        Cause.EXITED,
        exit_.code,
        exit_.signal,
        error,
        stderr_tail=tail,
        peak_rss_bytes=peak,
        usage=usage,
    )


def without_result(ended: Ended, artifact: Artifact) -> Ended:
    """The end of a call whose large result is not kept: it has failed, or was interrupted where it
    was told to stop, and is not a success whose result nobody can have.
    """
    error = f"what the call returned or raised is not kept: {artifact.note}"
    if artifact.note == STOPPED:
        return structs.replace(ended, cause=Cause.INFRASTRUCTURE, error=error, artifact=artifact)
    code = ended.exit_code or NO_RESULT
    return structs.replace(ended, exit_code=code, error=error, artifact=artifact)


def disk_fault(file: int) -> str:
    """Why nothing can be written to the file system of an open file, full or not; empty: it can."""
    try:
        os.utime(file)
    except OSError as error:
        return str(error.strerror) if error.errno in OF_DISK else ""
    return ""


def _remedy(slot: Workspace, exit_: Exit) -> str:
    """What else is to be said of a command that could not be run: what to do when the interpreter
    of a call is missing, and that no file can be executed where the task's directory is.
    """
    if exit_.code == NOT_EXECUTABLE and os.fstatvfs(slot.err).f_flag & os.ST_NOEXEC:
        return _NO_EXEC
    return _NO_PYTHON if slot.call and exit_.code == NOT_FOUND else ""


def out_of_memory(peak_bytes: int, usage: TaskUsage | None, *, sampled: bool = False) -> str:
    """The error of an attempt of which a process was killed for its memory limit; empty for
    another. ``sampled``: the worker has found that by a sample, and killed it.
    """
    if usage is None or not usage.memory_limit_bytes:
        return ""
    limit = show_bytes(usage.memory_limit_bytes)
    peak = show_bytes(peak_bytes)
    how = ", found by a sample: its host has no control groups for memory" if sampled else ""
    return f"memory limit {limit} reached, peak {peak}{how}"
