"""Merges the pending jobs of many classes in queue order, skipping classes that do not fit.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeVar

from iris_scheduler.mirror.classes import JobClass, UserLine, first_of, job_at

WaitingLine = TypeVar("WaitingLine", JobClass, UserLine)


def in_order(
    kinds: Iterable[WaitingLine], full: Container[WaitingLine], special: Iterable[int]
) -> Iterator[int]:
    """Numbers of pending jobs in queue order.

    Args:
        kinds: classes, or those of one user in each, whose jobs are returned until the class is
            full; it may become full during the iteration.
        special: keys of jobs that are returned in any case, once.
    """
    skip = frozenset(special)
    heads: list[tuple[int, int, WaitingLine | None]] = [(place, 0, None) for place in skip]
    heapify(heads)
    lines = sorted([kind for kind in kinds if kind not in full], key=first_of)
    places: dict[WaitingLine, Iterator[int]] = {}
    begun = 0
    while True:
        begun = _begin(lines, begun, full, heads)
        if not heads:
            return
        place, number, of_kind = heads[0]
        if of_kind is not None and of_kind in full:
            heappop(heads)
            continue
        if of_kind is None or place not in skip:
            yield job_at(place)
        following = None
        if of_kind is not None and of_kind not in full:
            if of_kind not in places:
                places[of_kind] = iter(of_kind.waiting)
                next(places[of_kind])
            following = next(places[of_kind], None)
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (following, number, of_kind))


def _begin(
    lines: Sequence[WaitingLine],
    begun: int,
    full: Container[WaitingLine],
    heads: list[tuple[int, int, WaitingLine | None]],
) -> int:
    """Add the next line to the heads if its first job is before all of these; returns how many
    lines have had their turn.
    """
    while begun < len(lines) and (not heads or lines[begun].first < heads[0][0]):
        kind = lines[begun]
        begun += 1
        if kind not in full:
            heappush(heads, (kind.first, begun, kind))
    return begun
