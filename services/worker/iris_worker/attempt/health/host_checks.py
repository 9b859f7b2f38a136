"""Runs the operator's check of this host. Part of the shell: it waits.

While the check fails the host is in trouble, and what fails here is a failure of the host. The
check is a child of the worker, in a session of its own, outside of sandboxes. Out of scope: other
    faults (failed_starts, launcher_watch).
Source: docs/hosts.md#checks-of-a-host.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import structs

from iris_core.limits import clipped
from iris_core.messages.state_worker import Ended
from iris_core.states import Cause
from iris_service.child import end_with_parent
from iris_worker.clock import HostClock
from iris_worker.host import host
from iris_worker.settings import CheckSettings

log = logging.getLogger(__name__)

_FIRST = "host check has not passed since the worker started"
_RUN = ("/bin/sh", "-c", 'exec "$0" "$@"')
"""A program on a file system that does not answer is opened by the child, for which this process
does not wait.
"""
_REST = 10
_REST_S = 1.0
"""For so many times its duration, but at least so long, a check that judged a failure judges those
that follow.
"""
_KILL_S = 1.0
"""For so long a check that was killed is waited for; one that reads a dead file system may never
end.
"""
_TAIL_BYTES = 4096
_READ_BYTES = 1 << 20
"""More than a pipe holds."""


class HostChecks:
    """The checks of one host, one at a time.

    Args:
        worker: its name, for the environment of the check. spawn: makes a task of the event loop.
        is_idle: whether no attempt runs here. on_change: called when `trouble` changes.
        on_end: called with whether a check has passed, and how many seconds it took.

    Attributes:
        trouble: why the host is not well, as far as is known; empty: it is.
    """

    def __init__(
        self,
        settings: CheckSettings,
        worker: str,
        clock: HostClock,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        is_idle: Callable[[], bool],
        on_change: Callable[[], None],
        on_end: Callable[[bool, float], None],
    ) -> None:
        self._settings = settings
        self._env = {**host.variables(), "IRIS_WORKER_ID": worker}
        self._clock = clock
        self._spawn = spawn
        self._is_idle = is_idle
        self._on_change = on_change
        self._on_end = on_end
        self._check: asyncio.Task[None] | None = None
        self._ended_s = self._took_s = self._rests_until_s = 0.0
        self._last: Process | None = None
        self.trouble = _FIRST if self.runs("start") else ""

    def runs(self, when: str) -> bool:
        """Whether there is a check on this occasion."""
        return bool(self._settings.command) and when in self._settings.when

    async def run(self) -> None:
        """Check at the start and at intervals: until cancelled, if there is a check."""
        if self.runs("start"):
            await self.verdict()
        while self._settings.command:
            await asyncio.sleep(self._settings.interval_s)
            if self.trouble or (self.runs("idle") and self._is_idle()):
                await self.verdict()

    async def verdict(self) -> str:
        """`trouble` by a check that runs or begins now."""
        await asyncio.wait({self._now()})
        return self.trouble

    def judges(self, ended: Ended) -> bool:
        """Whether an end is a failure that may be the host's."""
        failed = ended.cause is Cause.EXITED and (ended.exit_code, ended.signal) != (0, None)
        return failed and self.runs("after_failure")

    def judge(self, ended: Ended, then: Callable[[Ended], None]) -> None:
        """Call ``then`` with the end of an attempt that failed, charged by a check that runs or
        begins now, or has judged another failure just before.
        """
        if not self._is_running and self._clock.steady_s() < self._rests_until_s:
            then(self._charged(ended))
        else:
            self._now().add_done_callback(lambda _: self._judged(ended, then))

    def _judged(self, ended: Ended, then: Callable[[Ended], None]) -> None:
        self._rests_until_s = self._ended_s + min(
            max(_REST_S, _REST * self._took_s), self._settings.interval_s
        )
        then(self._charged(ended))

    def _charged(self, ended: Ended) -> Ended:
        if not self.trouble:
            return ended
        how = f"exit code {ended.exit_code}" if ended.signal is None else f"signal {ended.signal}"
        error = clipped(
            f"{self.trouble}; the task ended with {how}{ended.error and f': {ended.error}'}"
        )
        return structs.replace(ended, cause=Cause.INFRASTRUCTURE, error=error)

    @property
    def _is_running(self) -> bool:
        return self._check is not None and not self._check.done()

    def _now(self) -> asyncio.Task[None]:
        """The check that runs, or one that begins now."""
        if self._check is None or self._check.done():
            self._check = self._spawn(self._run())
        return self._check

    async def _run(self) -> None:
        began_s = self._clock.steady_s()
        try:
            fault = await self._fault()
        except OSError as error:
            fault = str(error)
        self._ended_s = self._clock.steady_s()
        self._took_s = self._ended_s - began_s
        self._on_end(not fault, self._took_s)
        trouble = clipped(f"host check failed: {fault}") if fault else ""
        if trouble != self.trouble:
            self.trouble = trouble
            log.log(
                logging.ERROR if fault else logging.INFO, "%s", trouble or "the host check passes"
            )
            self._on_change()

    async def _fault(self) -> str:
        """Run the command; returns why it fails, empty when it passes. Raises OSError."""
        limit = f"{self._settings.timeout_s:g} s"
        if self._last is not None and self._last.returncode is None:
            return f"the last one was killed after {limit}, and has not ended"
        output = _LastOutput()
        try:
            process = await asyncio.create_subprocess_exec(
                *_RUN,
                *self._settings.command,
                stdin=DEVNULL,
                stdout=output.end,
                stderr=output.end,
                cwd="/",
                env=self._env,
                start_new_session=True,
                preexec_fn=end_with_parent(),
            )
            code = await self._exit_code(process)
            last = output.last_line()
        finally:
            output.close()
        if code is None:
            return f"no end within {limit}{last and f': {last}'}"
        if code == 0:
            return ""
        return last or (f"exit code {code}" if code > 0 else f"killed by signal {-code}")

    async def _exit_code(self, process: Process) -> int | None:
        """The exit code of the check, negative for a signal; None: it was killed, with all that it
        has started.
        """
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await process.wait()
        except TimeoutError:
            return None
        finally:
            self._last = process
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_S):
                    await process.wait()


class _LastOutput:
    """The last output of a process, which may print without end, and may leave others that print.

    Attributes:
        end: the descriptor that it writes to.
    """

    def __init__(self) -> None:
        self._read_end, self.end = os.pipe()
        self._tail = b""
        os.set_blocking(self._read_end, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._tail = (self._tail + os.read(self._read_end, _READ_BYTES))[-_TAIL_BYTES:]

    def last_line(self) -> str:
        """The last line that is not empty, as far as it is read."""
        self._read()
        return " ".join(self._tail.decode(errors="replace").strip().rpartition("\n")[2].split())

    def close(self) -> None:
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        os.close(self.end)
