"""Views of deployments and their routes: one, a listing, the reasons of its status, and its
history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from iris_core.limits import clipped
from iris_core.states import DeploymentLifecycle, RouteStatus
from iris_core.tables import deployment as deployment_table
from iris_core.tables import route as route_table
from iris_core.views.deployments import (
    ConditionView,
    DeploymentView,
    RouteView,
    ScalingView,
    UpdateView,
)
from iris_core.views.jobs import HistoryRow, Page, moment
from iris_core.views.queries import (
    DeploymentHistoryQuery,
    DeploymentRequestsQuery,
    DeploymentRoutesQuery,
    DeploymentsQuery,
    DeploymentWhyQuery,
)
from iris_state.deployments import lifecycle
from iris_state.deployments.routes import failed_probes, healths
from iris_state.records.deployments import health, pacing, rollout
from iris_state.records.deployments.records import AUTOSCALE, ITSELF, Deployment, Route
from iris_state.records.entities import HistoryEntry
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_deployment
from iris_state.views.actors import actor_view
from iris_state.views.pages import MAX_TEXT, behind, numbers_behind, page, shortened
from iris_state.views.redaction import redacted_env
from iris_state.views.work.history import history_row
from iris_state.views.work.jobs import reason_of

ENDED_ROUTE = frozenset({RouteStatus.TERMINATED, RouteStatus.FAILED_TO_START})
WHY_ROWS = 20
"""The newest rows of history that `why` shows."""


def deployment_view(ledger: Ledger, record: Deployment, *, whole: bool = True) -> DeploymentView:
    """One deployment; in a listing (``whole`` False) without its routes and environment."""
    members = record.members(ledger.now_ms)
    template = record.spec.template
    env = redacted_env(template.env) if whole else {}
    return DeploymentView(
        id=record.id,
        name=record.name,
        status=record.status.value,
        user=record.user,
        revision=record.revision,
        stable_revision=record.rollout.stable or None,
        replicas=record.spec.replicas,
        ready=_ready(record),
        available=sum(member.available for member in members),
        live=len(record.live()),
        version=record.version,
        spec=msgspec.structs.replace(
            record.spec, template=msgspec.structs.replace(template, env=env)
        ),
        revisions=sorted(record.revisions),
        created_at=moment(record.created_ms),
        since=moment(record.since_ms),
        update=_update(ledger, record),
        conditions=list(conditions(ledger, record)),
        routes=[route_view(ledger, record, route) for route in record.routes.values()]
        if whole
        else [],
        scaling=_scaling(ledger, record) if whole else None,
        requests_per_s=ledger.loads.rates.per_second(record.name, "", ledger.now_ms),
        changed_by=actor_view(record.by),
    )


def _ready(record: Deployment) -> int:
    """Healthy routes that get requests."""
    return sum(route.state == "healthy" for route in record.discovered.routes)


def route_view(ledger: Ledger, record: Deployment, route: Route) -> RouteView:
    job = ledger.jobs.get(route.job)
    attempts = job.task(0).attempts if job is not None else []
    return RouteView(
        id=route.id,
        deployment=record.name,
        job=record.job_name(route),
        status=route.status.value,
        revision=route.revision,
        worker=attempts[-1].worker if attempts else None,
        address=route.address or None,
        since=moment(route.since_ms),
        created_at=moment(route.created_ms),
        ready=route.ready,
        available=route.is_available(record.min_ready_ms, ledger.now_ms),
        discovered=any(one.id == route.id for one in record.discovered.routes),
        detail=shortened(failed_probes(ledger, route) if route.is_live else route.reason, MAX_TEXT)
        or None,
        pending_reason=reason_of(ledger, job) if job is not None else None,
        requests_per_s=ledger.loads.rates.per_second(record.name, route.id, ledger.now_ms),
        job_id=job.id if job is not None else "",
    )


def _update(ledger: Ledger, record: Deployment) -> UpdateView | None:
    progress = record.rollout.progress
    if record.status is not DeploymentLifecycle.DEPLOYING or progress is None:
        return None
    members = record.members(ledger.now_ms)
    new = record.live_of_revision()
    failed = record.rollout.failed
    gives_up_ms = rollout.fails_at(progress, record.spec.update.progress_deadline_s)
    return UpdateView(
        revision=record.revision,
        new=new,
        available=sum(member.is_new and member.available for member in members),
        old=len(record.live()) - new,
        paused=lifecycle.is_paused(record),
        waiting_for="capacity" if lifecycle.waits_for_room(ledger, record, members) else None,
        progress_at=moment(progress.at_ms),
        falls_back_from=failed if failed not in (0, record.revision) else None,
        failed_starts=progress.failed,
        failed_starts_allowed=None if failed or progress.healthy else rollout.FAILED_STARTS,
        gives_up_at=moment(gives_up_ms) if gives_up_ms is not None and not failed else None,
    )


def _scaling(ledger: Ledger, record: Deployment) -> ScalingView | None:
    if record.spec.scaling is None:
        return None
    book = ledger.loads.books.get(record.number)
    unknown = ledger.loads.unknown(record, ledger.now_ms, ledger.probes.floor_ms)
    decision = book.decision if book is not None and not unknown else None
    held = (
        decision.reason if decision is not None and decision.target == record.spec.replicas else ""
    )
    last = next((row for row in reversed(record.history) if row.handler == AUTOSCALE), None)
    return ScalingView(
        load=decision.load if decision is not None else None,
        held=unknown or held or None,
        last=last.reason if last is not None else None,
        last_at=moment(last.last_ms) if last is not None else None,
    )


def conditions(ledger: Ledger, record: Deployment) -> Iterator[ConditionView]:
    """The conditions of a deployment, most urgent first; none of one that is deleted."""
    if record.status in (DeploymentLifecycle.DESTROYING, DeploymentLifecycle.DESTROYED):
        return
    known = record.rollout
    if known.pacing.stopped:
        message = f"{pacing.STARTS} tries to start a route have failed, and no more are made until the deployment is"
        yield ConditionView(
            code="crash_loop", message=f"{message} changed or resumed: {_last_failure(record)}"
        )
    elif known.pacing.failures and (
        record.status is not DeploymentLifecycle.READY or lifecycle.is_trying(record)
    ):
        failures = known.pacing.failures
        tries = (
            "1 try to start a route has"
            if failures == 1
            else f"{failures} tries in a row to start a route have"
        )
        message = f"{tries} failed; the next one waits: {_last_failure(record)}"
        yield ConditionView(code="back_off", message=message)
    if known.failed:
        kept = f"; revision {record.revision} is kept" if record.revision != known.failed else ""
        code = "rolled_back" if kept else "update_failed"
        yield ConditionView(
            code=code,
            message=f"the update to revision {known.failed} has failed: {known.failure}{kept}",
        )
    if lifecycle.is_paused(record):
        yield ConditionView(code="paused", message="the update waits to be resumed")
    if lifecycle.waits_for_room(ledger, record, record.members(ledger.now_ms)):
        message = "new routes wait for room"
        if record.status is DeploymentLifecycle.DEPLOYING:
            message += "; with `--max-unavailable 1` old ones make room first"
        yield ConditionView(code="waiting_for_capacity", message=message)
    unknown = ledger.loads.unknown(record, ledger.now_ms, ledger.probes.floor_ms)
    if unknown:
        yield ConditionView(
            code="load_unknown", message=f"the number of routes stays as it is: {unknown}"
        )
    for revision, found in healths(ledger, record).items():
        if health.fell_together(found, record.revisions[revision].template.probe):
            message = "more than half of the routes became unhealthy together, so none of them is replaced for that"
            yield ConditionView(
                code="unhealthy_together", message=f"{message}: look at what they all depend on"
            )


def _last_failure(record: Deployment) -> str:
    ended = [route for route in record.routes.values() if route.reason and not route.served]
    return clipped(f"{ended[-1].id}: {ended[-1].reason}") if ended else "see the history"


def deployments(ledger: Ledger, query: DeploymentsQuery) -> Page:
    """Deployments, newest first; destroyed ones only when that status is requested."""
    status = query.status
    user = query.user
    last = behind(query.cursor)
    rows = (
        (n, ledger.deployments[n])
        for n in sorted(ledger.deployments, reverse=True)
        if last is None or n < last
    )

    def wanted(record: Deployment) -> bool:
        shown = record.status.value == status if status else not record.is_terminal
        return shown and user in ("", record.user)

    return page(rows, lambda record: deployment_view(ledger, record, whole=False), query, wanted)


def routes(ledger: Ledger, query: DeploymentRoutesQuery) -> Page:
    """The routes of a deployment: those that have not ended before the last few that have, each
    newest first.
    """
    record = known_deployment(ledger, query.deployment)
    after = numbers_behind(query.cursor, 2)
    places = sorted(
        (int(route.status in ENDED_ROUTE), -number) for number, route in record.routes.items()
    )
    rows = (
        (f"{ended}-{-number}", record.routes[-number])
        for ended, number in places
        if after is None or (ended, number) > (after[0], -after[1])
    )
    return page(rows, lambda route: route_view(ledger, record, route), query)


def requests(ledger: Ledger, query: DeploymentRequestsQuery) -> dict[str, Any]:
    """The minutes of the last hour in which a deployment got requests or answered some, oldest
    first.
    """
    record = known_deployment(ledger, query.deployment)
    minutes = ledger.loads.minutes.of(record.number, ledger.now_ms)
    return {
        "minutes": [
            {"at": moment(one.number * 60_000), **msgspec.structs.asdict(one)} for one in minutes
        ]
    }


def history(ledger: Ledger, query: DeploymentHistoryQuery) -> Page:
    """Judgements about a deployment and its routes, oldest first."""
    record = known_deployment(ledger, query.deployment)
    last = behind(query.cursor)
    rows = ((at, entry) for at, entry in enumerate(record.history) if last is None or at > last)
    return page(rows, lambda entry: _row(record, entry), query)


def why(ledger: Ledger, query: DeploymentWhyQuery) -> dict[str, Any]:
    """Why a deployment has its status: conditions, routes that do not serve, and the newest
    judgements.
    """
    record = known_deployment(ledger, query.deployment)
    unhealthy = [route for route in record.held() if route.status is not RouteStatus.HEALTHY]
    return {
        "deployment": record.name,
        "status": record.status.value,
        "replicas": record.spec.replicas,
        "ready": _ready(record),
        "revision": record.revision,
        "conditions": list(conditions(ledger, record)),
        "update": _update(ledger, record),
        "scaling": _scaling(ledger, record),
        "routes": [route_view(ledger, record, route) for route in unhealthy[:WHY_ROWS]],
        "history": [_row(record, entry) for entry in record.history[-WHY_ROWS:]],
    }


def _row(record: Deployment, entry: HistoryEntry) -> HistoryRow:
    words = deployment_table.RESULT_WORDS if entry.index == ITSELF else route_table.RESULT_WORDS
    route = record.routes.get(entry.index)
    name = route.id if route is not None else f"route {entry.index}"
    entity = record.name if entry.index == ITSELF else f"{record.name}/{name}"
    return history_row(entity, entry, words.get(entry.result, entry.result.value))
