"""The specification of a deployment, and the addresses of its routes. Types only.

A deployment keeps ``replicas`` routes alive; a route is one job with one task behind one address.
Source: docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from iris_core.spec.field_rules import between, more_than_0, seconds, text
from iris_core.spec.jobs import (
    BandName,
    BundleDigest,
    CommandWords,
    Constraints,
    Environment,
    EnvVariables,
    JobSpec,
    OwnerText,
    PortNames,
    Probe,
    Spread,
    TaskLabels,
)
from iris_core.spec.projects import ProjectPath
from iris_core.spec.resources import ResourceRequest
from iris_core.units import BYTES

TASK_TOKEN = "iristask_"
"""The beginning of every token of a task, for people and for programs that look for secrets."""
TOKEN_COOKIE = "iris_token"
SECURE_TOKEN_COOKIE = "__Host-iris_token"
"""The cookie in which a browser keeps the token of the dashboard: over plain HTTP, and over TLS,
where a browser accepts it from this very host only. Browsers send cookies to every port of a host,
so the proxy removes these from requests and answers: no route receives one or sets one.
"""
MAX_ROUTES = 1000
"""Routes of one deployment, including the surplus of an update."""
MAX_OUTSTANDING = 100_000
MAX_WINDOW_S = 600.0
"""Over which the load of a deployment is measured; as long are its samples kept."""
RouteShare = (
    Annotated[int, between(0, MAX_ROUTES)]
    | Annotated[str, text("(100|[1-9]?[0-9])%", "bad_per_cent", "is not a percentage", '"25%"')]
)

LATENCY_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000)
"""Bounds of the classes in which proxies count how long requests waited for the head of their
answer.
"""


class _Part(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A part of a deployment's specification; unknown fields are refused."""


