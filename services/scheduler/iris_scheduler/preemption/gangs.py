"""A gang makes room in one group: whole sessions and single tasks of lower bands go, if it then fits whole.

Of the groups that could be freed, those with most workers free already are weighed first and the cheapest is taken: the
fewest victims of the higher of the lower bands, the fewest victims, the fewest resources, the name. A session counts
with all its members, for all of them start again, also those that have finished and hold nothing. Within a group,
victims are spared again one by one, dearest first, as long as the gang still fits, so that none is stopped for nothing.
Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from iris_core.messages import Nomination
from iris_core.states import PriorityBand
from iris_scheduler.classes import JobClass
from iris_scheduler.cycle import Cycle, Evicted
from iris_scheduler.placement.capacity import SHUT, WINDOW, Mask, Need, Room, covers, fitting
from iris_scheduler.placement.columns import Groups
from iris_scheduler.preemption.victims import Victim, Victims

_CANDIDATES = 16
"""Groups weighed against each other."""

Unit = tuple[Victim, ...]
"""What goes together: one single task, or all of a session."""


@dataclass(frozen=True, slots=True)
class GangEviction:
    """One way to make room: who goes, and the workers the gang then gets, first task's first."""

    cost: tuple[int, int, tuple[int, ...], int]
    units: tuple[Unit, ...]
    slots: tuple[int, ...]


def evict_for_gang(
    cycle: Cycle,
    future: Room,
    victims: Victims,
    stopped: set[int],
    evicted: list[int],
    unschedulable: set[JobClass],
    job: int,
) -> None:
    """Make room for a gang that could not be placed, or find its class unschedulable."""
    kind = cycle.mirror.kinds[job]
    indexes = cycle.waiting(job)
    if not indexes or cycle.is_paused(job) or (job, indexes[0]) in cycle.kept:
        return
    own = [slot for slot, kept in cycle.reserved.items() if kept.gang == job]
    for slot in own:
        future.reopen(slot)
    delayed = cycle.delayed(job)
    best = _best(cycle, future, victims, stopped, kind, len(indexes), delayed)
    if best is None:
        if not delayed:
            unschedulable.add(kind)
        for slot in own:
            future.shut(slot)
        return
    _carry_out(cycle, future, victims, stopped, evicted, job, best)


def _carry_out(
    cycle: Cycle,
    future: Room,
    victims: Victims,
    stopped: set[int],
    evicted: list[int],
    job: int,
    eviction: GangEviction,
) -> None:
    going = sorted((victim for unit in eviction.units for victim in unit), key=lambda victim: victim.ref)
    for victim in going:
        future.put(victim.slot, _sum(future.at(victim.slot), victim.frees))
        evicted.append(victim.slot)
    need = cycle.mirror.kinds[job].need
    for slot in eviction.slots:
        future.take(slot, need)
    if going:
        gone = {victim.ref for victim in going}
        stopped.update(position for position, victim in enumerate(victims.all) if victim.ref in gone)
        names = cycle.columns.names
        pairs = zip(cycle.waiting(job), eviction.slots, strict=True)
        nominations = tuple(Nomination(job, index, names[slot]) for index, slot in pairs)
        cycle.evicted.append(Evicted(tuple(victim.ref for victim in going), nominations))


def _best(
    cycle: Cycle,
    future: Room,
    victims: Victims,
    stopped: set[int],
    kind: JobClass,
    size: int,
    delayed: Collection[int],
) -> GangEviction | None:
    groups = cycle.columns.groups(kind.key.group_by)
    mask = cycle.usable(kind).mask.copy()
    mask[list(delayed)] = False
    remaining = [v for position, v in enumerate(victims.all) if position not in stopped and v.band > kind.band]
    by_group: dict[int, list[Victim]] = {}
    for victim in remaining:
        by_group.setdefault(int(groups.codes[victim.slot]), []).append(victim)
    sessions = _sessions(remaining)
    found = []
    for group in _promising(cycle, future, victims, kind, groups, size, mask):
        members = [slot for slot in groups.members[group] if mask[slot]]
        units = _units(by_group.get(group, []), sessions, set(groups.members[group]))
        eviction = _lay(future, kind.need, group, members, units, size)
        if eviction is not None:
            found.append(eviction)
    return min(found, key=lambda eviction: eviction.cost, default=None)


