"""Preempts lower bands for unplaced work of a higher band, band by band, and then what borrows in the
band for work within a guarantee; nothing is stopped in vain.

It uses the capacity there will be once everything already stopping has stopped: work that fits
there waits and evicts nothing. The freed place is nominated for the task. Reserved workers are
open to higher bands.
Source: docs/design/semantics.md#tasks-and-attempts, docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from iris_core.messages.scheduler_state import Eviction
from iris_core.states import PriorityBand
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.feasible.near import NearSide
from iris_scheduler.mirror.classes import JobClass, first_of
from iris_scheduler.place.assignments import Assignments
from iris_scheduler.place.order import in_order
from iris_scheduler.preempt.evictions import Evictions, Protected
from iris_scheduler.preempt.gangs import GangPreemptor
from iris_scheduler.preempt.reclaim import Reclaim, reclaiming
from iris_scheduler.preempt.tasks import TaskPreemptor

PREEMPTORS = (PriorityBand.PRODUCTION, PriorityBand.INTERACTIVE)
"""BATCH never preempts; it reclaims."""


class Preemption:
    """The evictions of one cycle, over all bands.

    Attributes:
        made: evictions in order. unschedulable: classes that no eviction helps.
        tried: classes that were examined.
        protected: classes that wait until a victim is protected no more.
        claiming: classes that wait for capacity that stopping work frees; they must be examined
            because they reduce it for others.
    """

    def __init__(
        self, cycle: Cycle, assignments: Assignments, unschedulable: set[JobClass]
    ) -> None:
        """``unschedulable``: classes known from earlier cycles, which are not examined."""
        self._cycle = cycle
        self._assignments = assignments
        self.made: list[Eviction] = []
        self.unschedulable = unschedulable
        self.tried: list[JobClass] = []
        self.claiming: set[JobClass] = set()
        self.protected: dict[JobClass, Protected] = {}

    def run(self, full: Set[JobClass]) -> None:
        """Evict for pending work, highest band first; ``full``: classes of which nothing fits."""
        cycle = self._cycle
        mirror = self._cycle.mirror
        held = [band for band in PriorityBand if mirror.held[band]]
        bands = [band for band in PREEMPTORS if any(lower > band for lower in held)]
        near = self._assignments.near
        if not bands and near is None:
            return
        apart = {mirror.kinds[job] for job in cycle.avoiding if len(self._assignments.waiting(job))}
        wanted = (full | apart) - self.unschedulable
        tried = sorted([kind for kind in wanted if kind.band in bands], key=first_of)
        reclaiming = self._reclaiming(near, held, full | apart) if near is not None else {}
        if not tried and not reclaiming:
            return
        self.tried = tried
        evictions = Evictions(cycle, self._assignments, all_bands=bool(reclaiming))
        tasks = TaskPreemptor(cycle, self._assignments, evictions)
        gangs = GangPreemptor(cycle, self._assignments, evictions)
        reclaim = None
        for band in PriorityBand if reclaiming else bands:
            evictions.keep_reserved(band)
            for preemptor, of_gangs in ((gangs, True), (tasks, False)):
                kinds = [kind for kind in tried if kind.band is band and kind.is_gang is of_gangs]
                for job in in_order(kinds, self.unschedulable, ()):
                    if not preemptor.make_room(job):
                        self.unschedulable.add(mirror.kinds[job])
            if near is not None and band in reclaiming:
                reclaim = reclaim or Reclaim(cycle, self._assignments, near, evictions)
                reclaim.run(band, reclaiming[band])
        self.made = evictions.made
        self.claiming = tasks.claiming | (reclaim.claiming if reclaim is not None else set())
        self.protected = evictions.protected

    def _reclaiming(
        self, near: NearSide, held: Sequence[PriorityBand], kinds: Set[JobClass]
    ) -> dict[PriorityBand, list[int]]:
        """By band, the jobs that may make others of it give way."""
        found = {
            band: reclaiming(self._cycle, self._assignments, near, band, kinds) for band in held
        }
        return {band: jobs for band, jobs in found.items() if jobs}
