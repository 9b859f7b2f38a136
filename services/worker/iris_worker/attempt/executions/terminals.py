"""The terminals of this host's attempts: which is read by whom, and the end of those that nobody
reads.

The launcher holds the other end of each, so a terminal outlives the worker, and the connection of
its client.
Source: docs/adr/0044-commands-beside-tasks-are-read-by-requests.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from dataclasses import dataclass

from iris_core.messages.message import AttemptRef
from iris_worker.agent.agent import DROP_GRACE_MS
from iris_worker.attempt.executions.execution import Execution
from iris_worker.attempt.running import RunningAttempt, RunningAttempts
from iris_worker.launcher.client import LauncherClient
from iris_worker.launcher.records.records import Exit, OpenTerminal, StopProcess

log = logging.getLogger(__name__)

_OPEN_S = 5.0
_HUNG_UP = 128 + signal.SIGHUP
_NO_TERMINAL = "it has no terminal; one that `iris run --interactive` starts has"
_NOT_KEPT = b"iris: it reads and writes a terminal; what is shown there is not kept\n"
_GONE = "its terminal is gone with an earlier launcher of this host"


@dataclass(slots=True)
class _Terminal:
    """What reads an attempt's terminal (None: nothing yet), and since when nobody is connected, by
    the loop's clock.
    """

    execution: Execution | None
    since_s: float | None


class Terminals:
    """All terminals of this host's attempts.

    Args:
        silent_s: how long an attempt goes on while nobody is connected to its terminal.
    """

    def __init__(
        self, launcher: LauncherClient, attempts: RunningAttempts, silent_s: float
    ) -> None:
        self._launcher = launcher
        self._attempts = attempts
        self._silent_s = silent_s
        self._loop = asyncio.get_running_loop()
        self._by_ref: dict[AttemptRef, _Terminal] = {}

    def give(self, attempt: RunningAttempt) -> None:
        """An attempt is to be started with a terminal. Raises OSError."""
        attempt.terminal = True
        os.write(attempt.slot.out, _NOT_KEPT)

    async def attach(self, ref: AttemptRef, user: str) -> Execution:
        """What reads and writes the terminal of an attempt, for a new client. Raises OSError."""
        attempt = self._attempts.living(ref)
        if attempt is None or attempt.starting is not None:
            raise ProcessLookupError("the task does not run here")
        if not attempt.terminal:
            raise OSError(_NO_TERMINAL)
        if self._of(attempt).execution is None:
            fd = await self._open(ref)
            if (
                not attempt.alive or self._of(attempt).execution is not None
            ):  # opened by another request meanwhile
                os.close(fd)
            else:
                self._begin(attempt, Execution.of_terminal(fd))
        terminal = self._of(attempt)
        if terminal.execution is None:
            raise ProcessLookupError("the task has ended")
        terminal.execution.pass_to(user)
        terminal.since_s = None
        return terminal.execution

    def _begin(self, attempt: RunningAttempt, execution: Execution) -> None:
        self._of(attempt).execution = execution
        attempt.on_exit = execution.on_exit
        execution.begin()

    def _of(self, attempt: RunningAttempt) -> _Terminal:
        return self._by_ref.setdefault(attempt.ref, _Terminal(None, self._loop.time()))

    async def _open(self, ref: AttemptRef) -> int:
        """The launcher's end of a terminal. Raises OSError."""
        here, there = socket.socketpair()
        with here:
            with there:
                self._launcher.send_with(OpenTerminal(ref), [there.fileno()])
            here.setblocking(False)
            readable = asyncio.Event()
            self._loop.add_reader(here, readable.set)
            try:
                async with asyncio.timeout(_OPEN_S):
                    await readable.wait()
            except TimeoutError:
                raise OSError("the launcher does not answer") from None
            else:
                _, fds, _, _ = socket.recv_fds(here, 1, 1)
            finally:
                self._loop.remove_reader(here)
        if not fds:
            raise OSError(_GONE)
        os.set_inheritable(fds[0], False)
        return fds[0]

    def leave(self, execution: Execution) -> None:
        """Its client has gone; another may come."""
        for terminal in self._by_ref.values():
            if terminal.execution is execution:
                terminal.since_s = self._loop.time()

    def check(self) -> None:
        """End the attempts to whose terminals nobody has been connected for too long. To be called
        at intervals.
        """
        now_s = self._loop.time()
        for attempt in [
            one for one in self._attempts.all_living() if one.terminal and one.starting is None
        ]:
            since_s = self._of(attempt).since_s
            if since_s is None or now_s - since_s < self._silent_s or attempt.blamed is not None:
                continue
            log.info("nobody is connected to its terminal", extra={"attempt": str(attempt.ref)})
            why = f"its terminal is gone: nobody has been connected to it for {self._silent_s:g} s"
            attempt.blamed = Exit(_HUNG_UP, error=why)
            self._launcher.send_now(StopProcess(attempt.ref, DROP_GRACE_MS, 0))
        for ref in [ref for ref in self._by_ref if self._attempts.living(ref) is None]:
            del self._by_ref[ref]

    def close(self) -> None:
        """The worker ends; the terminals do not."""
        for terminal in self._by_ref.values():
            if terminal.execution is not None:
                with contextlib.suppress(OSError):
                    terminal.execution.close()
