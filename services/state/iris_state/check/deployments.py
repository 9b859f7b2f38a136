"""The invariants of deployments and their routes. Source: docs/design/reliability.md#invariants."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from iris_core.states import (
    DeploymentLifecycle,
)
from iris_core.tables import deployment as deployment_table
from iris_state.deployments import routes
from iris_state.records.deployments import rollout
from iris_state.records.deployments.records import Deployment
from iris_state.records.ledger import Ledger

Wrongs = Iterator[str]


def routes_lead_to_jobs(ledger: Ledger, deployment: Deployment) -> Wrongs:
    """A live route has a live job, and a terminated one has none; the index holds both."""
    for route in deployment.held():
        job = ledger.jobs.get(route.job)
        has_job = job is not None and not job.is_terminal
        if has_job is not route.is_live:
            state = job.state.name if job is not None else "unknown"
            yield f"{deployment.name}/{route.id} is {route.status.value} and its job {state}"
        if ledger.route_of_job.get(route.job) != (deployment.number, route.number) and route.job:
            yield f"j{route.job} does not lead to {deployment.name}/{route.id}"
        if route.is_live and route.revision not in deployment.revisions:
            yield f"{deployment.name}/{route.id} is of a revision that is forgotten"


def routes_are_as_many_as_wanted(ledger: Ledger, deployment: Deployment) -> Wrongs:
    live = deployment.live()
    replicas = deployment.spec.replicas
    as_wanted = len(live) == replicas and all(
        route.revision == deployment.revision for route in live
    )
    if deployment.status is DeploymentLifecycle.READY and not as_wanted:
        yield f"{deployment.name} is ready with {[route.id for route in live]}, wanted {replicas}"
    most = replicas + rollout.target(deployment.spec.update, replicas).surge
    if deployment.status not in deployment_table.LIVE:
        most = 0
    if len(live) > most:
        yield f"{deployment.name} is {deployment.status.value} with {len(live)} routes, at most {most} may live"


def discovery_is_published(ledger: Ledger, deployment: Deployment) -> Wrongs:
    for other in routes.discovery(ledger, deployment):
        yield f"{deployment.name} answers at {other.routes}, published is {deployment.discovered}"


OF_DEPLOYMENT: tuple[Callable[[Ledger, Deployment], Wrongs], ...] = (
    routes_lead_to_jobs,
    routes_are_as_many_as_wanted,
    discovery_is_published,
)


def deployments_are_indexed(ledger: Ledger) -> Wrongs:
    newest: dict[str, int] = {}
    for deployment in ledger.deployments.values():
        newest[deployment.name] = max(newest.get(deployment.name, 0), deployment.number)
    if newest != ledger.deployment_names:
        yield f"deployments are named {dict(ledger.deployment_names)}, recount {newest}"
    over = {
        deployment.number for deployment in ledger.deployments.values() if deployment.is_terminal
    }
    if over != set(ledger.destroyed):
        yield f"{sorted(ledger.destroyed)} are destroyed, recount {sorted(over)}"
    held = sum(
        bool(route.job) for deployment in ledger.deployments.values() for route in deployment.held()
    )
    if held != len(ledger.route_of_job):
        yield f"{len(ledger.route_of_job)} jobs lead to routes, recount {held}"
