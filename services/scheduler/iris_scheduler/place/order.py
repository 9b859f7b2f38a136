"""Merges the pending jobs of many classes in queue order, skipping classes that do not fit.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from heapq import heapify, heappop, heapreplace

from iris_scheduler.mirror.classes import JobClass, job_at


def in_order(
    kinds: Iterable[JobClass], full: Container[JobClass], special: Iterable[int]
) -> Iterator[int]:
    """Numbers of pending jobs in queue order.

    Args:
        kinds: classes whose jobs are returned until the class is full; it may become full during
            the iteration.
        special: keys of jobs that are returned in any case, once.
    """
    alone = sorted(special)
    skip = frozenset(alone)
    heads: list[tuple[int, int, Iterator[int], JobClass | None]] = []
    for number, of_kind in enumerate(kinds, start=1):
        if of_kind in full:
            continue
        places = (
            (place for place in of_kind.waiting if place not in skip)
            if skip
            else iter(of_kind.waiting)
        )
        first = next(places, None)
        if first is not None:
            heads.append((first, number, places, of_kind))
    if alone:
        heads.append((alone[0], 0, iter(alone[1:]), None))
    heapify(heads)
    while heads:
        place, number, places, kind = heads[0]
        if kind is not None and kind in full:
            heappop(heads)
            continue
        yield job_at(place)
        following = next(places, None) if kind is None or kind not in full else None
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (following, number, places, kind))
