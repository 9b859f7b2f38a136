"""The specification of a deployment, and the addresses of its routes. Types only.

A deployment keeps ``replicas`` routes alive; a route is one job with one task behind one address.
Source: docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from iris_core.resources import ResourceRequest
from iris_core.spec import BandName, Constraint, Environment, JobSpec, Probe, Spread

TASK_TOKEN = "iristask_"
"""The beginning of every token of a task, for people and for programs that look for secrets."""
TOKEN_COOKIE, SECURE_TOKEN_COOKIE = "iris_token", "__Host-iris_token"
"""The cookie in which a browser keeps the token of the dashboard: over plain HTTP, and over TLS, where a browser
accepts it from this very host only. Browsers send cookies to every port of a host, so the proxy removes these from
requests and answers: no route receives one or sets one.
"""


LATENCY_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000)
"""Bounds of the classes in which proxies count how long requests waited for the head of their answer."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A part of a deployment's specification; unknown fields are refused."""


class RouteTemplate(_Part, frozen=True):
    """The specification of each route's job; omitted fields have a job's defaults. A change of it makes a new
    revision.
    """

    command: tuple[str, ...]
    env: dict[str, str] = {}
    resources: ResourceRequest = ResourceRequest()
    constraints: tuple[Constraint, ...] = ()
    band: BandName = "interactive"
    bundle: str | None = None
    ports: tuple[str, ...] = ("http",)
    labels: dict[str, str] = {}
    probe: Probe = Probe()
    environment: Environment | None = None
    spread: Spread = "hosts"

    def job(self, name: str, user: str) -> JobSpec:
        """The specification of one route's job: a single attempt, because the deployment replaces an ended route by a
        new job.
        """
        return JobSpec(
            name=name,
            command=self.command,
            env=self.env,
            resources=self.resources,
            constraints=self.constraints,
            band=self.band,
            max_retries_failure=0,
            max_retries_preemption=0,
            bundle=self.bundle,
            ports=self.ports,
            labels=self.labels,
            user=user,
            probe=self.probe,
            environment=self.environment,
            spread=self.spread,
        )


class UpdatePolicy(_Part, frozen=True):
    """How a new revision replaces the old one.

    Attributes:
        max_surge, max_unavailable: routes above, and healthy routes below, ``replicas``: a number, or a percentage such
            as ``"25%"``, rounded up and down respectively. Both 0 is refused.
        min_ready_s: how long a route must be healthy before it counts as available. progress_deadline_s: the update
            fails when it makes no progress for longer.
        pause_after: after that many new routes the update waits for ``resume``; None: it does not pause.
        rollback: whether a failed update returns to the last complete revision.
    """

    max_surge: int | str = 1
    max_unavailable: int | str = 0
    min_ready_s: float = 5.0
    progress_deadline_s: float = 660.0
    pause_after: int | None = None
    rollback: bool = True


class ScalingPolicy(_Part, frozen=True):
    """Autoscaling of the number of routes, between ``minimum`` and ``maximum``.

    Attributes:
        outstanding: requests under way or waiting, for each route. query: instead, a Prometheus query whose value is
            divided by ``per_route``.
        stabilization_s: routes are taken away down to the largest number wanted within so long; the last one, where
            ``minimum`` is 0, after so long without a request.
        cooldown_s: within so long the number at most doubles, or rises by 4.
        window_s: the load is its mean over so long. panic_window_s: a sudden rise is its mean over so long.
    """

    minimum: int = 1
    maximum: int = 1
    outstanding: float = 1.0
    query: str = ""
    per_route: float = 1.0
    stabilization_s: float = 300.0
    cooldown_s: float = 15.0
    window_s: float = 60.0
    panic_window_s: float = 6.0

    @property
    def target(self) -> float:
        """The load that one route should have."""
        return self.per_route if self.query else self.outstanding

    def bounded(self, routes: int) -> int:
        """The nearest number of routes that is allowed."""
        return max(self.minimum, min(routes, self.maximum))


class ProxyPolicy(_Part, frozen=True):
    """Limits that the proxy applies to requests of this deployment. Times in seconds; None: no limit.

    Attributes:
        first_byte_s: until the first byte of the response. idle_s: between bytes of a streamed response. total_s: for
            the whole request.
        body_bytes: largest body of a request. max_outstanding: requests of one route at a time; further requests wait
            for at most ``queue_s``.
        affinity: ``header:NAME`` or ``cookie``: requests with the same value go to the same route while it is healthy.
        retry: ``idempotent``: a request without a body whose method may be repeated (GET, HEAD, OPTIONS, TRACE, PUT,
            DELETE) goes to another route when its connection was closed before the first byte of an answer. ``never``:
            a request that a route may have begun goes to no other route.
        forward_authorization: routes receive the field Authorization whatever it holds, also tokens of Iris and of its
            issuer; else those are removed.
    """

    connect_s: float = 2.0
    first_byte_s: float = 60.0
    idle_s: float = 300.0
    total_s: float | None = None
    body_bytes: int = 1 << 30
    max_outstanding: int = 100
    queue_s: float = 10.0
    affinity: str = ""
    retry: Literal["never", "idempotent"] = "never"
    forward_authorization: bool = False


class DeploymentSpec(_Part, frozen=True):
    """A deployment as its owner wrote it: the body of ``POST /v1/deployments``.

    Attributes:
        replicas: number of routes; with ``scaling``, the initial number.
        port: the name of the template's port that serves requests.
        settle_s: between the removal of a route from discovery and TERM. grace_s: between TERM and KILL.
    """

    name: str
    template: RouteTemplate
    replicas: int = 1
    port: str = "http"
    update: UpdatePolicy = UpdatePolicy()
    scaling: ScalingPolicy | None = None
    proxy: ProxyPolicy = ProxyPolicy()
    settle_s: float = 2.0
    grace_s: float = 30.0
    user: str = ""


class DiscoveredRoute(msgspec.Struct, frozen=True):
    """One route that may get requests. ``stale``: no recent heartbeat of it; healthy ones are preferred."""

    id: str
    address: str
    state: Literal["healthy", "stale"] = "healthy"


class Discovery(msgspec.Struct, frozen=True):
    """The routes of a deployment, always the whole set. JSON under its name in the bucket ``iris-discovery``.

    Attributes:
        version: grows with every change of the set.
        reason: why there is no route: starting, no_healthy_route, draining; empty when there is one.
        minimum: of its scaling rule: proxies report its load, and where this is 0 requests wait for a first route.
            None: it has no rule.
    """

    deployment: str
    version: int
    routes: tuple[DiscoveredRoute, ...] = ()
    reason: str = ""
    proxy: ProxyPolicy = ProxyPolicy()
    minimum: int | None = None

    @property
    def wakes(self) -> bool:
        """Whether a request that finds no route waits for one."""
        return self.minimum == 0 and not self.routes
