"""Makes the plan of one cycle: assignments, preemptions, and the reasons why other work is pending.
A pure function.

The same mirror, cache, time and settings give the same bytes. Bands are handled in order; in each,
of each side gangs, then single tasks by first fit; then, in the same
order, what fits only beyond full building windows; then preemption; then reasons. `Cycle` holds the
input of all, `Assignments` the result of the placers, `Preemption` the evictions, `CycleOutcome`
the input of reasons.
Source: docs/ARCHITECTURE.md#the-path-of-one-job, step 3; docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from iris_core.limits import PLACED_AT_ONCE
from iris_core.messages.scheduler_state import Eviction, Extension, Placement, Plan
from iris_core.states import PriorityBand
from iris_scheduler.cycle.cache import Cache, CycleFindings
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.explain.reasons import CycleOutcome
from iris_scheduler.explain.updates import ReasonUpdate, changed_reasons
from iris_scheduler.feasible.near import Side
from iris_scheduler.mirror.classes import JobClass, place_of
from iris_scheduler.mirror.columns import Columns
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.place.assignments import Assignments, Given
from iris_scheduler.place.chains import ChainPlacer
from iris_scheduler.place.gangs import GangPlacer
from iris_scheduler.place.invalidation import (
    Contenders,
    soon_helped,
    still_full,
    still_unschedulable,
)
from iris_scheduler.place.order import in_order
from iris_scheduler.place.shares import SharePlacer
from iris_scheduler.place.tasks import TaskPlacer
from iris_scheduler.preempt.bands import Preemption
from iris_scheduler.settings import SchedulerSettings


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, the findings of the cycle, and when time alone would change it.

    Attributes:
        columns: the workers it is about. gangs, singles: members of gangs and single tasks placed.
        wake_ms: None when nothing changes by waiting.
        left: jobs whose reasons did not fit into the plan; of a full plan all whose reasons are
            due.
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
        return not (
            self.plan.placements or self.plan.evictions or self.plan.reasons or self.plan.extensions
        )


def plan(
    mirror: Mirror,
    cache: Cache,
    now_ms: int,
    settings: SchedulerSettings,
    most: int = PLACED_AT_ONCE,
) -> Decision:
    """Decide one cycle without changing the arguments.

    Args:
        cache: results of earlier cycles; an empty cache gives the same placements and evictions.
        now_ms: the time, for delays, timeout and time limits.
        most: how many tasks a plan places at most, but one job at least. A plan that reaches it
            ends there: the next cycle, which is due at once, examines the rest.
    """
    cycle = Cycle(mirror, cache, now_ms, settings)
    assignments = Assignments(cycle, most)
    contenders = Contenders(cycle)
    skipped = still_full(cycle, contenders, assignments.room)
    gangs = GangPlacer(cycle, assignments, skipped)
    tasks = TaskPlacer(cycle, assignments, skipped, contenders)
    for band in sorted({band for band, _ in cycle.by_turn}):
        _place_band(cycle, assignments, band, gangs, tasks=tasks)
    if not assignments.is_full and (gangs.full or tasks.full or cycle.special):
        _place_shares(assignments, SharePlacer(cycle, assignments, gangs, tasks))
    rest = (
        _next_cycle(cycle)
        if assignments.is_full
        else _unplaced(cycle, assignments, skipped | tasks.dropped, gangs, tasks=tasks)
    )
    given = assignments.planned()
    placed = sum(len(one.indexes) for one in given)
    of_gangs = sum(len(one.indexes) for one in given if mirror.kinds[one.job].is_gang)
    workers, placements = _placements(cycle.columns, given)
    made = Plan(
        settings.name,
        mirror.version,
        workers,
        placements,
        evictions=rest.evictions,
        reasons=rest.updates.reasons,
        extensions=rest.extensions,
    )
    placed += sum(len(one.indexes) for one in rest.extensions)
    return Decision(
        made,
        rest.findings,
        cycle.columns,
        cycle.wake_ms,
        gangs=of_gangs,
        singles=placed - of_gangs,
        left=rest.updates.left,
    )


@dataclass(frozen=True, slots=True)
class _Rest:
    """What a cycle decides about tasks that it does not place."""

    findings: CycleFindings
    updates: ReasonUpdate
    evictions: tuple[Eviction, ...] = ()
    extensions: tuple[Extension, ...] = ()


def _next_cycle(cycle: Cycle) -> _Rest:
    """The next cycle examines whatever this one did not place."""
    cycle.wake_at(cycle.now_ms)
    changes = cycle.mirror.changes
    last = cycle.cache.last
    findings = CycleFindings(
        stuck=cycle.stuck, reserved=last.reserved, special=cycle.special | last.special
    )
    return _Rest(findings, ReasonUpdate(left=changes.fresh | changes.counted))


def _unplaced(
    cycle: Cycle,
    assignments: Assignments,
    skipped: frozenset[JobClass],
    gangs: GangPlacer,
    tasks: TaskPlacer,
) -> _Rest:
    """Preempt for what is not placed, and find why it waits."""
    full = gangs.full | tasks.full
    reserved = frozenset(assignments.reservations.kept())
    preemption = Preemption(cycle, assignments, still_unschedulable(cycle, reserved))
    preemption.run(full)
    updates = changed_reasons(
        CycleOutcome(cycle, assignments, preemption, skipped, full=full, apart=gangs.apart)
    )
    unschedulable = preemption.unschedulable - preemption.claiming - preemption.protected.keys()
    unschedulable -= soon_helped(cycle, assignments.given, unschedulable, preemption.tried)
    evictions = _first(preemption.made)
    is_cut = len(evictions) < len(preemption.made)
    if is_cut:
        unschedulable.clear()
        cycle.wake_at(cycle.now_ms)
    if is_cut:  # the next cycle may have more capacity although no worker has grown
        full = set()
    findings = CycleFindings(
        full,
        unschedulable,
        updates.classes,
        updates.jobs,
        stuck=cycle.stuck,
        reserved=reserved,
        special=cycle.special,
    )
    extensions = () if is_cut else tuple(ChainPlacer(cycle, assignments).extensions())
    return _Rest(findings, updates, evictions, extensions)


def _first(evictions: Sequence[Eviction]) -> tuple[Eviction, ...]:
    """Evictions of at most `PLACED_AT_ONCE` tasks, at least one; the rest follows in the next
    cycle.
    """
    ends = accumulate(len(one.victims) + len(one.nominations) for one in evictions)
    within = sum(end <= PLACED_AT_ONCE for end in ends)
    return tuple(evictions[: max(1, within)])


def _place_band(
    cycle: Cycle, assignments: Assignments, band: PriorityBand, gangs: GangPlacer, tasks: TaskPlacer
) -> None:
    """Place the jobs of a band: of each side gangs first, then single tasks.

    Gangs do not pass a single task before them in the queue that is due for a reservation.
    """
    heads = assignments.heads.of(band)
    first, *others = assignments.sides
    in_turn = _turn(cycle, gangs, band, heads)
    later_gangs = _place(in_turn, gangs, assignments, first)
    assignments.reservations.release_hosts(heads)
    in_turn = _turn(cycle, tasks, band, heads)
    later = _place(in_turn, tasks, assignments, first)
    for side in others:
        reserving = [job for job in later_gangs if job in assignments.heads.jobs]
        later_gangs = _place(later_gangs, gangs, assignments, side)
        assignments.reservations.release_hosts(reserving)
        later = _place(later, tasks, assignments, side)


def _place_shares(assignments: Assignments, shares: SharePlacer) -> None:
    """Place what fits only in the share of its user of a full building window, in the same order."""
    for band in shares.bands():
        first, *others = assignments.sides
        later = _place(shares.turn(band, of_gangs=True), shares, assignments, first)
        later += _place(shares.turn(band, of_gangs=False), shares, assignments, first)
        for side in others:
            later = _place(later, shares, assignments, side)
    shares.close()


def _turn(
    cycle: Cycle, placer: GangPlacer | TaskPlacer, band: PriorityBand, heads: Sequence[int]
) -> Iterator[int]:
    """The jobs of a band that a placer places in queue order, with single tasks that are due for a
    reservation.
    """
    mirror = cycle.mirror
    of_gangs = isinstance(placer, GangPlacer)
    turn = (band, of_gangs)
    alone = {job for job in cycle.special if mirror.kinds[job].peers.turn == turn}
    if not of_gangs or turn in cycle.by_turn:
        alone.update(heads)
    return in_order(cycle.classes(turn), placer.full, [place_of(mirror.jobs[job]) for job in alone])


def _place(
    jobs: Iterable[int],
    placer: GangPlacer | TaskPlacer | SharePlacer,
    assignments: Assignments,
    side: Side,
) -> list[int]:
    """Place jobs until the plan is full; returns the jobs that yielded to others, in order."""
    yielded = []
    for job in jobs:
        if assignments.is_full:
            break
        if placer.place(job, side=side):
            yielded.append(job)
    return yielded


def _placements(
    columns: Columns, given: Sequence[Given]
) -> tuple[tuple[str, ...], tuple[Placement, ...]]:
    """The names of all workers used, and the placements that refer to them by index."""
    used = sorted({slot for one in given for slot in one.slots})
    number = {slot: position for position, slot in enumerate(used)}
    placements = [
        Placement(one.job, tuple(one.indexes), tuple([number[slot] for slot in one.slots]))
        for one in given
    ]
    return tuple([columns.names[slot] for slot in used]), tuple(placements)
