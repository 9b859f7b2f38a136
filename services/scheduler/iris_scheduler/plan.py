"""Makes the plan of one cycle: assignments, preemptions, and the reasons why other work is pending. A pure function.

The same mirror, cache, time and settings give the same bytes. Bands are handled in order; in each, gangs, then single
tasks by first fit, then those over quota in the same way; then preemption; then reasons. `Cycle` holds the input of
all, `Assignments` the result of the two placers, `Preemption` the evictions, `CycleOutcome` the input of reasons.
Source: docs/ARCHITECTURE.md#the-path-of-one-job, step 3; docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from iris_core.limits import PLACED_AT_ONCE
from iris_core.messages.scheduler_state import Placement, Plan
from iris_core.states import PriorityBand
from iris_scheduler.cache import Cache, CycleFindings
from iris_scheduler.cycle import Cycle
from iris_scheduler.explain.reasons import CycleOutcome
from iris_scheduler.explain.updates import changed_reasons
from iris_scheduler.invalidation import soon_helped, still_full, still_unschedulable
from iris_scheduler.mirror.classes import JobClass, place_of
from iris_scheduler.mirror.columns import Columns
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.place.assignments import Assignments, Given
from iris_scheduler.place.chains import ChainPlacer
from iris_scheduler.place.gangs import GangPlacer
from iris_scheduler.place.order import in_order
from iris_scheduler.place.tasks import TaskPlacer
from iris_scheduler.preempt.bands import Preemption
from iris_scheduler.settings import SchedulerSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, the findings of the cycle, and when time alone would change it.

    Attributes:
        columns: the workers it is about. gangs, singles: members of gangs and single tasks placed.
        wake_ms: None when nothing changes by waiting.
        left: jobs whose reasons did not fit into the plan.
    """

    plan: Plan
    findings: CycleFindings
    columns: Columns
    wake_ms: int | None
    gangs: int
    singles: int
    left: set[int]

    @property
    def is_empty(self) -> bool:
        """Whether the plan contains nothing."""
        return not (self.plan.placements or self.plan.evictions or self.plan.reasons or self.plan.extensions)


def plan(mirror: Mirror, cache: Cache, now_ms: int, settings: SchedulerSettings) -> Decision:
    """Decide one cycle without changing the arguments.

    Args:
        cache: results of earlier cycles; an empty cache gives the same placements and evictions.
        now_ms: the time, for delays, timeout and time limits.
    """
    cycle = Cycle(mirror, cache, now_ms, settings)
    assignments = Assignments(cycle)
    skipped = still_full(cycle, assignments.room)
    gangs, tasks = GangPlacer(cycle, assignments, skipped), TaskPlacer(cycle, assignments, skipped)
    for band in sorted({kind.band for kind in cycle.classes}):
        _place_band(cycle, band, gangs, tasks)
    full = gangs.full | tasks.full
    reserved = frozenset(assignments.reservations.gangs())
    preemption = Preemption(cycle, assignments, still_unschedulable(cycle, reserved))
    preemption.run(full)
    updates = changed_reasons(CycleOutcome(cycle, assignments, preemption, skipped, full, gangs.apart))
    unschedulable = preemption.unschedulable - preemption.claiming - preemption.protected.keys()
    unschedulable -= soon_helped(cycle, assignments.given, unschedulable)
    given = _first(assignments.given, [len(one.indexes) for one in assignments.given])
    evictions = _first(preemption.made, [len(one.victims) + len(one.nominations) for one in preemption.made])
    cut = (len(given), len(evictions)) != (len(assignments.given), len(preemption.made))
    if cut:
        unschedulable.clear()
        cycle.wake_at(now_ms)
    if cut or reserved:  # the next cycle may have more capacity although no worker has grown
        full = set()
    several = preemption.several
    findings = CycleFindings(full, unschedulable, several, updates.classes, updates.jobs, cycle.stuck, reserved)
    placed = sum(len(one.indexes) for one in given)
    of_gangs = sum(len(one.indexes) for one in given if mirror.kinds[one.job].is_gang)
    workers, placements = _placements(cycle.columns, given)
    extensions = () if cut else tuple(ChainPlacer(cycle, assignments).extensions())
    made = Plan(
        *(settings.name, mirror.version, workers, placements, tuple(evictions), updates.reasons), extensions=extensions
    )
    placed += sum(len(one.indexes) for one in extensions)
    return Decision(made, findings, cycle.columns, cycle.wake_ms, of_gangs, placed - of_gangs, updates.left)


def _first(items: Sequence[T], sizes: Sequence[int]) -> Sequence[T]:
    """At most `PLACED_AT_ONCE` tasks of one turn, at least one job; the rest follows in the next cycle."""
    within = sum(end <= PLACED_AT_ONCE for end in accumulate(sizes))
    return items[: max(1, within)]


def _place_band(cycle: Cycle, band: PriorityBand, gangs: GangPlacer, tasks: TaskPlacer) -> None:
    """Place the jobs of a band: gangs first, then single tasks, then the jobs that yielded."""
    later_gangs = _turn(cycle, gangs, lambda kind: kind.band is band and kind.is_gang)
    later = _turn(cycle, tasks, lambda kind: kind.band is band and not kind.is_gang)
    for job in later_gangs:
        gangs.place(job, over_quota=True)
    for job in later:
        tasks.place(job, over_quota=True)


def _turn(cycle: Cycle, placer: GangPlacer | TaskPlacer, is_meant: Callable[[JobClass], bool]) -> list[int]:
    """Place the jobs of some classes in queue order; returns the jobs that yielded to other users, in order."""
    mirror = cycle.mirror
    special = [place_of(mirror.jobs[job]) for job in cycle.special if is_meant(mirror.kinds[job])]
    kinds = filter(is_meant, cycle.classes)
    return [job for job in in_order(kinds, placer.full, special) if placer.place(job, over_quota=False)]


def _placements(columns: Columns, given: Sequence[Given]) -> tuple[tuple[str, ...], tuple[Placement, ...]]:
    """The names of all workers used, and the placements that refer to them by index."""
    used = sorted({slot for one in given for slot in one.slots})
    number = {slot: position for position, slot in enumerate(used)}
    placements = [Placement(one.job, tuple(one.indexes), tuple([number[slot] for slot in one.slots])) for one in given]
    return tuple([columns.names[slot] for slot in used]), tuple(placements)
