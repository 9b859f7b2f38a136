"""Collects the load of deployments from proxies and queries, and applies their scaling rules.

Kept in memory; only a change of the number is recorded. Followers note the same reports, so that
they can state what holds a deployment at its number. Source: docs/design/serving.md#scale.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from iris_core.limits import SENTENCE, clipped
from iris_core.messages.proxy_state import DeploymentRequests, QueriedLoad
from iris_core.spec.serving import ScalingPolicy
from iris_core.states import DeploymentLifecycle
from iris_core.tables import deployment as table
from iris_state.records.deployments.records import Deployment
from iris_state.records.deployments.request_minutes import RequestMinutes
from iris_state.records.deployments.scaling import (
    Sample,
    ScalingDecision,
    ScalingMemory,
    Situation,
    decide,
)

SILENT_MS = 3_000
"""A proxy that has reported nothing for so long is silent: its load is not known."""
GONE_MS = 60_000
"""A proxy that is silent for so long has ended without saying so, and its requests with it."""
QUERY_SILENT_MS = 60_000
"""A query that was not answered for so long."""
RATE_MS = 10_000
"""Rates of requests are means over so long."""
BETWEEN_MS = 500
"""Between two samples at least: several proxies report each second."""


class ProxyLoad(msgspec.Struct, frozen=True):
    """The last report of one proxy."""

    at_ms: int
    outstanding: int


class LoadBook:
    """The load of one deployment.

    Attributes:
        policy: the scaling policy. proxies: by id. samples: of the last window.
        busy_ms: time of the last load. asked: there was load since the last decision.
        queried_ms: when its query was last answered. error: why later queries failed.
        decision: the newest.
    """

    def __init__(self, policy: ScalingPolicy, now_ms: int) -> None:
        self.policy = policy
        self.proxies: dict[str, ProxyLoad] = {}
        self.samples: deque[Sample] = deque()
        self.busy_ms = self.queried_ms = now_ms
        self.sampled_ms = 0
        self.asked = False
        self.error = ""
        self.memory = ScalingMemory()
        self.decision: ScalingDecision | None = None

    def note(self, proxy: str, outstanding: int, arrived: int, now_ms: int) -> None:
        """Store the report of a proxy."""
        self.proxies[proxy] = ProxyLoad(now_ms, outstanding)
        if outstanding or arrived:
            self.asked = True
            self.busy_ms = now_ms

    def note_queried(self, result: QueriedLoad, now_ms: int) -> None:
        """Store the answer to the query, or its error."""
        self.error = clipped(result.error, SENTENCE)
        if not result.error:
            self.queried_ms = now_ms
            self._sample(result.value, now_ms)
            if result.value > 0:
                self.asked = True
                self.busy_ms = now_ms

    def unknown(self, now_ms: int, floor_ms: int) -> str:
        """Why the load is unknown now, empty when it is known. ``floor_ms``: start of this
        replica's reports.
        """
        wait_ms = floor_ms + int(self.policy.window_s * 1000) - now_ms
        if wait_ms > 0:
            return (
                f"this leader listens to the load for {self.policy.window_s:g} s before it decides"
            )
        if self.policy.query and self.error:
            return f"its query is not answered: {self.error}"
        if self.policy.query and now_ms - self.queried_ms > QUERY_SILENT_MS:
            return "its query is not answered"
        heard = {name: one for name, one in self.proxies.items() if now_ms - one.at_ms <= GONE_MS}
        silent = sorted(name for name, one in heard.items() if now_ms - one.at_ms > SILENT_MS)
        if silent:
            return f"the proxy {silent[0]} is silent, and its requests are not known"
        return "" if heard or self.policy.query else "no proxy reports its requests"

    def decide(self, deployment: Deployment, now_ms: int, floor_ms: int) -> ScalingDecision | None:
        """The decision of the rule as of now; None too soon after the previous one."""
        if now_ms - self.sampled_ms < BETWEEN_MS and not (
            self.asked and deployment.spec.replicas == 0
        ):
            return None
        self.sampled_ms = now_ms
        self.proxies = {
            name: one for name, one in self.proxies.items() if now_ms - one.at_ms <= GONE_MS
        }
        unknown = self.unknown(now_ms, floor_ms)
        if not unknown and not self.policy.query:
            self._sample(sum(one.outstanding for one in self.proxies.values()), now_ms)
        ready = len(deployment.discovered.routes)
        if not ready:
            self.busy_ms = now_ms  # a route that starts has had no time yet to be idle
        now = Situation(
            replicas=deployment.spec.replicas,
            live=len(deployment.live()),
            ready=ready,
            updating=deployment.status is DeploymentLifecycle.DEPLOYING,
            asked=self.asked,
            busy_ms=self.busy_ms,
            unknown=unknown,
            memory=self.memory,
        )
        self.decision = decide(self.policy, self.samples, now_ms, now)
        self.memory = self.decision.memory
        self.asked = False
        return self.decision

    def _sample(self, load: float, now_ms: int) -> None:
        self.samples.append(Sample(now_ms, load))
        while self.samples[0].at_ms <= now_ms - self.policy.window_s * 1000:
            self.samples.popleft()


class RequestRates:
    """The requests of the last `RATE_MS`, by deployment and route, as proxies have reported
    them.
    """

    def __init__(self) -> None:
        self._reports: deque[tuple[int, DeploymentRequests]] = deque()
        self._counts: Counter[tuple[str, str]] = Counter()

    def note(self, requests: DeploymentRequests, now_ms: int) -> None:
        """Count a report."""
        self._reports.append((now_ms, requests))
        self._add(requests, 1)
        self._forget(now_ms)

    def per_second(self, deployment: str, route: str, now_ms: int) -> float:
        """Requests a second to a route, by its id; with an empty id to the deployment."""
        self._forget(now_ms)
        return self._counts[deployment, route] * 1000 / RATE_MS

    def _forget(self, now_ms: int) -> None:
        while self._reports and self._reports[0][0] <= now_ms - RATE_MS:
            self._add(self._reports.popleft()[1], -1)

    def _add(self, requests: DeploymentRequests, times: int) -> None:
        for route, count in (("", requests.arrived), *requests.routes.items()):
            key = (requests.deployment, route)
            self._counts[key] += times * count
            if not self._counts[key]:
                del self._counts[key]


class Loads:
    """The load books of one replica, by number of deployment, the rates of requests, and those of
    the last hour.
    """

    def __init__(self) -> None:
        self.books: dict[int, LoadBook] = {}
        self.rates = RequestRates()
        self.minutes = RequestMinutes()

    def of(self, deployment: Deployment, now_ms: int) -> LoadBook | None:
        """The book of a deployment with a scaling rule; a changed query starts a new one."""
        policy = deployment.spec.scaling
        if policy is None or deployment.status not in table.LIVE:
            self.books.pop(deployment.number, None)
            return None
        book = self.books.get(deployment.number)
        if book is None or book.policy.query != policy.query:
            book = self.books[deployment.number] = LoadBook(policy, now_ms)
        book.policy = policy
        return book

    def unknown(self, deployment: Deployment, now_ms: int, floor_ms: int) -> str:
        """Why the load of a deployment with a scaling rule is unknown now; empty when it is known
        or not needed.
        """
        policy = deployment.spec.scaling
        if policy is None or deployment.status not in table.LIVE:
            return ""
        book = self.books.get(deployment.number) or LoadBook(policy, now_ms)
        return book.unknown(now_ms, floor_ms)

    def forget_proxy(self, proxy: str) -> None:
        """Drop a proxy that has stopped: no request passes through it."""
        for book in self.books.values():
            book.proxies.pop(proxy, None)
