"""The indexes that the tasks of a job have: 0 to N-1, or a part of that. Pure.

A rerun of a part keeps the indexes of its tasks, so a set has holes. Its text is a list of indexes
and ranges, a range with a step where it has one: ``1,3,5`` or ``0-15:4,20``. Source:
    docs/design/semantics.md#jobs.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, pairwise

MAX_INDEXES = 10_000
"""Indexes of one set, and one more than the largest of them."""

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?\Z")
_CONSECUTIVE = 3
_APART = 4
"""The members from which a run is written as a range: with step 1, and with a larger one."""


class IndexSet:
    """A set of indexes in ascending order, stored as runs of equal step."""

    __slots__ = ("_before", "_count", "_firsts", "_runs")

    def __init__(self, runs: tuple[range, ...]) -> None:
        self._runs = runs
        self._firsts = [run[0] for run in runs]
        self._before = [0, *accumulate(map(len, runs))]
        self._count = self._before[-1]

    @classmethod
    def whole(cls, count: int) -> IndexSet:
        """0 to ``count`` - 1."""
        return cls((range(count),) if count else ())

    @classmethod
    def of(cls, members: Iterable[int]) -> IndexSet:
        """The set of these indexes, in any order."""
        return cls(tuple(_runs(sorted(set(members)))))

    @classmethod
    def parse(cls, text: str) -> IndexSet:
        """Raises ValueError, for a person, when the text is not a set of at most `MAX_INDEXES`
        indexes.
        """
        parts = list[range]()
        mistakes = list[str]()
        for part in text.split(","):
            try:
                parts.append(_part(part.strip()))
            except ValueError as mistake:
                mistakes.append(str(mistake))
        if mistakes:
            raise ValueError("; ".join(mistakes))
        if sum(map(len, parts)) > MAX_INDEXES:
            raise ValueError(f"{sum(map(len, parts))} indexes; the limit is {MAX_INDEXES}")
        members = [index for part in parts for index in part]
        if len(set(members)) < len(members):
            twice = next(index for index, after in pairwise(sorted(members)) if index == after)
            raise ValueError(f"index {twice} appears twice")
        return cls.of(members)

    def __str__(self) -> str:
        return ",".join(map(_words, self._runs))

    def __repr__(self) -> str:
        return f"IndexSet({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and self._runs == other._runs

    def __hash__(self) -> int:
        return hash(self._runs)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for run in self._runs:
            yield from run

    def __contains__(self, index: int) -> bool:
        at = bisect_right(self._firsts, index) - 1
        return at >= 0 and index in self._runs[at]

    def __getitem__(self, position: int) -> int:
        """The index at a position. Raises IndexError."""
        if not 0 <= position < self._count:
            raise IndexError(position)
        at = bisect_right(self._before, position) - 1
        return self._runs[at][position - self._before[at]]

    def position(self, index: int) -> int:
        """How many members are smaller than a member. Raises KeyError for another index."""
        at = bisect_right(self._firsts, index) - 1
        if at < 0 or index not in self._runs[at]:
            raise KeyError(index)
        run = self._runs[at]
        return self._before[at] + (index - run[0]) // run.step

    def since(self, index: int) -> Iterator[int]:
        """The members from an index on; it need not be a member."""
        for run in self._runs:
            if run[-1] >= index:
                skipped = max(0, -(-(index - run[0]) // run.step))
                yield from run[skipped:]

    def is_within(self, count: int) -> bool:
        """Whether all members are below ``count``."""
        return not self._runs or self._runs[-1][-1] < count

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of consecutive members, as messages to schedulers have them."""
        found: list[tuple[int, int]] = []
        for run in self._runs:
            found += (
                [(run.start, run.stop)] if run.step == 1 else [(index, index + 1) for index in run]
            )
        return tuple(found)


PARSED = 64
"""Sets that are kept parsed: one of 10,000 scattered indexes takes a megabyte."""


@lru_cache(maxsize=PARSED)
def indexes_of(text: str, count: int) -> IndexSet:
    """The indexes of a job of ``count`` tasks: all, or those of a text that `IndexSet.parse`
    accepts.
    """
    return IndexSet.parse(text) if text else IndexSet.whole(count)


def _part(text: str) -> range:
    found = _PART.match(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is neither an index nor a range: 7, 0-9, or 0-15:4")
    first = int(found[1])
    last = int(found[2] or found[1])
    step = int(found[3] or 1)
    if last < first or not step:
        raise ValueError(f"{text!r} is an empty range")
    return range(first, last + 1, step)


def _runs(members: list[int]) -> Iterator[range]:
    """Ascending members as runs: consecutive ones, else four or more of equal distance, else single
    ones.
    """
    at = 0
    while at < len(members):
        step = members[at + 1] - members[at] if at + 1 < len(members) else 1
        end = at + 1
        while end < len(members) and members[end] - members[end - 1] == step:
            end += 1
        if end - at < (_APART if step > 1 else 1):
            step = 1
            end = at + 1
        yield range(members[at], members[end - 1] + 1, step)
        at = end


def _words(run: range) -> str:
    if len(run) < (_APART if run.step > 1 else _CONSECUTIVE):
        return ",".join(map(str, run))
    return f"{run[0]}-{run[-1]}" + (f":{run.step}" if run.step > 1 else "")
