"""Figures of people, projects and hosts for Prometheus: of the largest by name, of the rest as
`other`.

Their number is bounded however many there are, and a scrape looks at sums, at hosts, and at a
bounded number of waiting jobs. Source: docs/adr/0160-metrics-name-the-largest.md. Out of scope:
figures of all work (`metrics`).
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.resources import NOTHING, RESOURCES, Amount
from iris_core.states import FAILURES, TaskState, WorkerState
from iris_service.telemetry import gauges
from iris_state.machine.machine import Machine
from iris_state.records.changes import Moved
from iris_state.records.entities import Job
from iris_state.records.indexes.index import WAITING
from iris_state.records.indexes.stored import StoredKind
from iris_state.records.indexes.usage_days import PROJECT, UsageGroup
from iris_state.records.ledger import Ledger

LARGEST = 20
"""How many users, projects and hosts have figures of their own."""
OTHER = "other"
NO_PROJECT = "none"
JOBS_LOOKED_AT = 5_000
"""Of the jobs that wait, those that have waited longest: 0.8 us each, about 4 ms a scrape."""
HOUR_MS = 3_600_000
FAILURES_KEPT = 20_000
"""Of the last hour; a cluster with more has the newest."""
_UNWELL = (WorkerState.LOST, WorkerState.DEGRADED)

K = TypeVar("K", bound=Hashable)


def largest(sums: Mapping[K, float], most: int = LARGEST) -> list[K]:
    """The keys of the largest sums, largest first; those of equal ones by name."""
    return sorted((key for key in sums if sums[key]), key=lambda key: (-sums[key], str(key)))[:most]


def named(rows: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Values by a name and something else: those of the largest names, and the sums of the rest
    under `OTHER`.
    """
    sums = Tally[str]()
    for (name, _), value in rows.items():
        sums[name] += value  # type: ignore[assignment]
    shown = set(largest(sums))
    found = Tally[tuple[str, str]]()
    for (name, what), value in rows.items():
        if value:
            found[name if name in shown else OTHER, what] += value  # type: ignore[assignment]
    return dict(found)


class HostFailures:
    """Which attempts failed on which host, and why, in the last hour of this leader."""

    def __init__(self) -> None:
        self._newest: deque[tuple[int, str, str]] = deque(maxlen=FAILURES_KEPT)

    def note(self, ledger: Ledger, change: Moved) -> None:
        """A task has left an attempt, in a change that is applied."""
        if change.shown not in FAILURES or change.shown is TaskState.PREEMPTED:
            return
        job = ledger.jobs.get(change.job)
        attempts = job.task(change.index).attempts if job is not None else ()
        for attempt in reversed(attempts):
            if attempt.number == change.attempt:
                self._newest.append((ledger.now_ms, attempt.worker, change.cause.value))
                return

    def counted(self, now_ms: int) -> dict[tuple[str, str], float]:
        """How many, by host and cause."""
        while self._newest and self._newest[0][0] < now_ms - HOUR_MS:
            self._newest.popleft()
        return dict(Tally((host, cause) for _, host, cause in self._newest))


class PeopleCollector(Collector):
    """Gauges by user, project and host, computed at each scrape."""

    def __init__(self, machine: Callable[[], Machine], failures: HostFailures) -> None:
        self._machine = machine
        self._failures = failures

    def collect(self) -> Iterable[Metric]:
        machine = self._machine()
        ledger = machine.ledger
        yield from _waiting(ledger, machine.last_ms)
        yield from _running(ledger)
        yield from _limits(ledger)
        yield _stored(ledger)
        yield from _hosts(ledger)
        words = "Attempts that failed in the last hour, by host and cause, preempted ones left out."
        failed = named(self._failures.counted(ledger.now_ms))
        yield gauges("iris_host_failures", words, ["host", "cause"], failed)


def _waiting(ledger: Ledger, now_ms: int) -> Iterator[Metric]:
    """Who waits: exact by user; by project of the jobs that have waited longest, of the rest as
    `OTHER`.
    """
    numbers = ledger.index.of(WAITING)
    oldest: dict[str, tuple[int, str]] = {}
    projects = Tally[str]()
    for job in map(ledger.jobs.__getitem__, islice(numbers, JOBS_LOOKED_AT)):
        projects[job.spec.labels.get(PROJECT) or NO_PROJECT] += job.counts[TaskState.PENDING]
        from_ms = _waits_from_ms(ledger, job)
        if from_ms is not None and from_ms < oldest.get(job.user, (math.inf,))[0]:
            oldest[job.user] = (from_ms, job.name)
    every = sum(ledger.pending_of_user.values())
    projects[OTHER] += max(every - projects.total(), 0)
    words = "Waiting tasks by {}: of the most by name, of the rest as other.".format
    by_user = _flat(dict(ledger.pending_of_user))
    yield gauges("iris_user_pending_tasks", words("user"), ["user"], by_user)
    by_project = _flat(dict(projects))
    yield gauges("iris_project_pending_tasks", words("project"), ["project"], by_project)
    ages = {(user, name): (now_ms - from_ms) / 1000 for user, (from_ms, name) in oldest.items()}
    words_of_age = "For how long the task that has waited longest in the queue has waited."
    longest_s = max(ages.values(), default=0.0)
    yield GaugeMetricFamily("iris_oldest_pending_seconds", words_of_age, value=longest_s)
    longest = {key: ages[key] for key in largest(ages)}
    words_of_age = (
        "For how long the job of a user that has waited longest in the queue has waited, of those "
        "users who have waited longest; what is held, or waits for a job or a time, is not queued."
    )
    yield gauges("iris_user_oldest_pending_seconds", words_of_age, ["user", "waiting_job"], longest)


