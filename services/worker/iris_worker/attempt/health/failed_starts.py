"""Counts the starts in a row that fail for a fault of this host: from some number on the host is in
trouble.

What a task asks for or brings with it never counts, so no task puts its host in trouble. A start
ends the row of those that needed nothing of the host that it did not need too: where only devices
fail, other tasks prove nothing of them. Out of scope: finding out whether the fault is gone
    (start_trials).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable

from iris_core.limits import clipped
from iris_core.messages.state_worker import Ended, TaskTemplate
from iris_core.states import Cause
from iris_worker.attempt.ends import OF_DISK, cannot_start
from iris_worker.launcher.records.records import Exit

log = logging.getLogger(__name__)

Needs = frozenset[str]
"""What of a host a start uses that others do not, in words."""
NOTHING: Needs = frozenset()
BUNDLE = "a bundle"
_OF_TASKS = (None, errno.EADDRINUSE, errno.EBUSY)
"""Ports and devices that others have."""


def needs_of(template: TaskTemplate) -> Needs:
    """What the start of a task uses that others do not."""
    used = {
        "devices": template.resources.device is not None,
        "a terminal": template.terminal,
        "an output directory": template.output != "",
        BUNDLE: template.bundle is not None or template.calls is not None,
    }
    return frozenset(word for word, uses in used.items() if uses)


class FailedStarts:
    """Those of one host since such tasks were started.

    Args:
        limit: after so many it is in trouble; 0: never. on_change: called when it is, and when it
            is no longer.

    Attributes:
        in_trouble: set while it is.
    """

    def __init__(self, limit: int, on_change: Callable[[], object]) -> None:
        self._limit = limit
        self._on_change = on_change
        self.in_trouble = asyncio.Event()
        self._failed: Counter[Needs] = Counter()
        self._last = NOTHING
        self._error = ""
        self._others = False

    @property
    def trouble(self) -> str:
        """Why nothing, or nothing of some kind, can be started here; empty when it can, as far as
        is known.
        """
        if not self.in_trouble.is_set():
            return ""
        kind = f" with {' and '.join(sorted(self.kind))}" if self._others and self.kind else ""
        return clipped(f"{self._failed.total()} starts in a row{kind} failed: {self._error}")

    @property
    def kind(self) -> Needs:
        """What all that have failed needed."""
        return frozenset.intersection(*self._failed) if self._failed else NOTHING

    def refused(self, error: OSError, needs: Needs = NOTHING) -> Ended:
        """The end of an attempt that could not be given what it needs to start."""
        ended = cannot_start(error)
        if ended.cause is Cause.INFRASTRUCTURE and error.errno not in _OF_TASKS:
            self._fail(str(error), needs)
        return ended

    def not_fetched(self, number: int | None, error: str) -> None:
        """A bundle, or what the call of a map reads, could not be put into the directory of an
        attempt.
        """
        if number in OF_DISK:
            self._fail(error, frozenset({BUNDLE}))

    def exited(self, exit_: Exit, needs: Needs = NOTHING) -> None:
        """A process has ended, or could not be started."""
        if exit_.of_host:
            self._fail(exit_.error, needs)

    def _fail(self, error: str, needs: Needs) -> None:
        self._failed[needs] += 1
        self._last = needs
        self._error = error
        if 0 < self._limit <= self._failed.total() and not self.in_trouble.is_set():
            self.in_trouble.set()
            log.error("%s", self.trouble)
            self._on_change()

    def started(self, needs: Needs = NOTHING, *, trial: bool = False) -> None:
        """A task has been started; or, as a ``trial``, another program: then one failure is trouble
        again.
        """
        if trial:
            self._failed = +Counter({self._last: self._limit - 1})
        elif self._failed:
            self._failed = Counter(
                {kind: times for kind, times in self._failed.items() if not kind <= needs}
            )
            self._others = bool(self._failed)
        if self.in_trouble.is_set() and self._failed.total() < self._limit:
            self.in_trouble.clear()
            log.info("starts succeed again")
            self._on_change()
