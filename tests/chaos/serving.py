"""Checks the deployments and all events after the last fault.

Each function returns sentences as `recount` does. Source:
docs/design/semantics.md#deployments-and-routes, docs/design/serving.md#update.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import psutil

from iris.client.problems import ClientError
from iris_core.states import RouteStatus
from iris_core.tables.route import LIVE
from iris_core.views.deployments import DeploymentView
from iris_core.views.events import DeploymentEvent, RouteEvent
from tests.chaos.deployments import SERVER, Deployments, Service
from tests.chaos.requests import ROUTE, ask
from tests.support.cluster import Cluster

SETTLE_S = 180.0
"""So long a deployment may take to get ready when all is well; a pause after failed starts is at
most 300 s, and those of good versions fail no six times in a row."""
_GONE_S = 60.0
_LOOK_S = 0.2
_READ_S = 15.0
"""So long a proxy may take to read a set of routes that is in its bucket, also on a machine that is
busy.
"""
_ASKED = 20
"""Requests for each route, among which each route answers at least one."""
_GIVEN_UP = frozenset({"crash_loop", "back_off", "update_failed"})
LIVE_STATUSES = frozenset(status.value for status in LIVE)

RolloutEvent: TypeAlias = DeploymentEvent | RouteEvent
Rollouts: TypeAlias = dict[str, list[RolloutEvent]]
"""The events of each deployment and of its routes, in the order they were told."""


def ends(cluster: Cluster, owner: Deployments) -> list[str]:
    """Every deployment gets ready or says why not, serves with every route, and is gone when it is
    deleted.
    """
    wrong = list(owner.wrong)
    deadline = time.monotonic() + SETTLE_S
    for service in owner.live:
        wrong += _settles(cluster, service, deadline)
    wrong += _processes(cluster, owner, time.monotonic() + _GONE_S)
    owner.delete_all()
    deadline = time.monotonic() + _GONE_S
    for service in owner.services:
        wrong += _goes(cluster, service, deadline)
    return [*wrong, *_all_end(owner, deadline)]


def _settles(cluster: Cluster, service: Service, deadline: float) -> Iterator[str]:
    while True:
        lacks = _lacks(cluster, service)
        if not lacks:
            break
        if time.monotonic() > deadline:
            yield f"stuck: {service.name} {lacks}"
            return
        time.sleep(_LOOK_S)
    view = cluster.client.deployment(service.name).view
    if view.status == "ready" and view.replicas:
        yield from _serves(cluster, view)


def _lacks(cluster: Cluster, service: Service) -> str:
    """What a deployment is still without, in words; empty when it is as wanted, or says that it
    cannot be.
    """
    try:
        view = cluster.client.deployment(service.name).view
    except ClientError as error:
        return f"cannot be seen: {error}"
    if view.replicas != service.replicas:
        return f"wants {view.replicas} routes, its owner {service.replicas}"
    codes = {condition.code for condition in view.conditions}
    if not is_good(view) and view.stable_revision is None and codes & _GIVEN_UP:
        return ""
    live = [route for route in view.routes if route.status in LIVE_STATUSES]
    serving = [
        route
        for route in live
        if route.discovered and route.available and route.revision == view.revision
    ]
    if (
        view.status == "ready"
        and len(live) == len(serving) == view.replicas
        and (is_good(view) or not view.replicas)
    ):
        return ""
    routes = {route.id: route.status for route in view.routes if route.status != "terminated"}
    return f"is {view.status} at revision {view.revision} with {routes}, {sorted(codes)}"


def is_good(view: DeploymentView) -> bool:
    """Whether the revision that is wanted is one that serves."""
    return view.spec.template.command[2].startswith("good")


def _serves(cluster: Cluster, view: DeploymentView) -> Iterator[str]:
    """All is quiet: every request is answered, and every route answers some, once the proxy has
    read who they are.
    """
    deadline = time.monotonic() + _READ_S
    while wrong := list(_unserved(cluster, view)):
        if time.monotonic() > deadline:
            yield from wrong
            return
        time.sleep(_LOOK_S)


def _unserved(cluster: Cluster, view: DeploymentView) -> Iterator[str]:
    answers = [ask(cluster.file["proxy_url"], view.name) for _ in range(_ASKED * view.replicas)]
    failed = [one for one in answers if one.by != ROUTE]
    if failed:
        yield f"lost: {len(failed)} of {len(answers)} requests to {view.name}, which is ready: {failed[0]}"
    jobs = {route.job for route in view.routes if route.status in LIVE_STATUSES}
    answered = {one.job for one in answers if one.by == ROUTE}
    if answered != jobs:
        yield f"wrong: {view.name} is answered by {sorted(answered)}, its routes are {sorted(jobs)}"


def _jobs(cluster: Cluster, owner: Deployments) -> set[str]:
    """The jobs of all routes that live."""
    views = [cluster.client.deployment(service.name).view for service in owner.live]
    return {route.job for view in views for route in view.routes if route.status in LIVE_STATUSES}


def servers(directory: Path) -> dict[int, str]:
    """The job of each server process of a run, by its id."""
    found = {}
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if (
                str(SERVER) in words
                and str(directory) in words
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found[process.pid] = process.environ().get("IRIS_JOB", "")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def _processes(cluster: Cluster, owner: Deployments, deadline: float) -> Iterator[str]:
    """One for each live route of those that serve, and none of another once what is being stopped
    has ended.
    """
    jobs, running = _jobs(cluster, owner), sorted(servers(owner.directory).values())
    while set(running) - jobs and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        jobs, running = _jobs(cluster, owner), sorted(servers(owner.directory).values())
    twice = {job for job in running if running.count(job) > 1}
    if twice:
        yield f"doubled: several processes of {sorted(twice)}"
    if set(running) - jobs:
        yield f"stuck: {sorted(set(running) - jobs)} run and are of no route that lives"


def _goes(cluster: Cluster, service: Service, deadline: float) -> Iterator[str]:
    """A deleted deployment is destroyed, and nobody answers for it."""
    status = ""
    while status != "destroyed" and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        try:
            status = cluster.client.deployment(service.id).status
        except ClientError as error:
            status = "destroyed" if getattr(error, "status", 0) == 404 else str(error)
    if status != "destroyed":
        yield f"stuck: {service.name} is deleted and {status}"
    elif ask(cluster.file["proxy_url"], service.name).by == ROUTE:
        yield f"wrong: {service.name} is destroyed and a route of it answers"


def _all_end(owner: Deployments, deadline: float) -> Iterator[str]:
    while (left := servers(owner.directory)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    if left:
        yield f"stuck: every deployment is deleted and {sorted(left.values())} run"


def told(rollouts: Rollouts) -> list[str]:
    """The events of each deployment and of each route are one chain to its end, and none is made
    once it is deleted.
    """
    wrong = []
    for name, events in rollouts.items():
        chains: dict[str, list[RolloutEvent]] = defaultdict(list)
        deleted = False
        for event in events:
            is_route = isinstance(event, RouteEvent)
            chains[event.route if isinstance(event, RouteEvent) else ""].append(event)
            deleted |= not is_route and event.state == "destroying"
            if deleted and is_route and event.previous is None:
                wrong.append(f"wrong: {event.route} of {name} is made, and {name} is deleted")
        wrong += [
            sentence for one, chain in chains.items() for sentence in _chain(name, one, chain)
        ]
    return wrong


def _chain(name: str, route: str, events: list[RolloutEvent]) -> Iterator[str]:
    before: str | None = None
    for event in events:
        if event.previous != before:
            yield f"lost: an event, or shuffled: {name} {route} went from {event.previous}, it was {before}"
        before = event.state
    if before != (RouteStatus.TERMINATED.value if route else "destroyed"):
        yield f"stuck: {name} {route} has been {before} to the last event"
