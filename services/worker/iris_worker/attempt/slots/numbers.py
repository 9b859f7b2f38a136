"""Which slots attempts have. Pure.

An attempt has a slot, and so a user and a sandbox, to itself. Attempts of one job that are cloned
from a template share
some: what their template has imported is imported once for all of them.
Source: docs/design/calls.md#slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

SHARED_BY = 16
"""Attempts that share a slot at most: a template that makes the clones of more is slower than they
are.
"""


class SlotNumbers:
    """The slots of one host."""

    def __init__(self) -> None:
        self._next = 0
        self._free: list[int] = []
        self._left: list[int] = []
        self._attempts: Counter[int] = Counter()
        self._job: dict[int, int] = {}
        self._of_job: dict[int, list[int]] = {}
        self._spoilt: set[int] = set()

    def begin(self, used: Collection[int]) -> None:
        """A worker starts: attempts of an earlier one have these."""
        self._next = max(used, default=-1) + 1
        self._free = [number for number in range(self._next) if number not in used]

    def reserve(self, job: int = 0) -> int:
        """The number of a slot that one more attempt has from now on. ``job``: whose attempts share
        it; 0: nobody's.
        """
        number = next(
            (one for one in self._of_job.get(job, ()) if self._attempts[one] < SHARED_BY), None
        )
        if number is None:
            number = self._take(job)
        elif not self._attempts[number]:
            self._left.remove(number)
        self._attempts[number] += 1
        return number

    def _take(self, job: int) -> int:
        """A slot that no attempt has, if possible none of a job that may come back; the last one is
        warm.
        """
        free = self._free or self._left
        number = free.pop() if free else self._next
        self._next = max(self._next, number + 1)
        self.retire(number)
        if job:
            self._job[number] = job
            self._of_job.setdefault(job, []).append(number)
        return number

    def retire(self, number: int) -> None:
        """It is no job's any more: no further attempt gets it while others have it."""
        if job := self._job.pop(number, 0):
            self._of_job[job].remove(number)
            if not self._of_job[job]:
                del self._of_job[job]

    def join(self, number: int) -> None:
        """An attempt of an earlier worker has it."""
        self._attempts[number] += 1

    def give(self, number: int) -> None:
        """An attempt has it no longer. What a job has shared is given to another job after all
        others are.
        """
        self._attempts[number] -= 1
        if self._attempts[number] > 0:
            return
        del self._attempts[number]
        if number in self._spoilt:
            return
        (self._left if number in self._job else self._free).append(number)

    def spoil(self, number: int) -> None:
        """Nobody gets it any more: what an attempt has left there cannot be taken away."""
        self._spoilt.add(number)
        for free in (self._free, self._left):
            if number in free:
                free.remove(number)
        self.retire(number)

    def is_shared(self, number: int, job: int) -> bool:
        """Whether others of this job may have it too."""
        return self._job.get(number) == job or number in self._spoilt

    def is_free(self, number: int) -> bool:
        return number not in self._attempts
