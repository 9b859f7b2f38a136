"""The six route handlers of one deployment: their claims and the changes that follow. Reads the
ledger only.

Each is asked about every route it answers for, in the order of Status Transitions, whenever
something about the deployment has changed or its time has come. Source:
docs/design/semantics.md#deployments-and-routes, docs/design/serving.md#probes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import msgspec

from iris_core.errors import Code, Refused
from iris_core.spec.jobs import Probe
from iris_core.spec.serving import DiscoveredRoute
from iris_core.states import (
    JOB_TERMINAL,
    Cause,
    DeploymentLifecycle,
    Initiator,
    Outcome,
    RouteStatus,
    TaskState,
)
from iris_core.tables import route as table
from iris_core.tables.route import RouteRule
from iris_state.decide import cascade, quota
from iris_state.decide.judging import judgement
from iris_state.policy import Policy
from iris_state.records.changes import Avoided, JobAdmitted, RolledOut, RouteMoved, RoutesDiscovered
from iris_state.records.claims import Step
from iris_state.records.deployments import pacing, rollout
from iris_state.records.deployments.health import (
    Health,
    evicted,
    has_failed_to_start,
    outcome,
    silent_ms,
    start_expires_ms,
)
from iris_state.records.deployments.records import Deployment, Route
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger

R = RouteStatus

_NOT_ITS_FAULT = frozenset(
    {
        *(Cause.PREEMPTED, Cause.RECLAIMED),
        *(Cause.WORKER_LOST, Cause.WORKER_CRASHED, Cause.MISSING),
        *(Cause.CANCELLED, Cause.JOB_ENDED, Cause.PARENT_ENDED, Cause.REPLACED, Cause.REQUEUED),
        Cause.HELD,
    }
)
"""A route that ends so has not failed to start: another one is created at once."""


def steps(ledger: Ledger, policy: Policy, deployment: Deployment, now_ms: int) -> Iterator[Step]:
    """One round of all handlers except the last over the routes of a deployment."""
    for route in deployment.held():
        if route.status is R.PROVISIONING:
            yield from _provision(ledger, policy, deployment, route, now_ms=now_ms)
        job = ledger.jobs.get(route.job)
        if job is None or job.state in JOB_TERMINAL:
            yield from _ended(ledger, deployment, route, job, now_ms=now_ms)
        else:
            yield from _probed(ledger, deployment, route, job, now_ms=now_ms)
    yield from _evict(ledger, deployment, now_ms)
    for route in deployment.held():
        if route.status is R.TERMINATING:
            yield from _terminate(ledger, deployment, route)


def probe_of(deployment: Deployment, route: Route) -> Probe:
    return deployment.revisions[route.revision].template.probe


def health_of(ledger: Ledger, route: Route, job: Job) -> Health:
    """The health inputs of a route, from its probe."""
    report = ledger.probes.of(route)
    attempts = job.task(0).attempts
    return Health(
        route.number,
        route.status,
        route.since_ms,
        attempts[-1].started_ms if attempts else 0,
        was_healthy=bool(route.healthy_ms),
        passes=report.passes,
        failures=report.failures,
        heard_ms=max(report.heard_ms, ledger.probes.floor_ms),
        heartbeat_ms=ledger.probes.heartbeat_ms,
    )


def _judged(
    deployment: Deployment,
    route: Route,
    rule: RouteRule,
    claimed: Outcome,
    reason: str = "",
    *,
    in_status_ms: int = 0,
    timeout_ms: int | None = None,
    job: int = 0,
    passed: bool = False,
) -> Iterator[RouteMoved]:
    """The change that a claim causes; none if the status stays the same, because probes claim every
    few seconds.
    """
    found = judgement(
        rule, route.status, claimed, reason, in_status_ms=in_status_ms, timeout_ms=timeout_ms
    )
    if found is None or found.target is None or found.target is route.status:
        return
    yield RouteMoved(
        deployment.number,
        route.number,
        found.target,
        rule.name,
        result=found.result,
        reason=found.reason,
        job=job,
        passed=passed,
        evicted=rule is table.EVICT,
    )


# ── ProvisioningRoute ─────────────────────────────────────────────────────────────────────────────


def _provision(
    ledger: Ledger, policy: Policy, deployment: Deployment, route: Route, now_ms: int
) -> Iterator[Step]:
    """Admit the job of a route; if it is refused, the route has failed to start."""
    template = deployment.revisions[route.revision].template
    spec = template.job(deployment.job_name(route), deployment.user, deployment.spec.project)
    try:
        quota.check(ledger, spec, deployment.user, None)
        live = ledger.job_of(deployment.user, spec.name)
        if live is not None and not live.is_terminal:
            raise Refused(Code.CONFLICT, f"{spec.name} exists and is {live.state.name.lower()}")
    except Refused as refused:
        yield from _judged(
            deployment, route, table.PROVISION, Outcome.FAILURE, reason=refused.detail
        )
        return
    number = ledger.next_number
    yield JobAdmitted(
        number,
        spec.name,
        spec,
        deployment.user,
        submitted_ms=now_ms,
        root_submitted_ms=now_ms,
        traceparent=deployment.traceparent,
    )
    for worker, times in _failed_on(ledger, deployment, now_ms).items():
        yield Avoided(number, 0, worker, now_ms + policy.avoid_ms(times - 1))
    yield from _judged(deployment, route, table.PROVISION, Outcome.SUCCESS, job=number)


def _failed_on(ledger: Ledger, deployment: Deployment, now_ms: int) -> Counter[str]:
    """The hosts that could not start a route of a deployment lately, and how often: the next one
    avoids them, as a task that is retried does.
    """
    jobs = [
        job
        for route in deployment.routes.values()
        if (job := ledger.jobs.get(route.job)) is not None
    ]
    last = [job.task(0).attempts[-1] for job in jobs if job.cause is Cause.INFRASTRUCTURE]
    return Counter(
        attempt.worker for attempt in last if now_ms - attempt.ended_ms <= pacing.WINDOW_MS
    )


# ── RunningRoute ──────────────────────────────────────────────────────────────────────────────────


def _ended(
    ledger: Ledger, deployment: Deployment, route: Route, job: Job | None, now_ms: int
) -> Iterator[Step]:
    """The job of a route has ended or does not exist; results of probes do not override that."""
    if route.status not in table.RUNNING.sources:
        return
    reason = route.reason or "its job is not known any more"
    if job is not None:
        reason = (
            job.error or "its command has ended (exit code 0), though that of a route is to run on"
        )
    fault = job is None or job.cause not in _NOT_ITS_FAULT
    served = route.served or route.is_available(deployment.min_ready_ms, now_ms)
    yield from _judged(deployment, route, table.RUNNING, Outcome.FAILURE, reason=reason)
    if fault and not served:
        yield from _failed_start(deployment, route, now_ms)


def _failed_start(deployment: Deployment, route: Route, now_ms: int) -> Iterator[Step]:
    """A route failed to start: the next one is delayed, and the update may fail."""
    known = deployment.rollout
    progress = known.progress
    if progress is not None and route.revision == deployment.revision:
        progress = msgspec.structs.replace(progress, failed=progress.failed + 1)
    paced = pacing.failed(
        known.pacing,
        deployment.number,
        now_ms,
        for_ever=known.failed not in (0, deployment.revision),
    )
    yield RolledOut(
        deployment.number, msgspec.structs.replace(known, progress=progress, pacing=paced)
    )


# ── HealthCheckRoute ──────────────────────────────────────────────────────────────────────────────


def _probed(
    ledger: Ledger, deployment: Deployment, route: Route, job: Job, now_ms: int
) -> Iterator[Step]:
    health = health_of(ledger, route, job)
    probe = probe_of(deployment, route)
    claimed = outcome(health, probe, now_ms)
    reason = ""
    if claimed is Outcome.FAILURE:
        reason = (
            failed_probes(ledger, route)
            if health.was_healthy
            else too_late(ledger, deployment, route)
        )
    stale_ms = silent_ms(health, probe) if health.was_healthy else None
    if stale_ms is not None and claimed is Outcome.SKIPPED:
        reason = f"no result of its probe for {stale_ms / 1000:g} s"
    yield from _judged(
        deployment,
        route,
        table.HEALTH_CHECK,
        claimed,
        reason=reason,
        in_status_ms=now_ms - health.heard_ms,
        timeout_ms=stale_ms,
        passed=bool(health.passes) or (route.passed and not health.failures),
    )


def failed_probes(ledger: Ledger, route: Route) -> str:
    """A message about the last failed probes of a route; empty when they passed."""
    report = ledger.probes.of(route)
    if not report.failures:
        return ""
    words = (
        "1 probe failed" if report.failures == 1 else f"{report.failures} probes in a row failed"
    )
    return f"{words}: {report.detail}" if report.detail else words


def too_late(ledger: Ledger, deployment: Deployment, route: Route) -> str:
    words = f"not healthy {probe_of(deployment, route).start_timeout_s:g} s after its process began"
    why = failed_probes(ledger, route)
    return f"{words}; {why}" if why else words


def is_news(ledger: Ledger, deployment: Deployment, route: Route, now_ms: int) -> bool:
    """Whether the newest result may change the status of a route; most do not."""
    health = health_of(ledger, route, ledger.jobs[route.job])
    found = judgement(
        table.HEALTH_CHECK, route.status, outcome(health, probe_of(deployment, route), now_ms)
    )
    return found is not None and found.target is not route.status


# ── RouteEviction ─────────────────────────────────────────────────────────────────────────────────


def healths(ledger: Ledger, deployment: Deployment) -> dict[int, list[Health]]:
    """The live routes of a deployment with live jobs, by revision; the routes of a revision share a
    probe.
    """
    found: dict[int, list[Health]] = {}
    for route in deployment.live():
        job = ledger.jobs.get(route.job)
        if job is not None and job.state not in JOB_TERMINAL:
            found.setdefault(route.revision, []).append(health_of(ledger, route, job))
    return found


def _evict(ledger: Ledger, deployment: Deployment, now_ms: int) -> Iterator[Step]:
    """Evict unhealthy routes, at most as many at a time over all revisions as may be
    unavailable.
    """
    if not any(route.status is R.UNHEALTHY for route in deployment.routes.values()):
        return
    missing = rollout.target(deployment.spec.update, deployment.spec.replicas).unavailable
    for revision, found in healths(ledger, deployment).items():
        probe = deployment.revisions[revision].template.probe
        by_number = {health.number: health for health in found}
        going = sum(
            route.evicted and route.status is R.TERMINATING for route in deployment.routes.values()
        )
        for number in evicted(found, probe, missing, going, now_ms=now_ms):
            route = deployment.routes[number]
            failed = has_failed_to_start(by_number[number])
            reason = (
                too_late(ledger, deployment, route)
                if failed
                else f"unhealthy for more than {probe.grace_s:g} s"
            )
            yield from _judged(deployment, route, table.EVICT, Outcome.SUCCESS, reason=reason)
            if failed or not route.served:
                yield from _failed_start(deployment, route, now_ms)


def end(deployment: Deployment, route: Route, reason: str) -> Iterator[Step]:
    """Start to end a route that is no longer wanted."""
    yield from _judged(deployment, route, table.END, Outcome.SUCCESS, reason=reason)


# ── TerminatingRoute ──────────────────────────────────────────────────────────────────────────────


def _terminate(ledger: Ledger, deployment: Deployment, route: Route) -> Iterator[Step]:
    """End the job of a route; the route has ended when the job and all its processes have."""
    job = ledger.jobs.get(route.job)
    if job is not None and job.state not in JOB_TERMINAL:
        note = f"route {route.id} of {deployment.name} has ended: {route.reason}"
        if route.healthy_ms and not route.evicted:
            yield from cascade.retire(ledger, job, note)
        else:
            yield from cascade.subtree(ledger, job, Cause.CANCELLED, Initiator.SYSTEM, note=note)
    elif job is None or not ledger.open_of_job[job.number]:
        yield from _judged(deployment, route, table.TERMINATE, Outcome.SUCCESS)


# ── ServiceDiscoverySync ──────────────────────────────────────────────────────────────────────────


NOT_WANTED = "more routes than wanted"
"""Why a route has ended that was scaled in: what has no other is not without a healthy one."""


def discovery(ledger: Ledger, deployment: Deployment) -> Iterator[RoutesDiscovered]:
    """The whole set of routes that may get requests, if it differs from the last published one.

    Routes without a recent report follow the healthy ones, if their last report was good.
    """
    routes: list[DiscoveredRoute] = []
    for route in deployment.held():
        if route.address and route.ready and route.status is R.HEALTHY:
            routes.append(DiscoveredRoute(route.id, route.address))
        elif (
            route.address
            and route.ready
            and route.status is R.DEGRADED
            and route.healthy_ms
            and route.passed
        ):
            routes.append(DiscoveredRoute(route.id, route.address, "stale"))
    reason = ""
    if deployment.status in (DeploymentLifecycle.DESTROYING, DeploymentLifecycle.DESTROYED):
        routes = []
        reason = "draining"
    elif not routes:
        was_healthy = any(
            route.healthy_ms and route.reason != NOT_WANTED for route in deployment.routes.values()
        )
        reason = "no_healthy_route" if was_healthy else "starting"
    said = deployment.discovered
    if (tuple(routes), reason, deployment.version) != (said.routes, said.reason, said.generation):
        yield RoutesDiscovered(
            deployment.number, ledger.discovery_version + 1, tuple(routes), reason
        )


# ── clocks ────────────────────────────────────────────────────────────────────────────────────────


def clocks(ledger: Ledger, deployment: Deployment) -> Iterator[int]:
    """The times at which a claim about a route may change without an event, ms."""
    for health in chain.from_iterable(healths(ledger, deployment).values()):
        route = deployment.routes[health.number]
        probe = probe_of(deployment, route)
        expires_ms = start_expires_ms(health, probe)
        if expires_ms is not None:
            yield expires_ms
        if route.status in (R.HEALTHY, R.UNHEALTHY):
            yield health.heard_ms + silent_ms(health, probe) + 1
        if route.status is R.UNHEALTHY:
            yield route.since_ms + int(probe.grace_s * 1000) + 1
        if route.ready_ms:
            yield route.ready_ms + deployment.min_ready_ms


def waits_for_room(ledger: Ledger, route: Route) -> bool:
    """Whether the job of a route is pending in the queue."""
    job = ledger.jobs.get(route.job)
    return job is not None and job.task(0).state is TaskState.PENDING
