"""Chooses several victims on one worker that together make room for a single task.

The fewest attempts that suffice; of as many, those of the lowest band, with the fewest resources,
the youngest. A member of a gang is evicted with its whole gang, and counts as all of it. Victims
are found greedily, largest first; one that is not needed is spared, and one that a cheaper one can
stand in for is exchanged.
Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from iris_core.states import PriorityBand
from iris_scheduler.mirror.capacity import DEPTH, Mask, Need, covers, minus, plus
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.preempt.evictions import Evictions
from iris_scheduler.preempt.victims import Victim, Victims

_COMPARED = 16
"""At most so many workers are compared with each other: those that need the fewest victims by a
lower bound, first those where BATCH suffices, then by name.
"""
_WAITED_FOR = 64
"""At most so many workers with protected attempts are compared."""

UnitCost = tuple[int, int, tuple[int, ...], int]
"""How many attempts end, how many of them are above BATCH, their resources, the age of the oldest.
"""


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """The attempts that end together when one of them is evicted: one, or a gang.

    ``frees``: what their end frees on the worker in question.
    """

    victims: tuple[Victim, ...]
    frees: tuple[int, ...]
    cost: UnitCost

    @property
    def members(self) -> int:
        return self.cost[0]


def fewest(
    room: Sequence[int], need: Need, units: Sequence[VictimUnit]
) -> tuple[VictimUnit, ...] | None:
    """As few of the units, cheapest first, as make a task fit; None when all do not suffice.

    ``room``: what is free on the worker, all dimensions.
    """
    chosen: list[VictimUnit] = []
    left = list(room)
    remaining = list(units)
    while not covers(left, need):
        best = max(remaining, key=lambda unit: _worth(unit, left, need), default=None)
        if best is None or not _worth(best, left, need):
            return None
        remaining.remove(best)
        chosen.append(best)
        left = plus(left, best.frees)
    for unit in sorted(chosen, key=lambda unit: unit.cost, reverse=True):
        without = minus(left, unit.frees)
        if covers(without, need):
            chosen.remove(unit)
            remaining.append(unit)
            left = without
    return tuple(_exchanged(chosen, sorted(remaining, key=_cost_of), left, need))


def _exchanged(
    chosen: Sequence[VictimUnit], cheapest: list[VictimUnit], left: list[int], need: Need
) -> list[VictimUnit]:
    """The chosen units, each replaced by the cheapest other that suffices in its place."""
    going = []
    for unit in sorted(chosen, key=_cost_of, reverse=True):
        without = minus(left, unit.frees)
        for at, other in enumerate(cheapest):
            if other.cost >= unit.cost:
                going.append(unit)
                break
            if covers(plus(without, other.frees), need):
                going.append(other)
                left = plus(without, other.frees)
                del cheapest[at]
                break
        else:
            going.append(unit)
    return going


def _cost_of(unit: VictimUnit) -> UnitCost:
    return unit.cost


def _worth(unit: VictimUnit, left: Sequence[int], need: Need) -> int:
    """How much of what is lacking a unit frees for each attempt that ends, in millionths."""
    parts = (
        min(unit.frees[dimension], amount - left[dimension])
        * 1_000_000
        // (amount - left[dimension])
        for dimension, amount in need.needed
        if left[dimension] < amount
    )
    return sum(parts) // unit.members


class SeveralSearch:
    """Finds the worker on which the fewest victims make room for one more task of a class.

    ``mask``: the workers that the task may use.
    """

    def __init__(self, evictions: Evictions, kind: JobClass, mask: Mask) -> None:
        self._evictions = evictions
        self._kind = kind
        self._mask = mask
        self._bounds = self._lower_bounds()
        self._found: list[tuple[UnitCost, int]] = []

    def note_freed(self, slot: int) -> None:
        """More is free on a worker than when it was examined."""
        if self._mask[slot]:
            heappush(self._bounds, (0, False, slot))

    def best(self) -> tuple[int, list[Victim]] | None:
        """The worker and the victims of the cheapest eviction; None when none helps."""
        while True:
            self._examine_more()
            if not self._found:
                return None
            known, slot = heappop(self._found)
            chosen = self._on(slot)
            if chosen is None:
                continue
            if _together(chosen) == known:
                return slot, victims_of(chosen)
            heappush(self._found, (_together(chosen), slot))

    def _examine_more(self) -> None:
        """Examine workers while one may be cheaper than those that are known."""
        while self._bounds:
            is_enough = len(self._found) >= _COMPARED
            if self._found and (is_enough or self._bounds[0][0] > self._found[0][0][0]):
                return
            slot = heappop(self._bounds)[2]
            chosen = self._on(slot)
            if chosen is not None:
                heappush(self._found, (_together(chosen), slot))

    def _on(self, slot: int) -> tuple[VictimUnit, ...] | None:
        """What is evicted on one worker; None when nothing helps there."""
        victims = self._evictions.victims
        units = units_on(slot, victims.on(slot), victims.sessions, self._may_go)
        return fewest(self._evictions.future.at(slot), self._kind.need, units) or None

    def _may_go(self, victim: Victim) -> bool:
        return victim.band > self._kind.band and victim not in self._evictions.stopped

    def _lower_bounds(self) -> list[tuple[int, bool, int]]:
        """A heap of the workers where lower bands hold enough: the fewest victims that may suffice,
        whether BATCH does not suffice, the worker.
        """
        victims = self._evictions.victims
        future = self._evictions.future.matrix
        width = future.shape[1]
        lower = (victims.bands > int(self._kind.band)) & self._mask[victims.slots]
        batch = lower & (victims.bands == int(PriorityBand.BATCH))
        fits = self._mask.copy()
        fits_batch = self._mask.copy()
        least = np.zeros(width, np.int64)
        for dimension, amount in self._kind.need.needed:
            frees = victims.frees[dimension]
            largest = np.zeros(width, np.int64)
            free = future[dimension]
            np.maximum.at(largest, victims.slots[lower], frees[lower])
            fits &= free + _sums(victims, lower, dimension, width) >= amount
            fits_batch &= free + _sums(victims, batch, dimension, width) >= amount
            lacking = np.maximum(amount - free, 0)
            least = np.maximum(least, -(-lacking // np.maximum(largest, 1)))
        slots = np.flatnonzero(fits).tolist()
        bounds = [(int(least[slot]), not fits_batch[slot], slot) for slot in slots]
        heapify(bounds)
        return bounds


def _sums(victims: Victims, mask: Mask, dimension: int, width: int) -> NDArray[np.int64]:
    """What these victims hold of one dimension on each worker."""
    sums = np.zeros(width, np.int64)
    np.add.at(sums, victims.slots[mask], victims.frees[dimension][mask])
    return sums


def soonest_protected(
    evictions: Evictions, kind: JobClass, mask: Mask
) -> tuple[int, list[Victim]] | None:
    """The worker, and victims there of which some are protected, that may be evicted soonest."""
    victims = evictions.victims
    sessions: dict[int, list[Victim]] = {}
    there: dict[int, list[Victim]] = {}
    for victim in (*victims.all, *victims.protected):
        if victim.band <= kind.band or victim in evictions.stopped:
            continue
        there.setdefault(victim.slot, []).append(victim)
        if victim.session is not None:
            sessions.setdefault(victim.session, []).append(victim)
    first: dict[int, int] = {}
    for victim, until_ms in victims.protected.items():
        if victim.slot in there and mask[victim.slot]:
            first[victim.slot] = min(until_ms, first.get(victim.slot, until_ms))
    found = []
    for slot in sorted(first, key=lambda slot: (first[slot], slot))[:_WAITED_FOR]:
        units = units_on(slot, there[slot], sessions, lambda victim: victim.band > kind.band)
        chosen = fewest(evictions.future.at(slot), kind.need, units)
        if chosen:
            going = victims_of(chosen)
            until_ms = max(victims.protected.get(victim, 0) for victim in going)
            found.append((until_ms, _together(chosen), slot, going))
    if not found:
        return None
    _, _, slot, going = min(found, key=lambda one: one[:3])
    return slot, going


def units_on(
    slot: int,
    victims: Iterable[Victim],
    sessions: dict[int, list[Victim]],
    may_go: Callable[[Victim], bool],
) -> list[VictimUnit]:
    """What may be evicted on one worker, cheapest first; a gang only whole."""
    units = []
    seen = set[int]()
    for victim in victims:
        if victim.session is None:
            going = [victim]
        elif victim.session not in seen:
            seen.add(victim.session)
            going = sessions[victim.session]
        else:
            continue
        if all(may_go(one) for one in going):
            units.append(_unit(slot, tuple(going)))
    return sorted(units, key=_cost_of)


def _unit(slot: int, going: tuple[Victim, ...]) -> VictimUnit:
    first = going[0]
    frees = [0] * DEPTH
    for victim in going:
        if victim.slot == slot:
            frees = plus(frees, victim.frees)
    dear = 0 if first.band is PriorityBand.BATCH else first.members
    oldest = max(-victim.since_ms for victim in going)
    return VictimUnit(going, tuple(frees), (first.members, dear, first.lost, oldest))


def _together(units: Sequence[VictimUnit]) -> UnitCost:
    """The cost of several units."""
    costs = [unit.cost for unit in units]
    lost = tuple(sum(amounts) for amounts in zip(*(cost[2] for cost in costs), strict=True))
    ages = max(cost[3] for cost in costs)
    return sum(cost[0] for cost in costs), sum(cost[1] for cost in costs), lost, ages


def victims_of(units: Iterable[VictimUnit]) -> list[Victim]:
    """All attempts of some units, in the order of their names."""
    going = (victim for unit in units for victim in unit.victims)
    return sorted(going, key=lambda victim: victim.ref)
