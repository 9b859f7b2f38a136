"""Reconciles deployments after each change and when a timer of theirs is due.

Level-triggered: each is brought nearer to what its records say until nothing more follows. Kept
here is what is not
recorded: the newest results of probes, and when each is looked at. That is always a timer of its
own, also when something has happened: many reports of one round are one pass, and a pass that
    raises blames no report. A pass looks at every route, so one of many routes is not repeated at once:
    routes that become ready one by one share passes.
Source: docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from iris_core.limits import SENTENCE, clipped
from iris_core.messages.proxy_state import DeploymentLoad, LoadReport, QueriedLoad
from iris_core.messages.state_worker import ProbeResult
from iris_core.subjects import is_plain
from iris_state.deployments import lifecycle, routes
from iris_state.policy import Policy
from iris_state.records import changes as c
from iris_state.records.changes import DeploymentScaled, RouteProbed
from iris_state.records.claims import Step
from iris_state.records.deployments.records import Deployment, ProbeReport, Route
from iris_state.records.deployments.scaling import ScalingDecision
from iris_state.records.indexes.timer_queue import TimerQueue
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import complete

DEPLOYMENT = "deployment"
"""What the timer of a deployment is called, beside its number."""
MANY_ROUTES = 100
ROUTES_A_MS = 10
"""So many routes are reconciled in a tenth of a millisecond. A deployment of `MANY_ROUTES` waits a
millisecond for each `ROUTES_A_MS` between two passes, so it takes a tenth of the time at most.
"""
ADDRESS = 300
"""Characters of an address at most; a longer one, or one with spaces in it, is none."""


class Reconciler:
    """Schedules reconciliation of the deployments of one leader.

    Attributes:
        due: when each is reconciled: now, if something about it changed.
    """

    def __init__(self, ledger: Ledger, policy: Policy) -> None:
        self._ledger = ledger
        self._policy = policy
        self.due: TimerQueue[int] = TimerQueue()
        self._rests_until: dict[int, int] = {}

    def begin(self, floor_ms: int) -> None:
        """Start as leader: silence counts from now, and every deployment is reconciled, each by its
        own timer.

        Results that a follower has heard are forgotten: the addresses that came with them are not
        recorded, and a route that is healthy without one would take the place of others and get no
        requests.
        """
        self._ledger.probes.reports.clear()
        self._ledger.probes.floor_ms = floor_ms
        for number in self._ledger.deployments:
            self.due.set(number, floor_ms)

    def look(self, number: int) -> None:
        """Reconcile a deployment now, because something about it changed; one of many routes that
        was reconciled just before: soon.
        """
        now_ms = self._ledger.now_ms
        self.due.set(number, max(now_ms, self._rests_until.get(number, now_ms)))

    def steps(self, number: int, now_ms: int) -> Iterator[Step]:
        """The changes that follow for a deployment now; each change reconciles it again."""
        self.due.clear(number)
        deployment = self._ledger.deployments.get(number)
        if deployment is None:
            return
        if len(deployment.routes) >= MANY_ROUTES:
            self._rests_until[number] = now_ms + len(deployment.routes) // ROUTES_A_MS
        yield from routes.steps(self._ledger, self._policy, deployment, now_ms)
        yield from lifecycle.steps(self._ledger, self._policy, deployment, now_ms)
        yield from routes.discovery(self._ledger, deployment)
        if number not in self.due:
            self._wind(deployment, now_ms)

    def _wind(self, deployment: Deployment, now_ms: int) -> None:
        """Set the timer of a deployment to the next time at which a claim may change without an
        event.
        """
        ledger = self._ledger
        policy = self._policy
        times = (*routes.clocks(ledger, deployment), *lifecycle.clocks(policy, deployment))
        first = min((at for at in times if at > now_ms), default=None)
        if first is not None:
            self.due.set(deployment.number, first)

    def on_probes(
        self, worker: str, results: Iterable[ProbeResult], now_ms: int
    ) -> Iterator[RouteProbed]:
        """Take the newest probe results of a worker; their claims are judged in the next pass."""
        for deployment, route, result in note_results(self._ledger, worker, results, now_ms):
            if routes.is_news(self._ledger, deployment, route, now_ms):
                self.look(deployment.number)
            is_new = (route.address, route.ready) != (result.address, result.ready)
            if is_new and len(result.address) <= ADDRESS and is_plain(result.address):
                yield RouteProbed(deployment.number, route.number, result.address, result.ready)

    def on_loads(self, report: LoadReport, now_ms: int) -> Iterator[DeploymentScaled]:
        """Take the load of deployments from a proxy or queries; yields a change for each number
        that changes.
        """
        for deployment, decision in note_loads(self._ledger, report, now_ms):
            if decision.target != deployment.spec.replicas:
                yield DeploymentScaled(deployment.number, decision.target, decision.reason)

    # ── what a change is to deployments ───────────────────────────────────────────────────────────

    def _job_changed(
        self, change: c.Assigned | c.Staged | c.Moved | c.Closed | c.JobMoved | c.JobPruned
    ) -> None:
        found = self._ledger.route_of_job.get(change.job)
        if found is not None:
            self.look(found[0])

    def _created(self, change: c.DeploymentCreated) -> None:
        self.look(change.number)

    def _changed(self, change: c.DeploymentChanged) -> None:
        self.look(change.deployment)

    def _forgotten(self, change: c.DeploymentForgotten) -> None:
        self.due.clear(change.deployment)
        self._rests_until.pop(change.deployment, None)

    REACTIONS = complete(
        {
            **dict.fromkeys(
                (c.Assigned, c.Staged, c.Moved, c.Closed, c.JobMoved, c.JobPruned), _job_changed
            ),
            c.DeploymentCreated: _created,
            **dict.fromkeys(
                (c.DeploymentChanged, c.DeploymentScaled, c.RolledOut, c.DeploymentMoved), _changed
            ),
            **dict.fromkeys((c.RouteCreated, c.RouteMoved, c.RouteProbed), _changed),
            c.DeploymentForgotten: _forgotten,
        },
        nothing=(
            *(
                c.GatesOpened,
                c.JobAmended,
                c.Requeued,
                c.GraceEnded,
                c.StopOrdered,
                c.Noticed,
                c.JobGrown,
                c.JobClosed,
            ),
            *(c.QueueHeld, c.QueueReleased),
            *(c.JobAdmitted, c.SessionMoved, c.Judged, c.Nominated, c.Avoided, c.RoutesDiscovered),
            *c.FLEET_KINDS,
            *c.PROJECT_KINDS,
            *(c.WorkerRegistered, c.WorkerMoved, c.WorkerForgotten, c.QuotaSet, c.GroupsNoted),
            *(c.Answered, c.Dropped, c.Evicted, c.Audited, c.Led),
        ),
    )


def note_results(
    ledger: Ledger, worker: str, results: Iterable[ProbeResult], now_ms: int
) -> list[tuple[Deployment, Route, ProbeResult]]:
    """Store the newest results for routes whose current attempt this worker runs; returns those
    routes.
    """
    noted = []
    for result in results:
        found = ledger.route_for(result.ref.job)
        attempt = ledger.jobs[result.ref.job].task(0).current if found is not None else None
        if (
            found is None
            or attempt is None
            or (attempt.worker, attempt.number) != (worker, result.ref.attempt)
        ):
            continue
        if result.passes or result.failures:
            heard_ms = now_ms - max(0, result.age_ms)
            detail = clipped(result.detail, SENTENCE)
            ledger.probes.reports[result.ref.job] = ProbeReport(
                heard_ms, result.passes, result.failures, detail
            )
        noted.append((*found, result))
    return noted


def note_loads(
    ledger: Ledger, report: LoadReport, now_ms: int
) -> Iterator[tuple[Deployment, ScalingDecision]]:
    """Store the load that a proxy or the queries reported; returns the decision for each deployment
    in it.
    """
    if report.leaving:
        ledger.loads.forget_proxy(report.proxy)
    for requests in report.requests:
        if (known := ledger.deployment_named(requests.deployment)) is not None:
            ledger.loads.rates.note(requests, now_ms)
            ledger.loads.minutes.note(known.number, requests, now_ms)
    results: tuple[DeploymentLoad | QueriedLoad, ...] = (*report.loads, *report.queried)
    for result in results:
        deployment = ledger.deployment_named(result.deployment)
        book = ledger.loads.of(deployment, now_ms) if deployment is not None else None
        if deployment is None or book is None:
            continue
        if isinstance(result, QueriedLoad):
            book.note_queried(result, now_ms)
        else:
            book.note(report.proxy, result.outstanding, result.arrived, now_ms)
        decision = book.decide(deployment, now_ms, ledger.probes.floor_ms)
        if decision is not None:
            yield deployment, decision
