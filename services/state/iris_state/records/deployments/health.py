"""Claims about a route from the results of its probe, and the choice of unhealthy routes to evict.

Pure. Source: docs/design/serving.md#probes; docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iris_core.spec.jobs import Probe
from iris_core.states import Outcome, RouteStatus

SILENT_INTERVALS = 3
"""Without a result for longer than so many intervals, of its probe or of heartbeats, nothing is
known of a route, and after so many intervals of heartbeats a heartbeat is late.
"""


@dataclass(frozen=True, slots=True)
class Health:
    """The probe history of one route with a live job.

    Attributes:
        since_ms: when it entered its status. began_ms: when its process started; 0: not yet.
        was_healthy: at any earlier time. passes, failures: results in a row up to the newest; one
            of them is 0.
        heard_ms: time of the newest result; never before the start of this leader.
        heartbeat_ms: interval of heartbeats, which carry results.
    """

    number: int
    status: RouteStatus
    since_ms: int
    began_ms: int
    was_healthy: bool
    passes: int
    failures: int
    heard_ms: int
    heartbeat_ms: int = 0


def silent_ms(health: Health, probe: Probe) -> int:
    """The time without a result after which a route is stale: at least the interval of
    heartbeats.
    """
    return SILENT_INTERVALS * max(int(probe.interval_s * 1000), health.heartbeat_ms)


def start_expires_ms(health: Health, probe: Probe) -> int | None:
    """When a route that was never healthy has failed to start, ms; None if it was healthy or has
    not started.
    """
    if health.was_healthy or not health.began_ms:
        return None
    return health.began_ms + int(probe.start_timeout_s * 1000) + 1


def outcome(health: Health, probe: Probe, now_ms: int) -> Outcome:
    """The claim of the newest result. Failures before the first pass claim nothing until the start
    times out.
    """
    if health.passes >= probe.passes and now_ms - health.heard_ms <= silent_ms(health, probe):
        return Outcome.SUCCESS
    if (
        not health.was_healthy
    ):  # a result may be heard before the report that the process has started
        expires_ms = start_expires_ms(health, probe)
        return (
            Outcome.FAILURE if expires_ms is not None and now_ms >= expires_ms else Outcome.SKIPPED
        )
    if health.failures >= probe.failures and now_ms - health.heard_ms <= silent_ms(health, probe):
        return Outcome.FAILURE
    return Outcome.SKIPPED


def has_failed_to_start(health: Health) -> bool:
    """Whether a route is unhealthy because its start timed out; it serves no requests, so it is
    evicted at once.
    """
    return health.status is RouteStatus.UNHEALTHY and not health.was_healthy


def fell_together(routes: Sequence[Health], probe: Probe) -> bool:
    """Whether more than half of the routes became unhealthy within one interval, and at least two.

    They share a cause, such as a dependency that is down, and new routes would fail in the same
    way.
    """
    times = sorted(
        r.since_ms for r in routes if r.status is RouteStatus.UNHEALTHY and r.was_healthy
    )
    many = max(2, len(routes) // 2 + 1)
    within = int(probe.interval_s * 1000)
    return any(
        last - first <= within for first, last in zip(times, times[many - 1 :], strict=False)
    )


def evicted(
    routes: Sequence[Health], probe: Probe, unavailable: int, going: int, now_ms: int
) -> list[int]:
    """The live routes to evict now, by number: those whose start timed out, and some unhealthy
    beyond their grace.

    Args:
        routes: every live one of the deployment.
        unavailable: how many may be missing at a time. going: evicted earlier and not ended yet.
    """
    starts = [r.number for r in routes if has_failed_to_start(r)]
    grace_ms = int(probe.grace_s * 1000)
    late = [
        r
        for r in routes
        if r.status is RouteStatus.UNHEALTHY and r.was_healthy and now_ms - r.since_ms > grace_ms
    ]
    if not late or fell_together(routes, probe):
        return starts
    late.sort(key=lambda r: (r.since_ms, r.number))
    return starts + [r.number for r in late[: max(0, max(1, unavailable) - going)]]
