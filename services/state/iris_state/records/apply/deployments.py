"""Applies changes of deployments and their routes.

Source: docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from iris_core.access.actor import Actor
from iris_core.states import DeploymentLifecycle as D
from iris_core.states import RouteStatus as R
from iris_core.states import SchedulingResult
from iris_state.records import changes as c
from iris_state.records.deployments.records import (
    AUTOSCALE,
    CHANGE,
    ITSELF,
    PAUSE,
    Deployment,
    DeploymentFact,
    Discovered,
    Revision,
    Route,
)
from iris_state.records.entities import HistoryEntry
from iris_state.records.ledger import Ledger

HISTORY_KEPT = 500
"""Rows of history kept for one deployment; the oldest are deleted first."""
REVISIONS_KEPT = 10
ENDED_KEPT = 10
"""Ended routes that are kept for display."""


def created(ledger: Ledger, change: c.DeploymentCreated, at_ms: int) -> None:
    """Add a deployment with its first revision and without routes."""
    spec = change.spec
    deployment = Deployment(
        number=change.number,
        name=spec.name,
        spec=spec,
        user=change.user,
        created_ms=at_ms,
        since_ms=at_ms,
        revisions={1: Revision(1, spec.template, spec.port, at_ms)},
        traceparent=change.traceparent,
        by=change.by,
    )
    ledger.next_deployment = max(ledger.next_deployment, change.number + 1)
    ledger.index_deployment(deployment)
    _say(
        ledger, deployment, None, deployment.status.value, previous=None, at_ms=at_ms, by=change.by
    )


def changed(ledger: Ledger, change: c.DeploymentChanged, at_ms: int) -> None:
    """Set the target of a deployment; an unknown revision is created from it."""
    deployment = ledger.deployments[change.deployment]
    if change.by is not None and change.revision == deployment.revision:
        before = deployment.spec.replicas
        after = change.spec.replicas
        # Part of the record: another release has to make the same words of the same journal.
        words = "other settings" if before == after else f"{after} routes instead of {before}"
        _note_command(deployment, CHANGE, words, change.by, at_ms=at_ms)
    deployment.by = change.by or deployment.by
    deployment.spec = change.spec
    deployment.revision = change.revision
    deployment.version += change.by_owner
    if change.revision not in deployment.revisions:
        made = Revision(change.revision, change.spec.template, change.spec.port, at_ms)
        deployment.revisions[change.revision] = made
    _forget_revisions(deployment)


def _forget_revisions(deployment: Deployment) -> None:
    """Delete old revisions, except the target and those of existing routes."""
    used = {
        deployment.revision,
        deployment.rollout.stable,
        *(route.revision for route in deployment.held()),
    }
    newest = sorted(deployment.revisions)[-REVISIONS_KEPT:]
    deployment.revisions = {
        n: one for n, one in deployment.revisions.items() if n in used or n in newest
    }


def scaled(ledger: Ledger, change: c.DeploymentScaled, at_ms: int) -> None:
    """Another number is wanted, by its rule and not by a person."""
    deployment = ledger.deployments[change.deployment]
    deployment.spec = msgspec.structs.replace(deployment.spec, replicas=change.replicas)
    status = deployment.status.value
    row = (ITSELF, AUTOSCALE, status, status, SchedulingResult.SUCCESS, change.reason)
    _append(deployment, HistoryEntry(*row, 1, at_ms, at_ms))


def rolled_out(ledger: Ledger, change: c.RolledOut, at_ms: int) -> None:
    """Set the state of a rollout; a person who paused or resumed it has a row of history."""
    deployment = ledger.deployments[change.deployment]
    deployment.rollout = change.rollout
    deployment.version += change.by_owner
    if change.by is not None and change.by_owner:
        deployment.by = change.by
        _note_command(
            deployment,
            PAUSE,
            "paused" if change.rollout.paused else "resumed",
            change.by,
            at_ms=at_ms,
        )


def moved(ledger: Ledger, change: c.DeploymentMoved, at_ms: int) -> None:
    """Set a deployment's status; when it stays the same, its clock continues."""
    deployment = ledger.deployments[change.deployment]
    before = deployment.status
    deployment.by = change.by or deployment.by
    _remember(deployment, ITSELF, change, before.value, after=change.status.value, at_ms=at_ms)
    if change.status is before:
        return
    deployment.status = change.status
    deployment.since_ms = at_ms
    if change.status is D.READY:
        deployment.reached = deployment.spec.replicas
    if change.status is D.DESTROYED:
        ledger.destroyed[deployment.number] = None  # it is queued for deletion
    _say(
        ledger,
        deployment,
        None,
        change.status.value,
        previous=before.value,
        at_ms=at_ms,
        by=change.by,
    )


def forgotten(ledger: Ledger, change: c.DeploymentForgotten, at_ms: int) -> None:
    ledger.forget_deployment(ledger.deployments[change.deployment])


def route_created(ledger: Ledger, change: c.RouteCreated, at_ms: int) -> None:
    """Add a route whose job is not admitted yet."""
    deployment = ledger.deployments[change.deployment]
    route = Route(change.route, change.revision, at_ms, at_ms)
    deployment.routes[route.number] = route
    deployment.next_route = max(deployment.next_route, route.number + 1)
    _say(ledger, deployment, route, route.status.value, previous=None, at_ms=at_ms)


