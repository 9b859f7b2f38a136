"""Timers: timeouts of placed work, of tasks and of jobs. Work per event, never per tick.

Every status with a timeout has one FIFO queue: its timeout is one number and time never goes back,
so the first to enter is due first. Limits that differ per job are in one sorted list. The caller
passes the time. Source: docs/design/semantics.md#jobs, docs/design/semantics.md#sessions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice
from operator import itemgetter
from typing import Generic, TypeVar

from sortedcontainers import SortedKeyList

K = TypeVar("K", bound=Hashable)


class TimeoutQueue(Generic[K]):
    """The keys in one status with the time of entry, in order of entry."""

    def __init__(self) -> None:
        self._since: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._since)

    def enter(self, key: K, at_ms: int) -> None:
        """Restart the timer of ``key``, at the end of the queue."""
        self._since.pop(key, None)
        self._since[key] = at_ms

    def leave(self, key: K) -> None:
        """Stop the timer of ``key``; no error when it has none."""
        self._since.pop(key, None)

    def items(self) -> Iterable[tuple[K, int]]:
        """Every key with the time of its entry, first come first."""
        return self._since.items()

    def keep_order(self) -> None:
        """Sort, if the last key has an earlier time than the one before it."""
        last = list(islice(reversed(self._since.values()), 2))
        if len(last) == 2 and last[0] < last[1]:
            self.sort()

    def sort(self) -> None:
        """Sort the keys by time, after they were entered in another order."""
        self._since = dict(sorted(self._since.items(), key=lambda entry: entry[1]))

    def over(self, timeout_ms: int, now_ms: int) -> list[K]:
        """Every key that has been in the status strictly longer than ``timeout_ms``."""
        late = []
        for key, since in self._since.items():
            if now_ms - since <= timeout_ms:
                break
            late.append(key)
        return late

    def next_due(self, timeout_ms: int) -> int | None:
        """When the first key becomes overdue, ms; None when there is none."""
        for since in self._since.values():
            return since + timeout_ms + 1
        return None


class TimerQueue(Generic[K]):
    """One time for each key, in a sorted list."""

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._order: SortedKeyList[tuple[int, K], int] = SortedKeyList(key=itemgetter(0))

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, due_ms: int) -> None:
        """Set the timer of ``key`` to ``due_ms``, in place of an earlier one."""
        self.clear(key)
        self._due[key] = due_ms
        self._order.add((due_ms, key))

    def clear(self, key: K) -> None:
        due = self._due.pop(key, None)
        if due is not None:
            self._order.remove((due, key))

    def items(self) -> Iterable[tuple[K, int]]:
        """Every key with its time, unordered."""
        return self._due.items()

    def due(self, now_ms: int) -> list[K]:
        """Every key whose time has come, in order."""
        return [key for _, key in self._order.irange_key(None, now_ms)]

    def is_due(self, key: K, now_ms: int) -> bool:
        """Whether the time of ``key`` has come; False when it has none."""
        return key in self._due and self._due[key] <= now_ms

    def next_due(self) -> int | None:
        return self._order[0][0] if self._order else None
