"""Attempts that this worker has had, so that a repeated or late order starts none of them again.

Bounded: the oldest task is dropped first. Orders from before a restart are fenced by their
incarnation, so nothing here is kept on disk.
"""

from __future__ import annotations

from itertools import islice

from iris_core.messages.message import AttemptRef

LIMIT = 200_000
"""Number of tasks kept."""
TASK_BYTES = 110
"""Bytes of memory per task, at most."""
_SHARE = 100
"""One in this many is dropped at a time: removing the first entry of a dict gets slower with each
entry removed before it.
"""
_INDEX_BITS = 32


class SeenAttempts:
    """The highest attempt of each task that this worker accepted or refused for good."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._highest: dict[int, int] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self._highest)

    def add(self, ref: AttemptRef) -> None:
        """Add ``ref``; it stands for every earlier attempt of the task too."""
        key = _key(ref)
        known = self._highest.get(key)
        if known is None and len(self._highest) >= self._limit:
            for oldest in list(islice(self._highest, max(1, self._limit // _SHARE))):
                del self._highest[oldest]
        if known is None or ref.attempt > known:
            self._highest[key] = ref.attempt

    def __contains__(self, ref: AttemptRef) -> bool:
        return ref.attempt <= self._highest.get(_key(ref), -1)


def _key(ref: AttemptRef) -> int:
    """The task as one number: a tuple would take twice the memory."""
    return ref.job << _INDEX_BITS | ref.index
