"""Which attempts were here once: so that an order that comes again, or late, starts nothing a second time.

Bounded: the oldest job is forgotten first. Orders of before a restart are fenced by their incarnation, so nothing
here is kept on disk.
"""

from __future__ import annotations

from iris_core.messages import AttemptRef

LIMIT = 200_000
"""Tasks remembered; about 100 bytes each."""


class Past:
    """The highest attempt of each task that this worker ever took or refused for good."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._jobs: dict[int, dict[int, int]] = {}
        self._count = 0
        self._limit = limit

    def add(self, ref: AttemptRef) -> None:
        """Remember ``ref``, and with it every earlier attempt of the same task."""
        tasks = self._jobs.get(ref.job)
        if tasks is None:
            tasks = self._jobs[ref.job] = {}
        known = tasks.get(ref.index)
        if known is None:
            self._count += 1
            tasks[ref.index] = ref.attempt
            if self._count > self._limit:
                self._forget()
        elif ref.attempt > known:
            tasks[ref.index] = ref.attempt

    def __contains__(self, ref: AttemptRef) -> bool:
        tasks = self._jobs.get(ref.job)
        return tasks is not None and ref.attempt <= tasks.get(ref.index, -1)

    def _forget(self) -> None:
        """Drop whole jobs, those seen first first; a single huge job is kept whole."""
        while self._count > self._limit and len(self._jobs) > 1:
            self._count -= len(self._jobs.pop(next(iter(self._jobs))))