class RouteTemplate(_Part, frozen=True):
    """The specification of each route's job; omitted fields have a job's defaults. A change of it
    makes a new revision.
    """

    command: CommandWords
    env: EnvVariables = {}
    resources: ResourceRequest = ResourceRequest()
    constraints: Constraints = ()
    band: BandName = "interactive"
    bundle: BundleDigest | None = None
    ports: PortNames = ("http",)
    labels: TaskLabels = {}
    probe: Probe = Probe()
    environment: Environment | None = None
    spread: Spread = "hosts"

    def job(self, name: str, user: str, project: str) -> JobSpec:
        """The specification of one route's job: a single attempt, because the deployment replaces
        an ended route by a new job.
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
            project=project,
        )


class UpdatePolicy(_Part, frozen=True):
    """How a new revision replaces the old one.

    Attributes:
        max_surge, max_unavailable: routes above, and healthy routes below, ``replicas``: a number,
            or a percentage such as ``"25%"``, rounded up and down respectively. Both 0 is refused.
        min_ready_s: how long a route must be healthy before it counts as available.
            progress_deadline_s: the update fails when it makes no progress for longer.
        pause_after: after that many new routes the update waits for ``resume``; None: it does not
            pause.
        rollback: whether a failed update returns to the last complete revision.
    """

    max_surge: RouteShare = 1
    max_unavailable: RouteShare = 0
    min_ready_s: Annotated[float, seconds(0)] = 5.0
    progress_deadline_s: Annotated[float, seconds(1)] = 660.0
    pause_after: Annotated[int, between(1, MAX_ROUTES)] | None = None
    rollback: bool = True


class ScalingPolicy(_Part, frozen=True):
    """Autoscaling of the number of routes, between ``minimum`` and ``maximum``.

    Attributes:
        outstanding: requests under way or waiting, for each route. query: instead, a Prometheus
            query whose value is divided by ``per_route``.
        stabilization_s: routes are taken away down to the largest number wanted within so long; the
            last one, where ``minimum`` is 0, after so long without a request.
        cooldown_s: within so long the number at most doubles, or rises by 4.
        window_s: the load is its mean over so long. panic_window_s: a sudden rise is its mean over
            so long.
    """

    minimum: Annotated[int, between(0, MAX_ROUTES)] = 1
    maximum: Annotated[int, between(1, MAX_ROUTES)] = 1
    outstanding: Annotated[float, more_than_0(MAX_OUTSTANDING)] = 1.0
    query: str = ""
    per_route: Annotated[float, more_than_0(MAX_OUTSTANDING)] = 1.0
    stabilization_s: Annotated[float, seconds(0)] = 300.0
    cooldown_s: Annotated[float, seconds(0)] = 15.0
    window_s: Annotated[float, seconds(1, MAX_WINDOW_S)] = 60.0
    panic_window_s: Annotated[float, seconds(1)] = 6.0

    @property
    def target(self) -> float:
        """The load that one route should have."""
        return self.per_route if self.query else self.outstanding

    def bounded(self, routes: int) -> int:
        """The nearest number of routes that is allowed."""
        return max(self.minimum, min(routes, self.maximum))


class ProxyPolicy(_Part, frozen=True):
    """Limits that the proxy applies to requests of this deployment. Times in seconds; None: no
    limit.

    Attributes:
        first_byte_s: until the first byte of the response. idle_s: between bytes of a request's
            body, or of a streamed response. total_s: for the whole request; without it a body or a
                response may take any time, if bytes come.
        body_bytes: largest body of a request. max_outstanding: requests of one route at a time;
            further requests wait for at most ``queue_s``.
        affinity: ``header:NAME`` or ``cookie``: requests with the same value go to the same route
            while it is healthy.
        retry: ``idempotent``: a request without a body whose method may be repeated (GET, HEAD,
            OPTIONS, TRACE, PUT, DELETE) goes to another route when its connection was closed before
            the first byte of an answer. ``never``: a request that a route may have begun goes to no
                other route.
        forward_authorization: routes receive the field Authorization whatever it holds, also tokens
            of Iris and of its issuer; else those are removed.
    """

    connect_s: Annotated[float, seconds(0.01)] = 2.0
    first_byte_s: Annotated[float, seconds(0.01)] = 60.0
    idle_s: Annotated[float, seconds(0.01)] = 300.0
    total_s: Annotated[float, seconds(0.01)] | None = None
    body_bytes: Annotated[int, between(0, 1 << 50, BYTES)] = 1 << 30
    max_outstanding: Annotated[int, between(1, MAX_OUTSTANDING)] = 100
    queue_s: Annotated[float, seconds(0)] = 10.0
    affinity: Annotated[
        str,
        text(
            r"cookie|header:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}",
            "bad_affinity",
            "is not an affinity",
            hint="cookie, or header:NAME",
            optional=True,
        ),
    ] = ""
    retry: Literal["never", "idempotent"] = "never"
    forward_authorization: bool = False


class DeploymentSpec(_Part, frozen=True):
    """A deployment as its owner wrote it: the body of ``POST /v1/deployments``.

    Attributes:
        replicas: number of routes; with ``scaling``, the initial number.
        port: the name of the template's port that serves requests.
        settle_s: between the removal of a route from discovery and TERM. grace_s: between TERM and
            KILL, at most `[state] max_grace_s`.
        project: that its routes are in; empty: the default of its user, else the root. Of a
            deployment that was created: the one it got; empty: the root.
    """

    name: Annotated[
        str,
        text(
            "(?![0-9]+$)[A-Za-z0-9][A-Za-z0-9_-]{0,62}",
            "bad_name",
            "is not a deployment name",
            hint="1 to 63 letters, digits, _ and -, starting with a letter or digit, not all digits",
        ),
    ]
    template: RouteTemplate
    replicas: Annotated[int, between(0, MAX_ROUTES)] = 1
    port: str = "http"
    update: UpdatePolicy = UpdatePolicy()
    scaling: ScalingPolicy | None = None
    proxy: ProxyPolicy = ProxyPolicy()
    settle_s: Annotated[float, seconds(0, 3600)] = 2.0
    grace_s: Annotated[float, seconds(0, 86_400)] = 30.0
    user: OwnerText = ""
    project: ProjectPath = ""


class DiscoveredRoute(msgspec.Struct, frozen=True):
    """One route that may get requests. ``stale``: no recent heartbeat of it; healthy ones are
    preferred.
    """

    id: str
    address: str
    state: Literal["healthy", "stale"] = "healthy"


class Discovery(msgspec.Struct, frozen=True):
    """The routes of a deployment, always the whole set. JSON under its name in the bucket
    ``iris-discovery``.

    Attributes:
        version: grows with every change of the set.
        reason: why there is no route: starting, no_healthy_route, draining; empty when there is
            one.
        minimum: of its scaling rule: proxies report its load, and where this is 0 requests wait for
            a first route.
            None: it has no rule.
        user: whose deployment it is; empty: an earlier release has not said so.
    """

    deployment: str
    version: int
    routes: tuple[DiscoveredRoute, ...] = ()
    reason: str = ""
    proxy: ProxyPolicy = ProxyPolicy()
    minimum: int | None = None
    user: str = ""

    @property
    def wakes(self) -> bool:
        """Whether a request that finds no route waits for one: where a rule has ended the last, and
        while the first one starts.
        """
        starts = self.minimum == 0 or self.reason == "starting"
        return self.minimum is not None and starts and not self.routes
