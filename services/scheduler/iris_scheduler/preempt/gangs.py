"""Preempts for a gang: evicts whole sessions and single tasks of lower bands, if the gang then fits
whole.

Of the groups that could be freed, those with most workers free already are compared first and the
cheapest is taken: the fewest victims of the higher of the lower bands, the fewest victims, the
fewest resources, the name. A session counts with all its members, because all of them restart, also
those that have finished and hold nothing. One with members outside the group stays, unless it has
several slices. Victims are removed again one by one, most expensive first, as long as the gang
still fits, so that none is stopped needlessly. A gang of several slices takes groups of one domain
one after the other, each the cheapest beside the evictions that the gang needs already. Levels of
the topology that the gang prefers decide between evictions of equal cost only.
Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from iris_core.states import PriorityBand
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.feasible.levels import in_domains, nearest
from iris_scheduler.mirror.capacity import (
    SHUT,
    WINDOW,
    Mask,
    Matrix,
    Need,
    Room,
    covers,
    fitting,
    minus,
    plus,
)
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.mirror.columns import Groups
from iris_scheduler.place.assignments import Assignments
from iris_scheduler.preempt.evictions import Evictions
from iris_scheduler.preempt.victims import Victim

_CANDIDATES = 16
"""Groups that are compared with each other, beside one for each further slice."""
_COMPARED = 64
"""Workers with victims that are compared beyond a gang's size, in a group of several domains."""

EvictionUnit = tuple[Victim, ...]
"""The attempts that are evicted together: one single task, or a whole session."""


