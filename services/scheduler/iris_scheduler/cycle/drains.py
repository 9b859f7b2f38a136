"""What must end on a worker before a task fits there, and when that is at the latest.

Attempts without a time limit may run for ever, so a worker is not waited for on trust: the wait of
a task is divided into periods, each twice as long as the one before, and an attempt that has
outlived a whole period counts as long. Within a period what must end on a reserved worker only
becomes less. So the task moves to another worker at most once a period unless that is nearer to
being free, and a worker on which all attempts are shorter than a period is found in the end.
Source: docs/adr/0143-a-waiting-task-reserves-a-host.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from iris_core.messages.message import AttemptRef
from iris_scheduler.mirror.capacity import Need, covers

_SHORTEST_MS = 1000
"""The first period of a wait is at least so long."""


class Period(NamedTuple):
    """A part of a task's wait for a worker.

    ``long_ms``: attempts that are assigned earlier have outlived the period before; 0 in the first.
    """

    start_ms: int
    end_ms: int
    long_ms: int


def period_at(since_ms: int, first_ms: int, now_ms: int) -> Period:
    """The period of a wait for a worker that began at ``since_ms``; the first is ``first_ms`` long,
    each other twice as long as the one before.
    """
    first_ms = max(first_ms, _SHORTEST_MS)
    number = (max(0, now_ms - since_ms) // first_ms + 1).bit_length() - 1
    start_ms = since_ms + first_ms * ((1 << number) - 1)
    long_ms = since_ms + first_ms * ((1 << (number - 1)) - 1) if number else 0
    return Period(start_ms, start_ms + (first_ms << number), long_ms)


class DrainingAttempt(NamedTuple):
    """An attempt on a worker: whether it is long, when it ends at the latest, what that frees."""

    is_long: bool
    at_ms: int
    ref: AttemptRef
    frees: tuple[tuple[int, int], ...]


class Drain(NamedTuple):
    """What must end on a worker before a task fits; the smaller, the sooner that may be.

    Attributes:
        long: how many of the attempts are long. at_ms: when the last ends at the latest, which may
            be over; 0 without any.
        ends: how many attempts.
    """

    long: int
    at_ms: int
    ends: int
    refs: tuple[AttemptRef, ...]


def drain_of(free: Sequence[int], endings: Iterable[DrainingAttempt], need: Need) -> Drain | None:
    """What must end before a task fits; None when the end of everything is not enough.

    ``free``: what is free now, all dimensions.
    """
    room = list(free)
    waited = list[DrainingAttempt]()
    for ending in sorted(endings, key=attrgetter("is_long", "at_ms", "ref")):
        if covers(room, need):
            break
        lacking = {dimension for dimension, amount in need.needed if room[dimension] < amount}
        if any(dimension in lacking and amount > 0 for dimension, amount in ending.frees):
            waited.append(ending)
        for dimension, amount in ending.frees:
            room[dimension] += amount
    if not covers(room, need):
        return None
    at_ms = max((ending.at_ms for ending in waited), default=0)
    refs = tuple(ending.ref for ending in waited)
    return Drain(sum(e.is_long for e in waited), at_ms, len(waited), refs)
