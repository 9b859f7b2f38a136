"""The specification of a deployment, and the addresses of its routes. Types only.

A deployment keeps ``replicas`` routes alive; a route is one job with one task behind one address.
Source: docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from iris_core.resources import ResourceRequest
from iris_core.spec import BandName, Constraint, JobSpec, Probe


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A part of a deployment's specification; unknown fields are refused."""


class RouteTemplate(_Part, frozen=True):
    """The job that each route is; what is left out is as for any job. Changing it makes a new revision."""

    command: tuple[str, ...]
    env: dict[str, str] = {}
    resources: ResourceRequest = ResourceRequest()
    constraints: tuple[Constraint, ...] = ()
    band: BandName = "interactive"
    bundle: str | None = None
    ports: tuple[str, ...] = ("http",)
    labels: dict[str, str] = {}
    probe: Probe = Probe()

    def job(self, name: str, user: str) -> JobSpec:
        """One route's job: a single attempt, for the deployment replaces a route that ended by another one."""
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
        )


class UpdatePolicy(_Part, frozen=True):
    """How a new revision replaces the old one.

    Attributes:
        max_surge, max_unavailable: routes above, and healthy routes below, ``replicas``: a number, or a per cent as
            ``"25%"``, rounded up and down. Both 0 is refused.
        min_ready_s: how long a route is healthy before it counts. progress_deadline_s: without progress for longer,
            the update has failed.
        pause_after: so many new routes, then the update waits for ``resume``; None: it does not.
        rollback: a failed update goes back to the last revision that was complete.
    """

    max_surge: int | str = 1
    max_unavailable: int | str = 0
    min_ready_s: float = 5.0
    progress_deadline_s: float = 660.0
    pause_after: int | None = None
    rollback: bool = True


class ScalingPolicy(_Part, frozen=True):
    """The number of routes by rule, between ``minimum`` and ``maximum``.

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
    """What the proxy allows requests of this deployment. Times in seconds, None is never.

    Attributes:
        first_byte_s: to the first byte of an answer. idle_s: between bytes of a streamed one. total_s: of all of it.
        body_bytes: of a request. max_outstanding: of one route; more requests wait at most ``queue_s``.
        affinity: ``header:NAME`` or ``cookie``: requests with the same value go to the same route while it is healthy.
    """

    connect_s: float = 2.0
    first_byte_s: float = 60.0
    idle_s: float = 300.0
    total_s: float | None = None
    body_bytes: int = 1 << 30
    max_outstanding: int = 100
    queue_s: float = 10.0
    affinity: str = ""


class DeploymentSpec(_Part, frozen=True):
    """A deployment as its owner wrote it: the body of ``POST /v1/deployments``.

    Attributes:
        replicas: how many routes; with ``scaling``, at the start.
        port: the name of the port that serves, one of the template's.
        settle_s: between taking a route out of discovery and TERM. grace_s: between TERM and KILL.
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
    """One route that may get requests. ``stale``: nothing has been heard of it lately; healthy ones go first."""

    id: str
    address: str
    state: Literal["healthy", "stale"] = "healthy"


class Discovery(msgspec.Struct, frozen=True):
    """Where a deployment answers: always the whole set. JSON under its name in the bucket ``iris-discovery``.

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
