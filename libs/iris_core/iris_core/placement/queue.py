"""The pending tasks of all jobs in the order of `priority.PriorityKey`. It decides nothing.

Two levels, because the tasks of one job are neighbours in that order: a SortedKeyList of jobs, and
for each job the sorted indexes that wait. A job has at most `spec.jobs.MAX_REPLICAS` tasks, so its
indexes are a compact array whose worst move is 40 kB; everything that grows with the queue is O(log
n). Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence

from sortedcontainers import SortedKeyList, SortedList

from iris_core.errors import InvariantBroken
from iris_core.placement.priority import PriorityKey

Range = tuple[int, int]
"""Task indexes from the first up to, and not including, the second."""

_FEW = 16


class TaskQueue:
    """The queue of pending tasks.

    A job is in the queue while one of its tasks is pending, at the key it was first added with: a
    requeued task takes its old place.
    """

    def __init__(self) -> None:
        self._keys: dict[int, PriorityKey] = {}
        self._waiting: dict[int, array[int]] = {}
        self._order = SortedKeyList(key=self._keys.__getitem__)
        self._counts = _CountsBefore()
        self._length = 0

    def __len__(self) -> int:
        """How many tasks are pending."""
        return self._length

    def __contains__(self, task: tuple[int, int]) -> bool:
        """Whether the task (job number, index) is pending."""
        waiting = self._waiting.get(task[0])
        return waiting is not None and _holds(waiting, task[1])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Every pending task (job number, index) in order. The queue must not change during the
        iteration.
        """
        for job in self._order:
            for index in self._waiting[job]:
                yield job, index

    def jobs(self, after: PriorityKey | None = None) -> Iterator[int]:
        """Numbers of the jobs with pending tasks, in order; with ``after``, those after that
        key.
        """
        if after is None:
            return iter(self._order)
        return iter(self._order.irange_key(min_key=after, inclusive=(False, True)))

    def pending(self, job: int) -> Sequence[int]:
        """The pending indexes of ``job``, ascending: a read-only view, valid until the queue
        changes.
        """
        return self._waiting.get(job, _NONE)

    def ranges(self, job: int) -> tuple[Range, ...]:
        """The same as half-open ranges, as messages carry them."""
        return as_ranges(self.pending(job))

    def key(self, job: int) -> PriorityKey:
        """The key of a job in the queue. Raises KeyError."""
        return self._keys[job]

    def position(self, job: int, index: int = 0) -> int:
        """How many pending tasks precede task ``index`` of a job in the queue. Raises KeyError."""
        return self._counts.before(self._keys[job]) + bisect_left(self._waiting[job], index)

    def add(self, job: int, key: PriorityKey, ranges: Iterable[Range]) -> int:
        """Add pending tasks; those already in the queue are not added again. Returns how many are
        new.
        """
        waiting = self._waiting.get(job)
        if waiting is None:
            return self._enter(job, key, _joined(_NONE, ranges))
        before = len(waiting)
        self._waiting[job] = waiting = _joined(waiting, ranges)
        self._recount(job, before, len(waiting))
        return len(waiting) - before

    def remove(self, job: int, index: int) -> bool:
        """Remove one task. False when it was not in the queue."""
        return self.take(job, (index,)) == 1

    def remove_ranges(self, job: int, ranges: Iterable[Range]) -> int:
        """Remove ranges of a job's tasks. Returns how many were in the queue."""
        waiting = self._waiting.get(job)
        if waiting is None:
            return 0
        before = len(waiting)
        for start, stop in ranges:
            del waiting[bisect_left(waiting, start) : bisect_left(waiting, stop)]
        self._recount(job, before, len(waiting))
        return before - len(waiting)

    def take(self, job: int, indexes: Iterable[int]) -> int:
        """Remove several tasks of a job. Returns how many were in the queue."""
        waiting = self._waiting.get(job)
        if waiting is None:
            return 0
        before = len(waiting)
        for index in indexes:
            at = bisect_left(waiting, index)
            if at < len(waiting) and waiting[at] == index:
                del waiting[at]
        self._recount(job, before, len(waiting))
        return before - len(waiting)

    def move(self, job: int, key: PriorityKey) -> None:
        """Give a job another key, if it is in the queue."""
        ranges = self.ranges(job)
        if ranges:
            self.drop(job)
            self.add(job, key, ranges)

    def drop(self, job: int) -> int:
        """Remove a whole job. Returns how many of its tasks were in the queue."""
        waiting = self._waiting.get(job)
        if waiting is None:
            return 0
        count = len(waiting)
        self._recount(job, count, 0)
        return count

    def check(self) -> None:
        """Raises InvariantBroken unless the order is sorted and complete, and every count equals a
        recount.
        """
        order = list(self._order)
        if (
            order != sorted(self._keys, key=self._keys.__getitem__)
            or self._keys.keys() != self._waiting.keys()
        ):
            raise InvariantBroken("queue order differs from its sorted keys")
        total = 0
        for job in order:
            waiting = self._waiting[job]
            if not waiting or list(waiting) != sorted(set(waiting)):
                raise InvariantBroken(f"job {job} waits with the indexes {waiting[:20].tolist()}")
            if self._counts.before(self._keys[job]) != total:
                raise InvariantBroken(
                    f"job {job} stands at {self._counts.before(self._keys[job])}, not at {total}"
                )
            total += len(waiting)
        if total != self._length:
            raise InvariantBroken(f"queue length {self._length}, recount {total}")

    def _enter(self, job: int, key: PriorityKey, waiting: array[int]) -> int:
        if waiting:
            self._keys[job] = key
            self._waiting[job] = waiting
            self._order.add(job)
            self._recount(job, 0, len(waiting))
        return len(waiting)

    def _recount(self, job: int, before: int, now: int) -> None:
        if before == now:
            return
        self._length += now - before
        self._counts.change(self._keys[job], before, now)
        if not now:
            self._order.remove(job)
            del self._keys[job], self._waiting[job]


