"""Chooses the pending jobs whose reason is sent in this cycle: those without one, and those whose
reason has changed.

A reason is sent at once for a newly pending job and for small classes; for large classes at most
every ``reason_interval_ms``. `explain` finds the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from iris_core.limits import REASONS_BYTES
from iris_core.messages.scheduler_state import JobReason
from iris_core.placement import reasons
from iris_core.placement.reasons import Reason
from iris_scheduler.cycle.cache import PublishedReason
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.explain.reasons import (
    BEHIND,
    CycleOutcome,
    reason_of_class,
    reason_of_first,
    reason_of_job,
)
from iris_scheduler.mirror.classes import JobClass, first_of, job_at

_SMALL = 64
"""In classes of at most so many jobs every change is published."""

_REFRESHED = 16
"""Classes per cycle that are examined again only because others were placed before them last
time.
"""


@dataclass(slots=True)
class ReasonUpdate:
    """The reasons to publish: to the state service, for whole classes, and for single jobs.
    ``left``: for the next plan.
    """

    reasons: tuple[JobReason, ...] = ()
    classes: dict[JobClass, PublishedReason] = field(default_factory=dict)
    jobs: dict[int, Reason] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)


def changed_reasons(outcome: CycleOutcome) -> ReasonUpdate:
    """Find the reasons of pending work that are new after this cycle."""
    cycle = outcome.cycle
    update = ReasonUpdate()
    fresh = cycle.mirror.changes.fresh
    jobs = fresh | cycle.special | outcome.apart | cycle.mirror.changes.counted
    jobs |= outcome.assignments.reservations.hosts.keys()
    before = cycle.cache.last
    jobs |= {job for _, job in before.reserved} | before.special
    jobs &= cycle.mirror.jobs.keys()
    jobs.update(
        nomination.job
        for eviction in outcome.preemption.made
        for nomination in eviction.nominations
    )
    for kind in _changed_classes(outcome, update):
        jobs.update(job_at(place) for place in kind.waiting)
    found: dict[JobClass, Reason] = {
        kind: published.reason for kind, published in update.classes.items()
    }
    behind = []
    for job in [job for job in sorted(jobs) if len(outcome.assignments.waiting(job))]:
        reason = reason_of_job(
            outcome, job, _of_class(outcome, cycle.mirror.kinds[job], found, update)
        )
        if reason is BEHIND:
            behind.append(job)
        elif job in fresh or reason != cycle.cache.jobs.get(job):
            update.jobs[job] = reason
    _update_positions(outcome, behind, update)
    _fit(cycle, update)
    update.reasons = tuple(JobReason(job, update.jobs[job]) for job in sorted(update.jobs))
    return update


def _fit(cycle: Cycle, update: ReasonUpdate) -> None:
    """The reasons that fit into one plan; the rest is published with the next."""
    size = 0
    for job in sorted(update.jobs):
        size += reasons.size_of(update.jobs[job])
        if size > REASONS_BYTES:
            update.left.add(job)
    for job in update.left:
        del update.jobs[job]
    if update.left:
        cycle.wake_at(cycle.now_ms)


def _of_class(
    outcome: CycleOutcome, kind: JobClass, found: dict[JobClass, Reason], update: ReasonUpdate
) -> Reason:
    reason = found.get(kind)
    if reason is None:
        published = outcome.cycle.cache.classes.get(kind)
        if published is not None and kind in outcome.skipped:
            reason = published.reason
        else:
            reason = reason_of_class(outcome, kind)
            update.classes.setdefault(kind, PublishedReason(reason, outcome.cycle.now_ms))
        found[kind] = reason
    return reason


def _changed_classes(outcome: CycleOutcome, update: ReasonUpdate) -> Iterable[JobClass]:
    """Classes whose reason is published for all jobs now, because it has changed."""
    cycle = outcome.cycle
    skipped = outcome.skipped
    known = cycle.cache.classes
    newly_full = sorted(outcome.full - skipped, key=first_of)
    stale = [
        kind for kind, published in known.items() if published.reason is BEHIND and kind in skipped
    ]
    if len(stale) > _REFRESHED:
        cycle.wake_at(cycle.now_ms)
    changed = []
    for kind in newly_full + stale[:_REFRESHED]:
        reason = reason_of_class(outcome, kind)
        published = known.get(kind)
        if published is not None and published.reason == reason:
            continue
        due_ms = 0 if published is None else published.at_ms + cycle.settings.reason_interval_ms
        if len(kind.waiting) <= _SMALL or cycle.now_ms >= due_ms:
            update.classes[kind] = PublishedReason(reason, cycle.now_ms)
            changed.append(kind)
        else:
            cycle.wake_at(due_ms)
    return changed


def _update_positions(outcome: CycleOutcome, jobs: list[int], update: ReasonUpdate) -> None:
    """Update how many tasks of other jobs precede each of these jobs."""
    queue = outcome.cycle.mirror.queue
    if len(jobs) <= _SMALL:
        before = {job: queue.position(job, queue.pending(job)[0]) for job in jobs}
    else:
        before = {}
        count = 0
        for job in queue.jobs():
            before[job] = count
            count += len(queue.pending(job))
    for job in jobs:
        first = (
            reason_of_first(outcome, outcome.cycle.mirror.kinds[job]) if not before[job] else None
        )
        update.jobs[job] = first or reasons.behind(before[job])
