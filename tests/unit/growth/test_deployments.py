"""What a route that becomes ready costs does not grow with the routes of its deployment."""

from __future__ import annotations

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import ProbeResult
from iris_core.spec.resources import Amount
from iris_core.states import KernelStatus, RouteStatus
from iris_state.deployments import reconciler as module
from iris_state.deployments.reconciler import Reconciler
from iris_state.deployments.routes import health_of
from iris_state.policy import Policy
from iris_state.records.apply import apply
from iris_state.records.changes import (
    Assigned,
    Change,
    DeploymentCreated,
    Staged,
    WorkerRegistered,
)
from iris_state.records.deployments.records import Deployment
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import bind
from tests.support.serving import spec
from tests.support.work import calls_of, exponent

FLAT = 0.1
ROOM = Amount(1 << 40, 1 << 50, 1 << 50)


class Deployed:
    """One deployment whose routes all run, and none has been probed yet."""

    def __init__(self, routes: int) -> None:
        self.ledger = Ledger()
        self.reconciler = Reconciler(self.ledger, Policy())
        self.reactions = bind(self.reconciler)
        self.now_ms = 1_000
        self.tell(WorkerRegistered("w0", "i", {}, ROOM), DeploymentCreated(1, spec(routes), "ann"))
        for _ in range(3):
            self.wait(1_000)
        self.reconciler.begin(0)
        for route in self.record.held():
            self.tell(Assigned(route.job, 0, 0, "w0"), Staged(route.job, 0, 0, RUNNING))
        self.wait(1_000)

    @property
    def record(self) -> Deployment:
        return self.ledger.deployments[1]

    def tell(self, *changes: Change) -> None:
        for change in changes:
            apply(self.ledger, change, self.now_ms)
            for react in self.reactions[type(change)]:
                react(change)

    def wait(self, ms: int) -> None:
        """Let time pass, and reconcile as often as it is time to."""
        self.now_ms += ms
        self.ledger.now_ms = self.now_ms
        while self.reconciler.due.is_due(1, self.now_ms):
            for step in self.reconciler.steps(1, self.now_ms):
                self.tell(step)  # type: ignore[arg-type]

    def become_ready(self) -> None:
        """One route in each millisecond."""
        for number, route in enumerate(self.record.held()):
            result = ProbeResult(AttemptRef(route.job, 0, 0), f"h:{10_000 + number}", passes=9)
            self.tell(*self.reconciler.on_probes("w0", [result], self.now_ms))
            self.wait(1)
        self.wait(1_000)


RUNNING = KernelStatus.RUNNING


def looked_at(routes: int) -> float:
    """How often the health of a route is looked at for one that becomes ready."""
    deployed = Deployed(routes)
    assert len(deployed.record.routes) == routes
    calls = calls_of(deployed.become_ready, health_of)
    assert {route.status for route in deployed.record.held()} == {RouteStatus.HEALTHY}
    assert len(deployed.record.discovered.routes) == routes
    return calls / routes


def test_a_route_that_becomes_ready_costs_the_same_among_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MANY_ROUTES", 10)
    monkeypatch.setattr(module, "ROUTES_A_MS", 2)
    few, many = looked_at(10), looked_at(100)
    assert exponent(few, many) < FLAT  # type: ignore[arg-type]


def test_a_few_routes_are_reconciled_at_once() -> None:
    deployed = Deployed(3)
    for route in deployed.record.held():
        result = ProbeResult(AttemptRef(route.job, 0, 0), "h:1", passes=9)
        deployed.tell(*deployed.reconciler.on_probes("w0", [result], deployed.now_ms))
        deployed.wait(0)
        assert route.status is RouteStatus.HEALTHY
