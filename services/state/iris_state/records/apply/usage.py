"""Adds an attempt whose end is known to what its job, and its user, project, pool and days have used;
and a slice that has ended to what its pool has offered.
"""

from __future__ import annotations

from iris_core.placement.constraints import DEVICE_VARIANT
from iris_core.spec.pools import PoolSpec
from iris_core.states import Cause, TaskState
from iris_core.units import DAY_MS
from iris_state.records.entities import Attempt, Job
from iris_state.records.fleet.records import Slice
from iris_state.records.indexes.usage_days import (
    KEPT_DAYS,
    PROJECT,
    USEFUL,
    SlicePart,
    Used,
    count,
    names_of_project,
    of_outcome,
    rate_of,
)
from iris_state.records.ledger import Ledger

FAILED = "failed"
"""The outcome of an attempt that exited by itself, and not with 0."""
FOLLOWED = frozenset({Cause.COSCHEDULED_SIBLING, Cause.COSCHEDULED_RESTART})
_STOPPED = frozenset({Cause.CANCELLED, Cause.JOB_ENDED, Cause.PARENT_ENDED})


def began_to_hold(attempt: Attempt) -> int:
    """Since when an attempt has held its place alone; 0: never, since the one before it in its
    chain held it.
    """
    return (
        attempt.assigned_ms if attempt.chain is None else attempt.building_ms or attempt.started_ms
    )


def variant_of(ledger: Ledger, worker: str) -> str:
    """The variant of a host's devices."""
    host = ledger.workers.get(worker)
    return str(host.attributes.get(DEVICE_VARIANT, "")) if host is not None else ""


def by_day(began_ms: int, ended_ms: int) -> list[tuple[int, int]]:
    """How long something lasted on each day on which it did, oldest first: days since 1970, UTC,
    and ms.
    """
    last = ended_ms // DAY_MS
    days = range(max(began_ms // DAY_MS, last - KEPT_DAYS + 1), last + 1)
    return [
        (day, max(min((day + 1) * DAY_MS, ended_ms) - max(began_ms, day * DAY_MS), 0))
        for day in days
    ]


def account(ledger: Ledger, job: Job, index: int, attempt: Attempt, at_ms: int) -> None:
    """Add an attempt that ends now. What it used is spread over the days on which it ran; it counts
    on the last.
    """
    began_ms = attempt.assigned_ms if attempt.chain is None else began_to_hold(attempt)
    if not began_ms:
        return
    amount = ledger.requested[job.number]
    variant = variant_of(ledger, attempt.worker) if amount.chips else ""
    cpu_ms = attempt.usage.cpu_ms if attempt.usage is not None else 0
    peak_bytes = attempt.peak_rss_bytes
    is_useful = attempt.exit_code == 0 and attempt.cause is Cause.EXITED
    outcome = USEFUL if is_useful else _outcome(ledger, job, attempt)
    held_ms = max(at_ms - began_ms, 0)
    place = ledger.running_usage.place_of((job.number, index, attempt.number))
    sums = [job.usage.get(outcome) or of_outcome(job.usage, outcome)]
    label = job.spec.labels.get(PROJECT, "")
    last = at_ms // DAY_MS
    if began_ms < last * DAY_MS:
        count(sums, held_ms, amount, variant, cpu_ms=cpu_ms, peak_bytes=peak_bytes, place=place)
        sums.clear()
        *before, (_, held_ms) = by_day(began_ms, at_ms)
        for day, part_ms in before:
            of_day = (
                *ledger.usage.of(day, job.user, label, outcome),
                *_in_projects(ledger, day, job, outcome),
                *_in_pool(ledger, day, job, outcome, place),
            )
            part_cpu_ms = cpu_ms * part_ms // (at_ms - began_ms)
            count(
                of_day,
                part_ms,
                amount,
                variant,
                cpu_ms=part_cpu_ms,
                peak_bytes=peak_bytes,
                attempts=0,
                place=place,
            )
            cpu_ms -= part_cpu_ms
    key = (last, job.user, label, outcome)
    sums += ledger.usage.recent.get(key) or ledger.usage.of(*key)
    if job.spec.project:
        sums += _in_projects(ledger, last, job, outcome)
    if place is not None:
        sums += _in_pool(ledger, last, job, outcome, place)
    count(sums, held_ms, amount, variant, cpu_ms=cpu_ms, peak_bytes=peak_bytes, place=place)
    if (
        ledger.usage.folding
        or ledger.project_usage.folding
        or ledger.pool_usage.folding
        or ledger.slice_usage.folding
    ):
        for usage in ledger.every_usage:
            usage.fold()


def account_slice(ledger: Ledger, one: Slice, until_ms: int) -> None:
    """Add a slice that its provider does not have any more, or never made, as that is known."""
    if one.asked_ms:
        for day, used in slice_days(one, until_ms):
            for sums in ledger.slice_usage.of(day, one.pool, "", USEFUL):
                sums.add(used)


def slice_days(one: Slice, until_ms: int) -> list[tuple[int, Used]]:
    """What a slice has offered, and has cost, on each day; it counts on the last."""
    spec = one.spec
    *before, (last, last_ms) = by_day(one.asked_ms, max(until_ms, one.asked_ms))
    found = [(day, _offered(spec, held_ms, slices=0)) for day, held_ms in before]
    return [*found, (last, _offered(spec, last_ms, slices=1))]


def _offered(spec: PoolSpec, held_ms: int, slices: int) -> Used:
    sum_ = Used()
    whole = spec.resources.amount * spec.hosts
    variant = str(spec.attributes.get(DEVICE_VARIANT, ""))
    place = SlicePart(spec.name, rate_of(spec.price, 1.0))
    count([sum_], held_ms, whole, variant, cpu_ms=0, peak_bytes=0, attempts=slices, place=place)
    sum_.pooled = None  # all of it is
    return sum_


def _in_pool(
    ledger: Ledger, day: int, job: Job, outcome: str, place: SlicePart | None
) -> list[Used]:
    """The sums of a day of the pool on whose host an attempt was."""
    if place is None:
        return []
    key = (day, job.user, place.pool, outcome)
    usage = ledger.pool_usage
    return list(usage.recent.get(key) or usage.of(*key))


def _in_projects(ledger: Ledger, day: int, job: Job, outcome: str) -> list[Used]:
    """The sums of a day of the project of a job, and of those above it but the root."""
    usage = ledger.project_usage
    found: list[Used] = []
    for name in names_of_project(job.spec.project) if job.spec.project else ():
        key = (day, name, job.user, outcome)
        found += usage.recent.get(key) or usage.of(*key)
    return found


def _outcome(ledger: Ledger, job: Job, attempt: Attempt) -> str:
    cause = attempt.cause
    if cause in FOLLOWED:
        cause = _culprit(ledger, job, attempt)
    if cause is None or cause is Cause.EXITED:
        return FAILED
    is_stopped_route = cause in _STOPPED and job.spec.probe is not None
    return USEFUL if attempt.shown is TaskState.SUCCEEDED or is_stopped_route else cause.value


def _culprit(ledger: Ledger, job: Job, attempt: Attempt) -> Cause | None:
    """Why the member ended that a member of a gang followed: in the same commit."""
    key = (job.number, attempt.ended_ms)
    usage = ledger.usage
    if usage.culprit[0] != key:
        found = (
            other.cause
            for task in job.tasks
            for other in task.attempts
            if other.ended_ms == attempt.ended_ms and other.cause not in FOLLOWED
        )
        usage.culprit = key, next(found, attempt.cause)
    return usage.culprit[1]