GangCost = tuple[int, int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class GangEviction:
    """One way to free groups: the victims, and the workers of the gang, first task's first.

    ``cost``: ends with the groups.
    """

    cost: GangCost
    units: tuple[EvictionUnit, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupLay:
    """A group, its workers that the gang may use, and what may be evicted there."""

    group: int
    members: Sequence[int]
    units: Sequence[EvictionUnit]


class GangPreemptor:
    """Preempts for the gangs of one cycle."""

    def __init__(self, cycle: Cycle, assignments: Assignments, evictions: Evictions) -> None:
        self._cycle = cycle
        self._assignments = assignments
        self._evictions = evictions

    def make_room(self, job: int) -> bool:
        """Preempt for a gang that could not be placed. False when no eviction would help."""
        cycle = self._cycle
        future = self._evictions.future
        indexes = self._assignments.waiting(job)
        if (
            not indexes
            or cycle.is_paused(job)
            or (job, indexes[0]) in self._assignments.nominations
        ):
            return True
        own = self._evictions.reserved_for(job)
        for slot in own:
            future.reopen(slot)
        delayed = cycle.delayed(job)
        kind = cycle.mirror.kinds[job]
        victims = self._evictions.victims
        relieved = self._evictions.relieved(kind.band)
        lower = self._lower(kind, victims.all)
        best = self._best(kind, len(indexes), delayed, lower, relieved=relieved)
        if best is not None:
            going = sorted(
                (victim for unit in best.units for victim in unit), key=lambda victim: victim.ref
            )
            self._evictions.make(job, indexes, best.slots, going)
            return True
        if victims.protected:
            lower = self._lower(kind, [*victims.all, *victims.protected])
            later = self._best(kind, len(indexes), delayed, lower, relieved=relieved)
            if later is not None:
                self._evictions.protect(kind, [victim for unit in later.units for victim in unit])
        for slot in own:
            future.shut(slot)
        return bool(delayed)

    def find(self, job: int, size: int, victims: Sequence[Victim]) -> GangEviction | None:
        """The cheapest eviction of some of these, whatever their band, that makes room for a gang."""
        kind = self._cycle.mirror.kinds[job]
        relieved = self._evictions.future.matrix.copy()
        for victim in victims:
            relieved[:, victim.slot] += victim.frees
        return self._best(kind, size, self._cycle.delayed(job), victims, relieved=relieved)

    def _lower(self, kind: JobClass, victims: Sequence[Victim]) -> list[Victim]:
        """Those of a lower band that go on."""
        stopped = self._evictions.stopped
        return [v for v in victims if v.band > kind.band and v not in stopped]

    def _best(
        self,
        kind: JobClass,
        size: int,
        delayed: Sequence[int],
        remaining: Sequence[Victim],
        *,
        relieved: Matrix,
    ) -> GangEviction | None:
        """The cheapest eviction; of equal ones, with as many preferred levels as possible.

        ``relieved``: what would be free if all of them stopped.
        """
        mask = self._cycle.columns.usable(kind).mask.copy()
        mask[list(delayed)] = False
        sessions = _sessions(remaining)
        found = []
        for groups in self._cycle.columns.groupings(kind):
            lays = self._lays(
                kind,
                groups,
                size // kind.slices,
                mask,
                remaining=remaining,
                sessions=sessions,
                relieved=relieved,
            )
            found.append(self._cheapest(kind, lays, size // kind.slices))
        return min(
            (one for one in found if one is not None),
            key=lambda eviction: eviction.cost[:-1],
            default=None,
        )

    def _lays(
        self,
        kind: JobClass,
        groups: Groups,
        each: int,
        mask: Mask,
        remaining: Sequence[Victim],
        sessions: dict[int, EvictionUnit],
        relieved: Matrix,
    ) -> dict[int, list[GroupLay]]:
        """The groups to compare, of one way to group workers, by domain."""
        by_group: dict[int, list[Victim]] = {}
        for victim in remaining:
            by_group.setdefault(int(groups.codes[victim.slot]), []).append(victim)
        lays: dict[int, list[GroupLay]] = {}
        for group in self._promising(kind, groups, each, mask, relieved=relieved):
            if len(lays.get(int(groups.domains[group]), ())) == _CANDIDATES + kind.slices - 1:
                continue
            members = [slot for slot in groups.members[group] if mask[slot]]
            victims = by_group.get(group, [])
            if groups.near and kind.slices == 1:
                members = self._few(kind, groups, members, each, relieved=relieved)
                compared = set(members)
                victims = [victim for victim in victims if victim.slot in compared]
            units = self._units(victims, sessions, set(groups.members[group]))
            lays.setdefault(int(groups.domains[group]), []).append(GroupLay(group, members, units))
        return lays

    def _few(
        self,
        kind: JobClass,
        groups: Groups,
        members: Sequence[int],
        each: int,
        *,
        relieved: Matrix,
    ) -> list[int]:
        """The workers to compare of a group of several domains: free ones, and others in as few
        domains as possible.
        """
        slots = np.array(members, np.int64)
        slots = slots[fitting(relieved, kind.need, slots)]
        free = fitting(self._evictions.future.matrix, kind.need, slots)
        others = nearest(slots[~free].tolist(), each + _COMPARED, groups.near)
        return in_domains([*slots[free].tolist()[:each], *others], groups.near)

    def _cheapest(
        self, kind: JobClass, lays: dict[int, list[GroupLay]], each: int
    ) -> GangEviction | None:
        future = self._evictions.future
        if kind.slices == 1:
            found = [
                lay_out(future, kind.need, [lay], each)
                for domain in lays.values()
                for lay in domain
            ]
        else:
            found = [self._together(kind, domain, each) for domain in lays.values()]
        return min(
            (one for one in found if one is not None),
            key=lambda eviction: eviction.cost,
            default=None,
        )

    def _together(self, kind: JobClass, lays: Sequence[GroupLay], each: int) -> GangEviction | None:
        """The cheapest groups of one domain for all slices; None when there are too few.

        They are chosen one after the other, and once more from each group whose victims have
        members elsewhere.
        """
        if len(lays) < kind.slices:
            return None
        starts = [
            [],
            *(
                [lay]
                for lay in lays
                if any(v.slot not in lay.members for unit in lay.units for v in unit)
            ),
        ]
        found = [self._complete(kind, start, lays, each) for start in starts]
        return min(
            (one for one in found if one is not None),
            key=lambda eviction: eviction.cost,
            default=None,
        )

    def _complete(
        self, kind: JobClass, chosen: list[GroupLay], lays: Sequence[GroupLay], each: int
    ) -> GangEviction | None:
        """Add the cheapest group to the chosen ones until each slice has one."""
        future = self._evictions.future
        while len(chosen) < kind.slices:
            ways = [
                (way.cost, at)
                for at, lay in enumerate(lays)
                if lay not in chosen
                and (way := lay_out(future, kind.need, [*chosen, lay], each)) is not None
            ]
            if not ways:
                return None
            chosen = [*chosen, lays[min(ways)[1]]]
        return lay_out(future, kind.need, sorted(chosen, key=lambda lay: lay.group), each)

    def _units(
        self, victims: Sequence[Victim], sessions: dict[int, EvictionUnit], inside: set[int]
    ) -> list[EvictionUnit]:
        """Units that may be evicted in one group, most expensive first.

        A session with members outside the group stays, unless it has several slices: each group has
            one of them.
        """
        units: list[EvictionUnit] = [(victim,) for victim in victims if victim.session is None]
        for number in sorted({victim.session for victim in victims if victim.session is not None}):
            session = sessions[number]
            if self._cycle.mirror.kinds[number].slices > 1 or all(
                victim.slot in inside for victim in session
            ):
                units.append(session)
        return _dearest_first(units)

    def _promising(
        self, kind: JobClass, groups: Groups, size: int, mask: Mask, *, relieved: Matrix
    ) -> list[int]:
        """Groups that could hold a slice without the victims; those with the most free workers
        first.
        """
        matrix = self._evictions.future.matrix
        slots = self._cycle.columns.usable(kind).slots
        slots = slots[
            mask[slots]
            & (groups.codes.take(slots) >= 0)
            & (matrix[WINDOW].take(slots) > -SHUT // 2)
        ]
        counts = _count(groups, slots[fitting(relieved, kind.need, slots)])
        free = _count(groups, slots[fitting(matrix, kind.need, slots)])
        possible = [group for group, count in enumerate(counts) if count >= size]
        return sorted(possible, key=lambda group: (-free[group], group))


def _count(groups: Groups, slots: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    counts: list[int] = np.bincount(groups.codes.take(slots), minlength=len(groups.names)).tolist()
    return counts


def _sessions(victims: Sequence[Victim]) -> dict[int, EvictionUnit]:
    sessions: dict[int, list[Victim]] = {}
    for victim in victims:
        if victim.session is not None:
            sessions.setdefault(victim.session, []).append(victim)
    return {session: tuple(members) for session, members in sessions.items()}


def _dearest_first(units: Iterable[EvictionUnit]) -> list[EvictionUnit]:
    return sorted(units, key=lambda unit: max(victim.cost for victim in unit), reverse=True)


def lay_out(future: Room, need: Need, lays: Sequence[GroupLay], size: int) -> GangEviction | None:
    """The cheapest set of evictions that gives each of these groups ``size`` workers; None when
    even all of them are not enough.
    """
    units = (
        lays[0].units
        if len(lays) == 1
        else _dearest_first(dict.fromkeys(u for lay in lays for u in lay.units))
    )
    room = {slot: future.at(slot) for slot in {s for lay in lays for s in lay.members}}
    room |= {v.slot: future.at(v.slot) for unit in units for v in unit if v.slot not in room}
    for unit in units:
        for victim in unit:
            room[victim.slot] = plus(room[victim.slot], victim.frees)
    if not _is_enough(room, need, lays, size):
        return None
    going = [unit for unit in units if not _spare(room, need, lays, unit, size=size)]
    slots = [
        slot for lay in lays for slot in [s for s in lay.members if covers(room[s], need)][:size]
    ]
    return GangEviction(_cost(going, tuple(lay.group for lay in lays)), tuple(going), tuple(slots))


def _is_enough(room: dict[int, list[int]], need: Need, lays: Sequence[GroupLay], size: int) -> bool:
    return all(sum(covers(room[slot], need) for slot in lay.members) >= size for lay in lays)


def _spare(
    room: dict[int, list[int]], need: Need, lays: Sequence[GroupLay], unit: EvictionUnit, size: int
) -> bool:
    """Keep a unit if the gang still fits."""
    before = {victim.slot: list(room[victim.slot]) for victim in unit}
    for victim in unit:
        room[victim.slot] = minus(room[victim.slot], victim.frees)
    if _is_enough(room, need, lays, size):
        return True
    room.update(before)
    return False


def _cost(units: Sequence[EvictionUnit], groups: tuple[int, ...]) -> GangCost:
    going = [unit[0] for unit in units]
    dear = sum(victim.members for victim in going if victim.band is not PriorityBand.BATCH)
    resources = tuple(
        sum(column) for column in zip(*(victim.lost for victim in going), strict=True)
    )
    return dear, sum(victim.members for victim in going), resources, groups
