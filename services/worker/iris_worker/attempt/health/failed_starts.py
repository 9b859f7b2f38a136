"""Counts the starts in a row that fail for a fault of this host: from some number on the host is in trouble.

What a task asks for or brings with it never counts, so no task puts its host in trouble. Out of scope: finding out
whether the fault is gone (start_trials).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable

from iris_core.limits import clipped
from iris_core.messages.state_worker import Ended
from iris_core.states import Cause
from iris_worker.attempt.ends import cannot_start
from iris_worker.launcher.records.records import Exit

log = logging.getLogger(__name__)


class FailedStarts:
    """Those of one host since a task was started.

    Args:
        limit: after so many it is in trouble; 0: never. on_change: called when it is, and when it is no longer.

    Attributes:
        in_trouble: set while it is.
    """

    def __init__(self, limit: int, on_change: Callable[[], object]) -> None:
        self._limit = limit
        self._on_change = on_change
        self.in_trouble = asyncio.Event()
        self._count = 0
        self._error = ""

    @property
    def trouble(self) -> str:
        """Why nothing can be started here; empty when it can, as far as is known."""
        return clipped(f"{self._count} starts in a row failed: {self._error}") if self.in_trouble.is_set() else ""

    def refused(self, error: OSError) -> Ended:
        """The end of an attempt that could not be given what it needs to start."""
        ended = cannot_start(error)
        if ended.cause is Cause.INFRASTRUCTURE and error.errno not in (None, errno.EADDRINUSE):
            self._fail(str(error))
        return ended

    def exited(self, exit_: Exit) -> None:
        """A process has ended, or could not be started."""
        if exit_.of_host:
            self._fail(exit_.error)

    def _fail(self, error: str) -> None:
        self._count, self._error = self._count + 1, error
        if 0 < self._limit <= self._count and not self.in_trouble.is_set():
            self.in_trouble.set()
            log.error("%s", self.trouble)
            self._on_change()

    def started(self, *, trial: bool = False) -> None:
        """A task has been started; or, as a ``trial``, another program: then one failure is trouble again."""
        self._count = self._limit - 1 if trial else 0
        if self.in_trouble.is_set():
            self.in_trouble.clear()
            log.info("starts succeed again")
            self._on_change()
