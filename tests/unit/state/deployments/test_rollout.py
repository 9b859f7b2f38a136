"""How many routes a rollout creates and ends, checked for every order in which routes can
change.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.spec.serving import UpdatePolicy
from iris_core.states import RouteStatus as R
from iris_core.tables.route import LIVE
from iris_state.records.deployments.rollout import (
    FAILED_STARTS,
    Member,
    RolloutPlan,
    RolloutProgress,
    Target,
    advance,
    failure,
    is_complete,
    plan,
    target,
)


def new(number: int, status: R = R.HEALTHY, available: bool | None = None) -> Member:
    return Member(number, True, status, status is R.HEALTHY if available is None else available)


def old(number: int, status: R = R.HEALTHY, available: bool | None = None) -> Member:
    return Member(number, False, status, status is R.HEALTHY if available is None else available)


# ── scaling ───────────────────────────────────────────────────────────────────────────────────────


def test_what_lacks_is_created_at_once():
    assert plan(Target(3, 1, 0, 3), []) == RolloutPlan(create=3)


def test_nothing_is_done_when_there_are_as_many_as_wanted():
    assert plan(Target(2, 1, 0, 2), [new(1), new(2, R.DEGRADED)]) == RolloutPlan()


def test_an_unhealthy_route_is_one_of_those_wanted_until_it_is_evicted():
    assert plan(Target(1, 1, 0, 1), [new(1, R.UNHEALTHY)]) == RolloutPlan()


def test_a_route_that_is_being_terminated_counts_against_the_surge():
    gone = Member(1, True, R.TERMINATING)
    assert plan(Target(1, 1, 0, 1), [gone]) == RolloutPlan(create=1)
    assert plan(Target(1, 0, 1, 1), [gone]) == RolloutPlan()


def test_the_least_healthy_goes_first_and_then_the_youngest():
    routes = [
        new(1),
        new(2),
        new(3, R.PROVISIONING),
        new(4, R.DEGRADED),
        new(5, R.UNHEALTHY),
        new(6),
    ]
    left = list(routes)
    order = []
    for replicas in range(5, -1, -1):
        (number,) = plan(Target(replicas, 1, 0, replicas), left).end
        order.append(number)
        left = [route for route in left if route.number != number]
    assert order == [5, 4, 3, 6, 2, 1]


# ── updates ───────────────────────────────────────────────────────────────────────────────────────


def test_a_surge_comes_before_anything_ends():
    assert plan(Target(3, 1, 0, 3), [old(1), old(2), old(3)]) == RolloutPlan(create=1)


def test_an_old_route_ends_when_a_new_one_is_available():
    assert plan(Target(3, 1, 0, 3), [old(1), old(2), old(3), new(4)]) == RolloutPlan(end=(3,))


def test_a_new_route_that_is_healthy_only_just_now_replaces_nobody():
    assert (
        plan(Target(3, 1, 0, 3), [old(1), old(2), old(3), new(4, available=False)]) == RolloutPlan()
    )


def test_without_a_surge_old_ones_end_first():
    assert plan(Target(3, 0, 1, 3), [old(1), old(2), old(3)]) == RolloutPlan(end=(3,))


def test_old_routes_that_serve_nobody_end_before_those_that_do():
    routes = [old(1), old(2, R.UNHEALTHY), old(3), new(4, R.DEGRADED)]
    assert plan(Target(3, 1, 1, 3), routes) == RolloutPlan(end=(2,))


def test_a_pause_after_one_keeps_the_others_old():
    wanted = Target(3, 1, 0, 1)
    assert plan(wanted, [old(1), old(2), old(3)]) == RolloutPlan(create=1)
    assert plan(wanted, [old(1), old(2), old(3), new(4)]) == RolloutPlan(end=(3,))
    assert plan(wanted, [old(1), old(2), new(4)]) == RolloutPlan()


def test_a_pause_after_one_ends_no_more_old_routes_than_it_has_new_ones():
    assert plan(Target(3, 0, 2, 1), [old(1), old(2), old(3)]) == RolloutPlan(end=(3,))


def test_an_old_route_that_ends_meanwhile_is_replaced_by_an_old_one():
    assert plan(Target(3, 1, 0, 1), [old(1), new(4)]) == RolloutPlan(restore=1)


def test_scaling_in_during_a_pause_keeps_the_new_one():
    assert plan(Target(2, 1, 0, 1), [old(1), old(2), old(3), new(4)]) == RolloutPlan(end=(3, 2))


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "bounds"),
    [
        (1, 0, 3, (1, 0)),
        ("25%", "25%", 10, (3, 2)),
        ("0%", "10%", 3, (1, 0)),
        (0, 5, 2, (0, 2)),
        (0, 1, 0, (1, 0)),
    ],
)
def test_per_cents_are_rounded_so_that_an_update_can_move(surge, unavailable, replicas, bounds):
    wanted = target(UpdatePolicy(max_surge=surge, max_unavailable=unavailable), replicas)
    assert (wanted.surge, wanted.unavailable) == bounds


policies = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any)


seeds = st.integers(0, 1 << 32)


@given(st.integers(1, 6), policies, seeds, st.one_of(st.none(), st.integers(0, 3)))
def test_an_update_keeps_its_bounds_and_comes_to_its_end(replicas, policy, seed, pause_after):
    """Whatever the order in which routes come up and go, when none fails."""
    rng = random.Random(seed)
    surge, unavailable = policy
    wanted = target(
        UpdatePolicy(max_surge=surge, max_unavailable=unavailable), replicas, pause_after
    )
    routes = [old(number) for number in range(replicas)]
    for turn in range(400):
        if turn == 200:
            wanted = target(
                UpdatePolicy(max_surge=surge, max_unavailable=unavailable), replicas
            )  # resumed
        routes = _after(plan(wanted, routes), routes)
        assert len(routes) <= replicas + wanted.surge
        assert sum(route.available for route in routes) >= replicas - wanted.unavailable
        if turn < 200:
            assert sum(route.is_new and route.status in LIVE for route in routes) <= wanted.new
        routes = _happens(rng, routes)
    assert is_complete(wanted, routes)


@given(st.integers(0, 6), st.integers(0, 6), policies, seeds)
def test_scaling_ends_with_as_many_as_wanted_whatever_fails(before, after, policy, seed):
    rng = random.Random(seed)
    surge, unavailable = policy
    wanted = target(UpdatePolicy(max_surge=surge, max_unavailable=unavailable), after)
    routes = [new(number) for number in range(before)]
    for turn in range(300):
        step = plan(wanted, routes)
        assert not step.create or len(routes) + step.create <= after + wanted.surge
        routes = _happens(rng, _after(step, routes), failures=turn < 100)
    assert is_complete(wanted, routes)


def _after(step: RolloutPlan, routes: list[Member]) -> list[Member]:
    number = max((route.number for route in routes), default=0) + 1
    ended = [
        Member(route.number, route.is_new, R.TERMINATING) if route.number in step.end else route
        for route in routes
    ]
    made = [
        Member(number + at, at < step.create, R.PROVISIONING)
        for at in range(step.create + step.restore)
    ]
    return ended + made


_NEXT = {
    R.PROVISIONING: R.DEGRADED,
    R.DEGRADED: R.HEALTHY,
    R.HEALTHY: R.HEALTHY,
    R.UNHEALTHY: R.TERMINATING,
}


def _happens(rng: random.Random, routes: list[Member], failures: bool = False) -> list[Member]:
    """Some routes get on."""
    left = []
    for route in routes:
        if rng.random() < 0.4:
            left.append(route)
        elif failures and rng.random() < 0.2 and route.status in LIVE:
            left.append(Member(route.number, route.is_new, R.UNHEALTHY))
        elif route.status is not R.TERMINATING:
            status = _NEXT[route.status]
            left.append(
                Member(route.number, route.is_new, status, route.status is status is R.HEALTHY)
            )
    return left


# ── progress ──────────────────────────────────────────────────────────────────────────────────────


def test_an_update_without_progress_fails_at_its_deadline():
    progress = RolloutProgress(at_ms=1000)
    assert failure(progress, 600, 601_000) == ""
    assert failure(progress, 600, 601_001) == "it made no progress for 600 s"


def test_progress_is_a_new_high_of_available_routes_or_an_old_ones_end():
    progress = RolloutProgress(at_ms=0, old=2)
    progress = advance(progress, [old(1), old(2), new(3)], False, 5)
    assert (progress.at_ms, progress.best, progress.healthy) == (5, 1, True)
    progress = advance(progress, [old(1), old(2), new(3, R.UNHEALTHY)], False, 7)
    assert progress.at_ms == 5
    progress = advance(progress, [old(1), old(2), new(3)], False, 9)
    assert progress.at_ms == 5, "that high was reached before"
    assert advance(progress, [old(1), new(3)], False, 11).at_ms == 11


def test_the_deadline_stands_while_the_update_is_paused_or_waits_for_room():
    progress = advance(RolloutProgress(at_ms=1000, old=1), [old(1)], True, 2000)
    assert failure(progress, 600, 10**9) == ""
    progress = advance(progress, [old(1)], False, 502_000)
    assert progress.at_ms == 501_000
    assert failure(progress, 600, 1_101_000) == ""


def test_many_failed_starts_fail_an_update_unless_one_route_got_healthy():
    assert failure(RolloutProgress(0, failed=FAILED_STARTS), 600, 1) != ""
    assert failure(RolloutProgress(0, failed=FAILED_STARTS, healthy=True), 600, 1) == ""
