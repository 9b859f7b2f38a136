"""From proxies to the state service: the load of deployments."""

from __future__ import annotations

from iris_core.messages.message import ServiceMessage


class DeploymentLoad(ServiceMessage, frozen=True):
    """The requests to one deployment at one proxy.

    Attributes:
        outstanding: under way or waiting for a route; a websocket is one. arrived: since the report
            before.
    """

    deployment: str
    outstanding: int
    arrived: int = 0


class DeploymentRequests(ServiceMessage, frozen=True):
    """The requests to one deployment that one proxy got since its report before, refused ones
    included.

    Attributes:
        routes: how many were sent to each route, by its id; a retry counts again.
        answered: requests that were answered since then. failed: those answered with a status of
            500 or more.
        latency: how many got the head of their answer within each of `serving.LATENCY_MS`, and how
            many later.
    """

    deployment: str
    arrived: int
    routes: dict[str, int] = {}
    answered: int = 0
    failed: int = 0
    latency: tuple[int, ...] = ()


class QueriedLoad(ServiceMessage, frozen=True):
    """What a deployment's Prometheus query gave; ``error``: why it gave nothing."""

    deployment: str
    value: float = 0.0
    error: str = ""


class LoadReport(ServiceMessage, frozen=True):
    """The load of deployments that have a scaling rule, and requests; once a second from each
    process of a proxy.

    Attributes:
        proxy: unique per process. leaving: it stops, and what it has reported counts no more.
        queried: from the leader, with no proxy.
        requests: of deployments that got any since the report before.
    """

    proxy: str
    loads: tuple[DeploymentLoad, ...] = ()
    leaving: bool = False
    queried: tuple[QueriedLoad, ...] = ()
    requests: tuple[DeploymentRequests, ...] = ()
