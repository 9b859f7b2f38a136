"""How probe results change the health of a route, row by row, and which unhealthy routes are
evicted.
"""

from __future__ import annotations

from typing import Any

import pytest

from iris_core.spec.jobs import Probe
from iris_core.states import Outcome
from iris_core.states import RouteStatus as R
from iris_state.records.deployments.health import Health, evicted, fell_together, outcome

PROBE = Probe(interval_s=10, failures=3, passes=1, start_timeout_s=600, grace_s=60)
NOW = 10_000_000


def route(status: R = R.HEALTHY, **fields: Any) -> Health:
    known = {
        "number": 1,
        "since_ms": NOW,
        "began_ms": NOW,
        "passes": 0,
        "failures": 0,
        "heard_ms": NOW,
    }
    return Health(status=status, **{"was_healthy": status is not R.DEGRADED, **known, **fields})


def test_a_route_that_was_never_healthy_may_fail_until_its_start_times_out():
    fresh = route(R.DEGRADED, failures=500, began_ms=NOW - 600_000)
    assert outcome(fresh, PROBE, NOW) is Outcome.SKIPPED
    assert outcome(fresh, PROBE, NOW + 1) is Outcome.FAILURE


def test_a_start_times_out_without_any_result_too():
    assert outcome(route(R.DEGRADED, began_ms=1, heard_ms=0), PROBE, NOW) is Outcome.FAILURE


def test_a_route_whose_process_has_not_begun_never_times_out():
    assert outcome(route(R.DEGRADED, began_ms=0, heard_ms=0), PROBE, NOW) is Outcome.SKIPPED


def test_failures_before_the_start_is_reported_claim_nothing():
    """A new leader may hear a heartbeat before the report."""
    assert outcome(route(R.DEGRADED, began_ms=0, failures=500), PROBE, NOW) is Outcome.SKIPPED


@pytest.mark.parametrize("status", [R.DEGRADED, R.UNHEALTHY, R.HEALTHY])
def test_a_pass_makes_a_route_healthy_whatever_it_was(status):
    assert outcome(route(status, passes=1), PROBE, NOW) is Outcome.SUCCESS
    assert outcome(route(status, passes=1, began_ms=1), PROBE, NOW) is Outcome.SUCCESS


def test_as_many_passes_as_are_asked_for_make_it_healthy():
    twice = Probe(passes=2)
    assert outcome(route(R.UNHEALTHY, passes=1), twice, NOW) is Outcome.SKIPPED
    assert outcome(route(R.UNHEALTHY, passes=2), twice, NOW) is Outcome.SUCCESS


@pytest.mark.parametrize(
    ("failures", "claimed"), [(1, Outcome.SKIPPED), (2, Outcome.SKIPPED), (3, Outcome.FAILURE)]
)
def test_the_third_failure_in_a_row_makes_a_healthy_route_unhealthy(failures, claimed):
    assert outcome(route(failures=failures), PROBE, NOW) is claimed


@pytest.mark.parametrize("results", [{"passes": 9}, {"failures": 9}])
def test_an_old_result_claims_nothing(results):
    assert outcome(route(heard_ms=NOW - 30_001, **results), PROBE, NOW) is Outcome.SKIPPED
    assert outcome(route(heard_ms=NOW - 30_000, **results), PROBE, NOW) is not Outcome.SKIPPED


def ill(number: int, since_ms: int = 0) -> Health:
    return route(R.UNHEALTHY, number=number, since_ms=since_ms)


def test_an_unhealthy_route_is_evicted_when_its_grace_is_over():
    routes = [ill(1, NOW - 60_000), route(number=2), route(number=3)]
    assert evicted(routes, PROBE, 1, 0, NOW) == []
    assert evicted(routes, PROBE, 1, 0, NOW + 1) == [1]


def test_a_route_whose_start_timed_out_is_evicted_at_once():
    assert evicted([route(R.UNHEALTHY, was_healthy=False, since_ms=NOW)], PROBE, 0, 9, NOW) == [1]


def test_no_more_routes_are_evicted_at_a_time_than_may_be_missing():
    routes = [ill(1, 1), ill(2, 20_000), *(route(number=n) for n in range(3, 9))]
    assert evicted(routes, PROBE, 0, 0, NOW) == [1]
    assert evicted(routes, PROBE, 0, 1, NOW) == []
    assert evicted(routes, PROBE, 2, 0, NOW) == [1, 2]


def test_routes_that_fell_together_are_all_kept():
    routes = [ill(1, 0), ill(2, 10_000), route(number=3)]
    assert fell_together(routes, PROBE)
    assert evicted(routes, PROBE, 3, 0, NOW) == []


def test_routes_that_fell_one_after_the_other_are_not_kept():
    routes = [ill(1, 0), ill(2, 10_001), route(number=3)]
    assert not fell_together(routes, PROBE)
    assert evicted(routes, PROBE, 3, 0, NOW) == [1, 2]


@pytest.mark.parametrize(
    ("unhealthy", "live"), [(n, live) for live in range(3, 12) for n in range(1, live // 2 + 1)]
)
def test_at_most_half_of_the_routes_that_fell_together_are_evicted(unhealthy, live):
    routes = [
        *(ill(n) for n in range(1, unhealthy + 1)),
        *(route(number=n) for n in range(unhealthy + 1, live + 1)),
    ]
    assert evicted(routes, PROBE, live, 0, NOW) == [*range(1, unhealthy + 1)]


def test_an_only_route_is_evicted_like_any_other():
    assert evicted([ill(1)], PROBE, 0, 0, NOW) == [1]