class _CountsBefore:
    """Counts the tasks before a key, in O(log n).

    For each binary digit the sorted keys of the jobs whose count of waiting tasks has that digit; a
    job that counts down from k moves through them 2k times in all.
    """

    def __init__(self) -> None:
        self._digits: list[SortedList] = []

    def change(self, key: PriorityKey, before: int, now: int) -> None:
        flipped = before ^ now
        while len(self._digits) < flipped.bit_length():
            self._digits.append(SortedList())
        for place in range(flipped.bit_length()):
            digit = 1 << place
            if now & flipped & digit:
                self._digits[place].add(key)
            elif flipped & digit:
                self._digits[place].remove(key)

    def before(self, key: PriorityKey) -> int:
        return sum(keys.bisect_left(key) << place for place, keys in enumerate(self._digits))


_NONE: array[int] = array("I")


def as_ranges(indexes: Iterable[int]) -> tuple[Range, ...]:
    """Ascending indexes as half-open ranges."""
    ranges: list[Range] = []
    start = stop = -1
    for index in indexes:
        if index != stop:
            if stop >= 0:
                ranges.append((start, stop))
            start = index
        stop = index + 1
    if stop >= 0:
        ranges.append((start, stop))
    return tuple(ranges)


def _holds(waiting: array[int], index: int) -> bool:
    at = bisect_left(waiting, index)
    return at < len(waiting) and waiting[at] == index


def _joined(waiting: array[int], ranges: Iterable[Range]) -> array[int]:
    ranges = tuple(ranges)
    if waiting and sum(stop - start for start, stop in ranges) <= _FEW:
        for index in (i for start, stop in ranges for i in range(start, stop)):
            if not _holds(waiting, index):
                insort(waiting, index)
        return waiting
    if not waiting and len(ranges) == 1:
        return array("I", range(*ranges[0]))
    return array(
        "I", sorted({*waiting, *(i for start, stop in ranges for i in range(start, stop))})
    )
