"""Reclaims what projects are guaranteed: evicts work of its own band that borrows, for near-side work
that could not be placed.

Lower bands give way first, then what borrows, the newest first: of the sets of victims that make
room, the one whose oldest member is youngest. A project keeps what it is guaranteed, a gang goes
whole, and who is not needed stays. What has been reclaimed a moment ago, and what would borrow itself,
makes nobody give way. Source: docs/design/team.md#guarantee-and-share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from iris_core.placement.guarantees import GuaranteedAmount, ProjectPart, multiplied
from iris_core.states import PriorityBand
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.feasible.near import NearSide
from iris_scheduler.mirror.capacity import Mask, covers, minus, plus
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.mirror.usage import share_of
from iris_scheduler.place.assignments import Assignments
from iris_scheduler.place.order import in_order
from iris_scheduler.preempt.evictions import Evictions
from iris_scheduler.preempt.gangs import GangPreemptor
from iris_scheduler.preempt.victims import Victim


@dataclass(frozen=True, slots=True, eq=False)
class JointVictims:
    """The attempts that end together: one, or a gang. ``part``: their project and what they hold."""

    victims: tuple[Victim, ...]
    part: ProjectPart
    band: PriorityBand

    def frees(self, slot: int) -> list[int]:
        """What their end frees on a worker, all dimensions."""
        first, *others = [victim.frees for victim in self.victims if victim.slot == slot]
        found = list(first)
        for amounts in others:
            found = plus(found, amounts)
        return found


class Reclaim:
    """Reclaims for the near-side work of one cycle.

    Attributes:
        claiming: classes that wait for capacity that stopping work frees.
    """

    def __init__(
        self, cycle: Cycle, assignments: Assignments, near: NearSide, evictions: Evictions
    ) -> None:
        self._cycle = cycle
        self._assignments = assignments
        self._near = near
        self._evictions = evictions
        self._units = self._all_units()
        self._gangs = GangPreemptor(cycle, assignments, evictions)
        self._searches: dict[tuple[object, ...], UnitSearch] = {}
        self._noted = 0
        self.claiming: set[JobClass] = set()

    def run(self, band: PriorityBand, jobs: Iterable[int]) -> None:
        """Evict for unplaced near-side work of a band, in order."""
        self._note_preemptions()
        given_up = set[tuple[JobClass, str]]()
        for job in jobs:
            kind = self._cycle.mirror.kinds[job]
            group = (kind, self._cycle.mirror.jobs[job].project)
            if group in given_up:
                continue
            own = self._evictions.reserved_for(job)
            for slot in own:
                self._evictions.future.reopen(slot)
            has_room = self._gang(job) if kind.is_gang else self._tasks(job, own)
            for slot in own:
                self._evictions.future.shut(slot)
            if not has_room:
                given_up.add(group)
        if given_up and (protected := self._evictions.victims.protected):
            self._cycle.wake_at(min(protected.values()))

    def _note_preemptions(self) -> None:
        """Count what higher bands have evicted, and what they were promised."""
        mirror = self._cycle.mirror
        for made in self._evictions.made[self._noted :]:
            if made.reclaims:
                continue  # counted by `_evict`
            for nomination in made.nominations:
                self._near.promise(nomination.job, [nomination.index])
            for ref in made.victims:
                need = share_of(mirror.kinds[ref.job].need)
                self._near.guarantees.stop(mirror.jobs[ref.job].project, need)
        self._noted = len(self._evictions.made)

    # ── single tasks ──────────────────────────────────────────────────────────────────────────────

    def _tasks(self, job: int, own: tuple[int, ...]) -> bool:
        """Make room for each pending task of a job. False when neither it nor another one of its kind
        in its project can be helped. ``own``: workers that are open to this job only.
        """
        mirror = self._cycle.mirror
        kind = mirror.kinds[job]
        project = mirror.jobs[job].project
        need = share_of(kind.need)
        places = self._assignments.places(job)
        for index in self._assignments.waiting(job):
            if (job, index) in self._assignments.nominations or not places:
                continue
            if self._cycle.is_apart(job, index):
                continue
            places -= 1
            if self._is_settled(job, index):
                continue
            if not self._near.guarantees.may_reclaim(project, need):
                return False
            if not self._assignments.within(job, 1):
                return True  # over a quota or a limit; another user's may not be
            delayed = self._cycle.delayed(job, index)
            search = self._search(kind, project, delayed, own)
            if search.waits():
                self.claiming.add(kind)
                self._near.promise(job, [index])
                continue
            if self._has_given_way(job, [index]):
                continue
            found = search.best()
            if found is None:
                if not delayed:
                    return False
                continue
            self._evict(job, [index], [found[0]], found[1])
        return True

    def _search(
        self, kind: JobClass, project: str, delayed: tuple[int, ...], own: tuple[int, ...]
    ) -> UnitSearch:
        key = (kind, project, delayed, own)
        search = self._searches.get(key)
        if search is None:
            mask = self._cycle.columns.usable(kind).mask.copy()
            mask[list(delayed)] = False
            units = self._units_below(kind.band)
            search = self._searches[key] = UnitSearch(
                self._evictions, self._near, kind, project, units, mask=mask
            )
        return search

    # ── gangs ─────────────────────────────────────────────────────────────────────────────────────

    def _gang(self, job: int) -> bool:
        mirror = self._cycle.mirror
        indexes = self._assignments.waiting(job)
        nominated = indexes and (job, indexes[0]) in self._assignments.nominations
        if not indexes or nominated or self._is_settled(job, indexes[0]):
            return True
        project = mirror.jobs[job].project
        need = multiplied(share_of(mirror.kinds[job].need), len(indexes))
        if not self._near.guarantees.may_reclaim(project, need):
            return False
        if self._assignments.within(job, len(indexes)) < len(indexes):
            return True
        if self._has_given_way(job, indexes):
            return True
        units = self._jointly(project, need, mirror.kinds[job].band)
        found = self._newest(job, len(indexes), units)
        if found is None:
            return bool(self._cycle.delayed(job))
        slots, chosen = found
        parts = [unit.part for unit in chosen]
        if not self._near.guarantees.suffices(project, need, parts):
            return False
        self._evict(job, indexes, slots, chosen)
        return True

    def _newest(
        self, job: int, size: int, units: Sequence[JointVictims]
    ) -> tuple[tuple[int, ...], list[JointVictims]] | None:
        """The workers of a gang, and who must end there: as few of the first units as are enough, and of
        these what is needed.
        """
        found = self._gangs.find(job, size, _victims(units))
        if found is None:
            return None
        least, most = -1, len(units)
        while most - least > 1:
            middle = (least + most) // 2
            fewer = self._gangs.find(job, size, _victims(units[:middle]))
            if fewer is None:
                least = middle
            else:
                most, found = middle, fewer
        going = {victim for unit in found.units for victim in unit}
        return found.slots, [unit for unit in units if not going.isdisjoint(unit.victims)]

    def _jointly(
        self, project: str, need: GuaranteedAmount, band: PriorityBand
    ) -> list[JointVictims]:
        """Those that may all give way together, the first ones first."""
        left = self._near.guarantees.copy()
        found = []
        for unit in self._units_below(band):
            is_going = any(victim in self._evictions.stopped for victim in unit.victims)
            if is_going or (unit.band is band and not left.gives_way(project, need, unit.part)):
                continue
            found.append(unit)
            left.stop(*unit.part)
        return found

    # ── both ──────────────────────────────────────────────────────────────────────────────────────

    def _evict(
        self, job: int, indexes: Sequence[int], slots: Sequence[int], units: Sequence[JointVictims]
    ) -> None:
        self._near.promise(job, indexes)
        for unit in units:
            self._near.guarantees.stop(*unit.part)
        self._evictions.make(job, indexes, slots, _victims(units), reclaims=True)

    def _is_settled(self, job: int, index: int) -> bool:
        """Whether room is being made for a task already."""
        return (job, index) in self._evictions.settled

    def _has_given_way(self, job: int, indexes: Iterable[int]) -> bool:
        """Whether one of some tasks was reclaimed a moment ago, so that it waits for its turn."""
        times = [
            at_ms
            for index in indexes
            if (at_ms := self._cycle.mirror.reclaimed.get((job, index))) is not None
        ]
        until_ms = max(times, default=0) + self._cycle.settings.reclaim_min_ms
        if not times or until_ms <= self._cycle.now_ms:
            return False
        self._cycle.wake_at(until_ms)
        return True

    def _units_below(self, band: PriorityBand) -> list[JointVictims]:
        """What may give way for work of a band: lower bands first, of each the newest first."""
        return [
            unit
            for lower in sorted(PriorityBand, reverse=True)
            if lower >= band
            for unit in self._units.get(lower, ())
        ]

    def _all_units(self) -> dict[PriorityBand, list[JointVictims]]:
        """By band, the newest first."""
        victims = self._evictions.victims
        whole = [[victim] for victim in victims.all if victim.session is None]
        whole += [members for _, members in sorted(victims.sessions.items())]
        units: dict[PriorityBand, list[JointVictims]] = {}
        for members in sorted(whole, key=_age):
            band = members[0].band
            units.setdefault(band, []).append(
                JointVictims(tuple(members), self._part(members), band)
            )
        return units

    def _part(self, victims: Sequence[Victim]) -> ProjectPart:
        mirror = self._cycle.mirror
        job = victims[0].ref.job
        return mirror.jobs[job].project, multiplied(share_of(mirror.kinds[job].need), len(victims))


def reclaiming(
    cycle: Cycle,
    assignments: Assignments,
    near: NearSide,
    band: PriorityBand,
    kinds: Iterable[JobClass],
) -> list[int]:
    """The waiting jobs of a band that may make others give way, gangs first, each in queue order.

    ``kinds``: classes of which no more fits.
    """
    mirror = cycle.mirror
    known: dict[tuple[JobClass, str], bool] = {}
    found = []
    for of_gangs in (True, False):
        of_turn = [kind for kind in kinds if kind.band is band and kind.is_gang is of_gangs]
        for job in in_order(of_turn, (), ()):
            kind = mirror.kinds[job]
            group = (kind, mirror.jobs[job].project)
            if group not in known:
                need = multiplied(share_of(kind.need), max(1, kind.size))
                known[group] = near.guarantees.may_reclaim(group[1], need)
            if known[group] and len(assignments.waiting(job)) and not cycle.is_paused(job):
                found.append(job)
    return found


class UnitSearch:
    """Finds where one more task of a class and a project fits once work there has given way.

    Units are gathered by worker from the first on, until those of one worker are enough.
    """

    def __init__(
        self,
        evictions: Evictions,
        near: NearSide,
        kind: JobClass,
        project: str,
        units: Sequence[JointVictims],
        *,
        mask: Mask,
    ) -> None:
        self._evictions = evictions
        self._guarantees = near.guarantees
        self._kind = kind
        self._project = project
        self._need = share_of(kind.need)
        self._units = units
        self._mask = mask
        self._position = 0
        self._gathered: dict[int, list[JointVictims]] = {}
        self._due: list[int] = []

    def waits(self) -> bool:
        """Whether one more task will fit without another eviction; it is then counted there."""
        future = self._evictions.future
        slots = np.flatnonzero(self._mask)
        fits = np.ones(len(slots), np.bool_)
        for dimension, amount in self._kind.need.needed:
            fits &= future.matrix[dimension][slots] >= amount
        if not fits.any():
            return False
        future.take(int(slots[fits][0]), self._kind.need)
        return True

    def best(self) -> tuple[int, list[JointVictims]] | None:
        """The worker, and who must give way there; None when nobody's end helps."""
        while True:
            while self._due:
                chosen = self._on(self._due[-1])
                if chosen is not None:
                    return self._due[-1], chosen
                self._due.pop()
            if self._position == len(self._units):
                return None
            unit = self._units[self._position]
            self._position += 1
            if self._may_go(unit, self._guarantees.gives_way(self._project, self._need, unit.part)):
                for slot in sorted({v.slot for v in unit.victims if self._mask[v.slot]}):
                    self._gathered.setdefault(slot, []).append(unit)
                    self._due.append(slot)

    def _may_go(self, unit: JointVictims, gives_way: bool) -> bool:
        is_going = any(victim in self._evictions.stopped for victim in unit.victims)
        return not is_going and (unit.band > self._kind.band or gives_way)

    def _on(self, slot: int) -> list[JointVictims] | None:
        """Who must give way on one worker, of those that are gathered there; None when all are not
        enough.
        """
        room = self._evictions.future.at(slot)
        left = self._guarantees.copy()
        chosen: list[JointVictims] = []
        for unit in self._gathered[slot]:
            if self._may_go(unit, left.gives_way(self._project, self._need, unit.part)):
                chosen.append(unit)
                left.stop(*unit.part)
                room = plus(room, unit.frees(slot))
                if covers(room, self._kind.need):
                    break
        else:
            return None
        for unit in chosen[:-1][::-1]:
            without = minus(room, unit.frees(slot))
            if covers(without, self._kind.need):
                chosen.remove(unit)
                room = without
        parts = [unit.part for unit in chosen]
        return chosen if self._guarantees.suffices(self._project, self._need, parts) else None


def _victims(units: Iterable[JointVictims]) -> list[Victim]:
    return [victim for unit in units for victim in unit.victims]


def _age(members: Sequence[Victim]) -> tuple[int, object]:
    return max(-victim.since_ms for victim in members), members[0].ref
