"""Starts, watches, restarts (with backoff) and stops a child process, which ends when this process
does.

Synchronous on purpose: the kernel's parent-death signal follows the thread that forked, so one
    thread forks all.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iris_core.backoff import Backoff

MISUSED = 2
DAMAGED = 65
"""Exit code of a service that found damaged data: a restart does not help, `iris admin repair`
does. EX_DATAERR.
"""

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_STEADY_S = 20.0
_LOG_BYTES = 32 << 20
_LAST_BYTES = 16 << 10


class StartFailed(Exception):
    """A child cannot be started, or ended or did not answer while starting; the text says why."""


class DamagedFiles(StartFailed):
    """A child's files are damaged; it was not started, and starting it later cannot help."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run.

    Attributes:
        service: nats, state, scheduler, gateway or worker. name: unique among the programs of one
            cluster; also the name of its log.
        kept: whether it is started again when it dies. metrics: the address of its ``/metrics``,
            empty: not served.
        stop_s: how long it may take to end after TERM. inherits_output: it writes to this process's
            output.
        timer_slack_ns: how late the kernel may wake it after a sleep (Linux only); 0: as this
            process, usually 50 us.
    """

    service: str
    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    kept: bool = True
    metrics: str = ""
    stop_s: float = 6.0
    inherits_output: bool = False
    timer_slack_ns: int = 0


class ChildProcess:
    """A `Program` that runs, or will be started again at ``due`` (monotonic seconds).

    Args:
        logs: the directory of its log; None for a program that writes one itself.
    """

    def __init__(self, program: Program, logs: Path | None = None) -> None:
        self.program = program
        self.due: float | None = None
        self.starts = 0
        self._log = logs / f"{program.name}.log" if logs is not None else Path(os.devnull)
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._restarts = Backoff(_PAUSE_S, _LONGEST_PAUSE_S)
        self._is_first_restart = True

    @property
    def pid(self) -> int:
        """0 while it does not run."""
        return (
            self._process.pid
            if self._process is not None and self._process.returncode is None
            else 0
        )

    def prepare(self) -> None:
        """Called before each start. Raises StartFailed, OSError."""

    def why_restart(self) -> str:
        """Why a running child should be restarted; empty when it is healthy."""
        return ""

    def spawn(self, now: float) -> None:
        """Start it in its own process group and append its output to its log. Raises StartFailed,
        OSError.
        """
        self.due = None
        self._started = now
        self.prepare()
        self.starts += 1
        _begin_anew(self._log)
        with self._log.open("ab", buffering=0) as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self.program.argv,
                env=self.program.env,
                stdin=subprocess.DEVNULL,
                stdout=None if self.program.inherits_output else log,
                stderr=None if self.program.inherits_output else log,
                process_group=0,
                preexec_fn=end_with_parent(self.program.timer_slack_ns),  # noqa: PLW1509 - system calls, no lock
            )

    def look(self, now: float) -> int | None:
        """The exit code of a child that has just ended (negative: the signal), returned once; None
        otherwise.
        """
        _begin_anew(self._log)
        if not self.pid or self._process is None or self._process.poll() is None:
            return None
        if self.program.kept and self._process.returncode != DAMAGED:
            self.plan_restart(now)
        return self._process.returncode

    def last_words(self) -> str:
        """The last line that it has written into its log since its last start, without what
        precedes the message of a structured one; empty for none.
        """
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _LAST_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
            line = next((line.strip() for line in reversed(lines) if line.strip()), "")
            with contextlib.suppress(ValueError, TypeError, KeyError):
                return str(json.loads(line)["message"])
            return line
        return ""

    def never_began(self, code: int) -> bool:
        """Whether exit ``code`` means that the settings or the data did not allow a start, so a
        restart is useless.
        """
        return code in (MISUSED, DAMAGED) and self.starts == 1

    def signal(self, number: signal.Signals) -> None:
        if self.pid:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send KILL."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self, grace_s: float = 15.0) -> None:
        """Send TERM, then KILL after the grace period; returns when it has ended. Safe to call
        twice.
        """
        if self._process is not None:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)  # a stopped process (SIGSTOP) would not handle TERM
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
            self.kill()

    def plan_restart(self, now: float) -> None:
        """Restart at once after a steady run; the pause grows each time the process dies soon
        again.
        """
        if now - self._started > _STEADY_S:
            self._restarts.reset()
            self._is_first_restart = True
        self.due = now if self._is_first_restart else now + self._restarts.next_s()
        self._is_first_restart = False


def end_with_parent(timer_slack_ns: int = 0) -> Callable[[], None]:
    """What a new child does before exec: have the kernel send it TERM when this process dies,
    however (Linux only).

    This process may have died already, and its handler of TERM, which is the child's until exec,
    would drop the signal. ``timer_slack_ns``: see `Program`.
    """
    parent = os.getpid()

    def begin() -> None:
        if _LIBC is not None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            _LIBC.prctl(_PR_SET_TIMERSLACK, timer_slack_ns, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return begin


def _begin_anew(log: Path) -> None:
    """Rotate a long log: its content becomes the previous log, and the writer continues in the
    emptied file.

    By copying, because the service keeps the file open; a line that is written meanwhile may be
    lost.
    """
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_BYTES:
            with contextlib.suppress(OSError):  # the disk is full
                shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)
