"""Why what waits was not placed, found by the same masks, room and order that did not place it.

Looked for in the order of `reasons.ReasonCode`. A class has one reason; a job has its own only when it is nominated
places, delayed, over quota, or counted in the queue. Source: docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

import numpy as np

from iris_core import reasons
from iris_core.constraints import describe
from iris_core.messages import WorkerRow
from iris_core.reasons import Reason, ReasonCode
from iris_core.resources import RESOURCES
from iris_core.states import WorkerState
from iris_scheduler.classes import JobClass
from iris_scheduler.cycle import Cycle
from iris_scheduler.placement.capacity import SHUT, WINDOW, Mask, Matrix, Need, Slots, fitting, row_of

_NAMED = 64
"""Workers of a group that are named at most."""

BEHIND = Reason(ReasonCode.BEHIND, "")
"""Stands for `reasons.behind` until it is known behind how many."""


def reason_of_class(cycle: Cycle, kind: JobClass) -> Reason:
    """Why nothing more of this class fits now; `BEHIND` when it would have, before others were placed."""
    usable = cycle.usable(kind).slots
    taking = usable[cycle.before[WINDOW].take(usable) > -SHUT // 2]
    if not len(taking):
        return _nobody(cycle, kind, usable)
    if kind.is_gang:
        return _no_group(cycle, kind, taking)
    return _kept(cycle, kind) or (BEHIND if _had_room(cycle, kind, taking) else _short(cycle, kind, taking))


def reason_of_first(cycle: Cycle, kind: JobClass) -> Reason:
    """Why a job waits that no other job's task stands before: its own tasks have taken the room there was."""
    usable = cycle.usable(kind).slots
    taking = usable[cycle.before[WINDOW].take(usable) > -SHUT // 2]
    return _crowded(cycle, kind, taking) if kind.is_gang else _short(cycle, kind, taking)


def reason_of_job(cycle: Cycle, job: int, of_class: Reason) -> Reason:
    """Why the waiting tasks of one job were passed over, given what holds for its class."""
    waiting = cycle.waiting(job)
    nominated = {(p.job, p.index): p.worker for evicted in cycle.evicted for p in evicted.nominations if p.job == job}
    nominated |= {task: cycle.columns.names[slot] for task, slot in cycle.kept.slots.items() if task[0] == job}
    if nominated and all((job, index) in nominated for index in waiting):
        return reasons.waiting_for_victim([nominated[job, index] for index in waiting])
    noted = cycle.notes.get(job)
    if noted is not None:
        return noted
    if of_class.code in (ReasonCode.NO_WORKERS, ReasonCode.NO_MATCH) or of_class.facts.get("never"):
        return of_class
    over = _over_quota(cycle, job)
    if over is not None:
        return over
    return of_class


def _over_quota(cycle: Cycle, job: int) -> Reason | None:
    kind, user = cycle.mirror.kinds[job], cycle.mirror.jobs[job].user
    reached = cycle.allowances.limit_reached(user, kind.need)
    return reasons.over_quota(user, *reached) if reached else None


def _rows(cycle: Cycle, slots: Slots) -> list[WorkerRow]:
    rows = (cycle.mirror.hosts.host(cycle.columns.names[slot]).row for slot in slots.tolist())
    return [row for row in rows if row is not None]


def _nobody(cycle: Cycle, kind: JobClass, usable: Slots) -> Reason:
    if not len(cycle.columns):
        lost = sum(1 for _ in cycle.mirror.hosts.known())
        return reasons.no_workers({WorkerState.LOST.value: lost} if lost else {})
    if not len(usable):
        return _no_match(cycle, kind)
    states = [row.state for row in _rows(cycle, usable)]
    return reasons.no_workers({state.value: states.count(state) for state in WorkerState if state in states})


def _no_match(cycle: Cycle, kind: JobClass) -> Reason:
    """Each condition alone, and how many workers fail it."""
    failing = {describe(c): int((~cycle.columns.mask(c)).sum()) for c in kind.required}
    taints = [taint for taint in cycle.columns.taints if taint not in kind.tolerated]
    failing |= {f"{taint} not tolerated": int(cycle.columns.tainted(taint).sum()) for taint in taints}
    return reasons.no_match(len(cycle.columns), {words: count for words, count in failing.items() if count})


def _kept(cycle: Cycle, kind: JobClass) -> Reason | None:
    """Whether only workers kept for a gang have room."""
    mask = cycle.usable(kind).mask
    roomy = []
    for slot, kept in sorted(cycle.reserved.items()):
        cycle.room.reopen(slot)
        if mask[slot] and cycle.room.holds(slot, kind.need) > 0:
            roomy.append(kept.gang)
        cycle.room.shut(slot)
    return reasons.reserved_for_gang(cycle.mirror.jobs[roomy[0]].name, len(roomy)) if roomy else None


def _had_room(cycle: Cycle, kind: JobClass, slots: Slots) -> bool:
    return bool(fitting(cycle.before, kind.need, slots).any())


def _short(cycle: Cycle, kind: JobClass, slots: Slots) -> Reason:
    """What is missing on the workers that match and take work."""
    now, need = cycle.room.matrix, kind.need
    resources = list(need.held)
    if fitting(now, Need(need.amounts, tuple(resources)), slots).all() if resources else True:
        return reasons.building_window_full(len(slots))
    roomy = _roomy(now, resources, slots)
    if roomy:
        return reasons.building_window_full(roomy)
    return _scarcest(cycle, kind, resources, slots)


def _roomy(now: Matrix, resources: list[tuple[int, int]], slots: Slots) -> int:
    fits = np.ones(len(slots), np.bool_)
    for dimension, amount in resources:
        fits &= now[dimension].take(slots) >= amount
    return int(fits.sum())


def _scarcest(cycle: Cycle, kind: JobClass, resources: list[tuple[int, int]], slots: Slots) -> Reason:
    """The resource that fewest workers have enough of."""
    now = cycle.room.matrix
    short = {dimension: int((now[dimension].take(slots) < amount).sum()) for dimension, amount in resources}
    dimension, amount = max(resources, key=lambda pair: (short[pair[0]], -pair[0]))
    largest = max(row_of(row.total, 0)[dimension] for row in _rows(cycle, slots))
    best = int(now[dimension].take(slots).max())
    return reasons.not_enough(
        RESOURCES[dimension],
        amount,
        max(best, 0),
        short[dimension],
        len(slots),
        largest,
        stuck=_stuck(cycle, cycle.usable(kind).mask),
        several=kind in cycle.several,
    )


def _stuck(cycle: Cycle, mask: Mask) -> list[str]:
    """Workers one may use where what was told to stop has not stopped in time."""
    return [name for name in sorted(cycle.stuck) if name in cycle.columns.slot and mask[cycle.columns.slot[name]]]


def _no_group(cycle: Cycle, kind: JobClass, slots: Slots) -> Reason:
    groups = cycle.columns.groups(kind.key.group_by)
    grouped = slots[groups.codes.take(slots) >= 0]
    if not len(grouped):
        return reasons.gang_needs_group(kind.key.group_by, kind.size, "", 0, 0)
    number = len(groups.names)
    before = grouped[fitting(cycle.before, kind.need, grouped)]
    if (np.bincount(groups.codes.take(before), minlength=number) >= kind.size).any():
        return BEHIND
    return _crowded(cycle, kind, slots)


def _crowded(cycle: Cycle, kind: JobClass, slots: Slots) -> Reason:
    """The group that is nearest to having room, and who holds the rest of it."""
    groups = cycle.columns.groups(kind.key.group_by)
    grouped = slots[groups.codes.take(slots) >= 0]
    number = len(groups.names)
    has = np.bincount(groups.codes.take(grouped), minlength=number)
    now = grouped[fitting(cycle.room.matrix, kind.need, grouped)]
    free = np.bincount(groups.codes.take(now), minlength=number)
    best = min(range(number), key=lambda group: (-free[group], -has[group], group))
    members = [slot for slot in groups.members[best] if cycle.usable(kind).mask[slot]]
    return reasons.gang_needs_group(
        kind.key.group_by,
        kind.size,
        groups.names[best],
        int(free[best]),
        int(has[best]),
        held=_held(cycle, kind, members, set(now.tolist())),
        stuck=_stuck(cycle, cycle.usable(kind).mask),
    )


def _held(cycle: Cycle, kind: JobClass, members: list[int], free: set[int]) -> dict[str, list[str]]:
    """Why workers of a group are not free, those that are LOST among them, and which they are."""
    held: dict[str, list[str]] = {}
    names = [cycle.columns.names[slot] for slot in members if slot not in free]
    value = cycle.columns.attributes[members[0]].get(kind.key.group_by)
    lost = [row.worker for row in cycle.mirror.hosts.lost if row.attributes.get(kind.key.group_by) == value]
    for name in [*sorted(lost), *names][:_NAMED]:
        host = cycle.mirror.hosts.host(name)
        jobs = sorted({cycle.mirror.jobs[ref.job].name for ref in host.holds})
        if host.row is not None and host.row.state is not WorkerState.HEALTHY:
            held.setdefault(f"{host.row.state.value}", []).append(name)
        elif jobs:
            held.setdefault(f"held by {', '.join(jobs[:2])}{' and others' if len(jobs) > 2 else ''}", []).append(name)
    return held