def route_moved(ledger: Ledger, change: c.RouteMoved, at_ms: int) -> None:
    """Set a route's status. Whether it has served is determined when it leaves discovery."""
    deployment = ledger.deployments[change.deployment]
    route = deployment.routes[change.route]
    before = route.status
    _remember(
        deployment, route.number, change, before.value, after=change.status.value, at_ms=at_ms
    )
    if change.job:
        route.job = change.job
        ledger.route_of_job[change.job] = (deployment.number, route.number)
    if change.status is before:
        return
    _leave_ready(deployment, route, at_ms)
    route.status = change.status
    route.since_ms = at_ms
    route.evicted = route.evicted or change.evicted
    if change.status is R.HEALTHY:
        route.healthy_ms = route.healthy_ms or at_ms
        route.passed = True
        route.ready_ms = at_ms if route.ready else 0
    elif change.status is R.UNHEALTHY:
        route.passed = False
    elif change.status is R.DEGRADED:
        route.passed = change.passed
    elif change.reason:
        route.reason = change.reason
    if change.status is R.TERMINATED:
        _forget_ended(ledger, deployment)
    if not route.is_live:
        ledger.probes.reports.pop(route.job, None)
    _say(ledger, deployment, route, change.status.value, previous=before.value, at_ms=at_ms)


def _leave_ready(deployment: Deployment, route: Route, at_ms: int) -> None:
    route.served = route.served or route.is_available(deployment.min_ready_ms, at_ms)
    route.ready_ms = 0


def _forget_ended(ledger: Ledger, deployment: Deployment) -> None:
    """Delete all but the newest ended routes."""
    ended = [route for route in deployment.routes.values() if route.status is R.TERMINATED]
    gone = {route.number for route in sorted(ended, key=lambda route: route.number)[:-ENDED_KEPT]}
    for route in ended:
        ledger.route_of_job.pop(route.job, None)
    for number in gone:
        del deployment.routes[number]


def route_probed(ledger: Ledger, change: c.RouteProbed, at_ms: int) -> None:
    """Set a route's address and whether it is ready."""
    deployment = ledger.deployments[change.deployment]
    route = deployment.routes[change.route]
    route.address = change.address
    if route.ready and not change.ready:
        _leave_ready(deployment, route, at_ms)
    elif not route.ready and change.ready and route.status is R.HEALTHY:
        route.ready_ms = at_ms
    route.ready = change.ready


def discovered(ledger: Ledger, change: c.RoutesDiscovered, at_ms: int) -> None:
    deployment = ledger.deployments[change.deployment]
    deployment.discovered = Discovered(
        change.version, change.routes, change.reason, deployment.version
    )
    ledger.discovery_version = max(ledger.discovery_version, change.version)


def _remember(
    deployment: Deployment,
    index: int,
    change: c.DeploymentMoved | c.RouteMoved,
    before: str,
    after: str,
    at_ms: int,
) -> None:
    by = change.by if isinstance(change, c.DeploymentMoved) else None
    row = HistoryEntry(
        index,
        change.handler,
        before,
        after,
        result=change.result,
        reason=change.reason,
        attempts=1,
        first_ms=at_ms,
        last_ms=at_ms,
        by=by,
    )
    _append(deployment, row)


def _note_command(deployment: Deployment, handler: str, words: str, by: Actor, at_ms: int) -> None:
    """Append a row about a command that keeps the deployment's status."""
    status = deployment.status.value
    row = HistoryEntry(
        ITSELF,
        handler,
        status,
        status,
        result=SchedulingResult.SUCCESS,
        reason=words,
        attempts=1,
        first_ms=at_ms,
        last_ms=at_ms,
        by=by,
    )
    _append(deployment, row)


def _append(deployment: Deployment, row: HistoryEntry) -> None:
    """Append a row of history, or count it into the last row when that is equal."""
    last = deployment.history[-1] if deployment.history else None
    if last is not None and last.says(row):
        last.attempts += 1
        last.last_ms = row.last_ms
        return
    deployment.history = [*deployment.history[-HISTORY_KEPT + 1 :], row]


def _say(
    ledger: Ledger,
    deployment: Deployment,
    route: Route | None,
    state: str,
    previous: str | None,
    at_ms: int,
    by: Actor | None = None,
) -> None:
    """Append a public fact."""
    if route is None:
        fact = DeploymentFact(
            "deployment",
            deployment,
            None,
            state,
            previous=previous,
            revision=deployment.revision,
            at_ms=at_ms,
            by=by,
        )
    else:
        job = ledger.jobs.get(route.job)
        worker = (
            job.task(0).attempts[-1].worker if job is not None and job.task(0).attempts else None
        )
        fact = DeploymentFact(
            "route",
            deployment,
            route,
            state,
            previous=previous,
            revision=route.revision,
            at_ms=at_ms,
            worker=worker,
            reason=route.reason,
        )
    ledger.facts.append(fact)


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = {
    c.DeploymentCreated: created,
    c.DeploymentChanged: changed,
    c.DeploymentScaled: scaled,
    c.RolledOut: rolled_out,
    c.DeploymentMoved: moved,
    c.DeploymentForgotten: forgotten,
    c.RouteCreated: route_created,
    c.RouteMoved: route_moved,
    c.RouteProbed: route_probed,
    c.RoutesDiscovered: discovered,
}
