"""A dry run: plans the next cycle as if one more job had been submitted.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from iris_core.admission.jobs import admit
from iris_core.messages.gateway_scheduler import PlanPreview, PlanRequest
from iris_core.messages.scheduler_state import JobRow
from iris_core.names import JobName
from iris_core.placement import reasons
from iris_core.placement.reasons import Reason, ReasonCode
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.capacity import WINDOW, Slots, fitting
from iris_scheduler.mirror.classes import NO_JOB, JobClass
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import Decision, plan
from iris_scheduler.settings import SchedulerSettings

VICTIMS = 1000
"""At most so many victims are named in one answer."""


def preview(
    mirror: Mirror, cache: Cache, request: PlanRequest, now_ms: int, settings: SchedulerSettings
) -> PlanPreview:
    """Predict what would happen to a job if it were submitted now. The mirror is unchanged
    afterwards.

    Raises Invalid for a job that would be refused.
    """
    admit(request.spec)
    found = _preview_one(mirror, cache, request, now_ms, settings=settings)
    device = request.spec.resources.device
    if device is None or not device.has_alternatives:
        return found
    verdicts = []
    for variant in device.variants:
        resources = replace(request.spec.resources, device=device.with_variant(variant))
        alone = replace(request, spec=replace(request.spec, resources=resources))
        verdicts.append(
            (variant, _preview_one(mirror, cache, alone, now_ms, settings=settings).verdict)
        )
    return replace(found, variants=tuple(verdicts))


def _preview_one(
    mirror: Mirror, cache: Cache, request: PlanRequest, now_ms: int, settings: SchedulerSettings
) -> PlanPreview:
    row = row_of(mirror, request, now_ms)
    with mirror.supposing(row, request.spec.index_set.ranges):
        decision = plan(mirror, cache, now_ms, settings, most=len(mirror.queue))
        ahead = mirror.queue.position(row.job, request.spec.index_set[0])
        possible = could_ever(mirror, mirror.kinds[row.job])
        return _preview(mirror, cache, decision, row, ahead=ahead, possible=possible)


def row_of(mirror: Mirror, request: PlanRequest, now_ms: int) -> JobRow:
    """The job as the state service would admit it: last in its band and of its share, below its
    parent if the parent exists.
    """
    spec = request.spec
    name = JobName.job(spec.name)
    parent = next((row for row in mirror.jobs.values() if row.name == str(name.parent)), None)
    return JobRow.of(
        spec,
        job=NO_JOB,
        name=spec.name,
        user=spec.user or request.caller.user,
        depth=name.depth,
        root_submitted_ms=parent.root_submitted_ms if parent else now_ms,
        submitted_ms=now_ms,
        steps=request.steps,
    )


def could_ever(mirror: Mirror, kind: JobClass) -> bool:
    """Whether registered workers could hold a task of the class, or one gang, if they were empty
    and accepted work.
    """
    columns = mirror.hosts.columns()
    totals = mirror.hosts.totals().copy()
    totals[WINDOW] = 1
    slots: Slots = columns.usable(kind).slots
    large = slots[fitting(totals, kind.need, slots)]
    if not kind.is_gang:
        return len(large) > 0
    groups = columns.groups(kind)
    codes = groups.codes.take(large)
    counts = np.bincount(codes[codes >= 0], minlength=len(groups.names))
    return bool((groups.in_domains(counts >= kind.size // kind.slices) >= kind.slices).any())


def _preview(
    mirror: Mirror, cache: Cache, decision: Decision, row: JobRow, ahead: int, *, possible: bool
) -> PlanPreview:
    placed = [
        (index, decision.plan.workers[worker])
        for placement in decision.plan.placements
        if placement.job == row.job
        for index, worker in zip(placement.indexes, placement.workers, strict=True)
    ]
    evictions = [
        e
        for e in decision.plan.evictions
        if any(nomination.job == row.job for nomination in e.nominations)
    ]
    nominated = [
        one.worker for eviction in evictions for one in eviction.nominations if one.job == row.job
    ]
    victims = [
        str(JobName.job(mirror.jobs[v.job].name).task(v.index))
        for e in evictions
        for v in e.victims
    ]
    starting = min(row.replicas, row.max_parallel or row.replicas)
    return PlanPreview(
        verdict=_verdict(starting, len(placed), len(nominated), possible=possible),
        placements=tuple(sorted(placed)),
        victims=tuple(victims[:VICTIMS]),
        reason=_reason(mirror, cache, decision, row.job),
        ahead=ahead,
        version=mirror.version,
        levels=_levels(mirror, row, [worker for _, worker in placed] or nominated),
    )


def _levels(mirror: Mirror, row: JobRow, workers: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Over how many domains of each level a gang would be; a worker without the attribute is one of
    its own.
    """
    columns = mirror.hosts.columns()
    has = [columns.attributes[columns.slot[worker]] for worker in workers]
    return tuple(
        (level.key, len({one.get(level.key, number) for number, one in enumerate(has)}))
        for level in row.levels
        if has
    )


def _verdict(replicas: int, placed: int, nominated: int, *, possible: bool) -> str:
    if placed == replicas:
        return "now"
    if placed + nominated == replicas:
        return "after_preemption"
    return "not_now" if possible else "never"


def _reason(mirror: Mirror, cache: Cache, decision: Decision, job: int) -> Reason | None:
    """Why it would wait; where a host is reserved for another task, with what that waits for."""
    made = {update.job: update.reason for update in decision.plan.reasons}
    reason = made.get(job)
    if reason is None or reason.code is not ReasonCode.RESERVED_FOR_TASK:
        return reason
    known = cache.jobs | made
    for other in known.keys() & mirror.jobs.keys():
        of_other = known[other]
        if (
            of_other.code is ReasonCode.HOST_RESERVED
            and mirror.jobs[other].name == reason.facts["job"]
            and of_other.facts["worker"] == reason.facts["worker"]
        ):
            return reasons.reserved_for_waiting(reason, of_other)
    return reason