def _waits_from_ms(ledger: Ledger, job: Job) -> int | None:
    """Since when its first or its last task in the queue waits; None: it has none there, as it is
    held or waits for a job or a time.
    """
    queued = ledger.queue.pending(job.number)
    if not len(queued):
        return None
    return min(job.task(queued[0]).queued_ms, job.task(queued[-1]).queued_ms)


def _flat(sums: Mapping[str, float]) -> dict[str, float]:
    return {name: value for (name, _), value in named(_columns(sums)).items()}


def _columns(sums: Mapping[str, float]) -> dict[tuple[str, str], float]:
    return {(name, ""): value for name, value in sums.items()}


def _running(ledger: Ledger) -> Iterator[Metric]:
    """What attempts hold now, by user and by project."""
    held = {group: ledger.running_usage.held_now(group) for group in ledger.usage.running}
    for label, of in (("user", _user_of), ("project", _project_of)):
        own = {name: sums for group, sums in held.items() if (name := of(group)) is not None}
        running = _flat({name: attempts for name, (attempts, _) in own.items()})
        words = f"Open attempts by {label}: of the most by name, of the rest as other."
        yield gauges(f"iris_{label}_running_tasks", words, [label], running)
        rows = _by_resource({name: amount for name, (_, amount) in own.items()})
        words = f"Resources that open attempts hold, by {label}: of the most by name, the rest as other."
        yield gauges(f"iris_{label}_held", words, [label, "resource"], rows)


def _limits(ledger: Ledger) -> Iterator[Metric]:
    """The limits of projects, and what is used of them: of those that are nearest to one."""
    rows: dict[tuple[str, str], tuple[float, float]] = {}
    for project in ledger.projects:
        limits = [(row.name, getattr(project.spec.limit, row.name)) for _, row in RUNNING_LIMITS]
        _, held = ledger.held_in(project.path) if any(most for _, most in limits) else (0, NOTHING)
        for name, most in limits:
            if most:
                rows[project.path, name] = float(most), float(getattr(held, name))
    shown = largest({key: (used + 1) / most for key, (most, used) in rows.items()})
    labels = ["path", "resource"]
    words = "Limits of projects on what running tasks hold, of those that are nearest to theirs."
    yield gauges("iris_project_limit", words, labels, {key: rows[key][0] for key in shown})
    words = "What running tasks hold in those projects and below them."
    yield gauges("iris_project_limit_used", words, labels, {key: rows[key][1] for key in shown})


def _by_resource(amounts: Mapping[str, Amount]) -> dict[tuple[str, str], float]:
    """Each resource has largest names of its own: who holds most devices may hold few
    processors.
    """
    found: dict[tuple[str, str], float] = {}
    for resource in RESOURCES:
        rows = {
            (name, resource.name): float(getattr(amount, resource.name))
            for name, amount in amounts.items()
        }
        found |= named(rows)
    return found


def _stored(ledger: Ledger) -> Metric:
    """Each kind has largest users of its own."""
    running = ledger.running_output()
    found: dict[tuple[str, str], float] = {}
    for kind in StoredKind:
        rows = {(user, kind.value): held[kind] for user, held in ledger.stored.of_user.items()}
        if kind is StoredKind.OUTPUT:
            for user, size in running.items():
                rows[user, kind.value] = rows.get((user, kind.value), 0) + size
        found |= named(rows)
    found |= named(
        {(user, "bundles"): size for user, size in ledger.stored.bundles.of_user.items()}
    )
    words = (
        "Bytes of bundles, artifacts, output and results that a user and the user's jobs hold: of "
        "the most by name, of the rest as other."
    )
    return gauges("iris_user_stored_bytes", words, ["user", "kind"], found)


def _user_of(group: UsageGroup) -> str | None:
    return group[0] if group[1] is None else None


def _project_of(group: UsageGroup) -> str | None:
    user, project = group
    return (project or NO_PROJECT) if user is None and project is not None else None


def _hosts(ledger: Ledger) -> Iterator[Metric]:
    """The hosts that take no work though nobody drained them or gives up their slice, each with 1;
    those beyond the first by name are counted as `OTHER`.
    """
    unwell = sorted(
        (worker.id, worker.state.value)
        for worker in ledger.workers.values()
        if worker.state in _UNWELL and not ledger.fleet.is_given_up(worker.id)
    )
    found = Tally[tuple[str, str]](dict.fromkeys(unwell[:LARGEST], 1))
    for _, state in unwell[LARGEST:]:
        found[OTHER, state] += 1
    words = (
        "1 for each lost or degraded host; those beyond the first 20 by name are counted as other."
    )
    yield gauges("iris_host_unwell", words, ["host", "state"], found)
