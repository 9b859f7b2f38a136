"""The records of deployments, their revisions and their routes.

Fields only, and properties that follow from them; `apply.deployments` alone writes. Source:
docs/design/semantics.md#deployments-and-routes, docs/design/serving.md#update.
"""

from __future__ import annotations

import msgspec

from iris_core.access.actor import Actor
from iris_core.spec.serving import DeploymentSpec, DiscoveredRoute, Discovery, RouteTemplate
from iris_core.states import DeploymentLifecycle, RouteStatus
from iris_core.tables.deployment import LIVE as LIVE_DEPLOYMENT
from iris_core.tables.route import LIVE
from iris_state.records.deployments.pacing import RESTED, Pacing
from iris_state.records.deployments.rollout import Member, RolloutProgress
from iris_state.records.entities import HistoryEntry

ITSELF = -1
"""The ``index`` of a row of history that is about the deployment and not one of its routes."""
AUTOSCALE = "AutoscaleDeployment"
"""The handler of a row that says why its scaling rule wants another number."""
CHANGE = "ChangeDeployment"
PAUSE = "PauseDeployment"
"""The handlers of rows about commands that keep its status: another number or other settings;
paused or resumed.
"""


class Revision(msgspec.Struct, frozen=True, array_like=True):
    """One revision: the template of its routes."""

    number: int
    template: RouteTemplate
    port: str
    created_ms: int


class Rollout(msgspec.Struct, frozen=True, array_like=True):
    """The progress of the wanted revision; replaced as a whole by `changes.RolledOut`.

    Attributes:
        stable: the last revision that was complete; 0: none yet.
        progress: of the update under way; None without one.
        paused: by its owner. pause_after: number of new routes after which it waits to be resumed.
        failed: the revision that failed last, and failure: why; 0 and empty since the last change
            by a person.
    """

    stable: int = 0
    progress: RolloutProgress | None = None
    pacing: Pacing = RESTED
    paused: bool = False
    pause_after: int | None = None
    failed: int = 0
    failure: str = ""


class Route(msgspec.Struct, array_like=True):
    """One replica: one job behind one address.

    Attributes:
        job: its number, 0 before it is admitted. since_ms: when it came into its status.
        address: host:port, reported by its worker. ready: its ready path passes, if it has one.
        healthy_ms: when it first became healthy; 0: never. ready_ms: since when it is healthy and
            ready; 0: it is not.
        served: it was available at some time. passed: its last result was a pass, as far as was
            stored.
        evicted: because it was unhealthy. reason: why it ended, one line.
    """

    number: int
    revision: int
    created_ms: int
    since_ms: int
    status: RouteStatus = RouteStatus.PROVISIONING
    job: int = 0
    address: str = ""
    ready: bool = True
    healthy_ms: int = 0
    ready_ms: int = 0
    served: bool = False
    passed: bool = False
    evicted: bool = False
    reason: str = ""

    @property
    def id(self) -> str:
        return f"r{self.revision}-{self.number}"

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    def is_available(self, min_ready_ms: int, now_ms: int) -> bool:
        """Whether it has been healthy and ready for long enough."""
        return bool(self.ready_ms) and now_ms - self.ready_ms >= min_ready_ms


class Discovered(msgspec.Struct, frozen=True, array_like=True):
    """The last published discovery of a deployment (`serving.Discovery`), and its version."""

    version: int = 0
    routes: tuple[DiscoveredRoute, ...] = ()
    reason: str = ""
    generation: int = 0


class Deployment(msgspec.Struct, array_like=True):
    """The record of a deployment, which keeps ``spec.replicas`` routes of revision ``revision``
    running.

    Attributes:
        version: incremented by every change of a user; compare-and-set compares it.
        reached: the number of its routes when it was last READY.
        routes: by number: all that have not ended, and the last few that have.
        by: who has given the last command.
    """

    number: int
    name: str
    spec: DeploymentSpec
    user: str
    created_ms: int
    since_ms: int
    status: DeploymentLifecycle = DeploymentLifecycle.PENDING
    version: int = 1
    revision: int = 1
    revisions: dict[int, Revision] = {}
    reached: int = 0
    next_route: int = 1
    routes: dict[int, Route] = {}
    rollout: Rollout = Rollout()
    discovered: Discovered = Discovered()
    history: list[HistoryEntry] = []
    traceparent: str = ""
    by: Actor | None = None

    @property
    def id(self) -> str:
        return f"d{self.number}"

    @property
    def is_terminal(self) -> bool:
        return self.status is DeploymentLifecycle.DESTROYED

    @property
    def min_ready_ms(self) -> int:
        return int(self.spec.update.min_ready_s * 1000)

    @property
    def last_revision(self) -> int:
        """The number of the newest revision."""
        return max(self.revisions)

    def held(self) -> list[Route]:
        """The routes that have not ended."""
        return [
            route for route in self.routes.values() if route.status is not RouteStatus.TERMINATED
        ]

    def live(self) -> list[Route]:
        """The routes that count as replicas."""
        return [route for route in self.routes.values() if route.is_live]

    def live_of_revision(self) -> int:
        """How many live routes are of the revision that is wanted."""
        return sum(route.revision == self.revision for route in self.live())

    def members(self, now_ms: int) -> list[Member]:
        """The routes that have not ended, as the rollout sees them."""
        wait_ms = self.min_ready_ms
        return [
            Member(
                route.number,
                route.revision == self.revision,
                route.status,
                route.is_available(wait_ms, now_ms),
            )
            for route in self.held()
        ]

    def job_name(self, route: Route) -> str:
        return f"/{self.name}/{route.id}"


class ProbeReport(msgspec.Struct, frozen=True):
    """The newest result of a route's probe that its worker reported to this replica."""

    heard_ms: int
    passes: int = 0
    failures: int = 0
    detail: str = ""


class Probes:
    """Results of probes, kept in memory and not recorded, as `records.Presence` is for hosts.

    Attributes:
        reports: by the number of a route's job. floor_ms: silence counts from this time at the
            earliest.
        heartbeat_ms: between the heartbeats that bring reports.
    """

    def __init__(self) -> None:
        self.reports: dict[int, ProbeReport] = {}
        self.floor_ms = self.heartbeat_ms = 0

    def of(self, route: Route) -> ProbeReport:
        return self.reports.get(route.job, _UNHEARD)


_UNHEARD = ProbeReport(0)


def discovery_of(deployment: Deployment) -> Discovery:
    """The last published discovery of a deployment."""
    said = deployment.discovered
    scaling = deployment.spec.scaling
    minimum = (
        scaling.minimum if scaling is not None and deployment.status in LIVE_DEPLOYMENT else None
    )
    return Discovery(
        deployment.name,
        said.version,
        said.routes,
        said.reason,
        proxy=deployment.spec.proxy,
        minimum=minimum,
        user=deployment.user,
    )


class DeploymentFact(msgspec.Struct, frozen=True, gc=False):
    """One public fact about a deployment, or about one of its routes; `outbox` words it."""

    entity: str
    deployment: Deployment
    route: Route | None
    state: str
    previous: str | None
    revision: int
    at_ms: int
    worker: str | None = None
    reason: str = ""
    tasks: int = 1
    by: Actor | None = None
