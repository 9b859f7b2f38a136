"""Preempts for a gang in one group: evicts whole sessions and single tasks of lower bands, if the gang then fits whole.

Of the groups that could be freed, those with most workers free already are compared first and the cheapest is taken:
the fewest victims of the higher of the lower bands, the fewest victims, the fewest resources, the name. A session
counts with all its members, because all of them restart, also those that have finished and hold nothing. Within a
group, victims are removed again one by one, most expensive first, as long as the gang still fits, so that none is
stopped needlessly.
Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iris_core.states import PriorityBand
from iris_scheduler.cycle import Cycle
from iris_scheduler.mirror.capacity import SHUT, WINDOW, Mask, Need, Room, covers, fitting, minus, plus
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.mirror.columns import Groups
from iris_scheduler.place.assignments import Assignments
from iris_scheduler.preempt.evictions import Evictions
from iris_scheduler.preempt.victims import Victim

_CANDIDATES = 16
"""Groups that are compared with each other."""

EvictionUnit = tuple[Victim, ...]
"""The attempts that are evicted together: one single task, or a whole session."""


@dataclass(frozen=True, slots=True)
class GangEviction:
    """One way to free a group: the victims, and the workers of the gang, first task's first."""

    cost: tuple[int, int, tuple[int, ...], int]
    units: tuple[EvictionUnit, ...]
    slots: tuple[int, ...]


class GangPreemptor:
    """Preempts for the gangs of one cycle."""

    def __init__(self, cycle: Cycle, assignments: Assignments, evictions: Evictions) -> None:
        self._cycle = cycle
        self._assignments = assignments
        self._evictions = evictions

    def make_room(self, job: int) -> bool:
        """Preempt for a gang that could not be placed. False when no eviction would help."""
        cycle, future = self._cycle, self._evictions.future
        indexes = self._assignments.waiting(job)
        if not indexes or cycle.is_paused(job) or (job, indexes[0]) in self._assignments.nominations:
            return True
        own = [slot for slot, gang in self._assignments.reservations.gangs() if gang == job]
        for slot in own:
            future.reopen(slot)
        delayed = cycle.delayed(job)
        best = self._best(cycle.mirror.kinds[job], len(indexes), delayed)
        if best is not None:
            going = sorted((victim for unit in best.units for victim in unit), key=lambda victim: victim.ref)
            self._evictions.make(job, indexes, best.slots, going)
            return True
        for slot in own:
            future.shut(slot)
        return bool(delayed)

    def _best(self, kind: JobClass, size: int, delayed: Sequence[int]) -> GangEviction | None:
        groups = self._cycle.columns.groups(kind.key.group_by)
        mask = self._cycle.columns.usable(kind).mask.copy()
        mask[list(delayed)] = False
        evictions = self._evictions
        remaining = [v for v in evictions.victims.all if v.band > kind.band and v not in evictions.stopped]
        by_group: dict[int, list[Victim]] = {}
        for victim in remaining:
            by_group.setdefault(int(groups.codes[victim.slot]), []).append(victim)
        sessions = _sessions(remaining)
        found = []
        for group in self._promising(kind, groups, size, mask):
            members = [slot for slot in groups.members[group] if mask[slot]]
            units = _units(by_group.get(group, []), sessions, set(groups.members[group]))
            eviction = _lay(evictions.future, kind.need, group, members, units, size)
            if eviction is not None:
                found.append(eviction)
        return min(found, key=lambda eviction: eviction.cost, default=None)

    def _promising(self, kind: JobClass, groups: Groups, size: int, mask: Mask) -> list[int]:
        """Groups that could hold the gang without lower bands; those with the most free workers first."""
        matrix, slots = self._evictions.future.matrix, self._cycle.columns.usable(kind).slots
        slots = slots[mask[slots] & (groups.codes.take(slots) >= 0) & (matrix[WINDOW].take(slots) > -SHUT // 2)]
        counts = _count(groups, slots[fitting(self._evictions.relieved(kind.band), kind.need, slots)])
        free = _count(groups, slots[fitting(matrix, kind.need, slots)])
        possible = [group for group, count in enumerate(counts) if count >= size]
        return sorted(possible, key=lambda group: (-free[group], group))[:_CANDIDATES]


def _count(groups: Groups, slots: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    counts: list[int] = np.bincount(groups.codes.take(slots), minlength=len(groups.names)).tolist()
    return counts


def _sessions(victims: Sequence[Victim]) -> dict[int, EvictionUnit]:
    sessions: dict[int, list[Victim]] = {}
    for victim in victims:
        if victim.session is not None:
            sessions.setdefault(victim.session, []).append(victim)
    return {session: tuple(members) for session, members in sessions.items()}


def _units(victims: Sequence[Victim], sessions: dict[int, EvictionUnit], inside: set[int]) -> list[EvictionUnit]:
    """Units that may be evicted in one group, most expensive first; a session with members outside the group stays."""
    units: list[EvictionUnit] = [(victim,) for victim in victims if victim.session is None]
    here = sorted({victim.session for victim in victims if victim.session is not None})
    units += [sessions[session] for session in here if all(v.slot in inside for v in sessions[session])]
    return sorted(units, key=lambda unit: max(victim.cost for victim in unit), reverse=True)


def _lay(
    future: Room, need: Need, group: int, members: Sequence[int], units: Sequence[EvictionUnit], size: int
) -> GangEviction | None:
    """The cheapest set of evictions in one group; None when even all of them are not enough."""
    room = {slot: future.at(slot) for slot in {*members, *(v.slot for unit in units for v in unit)}}
    for unit in units:
        for victim in unit:
            room[victim.slot] = plus(room[victim.slot], victim.frees)
    if sum(covers(room[slot], need) for slot in members) < size:
        return None
    going = [unit for unit in units if not _spare(room, need, members, unit, size)]
    slots = tuple(slot for slot in members if covers(room[slot], need))[:size]
    return GangEviction(_cost(going, group), tuple(going), slots)


def _spare(room: dict[int, list[int]], need: Need, members: Sequence[int], unit: EvictionUnit, size: int) -> bool:
    """Keep a unit if the gang still fits."""
    before = {victim.slot: list(room[victim.slot]) for victim in unit}
    for victim in unit:
        room[victim.slot] = minus(room[victim.slot], victim.frees)
    if sum(covers(room[slot], need) for slot in members) >= size:
        return True
    room.update(before)
    return False


def _cost(units: Sequence[EvictionUnit], group: int) -> tuple[int, int, tuple[int, ...], int]:
    going = [unit[0] for unit in units]
    dear = sum(victim.members for victim in going if victim.band is not PriorityBand.BATCH)
    resources = tuple(sum(column) for column in zip(*(victim.lost for victim in going), strict=True))
    return dear, sum(victim.members for victim in going), resources, group
