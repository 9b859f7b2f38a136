"""Merges the pending jobs of many classes in queue order, skipping classes that do not fit.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import TypeVar

from iris_scheduler.mirror.classes import JobClass, UserLine, job_at

_FEW = 16

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
    heads += [
        (kind.first, number, kind) for number, kind in enumerate(kinds, 1) if kind not in full
    ]
    heapify(heads)
    places: dict[WaitingLine, Iterator[int]] = {}
    popped = 0
    while heads:
        place, number, of_kind = heads[0]
        if of_kind is not None and of_kind in full:
            heappop(heads)
            popped += 1
            if popped > _FEW + len(heads) // _FEW:  # many became full at once
                heads = [head for head in heads if head[2] is None or head[2] not in full]
                heapify(heads)
                popped = 0
            continue
        popped = 0
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
