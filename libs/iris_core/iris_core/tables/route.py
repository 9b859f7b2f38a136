"""Status table of routes: start, health, draining and termination of one replica.

FAILURE is judged against a limit of 0, so its cell is the row's ``give_up``; STALE, no probe result
for three intervals, is a timeout, so its cell is ``expired``; it counts from the last result, not
from the change of status.
Sources: docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from typing import TypeAlias

from iris_core.guard import guard
from iris_core.lifecycle import FAILS, SUCCEEDS, Rule, To
from iris_core.states import RouteStatus, SchedulingResult

R = RouteStatus
RouteRule: TypeAlias = Rule[RouteStatus, RouteStatus]

TERMINAL = frozenset({R.TERMINATED})
LIVE = frozenset({R.PROVISIONING, R.HEALTHY, R.UNHEALTHY, R.DEGRADED})
"""The statuses that count as a replica."""

PROVISION = RouteRule(
    name="ProvisioningRoute",
    sources=frozenset({R.PROVISIONING}),
    success=To(R.DEGRADED),
    give_up=To(R.FAILED_TO_START),
)
HEALTH_CHECK = RouteRule(
    name="HealthCheckRoute",
    sources=frozenset({R.HEALTHY, R.UNHEALTHY, R.DEGRADED}),
    success=To(R.HEALTHY),
    give_up=To(R.UNHEALTHY),
    expired=To(R.DEGRADED),
)
RUNNING = RouteRule(
    name="RunningRoute",
    sources=frozenset({R.DEGRADED, R.HEALTHY, R.UNHEALTHY, R.FAILED_TO_START}),
    outcomes=FAILS,
    give_up=To(R.TERMINATING),
)
EVICT = RouteRule(
    name="RouteEviction",
    sources=frozenset({R.UNHEALTHY}),
    outcomes=SUCCEEDS,
    success=To(R.TERMINATING),
)
TERMINATE = RouteRule(
    name="TerminatingRoute",
    sources=frozenset({R.TERMINATING}),
    outcomes=SUCCEEDS,
    success=To(R.TERMINATED),
)
SYNC = RouteRule(name="ServiceDiscoverySync", sources=frozenset({R.HEALTHY}), success=To())
HANDLERS: tuple[RouteRule, ...] = (PROVISION, HEALTH_CHECK, RUNNING, EVICT, TERMINATE, SYNC)
"""The six rows of Status Transitions, in its order. Its sync of addresses changes no status."""

END = RouteRule(
    name="EndRoute",
    sources=LIVE | {R.FAILED_TO_START},
    outcomes=SUCCEEDS,
    success=To(R.TERMINATING),
)

TABLE: tuple[RouteRule, ...] = (*HANDLERS, END)
"""The last row is scale-in and the end of a deployment; Status Transitions has none for it."""

RESULT_WORDS = {SchedulingResult.GIVE_UP: "FAILURE", SchedulingResult.EXPIRED: "STALE"}
"""The name of a result in a route's history, where Status Transitions uses another word."""

SCALE_IN_ORDER = (R.UNHEALTHY, R.DEGRADED, R.PROVISIONING, R.HEALTHY)
"""The order of scale-in by status; within one status the youngest route goes first."""

WAYS_OUT: dict[RouteStatus, RouteRule] = {
    R.PROVISIONING: PROVISION,
    R.HEALTHY: RUNNING,
    R.DEGRADED: RUNNING,
    R.UNHEALTHY: EVICT,
    R.FAILED_TO_START: RUNNING,
    R.TERMINATING: TERMINATE,
}

guard(
    "route",
    RouteStatus,
    TERMINAL,
    TABLE,
    ways_out=WAYS_OUT,
    clocked=frozenset({R.HEALTHY, R.UNHEALTHY, R.DEGRADED}),
)
