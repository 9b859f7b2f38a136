"""Invariants of deployments after each change: how many routes are held, and how many serve.

What must hold after every commit is `iris_state.check.records`. Source:
docs/design/serving.md#probes, docs/design/serving.md#update;
docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.states import RouteStatus
from iris_core.tables import deployment as deployment_table
from iris_core.tables import route as route_table
from iris_state.records.apply import apply
from iris_state.records.changes import (
    DEPLOYMENT_KINDS,
    Commit,
    RouteCreated,
    RouteMoved,
    RoutesDiscovered,
)
from iris_state.records.deployments import rollout
from iris_state.records.deployments.records import Deployment, Route
from iris_state.records.ledger import Ledger

R = RouteStatus
STOPPING = "is stopping"
"""Why routes end whatever is available then: their worker does."""


class Rollouts:
    """Follows every change of deployments from the first one on, in a ledger that holds nothing
    else.
    """

    def __init__(self) -> None:
        self._ledger = Ledger()

    def look(self, commit: Commit) -> Iterator[str]:
        """A sentence for each change that was not allowed."""
        for change in commit.changes:
            if isinstance(change, RouteMoved):
                yield from self._moves(change, commit.at_ms)
            if isinstance(change, DEPLOYMENT_KINDS):
                apply(self._ledger, change, commit.at_ms)
            if isinstance(change, RouteCreated):
                yield from self._was_created(self._ledger.deployments[change.deployment])
            elif isinstance(change, RouteMoved) and change.evicted:
                yield from self._was_evicted(self._ledger.deployments[change.deployment])
            elif isinstance(change, RoutesDiscovered):
                yield from self._was_discovered(self._ledger.deployments[change.deployment])

    def _was_created(self, deployment: Deployment) -> Iterator[str]:
        """Routes that have not ended count towards the surge, or an update takes twice the room for
        a while.
        """
        held, most = deployment.held(), deployment.spec.replicas + _bounds(deployment).surge
        if deployment.status not in deployment_table.LIVE:
            yield f"{deployment.name} is {deployment.status.value} and has created {held[-1].id}"
        if len(held) > most:
            yield f"{deployment.name} has created {held[-1].id} and holds {[r.id for r in held]}, at most {most}"

    def _moves(self, change: RouteMoved, now_ms: int) -> Iterator[str]:
        """No route that serves is ended for another revision or count before enough others
        serve.
        """
        deployment = self._ledger.deployments[change.deployment]
        by_plan = change.handler == route_table.END.name and not change.reason.endswith(STOPPING)
        if not by_plan or deployment.status not in deployment_table.LIVE:
            return
        serving = {
            r.number for r in deployment.live() if r.is_available(deployment.min_ready_ms, now_ms)
        }
        least = deployment.spec.replicas - _bounds(deployment).unavailable
        if change.route in serving and len(serving) - 1 < least:
            yield f"{deployment.name} ends route {change.route} of {sorted(serving)} that serve, at least {least} must"

    def _was_evicted(self, deployment: Deployment) -> Iterator[str]:
        """Of those that have served, only as many at a time as may be missing."""
        going = [r.id for r in deployment.held() if r.evicted and r.healthy_ms]
        most = max(1, _bounds(deployment).unavailable)
        if len(going) > most:
            yield f"{deployment.name} evicts {going} at a time, at most {most}"

    def _was_discovered(self, deployment: Deployment) -> Iterator[str]:
        for found in deployment.discovered.routes:
            [route] = [route for route in deployment.routes.values() if route.id == found.id]
            if not _may_serve(route, found.state):
                yield f"{deployment.name} sends requests to {route.id}, {found.state}, which is {route.status.value}"


def _bounds(deployment: Deployment) -> rollout.Target:
    return rollout.target(deployment.spec.update, deployment.spec.replicas)


def _may_serve(route: Route, state: str) -> bool:
    if state == "healthy":
        return route.status is R.HEALTHY
    return route.status is R.DEGRADED and bool(route.healthy_ms) and route.passed
