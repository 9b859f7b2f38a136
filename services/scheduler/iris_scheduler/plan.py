"""One cycle: who goes where, who is stopped for whom, and why the rest waits. A pure function of what is known.

The same mirror, memory, time and settings give the same bytes. Bands one after the other; in each, gangs, then single
tasks by first fit, then those over quota in the same way; then eviction; then reasons.
Source: docs/ARCHITECTURE.md#the-path-of-one-job, step 3; docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TypeVar

import numpy as np

from iris_core.limits import PLACED_AT_ONCE
from iris_core.messages import Eviction, JobReason, Placement, Plan
from iris_core.states import PriorityBand
from iris_scheduler.cache import Cache, CycleFindings
from iris_scheduler.classes import JobClass, place_of
from iris_scheduler.cycle import Cycle, Given
from iris_scheduler.gangs.placement import place_gang
from iris_scheduler.invalidation import soon_helped, still_full, still_unschedulable
from iris_scheduler.mirror import Mirror
from iris_scheduler.order import in_order
from iris_scheduler.placement.columns import Columns
from iris_scheduler.placement.tasks import place_job
from iris_scheduler.preemption.tasks import preempt
from iris_scheduler.reason_updates import changed_reasons
from iris_scheduler.settings import SchedulerSettings

Placer = Callable[..., bool]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, what was found out on the way, and when time alone would change it.

    Attributes:
        columns: the workers it is about. gangs, singles: members of gangs and single tasks placed.
        wake_ms: None when nothing changes by waiting.
        left: jobs whose reasons had no room in the plan.
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
        """Whether there is nothing to say."""
        return not (self.plan.placements or self.plan.evictions or self.plan.reasons)


def plan(mirror: Mirror, memory: Cache, now_ms: int, settings: SchedulerSettings) -> Decision:
    """Decide one cycle. Reads everything, changes nothing.

    Args:
        memory: what earlier cycles learnt; an empty one gives the same placements and evictions.
        now_ms: the time, for delays, timeout and time limits.
    """
    cycle = Cycle(mirror, memory, now_ms, settings)
    cycle.skipped = still_full(cycle)
    cycle.full = set(cycle.skipped)
    for band in PriorityBand:
        _place_band(cycle, band)
    reserved = frozenset((slot, kept.gang) for slot, kept in cycle.reserved.items())
    unschedulable = still_unschedulable(cycle, reserved)
    cycle.several = memory.several & unschedulable
    claiming = preempt(cycle, unschedulable)
    updates = changed_reasons(cycle)
    unschedulable -= soon_helped(cycle, unschedulable) | claiming
    cut = _fit(cycle)
    if cut:
        unschedulable.clear()
    reserving = bool(reserved) or cut
    findings = CycleFindings(
        cycle.full, unschedulable, cycle.several, updates.classes, updates.jobs, reserving, cycle.stuck, reserved
    )
    gangs = sum(len(given.indexes) for given in cycle.given if mirror.kinds[given.job].is_gang)
    singles = sum(len(given.indexes) for given in cycle.given if not mirror.kinds[given.job].is_gang)
    return Decision(
        _assemble(cycle, updates.reasons), findings, cycle.columns, cycle.wake_ms, gangs, singles, updates.left
    )


def _fit(cycle: Cycle) -> bool:
    """Leave to the next cycle what one plan has no room for; whether there was more than that."""
    given = _first(cycle.given, [len(given.indexes) for given in cycle.given])
    evicted = _first(cycle.evicted, [len(one.victims) + len(one.nominations) for one in cycle.evicted])
    cut = (len(given), len(evicted)) != (len(cycle.given), len(cycle.evicted))
    if cut:
        cycle.given, cycle.evicted = given, evicted
        cycle.wake_at(cycle.now_ms)
    return cut


def _first(items: list[Item], sizes: Sequence[int]) -> list[Item]:
    """As many as `PLACED_AT_ONCE` lets go at once, and at least one."""
    within = sum(end <= PLACED_AT_ONCE for end in accumulate(sizes))
    return items[: max(1, within)]


def _place_band(cycle: Cycle, band: PriorityBand) -> None:
    kinds = [kind for kind in cycle.mirror.classes() if kind.band is band and kind.waiting]
    special = [job for job in cycle.special if cycle.mirror.jobs[job].band is band]
    gangs, singles = [k for k in kinds if k.is_gang], [k for k in kinds if not k.is_gang]
    later_gangs = _turn(cycle, gangs, [job for job in special if cycle.mirror.kinds[job].is_gang], place_gang)
    later = _turn(cycle, singles, [job for job in special if not cycle.mirror.kinds[job].is_gang], place_job)
    for job in later_gangs:
        place_gang(cycle, job, over_quota=True)
    for job in later:
        place_job(cycle, job, over_quota=True)


def _turn(cycle: Cycle, kinds: Sequence[JobClass], special: Iterable[int], placer: Placer) -> list[int]:
    """Give every job its turn; returns those that let others go first, in order."""
    places = [place_of(cycle.mirror.jobs[job]) for job in special]
    return [job for job in in_order(kinds, cycle.full, places) if placer(cycle, job, over_quota=False)]


def _assemble(cycle: Cycle, reasons: tuple[JobReason, ...]) -> Plan:
    workers, numbers = _table(cycle.columns, cycle.given)
    ends = list(accumulate((len(given.slots) for given in cycle.given), initial=0))
    placements = tuple(
        Placement(given.job, tuple(given.indexes), tuple(numbers[start:stop]))
        for given, start, stop in zip(cycle.given, ends, ends[1:], strict=False)
    )
    return Plan(
        scheduler=cycle.settings.name,
        version=cycle.mirror.version,
        workers=workers,
        placements=placements,
        evictions=tuple(Eviction(evicted.victims, evicted.nominations) for evicted in cycle.evicted),
        reasons=reasons,
    )


def _table(columns: Columns, given: Sequence[Given]) -> tuple[tuple[str, ...], list[int]]:
    """The names of all workers used, each once, and for every placed task the number of its worker."""
    slots = np.fromiter(chain.from_iterable(places.slots for places in given), np.int64)
    used, numbers = np.unique(slots, return_inverse=True)
    return tuple(columns.names[slot] for slot in used.tolist()), numbers.tolist()