def _promising(
    cycle: Cycle, future: Room, victims: Victims, kind: JobClass, groups: Groups, size: int, mask: Mask
) -> list[int]:
    """Groups that might hold the gang if everything lower were gone; those with most workers free already first."""
    slots = cycle.usable(kind).slots
    slots = slots[mask[slots] & (groups.codes.take(slots) >= 0) & (future.matrix[WINDOW].take(slots) > -SHUT // 2)]
    relieved = future.matrix + victims.relief(kind.band, len(cycle.columns))
    counts = _count(groups, slots[fitting(relieved, kind.need, slots)])
    free = _count(groups, slots[fitting(future.matrix, kind.need, slots)])
    possible = [group for group, count in enumerate(counts) if count >= size]
    return sorted(possible, key=lambda group: (-free[group], group))[:_CANDIDATES]


def _count(groups: Groups, slots: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    counts: list[int] = np.bincount(groups.codes.take(slots), minlength=len(groups.names)).tolist()
    return counts


def _sessions(victims: Sequence[Victim]) -> dict[int, Unit]:
    sessions: dict[int, list[Victim]] = {}
    for victim in victims:
        if victim.session is not None:
            sessions.setdefault(victim.session, []).append(victim)
    return {session: tuple(members) for session, members in sessions.items()}


def _units(victims: Sequence[Victim], sessions: dict[int, Unit], inside: set[int]) -> list[Unit]:
    """What may go in one group, dearest first; a session that reaches beyond the group stays."""
    units: list[Unit] = [(victim,) for victim in victims if victim.session is None]
    here = sorted({victim.session for victim in victims if victim.session is not None})
    units += [sessions[session] for session in here if all(v.slot in inside for v in sessions[session])]
    return sorted(units, key=lambda unit: max(victim.cost for victim in unit), reverse=True)


def _lay(
    future: Room, need: Need, group: int, members: Sequence[int], units: Sequence[Unit], size: int
) -> GangEviction | None:
    """The least that must go in one group; None when even all of it would not be enough."""
    room = {slot: future.at(slot) for slot in {*members, *(v.slot for unit in units for v in unit)}}
    for unit in units:
        for victim in unit:
            room[victim.slot] = _sum(room[victim.slot], victim.frees)
    if sum(covers(room[slot], need) for slot in members) < size:
        return None
    going = [unit for unit in units if not _spare(room, need, members, unit, size)]
    slots = tuple(slot for slot in members if covers(room[slot], need))[:size]
    return GangEviction(_cost(going, group), tuple(going), slots)


def _spare(room: dict[int, list[int]], need: Need, members: Sequence[int], unit: Unit, size: int) -> bool:
    """Leave a unit where it is if the gang still fits."""
    before = {victim.slot: list(room[victim.slot]) for victim in unit}
    for victim in unit:
        room[victim.slot] = [a - b for a, b in zip(room[victim.slot], victim.frees, strict=True)]
    if sum(covers(room[slot], need) for slot in members) >= size:
        return True
    room.update(before)
    return False


def _cost(units: Sequence[Unit], group: int) -> tuple[int, int, tuple[int, ...], int]:
    going = [unit[0] for unit in units]
    dear = sum(victim.members for victim in going if victim.band is not PriorityBand.BATCH)
    resources = tuple(sum(column) for column in zip(*(victim.lost for victim in going), strict=True))
    return dear, sum(victim.members for victim in going), resources, group


def _sum(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(one, other, strict=True)]
