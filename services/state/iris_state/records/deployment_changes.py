"""The entries of the journal about deployments and their routes. Types only; see `changes`."""

from __future__ import annotations

import msgspec

from iris_core.access.actor import Actor
from iris_core.spec.serving import DeploymentSpec, DiscoveredRoute
from iris_core.states import DeploymentLifecycle, RouteStatus, SchedulingResult
from iris_state.records.deployments.records import Rollout


class DeploymentCreated(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=30):
    """A deployment exists, PENDING and without routes; its specification is revision 1."""

    number: int
    spec: DeploymentSpec
    user: str
    request_id: str = ""
    traceparent: str = ""
    by: Actor | None = None


class DeploymentChanged(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=31):
    """The target of a deployment changed.

    An unknown revision is created from ``spec``. ``by_owner``: by a user's command; otherwise a
    failed update is rolled back.
    """

    deployment: int
    spec: DeploymentSpec
    revision: int
    by_owner: bool = True
    by: Actor | None = None


class RolledOut(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=32):
    """The state of the rollout of the target revision, as a whole; ``by_owner``: a user has paused
    or resumed it.
    """

    deployment: int
    rollout: Rollout
    by_owner: bool = False
    by: Actor | None = None


class DeploymentMoved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=33):
    """A judgement about a deployment, and its target status or the unchanged one."""

    deployment: int
    status: DeploymentLifecycle
    handler: str
    result: SchedulingResult = SchedulingResult.SUCCESS
    reason: str = ""
    by: Actor | None = None


class DeploymentForgotten(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=34):
    """A deployment that was destroyed long ago was deleted."""

    deployment: int
    name: str


class RouteCreated(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=35):
    """A deployment has one more route, whose job is to be admitted."""

    deployment: int
    route: int
    revision: int


class RouteMoved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=36):
    """A judgement about a route, and its target status or the unchanged one.

    Attributes:
        job: the number of the job that was admitted for it, 0: none was.
        passed: of a stale route: whether its last result was a pass. evicted: it is ended because
            it is unhealthy.
    """

    deployment: int
    route: int
    status: RouteStatus
    handler: str
    result: SchedulingResult = SchedulingResult.SUCCESS
    reason: str = ""
    job: int = 0
    passed: bool = False
    evicted: bool = False


class RouteProbed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=37):
    """A route's address as its worker reported it, and whether it is ready for requests now."""

    deployment: int
    route: int
    address: str
    ready: bool = True


class RoutesDiscovered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=38):
    """The whole set of routes that may get requests changed. ``version``: see
    `serving.Discovery`.
    """

    deployment: int
    version: int
    routes: tuple[DiscoveredRoute, ...] = ()
    reason: str = ""


class DeploymentScaled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=39):
    """The rule of a deployment wants so many routes from now on; ``reason``: by which numbers."""

    deployment: int
    replicas: int
    reason: str


DEPLOYMENT_KINDS = (
    *(
        DeploymentCreated,
        DeploymentChanged,
        RolledOut,
        DeploymentMoved,
        DeploymentForgotten,
        DeploymentScaled,
    ),
    *(RouteCreated, RouteMoved, RouteProbed, RoutesDiscovered),
)
"""The kinds of changes of deployments and their routes."""
