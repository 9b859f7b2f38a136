"""Finds the reasons why pending work was not placed, from the same masks, capacity and order that
placement used.

Reasons are tried in the order of `reasons.ReasonCode`. A class has one reason; a job has its own
only when it has nominations, is delayed, is over quota, or is counted in the queue. Source:
docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import WorkerRow
from iris_core.placement import reasons
from iris_core.placement.constraints import DEVICE_VARIANT, describe
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.spec.jobs import Constraint
from iris_core.spec.resources import RESOURCES
from iris_core.states import WorkerState
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.feasible.reservations import NO_INDEX
from iris_scheduler.mirror.capacity import SHUT, WINDOW, Mask, Slots, fitting, row_of
from iris_scheduler.mirror.classes import JobClass
from iris_scheduler.mirror.columns import Codes
from iris_scheduler.mirror.hosts import NEVER_MS
from iris_scheduler.place.assignments import Assignments
from iris_scheduler.preempt.bands import Preemption

_NAMED = 64
"""At most so many workers are named, or examined for what is named."""


@dataclass(frozen=True, slots=True)
class CycleOutcome:
    """The result of one cycle, as input for reasons.

    Attributes:
        skipped: classes that were not examined because earlier cycles found them full. full: these,
            and those that became full in this cycle. apart: gangs that did not fit although another
                gang of their class may.
    """

    cycle: Cycle
    assignments: Assignments
    preemption: Preemption
    skipped: Set[JobClass]
    full: Set[JobClass]
    apart: Set[int]


BEHIND = Reason(ReasonCode.BEHIND, "")
"""Stands for `reasons.behind` until the number of preceding tasks is known."""


def reason_of_class(outcome: CycleOutcome, kind: JobClass) -> Reason:
    """Why no further task of this class fits; `BEHIND` when one would have fitted before others
    were placed.
    """
    if (waits := outcome.preemption.protected.get(kind)) is not None:
        return reasons.protected(waits.jobs, waits.until_ms)
    reason = _reason_of_class(outcome, kind)
    device = kind.key.resources.device
    if (
        device is None
        or not device.has_alternatives
        or reason == BEHIND
        or reason.code is ReasonCode.NO_MATCH
    ):
        return reason
    taking = _taking(outcome, kind)
    free = taking[fitting(outcome.assignments.room.matrix, kind.need, taking)]
    masks = {
        variant: outcome.cycle.columns.mask(Constraint(DEVICE_VARIANT, value=variant))
        for variant in device.variants
    }
    counts = {
        variant: (int(mask[free].sum()), int(mask[taking].sum())) for variant, mask in masks.items()
    }
    return reasons.by_variant(reason, counts)


def _reason_of_class(outcome: CycleOutcome, kind: JobClass) -> Reason:
    taking = _taking(outcome, kind)
    if not len(taking):
        return _nobody(outcome.cycle, kind)
    if kind.is_gang:
        return _no_group(outcome, kind, taking)
    had_room = fitting(outcome.assignments.before, kind.need, taking).any()
    return _kept(outcome, kind) or (BEHIND if had_room else _short(outcome, kind, taking))


def reason_of_first(outcome: CycleOutcome, kind: JobClass) -> Reason:
    """Why the first job in the queue is pending: its own tasks have taken the free capacity."""
    taking = _taking(outcome, kind)
    if not len(taking):
        return _nobody(outcome.cycle, kind)
    return _crowded(outcome, kind, taking) if kind.is_gang else _short(outcome, kind, taking)


def _taking(outcome: CycleOutcome, kind: JobClass) -> Slots:
    """The workers that a class may use and that accept work."""
    usable = outcome.cycle.columns.usable(kind).slots
    takes_work: Mask = outcome.assignments.before[WINDOW].take(usable) > -SHUT // 2
    return usable[takes_work]


def reason_of_job(outcome: CycleOutcome, job: int, of_class: Reason) -> Reason:
    """Why the pending tasks of one job were not placed, given the reason of its class."""
    assignments = outcome.assignments
    names = outcome.cycle.columns.names
    waiting = assignments.waiting(job)
    nominated = {
        n.index: n.worker
        for made in outcome.preemption.made
        for n in made.nominations
        if n.job == job
    }
    is_limited = assignments.places(job) <= len(nominated)
    nominated |= {
        index: names[slot]
        for (of, index), slot in assignments.nominations.slots.items()
        if of == job
    }
    if nominated and (is_limited or all(index in nominated for index in waiting)):
        return reasons.waiting_for_victim(
            [nominated[index] for index in waiting if index in nominated]
        )
    noted = assignments.notes.get(job)
    if noted is not None:
        return noted
    if job in assignments.reservations.hosts:
        return _host_reserved(outcome, job)
    if of_class.code in (ReasonCode.NO_WORKERS, ReasonCode.NO_MATCH) or of_class.facts.get("never"):
        return of_class
    if is_limited and (most := outcome.cycle.mirror.jobs[job].max_parallel) is not None:
        return reasons.array_limit(most)
    kind = outcome.cycle.mirror.kinds[job]
    row = outcome.cycle.mirror.jobs[job]
    return assignments.allowances.limit_reached(row, kind.need) or of_class


def _rows(cycle: Cycle, slots: Slots) -> list[WorkerRow]:
    rows = (cycle.mirror.hosts.host(cycle.columns.names[slot]).row for slot in slots.tolist())
    return [row for row in rows if row is not None]


def _nobody(cycle: Cycle, kind: JobClass) -> Reason:
    if not len(cycle.columns):
        lost = sum(1 for _ in cycle.mirror.hosts.known())
        return reasons.no_workers({WorkerState.LOST.value: lost} if lost else {})
    usable = cycle.columns.usable(kind).slots
    if not len(usable):
        return _no_match(cycle, kind)
    rows = _rows(cycle, usable)
    states = [row.state for row in rows]
    degraded = (row for row in rows if row.state is WorkerState.DEGRADED and row.reason)
    by_state = {state.value: states.count(state) for state in WorkerState if state in states}
    return reasons.no_workers(
        by_state, next((f"{row.worker} is degraded: {row.reason}" for row in degraded), "")
    )


def _no_match(cycle: Cycle, kind: JobClass) -> Reason:
    """Each constraint, and how many workers fail it."""
    failing = {describe(c): int((~cycle.columns.mask(c)).sum()) for c in kind.required}
    taints = [taint for taint in cycle.columns.taints if taint not in kind.tolerated]
    failing |= {
        f"{taint} not tolerated": int(cycle.columns.tainted(taint).sum()) for taint in taints
    }
    return reasons.no_match(
        len(cycle.columns), {words: count for words, count in failing.items() if count}
    )


def _kept(outcome: CycleOutcome, kind: JobClass) -> Reason | None:
    """Whether only workers reserved for a gang or another task have enough free."""
    mask = outcome.cycle.columns.usable(kind).mask
    assignments = outcome.assignments
    roomy = []
    for slot, job in assignments.reservations.kept():
        with assignments.reservations.opened([slot]):
            if mask[slot] and assignments.room.fits(slot, kind.need):
                roomy.append((job, outcome.cycle.columns.names[slot]))
    if not roomy:
        return None
    job, worker = roomy[0]
    name = outcome.cycle.mirror.jobs[job].name
    if outcome.cycle.mirror.kinds[job].is_gang:
        return reasons.reserved_for_gang(name, len(roomy))
    return reasons.reserved_for_task(name, worker)


def _host_reserved(outcome: CycleOutcome, job: int) -> Reason:
    """Which worker is reserved for a task of a job, and what must end there first."""
    cycle = outcome.cycle
    found = outcome.assignments.reservations.hosts[job]
    names = [_name_of(cycle, ref) for ref in found.drain.refs]
    until_ms = found.drain.at_ms if found.drain.at_ms < NEVER_MS else None
    worker = cycle.columns.names[found.slot]
    return reasons.host_reserved(worker, names, until_ms)


def _name_of(cycle: Cycle, ref: AttemptRef) -> str:
    name = cycle.mirror.jobs[ref.job].name
    return name if ref.index == NO_INDEX else f"{name}/{ref.index}"


def _short(outcome: CycleOutcome, kind: JobClass, slots: Slots) -> Reason:
    """Which resource is short on the workers that match and accept work."""
    fits = np.ones(len(slots), np.bool_)
    for dimension, amount in kind.need.held:
        fits &= outcome.assignments.room.matrix[dimension].take(slots) >= amount
    if fits.any():
        return reasons.building_window_full(int(fits.sum()), _preparing_most(outcome, slots[fits]))
    return _scarcest(outcome, kind, slots)


def _preparing_most(outcome: CycleOutcome, slots: Slots) -> str:
    """The user of most tasks that prepare on the first of these workers; empty without any."""
    mirror = outcome.cycle.mirror
    by_user = Counter[str]()
    for slot in slots[:_NAMED].tolist():
        host = mirror.hosts.host(outcome.cycle.columns.names[slot])
        for job, count in host.preparing.items():
            by_user[mirror.jobs[job].user] += count
        for job in outcome.assignments.placed_on(slot):
            by_user[mirror.jobs[job].user] += 1
    return min(by_user, key=lambda user: (-by_user[user], user), default="")


def _scarcest(outcome: CycleOutcome, kind: JobClass, slots: Slots) -> Reason:
    """The resource that fewest workers have enough of."""
    now = outcome.assignments.room.matrix
    resources = kind.need.held
    short = {
        dimension: int((now[dimension].take(slots) < amount).sum())
        for dimension, amount in resources
    }
    dimension, amount = max(resources, key=lambda pair: (short[pair[0]], -pair[0]))
    largest = max(row_of(row.total, 0)[dimension] for row in _rows(outcome.cycle, slots))
    best = int(now[dimension].take(slots).max())
    return reasons.not_enough(
        RESOURCES[dimension],
        amount,
        max(best, 0),
        short[dimension],
        workers=len(slots),
        largest=largest,
        stuck=_stuck(outcome.cycle, outcome.cycle.columns.usable(kind).mask),
    )


def _stuck(cycle: Cycle, mask: Mask) -> list[str]:
    """Workers the class may use where an attempt was ordered to stop and has not stopped in
    time.
    """
    slot = cycle.columns.slot
    return [name for name in sorted(cycle.stuck) if name in slot and mask[slot[name]]]


def _no_group(outcome: CycleOutcome, kind: JobClass, slots: Slots) -> Reason:
    groups = outcome.cycle.columns.groups(kind)
    grouped = slots[groups.codes.take(slots) >= 0]
    before = grouped[fitting(outcome.assignments.before, kind.need, grouped)]
    had_room = (
        np.bincount(groups.codes.take(before), minlength=len(groups.names))
        >= kind.size // kind.slices
    )
    if (groups.in_domains(had_room) >= kind.slices).any():
        return BEHIND
    return _crowded(outcome, kind, slots)


def _crowded(outcome: CycleOutcome, kind: JobClass, slots: Slots) -> Reason:
    """The group with the most free hosts, and which jobs hold the rest of it."""
    groups = outcome.cycle.columns.groups(kind)
    grouped = slots[groups.codes.take(slots) >= 0]
    required = kind.groupings[-1]
    if not len(grouped):
        return reasons.gang_needs_group(" and ".join(required.keys), kind.size, "", 0, of=0)
    number = len(groups.names)
    has = np.bincount(groups.codes.take(grouped), minlength=number)
    now = grouped[fitting(outcome.assignments.room.matrix, kind.need, grouped)]
    free = np.bincount(groups.codes.take(now), minlength=number)
    if kind.slices > 1:
        return _too_few_slices(outcome, kind, free, has, now=set(now.tolist()))
    best = int(np.lexsort((-has, -free))[0])
    return reasons.gang_needs_group(
        required.keys[0] if required.keys else "",
        kind.size,
        groups.names[best] if required.keys else "",
        int(free[best]),
        of=int(has[best]),
        held=_held(outcome.cycle, kind, [best], set(now.tolist())),
        stuck=_stuck(outcome.cycle, outcome.cycle.columns.usable(kind).mask),
        outside=_outside(outcome, kind, slots),
    )


def _outside(outcome: CycleOutcome, kind: JobClass, slots: Slots) -> list[tuple[str, str, int]]:
    """Of each level outside of the innermost required one: its key, the value with most free hosts,
    their number.
    """
    levels = kind.key.levels
    columns = outcome.cycle.columns
    first = next((at for at, level in enumerate(levels) if level.mode == "required"), len(levels))
    free = slots[fitting(outcome.assignments.room.matrix, kind.need, slots)]
    return [(level.key, *columns.roomiest(level.key, free)) for level in levels[first + 1 :]]


def _too_few_slices(
    outcome: CycleOutcome, kind: JobClass, free: Codes, has: Codes, now: set[int]
) -> Reason:
    """How many slices are free in the domain with the most, and what holds those that are nearest
    to being free.
    """
    groups = outcome.cycle.columns.groups(kind)
    each = kind.size // kind.slices
    whole = groups.in_domains(free >= each)
    large = groups.in_domains(has >= each)
    domain = int(np.lexsort((-large, -whole))[0])
    short = np.flatnonzero((groups.domains == domain) & (has >= each) & (free < each))
    missing = kind.slices - int(whole[domain])
    nearest = short[np.argsort(-free[short], kind="stable")][:missing].tolist()
    return reasons.gang_needs_slices(
        kind.groupings[-1].group,
        kind.slices,
        each,
        int(whole[domain]),
        there=int(large[domain]),
        domain=groups.domain_names[domain],
        held=_held(outcome.cycle, kind, nearest, now),
        stuck=_stuck(outcome.cycle, outcome.cycle.columns.usable(kind).mask),
    )


def _held(cycle: Cycle, kind: JobClass, groups: list[int], free: set[int]) -> dict[str, list[str]]:
    """Why workers of some groups are not free (LOST ones included), and which they are."""
    held: dict[str, list[str]] = {}
    mask = cycle.columns.usable(kind).mask
    members = cycle.columns.groups(kind).members
    slots = [slot for group in groups for slot in members[group] if mask[slot]]
    names = [cycle.columns.names[slot] for slot in slots if slot not in free]
    key = kind.groupings[-1].group
    values = {cycle.columns.attributes[slot].get(key) for slot in slots}
    lost = [row.worker for row in cycle.mirror.hosts.lost if row.attributes.get(key) in values]
    for name in [*sorted(lost), *names][:_NAMED]:
        host = cycle.mirror.hosts.host(name)
        jobs = sorted({cycle.mirror.jobs[ref.job].name for ref in host.holds})
        if host.row is not None and host.row.state is not WorkerState.HEALTHY:
            held.setdefault(f"{host.row.state.value}", []).append(name)
        elif jobs:
            held.setdefault(
                f"held by {', '.join(jobs[:2])}{' and others' if len(jobs) > 2 else ''}", []
            ).append(name)
    return held
