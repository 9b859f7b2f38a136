"""Places, once everyone has been placed, the tasks of users who prepare less than their share on
workers with a full building window.

It reserves nothing: that has been done. A job with a nominated task waits for that one.
Source: docs/adr/0147-a-full-building-window-keeps-a-share-for-each-user.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from iris_core.states import PriorityBand
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.feasible.near import Side
from iris_scheduler.mirror.classes import JobClass, UserLine, place_of
from iris_scheduler.place.assignments import Assignments
from iris_scheduler.place.gangs import GangPlacer
from iris_scheduler.place.order import in_order
from iris_scheduler.place.tasks import TaskPlacer
from iris_scheduler.place.windows import FullWindows


class SharePlacer:
    """Places jobs on workers whose building window is full, within the share of their user.

    A user's tasks are placed as any others, while the windows are open for that user.
    """

    def __init__(
        self, cycle: Cycle, assignments: Assignments, gangs: GangPlacer, tasks: TaskPlacer
    ) -> None:
        """``gangs``, ``tasks``: have placed what fits otherwise."""
        self._cycle = cycle
        self._assignments = assignments
        self._tasks = tasks
        self._windows = FullWindows(cycle, assignments)
        self._nominated = {job for job, _ in assignments.nominations.slots}
        self._placers: dict[tuple[str, bool], GangPlacer | TaskPlacer] = {}
        self._lines: dict[tuple[JobClass, str], UserLine] = {}
        self._exhausted: set[UserLine] = set()
        full = gangs.full | tasks.full
        special = {cycle.mirror.kinds[job] for job in cycle.special}
        possible = self._possible(full | special) if self._windows else set()
        self._full = possible & full
        self._special = [job for job in cycle.special if cycle.mirror.kinds[job] in possible]

    def bands(self) -> list[PriorityBand]:
        """Those of jobs that may be placed, in order."""
        kinds = self._cycle.mirror.kinds
        special = {kinds[job].band for job in self._special}
        return sorted(special.union(kind.band for kind in self._full))

    def turn(self, band: PriorityBand, *, of_gangs: bool) -> Iterator[int]:
        """The jobs of a band that may be placed, in queue order."""
        mirror = self._cycle.mirror
        kinds = [kind for kind in self._full if kind.band is band and kind.is_gang is of_gangs]
        lines = [line for kind in kinds for line in kind.lines()]
        self._lines.update({(line.kind, line.user): line for line in lines})
        alone = [
            place_of(mirror.jobs[job])
            for job in self._special
            if mirror.kinds[job].band is band and mirror.kinds[job].is_gang is of_gangs
        ]
        return in_order(lines, self._exhausted, alone)

    def place(self, job: int, *, side: Side) -> bool:
        """Place the pending tasks of a job that fit; returns as of `TaskPlacer.place`."""
        if job in self._nominated or not len(self._assignments.waiting(job)):
            return False
        user = self._cycle.mirror.jobs[job].user
        kind = self._cycle.mirror.kinds[job]
        may_prepare = self._windows.open_for(user)
        reservations = self._assignments.reservations
        own = reservations.kept_for(job)
        placer = self._placer(user, kind, alone=bool(own))
        with reservations.opened(own):
            yields = may_prepare and placer.place(job, side=side)
        line = self._lines.get((kind, user))
        if line is not None and (not may_prepare or kind in placer.full):
            self._exhausted.add(line)
        return yields

    def close(self) -> None:
        """Nothing more is placed."""
        self._windows.close()

    def _placer(self, user: str, kind: JobClass, *, alone: bool) -> GangPlacer | TaskPlacer:
        """Who places jobs of a user; ``alone``: this one only, because more workers are open to
        it.
        """
        key = (user, kind.is_gang)
        placer = None if alone else self._placers.get(key)
        if placer is None:
            placer = self._new_placer(of_gangs=kind.is_gang)
            if not alone:
                self._placers[key] = placer
        return placer

    def _new_placer(self, *, of_gangs: bool) -> GangPlacer | TaskPlacer:
        cycle = self._cycle
        if of_gangs:
            return GangPlacer(cycle, self._assignments, (), reserves=False)
        spreading = self._tasks.spreading
        return TaskPlacer(cycle, self._assignments, (), spreading=spreading, reserves=False)

    def _possible(self, kinds: Iterable[JobClass]) -> set[JobClass]:
        """Those of which one more task would fit if the windows were not full."""
        slots = self._windows.slots
        widest = self._windows.widest()
        needs = self._cycle.mirror.needs
        by_shape: dict[object, list[JobClass]] = {}
        for kind in kinds:
            by_shape.setdefault(kind.shape, []).append(kind)
        found = set[JobClass]()
        for same in by_shape.values():
            mask = self._cycle.columns.usable(same[0]).mask[slots]
            if mask.any():
                fits = needs.fitting([kind.row for kind in same], widest[:, mask]).tolist()
                found.update(kind for kind, has_room in zip(same, fits, strict=True) if has_room)
        return found
