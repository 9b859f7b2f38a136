"""How many routes a scaling rule wants: each line of docs/design/serving.md#scale, and properties
for any load.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.spec.serving import ScalingPolicy
from iris_state.records.deployments.scaling import (
    Sample,
    ScalingDecision,
    ScalingMemory,
    Situation,
    decide,
    want,
)

POLICY = ScalingPolicy(minimum=1, maximum=20, outstanding=5.0)


@dataclass
class Service:
    """A deployment whose routes are there, and ready, as soon as they are wanted; a sample each
    second.

    Attributes:
        starting: so many of them are not ready. missing: so many cannot be created.
    """

    policy: ScalingPolicy = POLICY
    replicas: int = 1
    now_s: int = 1000
    updating: bool = False
    unknown: str = ""
    starting: int = 0
    missing: int = 0
    busy_s: int = 1000
    samples: list[Sample] = field(default_factory=list)
    memory: ScalingMemory = field(default_factory=ScalingMemory)
    numbers: list[int] = field(default_factory=list)
    last: ScalingDecision | None = None

    def go(self, seconds: int, load: float = 0.0) -> ScalingDecision:
        """Let time pass under a load."""
        for _ in range(seconds):
            self.now_s += 1
            live = max(0, self.replicas - self.missing)
            ready = max(0, live - self.starting)
            if not self.unknown:
                self.samples.append(Sample(self.now_s * 1000, load))
            if load or not ready:
                self.busy_s = self.now_s
            now = Situation(
                replicas=self.replicas,
                live=live,
                ready=ready,
                updating=self.updating,
                asked=load > 0,
                busy_ms=self.busy_s * 1000,
                unknown=self.unknown,
                memory=self.memory,
            )
            self.last = decide(self.policy, self.samples, self.now_s * 1000, now)
            self.replicas, self.memory = self.last.target, self.last.memory
            self.numbers.append(self.replicas)
        assert self.last is not None
        return self.last


# ── want ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("load", "target", "routes", "wanted"),
    [
        (6.07, 2.0, 3, 3),  # ray#64468: made 4 of it
        (6.6, 2.0, 3, 3),
        (6.7, 2.0, 3, 4),
        (5.4, 2.0, 3, 3),
        (5.3, 2.0, 3, 3),
        (3.9, 2.0, 3, 2),
        (0.0, 2.0, 3, 0),
        (0.1, 2.0, 0, 1),
        (3 * 0.1, 0.1, 0, 3),
    ],
)
def test_a_load_within_a_tenth_of_what_the_routes_are_for_changes_nothing(
    load, target, routes, wanted
):
    assert want(load, target, routes) == wanted


# ── up ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_reason_of_a_step_says_the_numbers():
    service = Service(replicas=3)
    service.go(60, 15.0)
    service.policy = ScalingPolicy(minimum=1, maximum=20, outstanding=3.0)
    decision = service.go(1, 15.0)
    assert (decision.target, decision.reason) == (
        5,
        "scaled 3 -> 5: 15 outstanding, target 3 a route, over 60 s",
    )


def test_a_sudden_rise_is_met_by_the_short_window():
    service = Service()
    service.go(60, 2.0)
    decision = service.go(6, 18.0)
    assert service.replicas == 4
    assert decision.load is not None
    assert decision.load < 5


def test_the_number_at_most_doubles_or_rises_by_four_within_the_cooldown():
    service = Service()
    service.go(60, 5.0)
    service.go(14, 500.0)
    assert service.replicas == 5
    decision = service.go(1, 500.0)
    assert "20 wanted, and 15 s have to pass between steps" in decision.reason
    service.go(15, 500.0)
    assert service.replicas == 10
    service.go(30, 500.0)
    assert service.replicas == 20


def test_steps_that_cannot_be_taken_are_not_added_up():
    """Routes that cannot be created, because starts fail or there is no room, do not double."""
    service = Service(replicas=8, missing=6)
    service.go(120, 500.0)
    assert service.replicas == 8


def test_more_than_the_maximum_is_said_and_not_wanted():
    service = Service(ScalingPolicy(minimum=1, maximum=3, outstanding=5.0))
    decision = service.go(120, 100.0)
    assert (
        service.replicas,
        decision.reason.startswith("at most 3 are allowed: 100 outstanding"),
    ) == (3, True)


def test_starting_routes_count_so_none_is_added_for_the_load_they_are_for():
    service = Service(replicas=3, starting=2)
    service.go(120, 15.0)
    assert set(service.numbers) == {3}


def test_a_mean_over_routes_is_not_what_decides():
    """ray#18925: a route that has just started and serves nothing made the mean, and with it the
    number, swing.
    """
    service = Service(replicas=2)
    service.go(60, 18.0)
    assert service.replicas == 4
    service.go(600, 18.0)
    assert set(service.numbers[60:]) == {4}


# ── panic ─────────────────────────────────────────────────────────────────────────────────────────


def test_after_a_sudden_rise_the_number_only_rises_for_a_window():
    """knative#3153: what was started in panic was ended as the panic was over."""
    quick = ScalingPolicy(minimum=1, maximum=20, outstanding=5.0, stabilization_s=60.0)
    service = Service(quick)
    service.go(60, 2.0)
    service.go(8, 30.0)
    assert service.replicas == 5
    service.go(50, 0.0)
    assert service.last is not None
    assert "none goes so soon after a sudden rise" in service.last.reason
    assert set(service.numbers[-50:]) == {5}


# ── down ──────────────────────────────────────────────────────────────────────────────────────────


def test_it_scales_down_to_the_largest_number_wanted_in_the_window():
    service = Service(replicas=10)
    service.go(60, 50.0)
    decision = service.go(100, 20.0)
    assert service.replicas == 10
    assert decision.reason.startswith("4 wanted, and 10 were within 300 s: 20 outstanding")
    service.go(260, 20.0)
    assert service.replicas == 4
    assert service.numbers == sorted(service.numbers, reverse=True)


def test_one_moment_of_load_within_the_stabilization_keeps_what_it_needs():
    """skypilot#4444: a count of so many looks in a row was begun anew by each short rise, for
    ever.
    """
    service = Service(replicas=10)
    service.go(400, 20.0)
    assert service.replicas == 4
    for _ in range(6):
        service.go(50, 5.0)
        service.go(7, 20.0)
    service.go(10, 5.0)
    assert service.replicas in (3, 4)


def test_none_goes_during_an_update():
    service = Service(replicas=10)
    service.go(60, 50.0)
    service.updating = True
    decision = service.go(600, 5.0)
    assert (service.replicas, "none goes during an update" in decision.reason) == (10, True)
    service.go(60, 100.0)
    assert service.replicas == 20
    service.updating = False
    service.go(400, 5.0)
    assert service.replicas == 1


def test_what_is_there_when_a_leader_begins_was_wanted():
    """Its memory is empty, and a busy service would lose its routes to one quiet minute."""
    service = Service(replicas=10)
    service.go(299, 0.0)
    assert service.replicas == 10
    service.go(2, 0.0)
    assert service.replicas == 1


# ── zero, and back ────────────────────────────────────────────────────────────────────────────────

IDLE = ScalingPolicy(minimum=0, maximum=4, outstanding=5.0)


def test_the_last_route_goes_after_so_long_without_a_request():
    service = Service(IDLE)
    service.go(10, 1.0)
    service.go(299)
    assert service.replicas == 1
    decision = service.go(1)
    assert (service.replicas, decision.reason) == (0, "scaled 1 -> 0: no request for 300 s")


def test_only_one_route_becomes_none():
    service = Service(IDLE, replicas=4)
    service.go(1000)
    steps = [a for a, b in zip(service.numbers, service.numbers[1:], strict=False) if a != b]
    assert (steps[-1], service.replicas) == (1, 0)


def test_a_route_that_starts_is_not_taken_away():
    """kserve#1247, #1641: a model that took longer to load than the idle time never served."""
    service = Service(IDLE, starting=1)
    service.go(2000)
    service.starting = 0
    service.go(299)
    assert service.replicas == 1
    service.go(2)
    assert service.replicas == 0


def test_none_goes_to_zero_while_the_load_is_not_known_or_during_an_update():
    for trouble in ({"unknown": "the proxy p is silent"}, {"updating": True}):
        service = Service(IDLE, **trouble)
        service.go(1000)
        assert service.replicas == 1


def test_the_first_request_wakes_at_once_whatever_else_is_not_known():
    service = Service(IDLE, replicas=0, unknown="this leader listens")
    service.go(100)
    assert service.replicas == 0
    decision = service.go(1, 1.0)
    assert (service.replicas, decision.reason) == (1, "scaled 0 -> 1: a request has come")


def test_after_it_was_woken_it_rises_by_four_at_most_at_first():
    service = Service(ScalingPolicy(minimum=0, maximum=20, outstanding=1.0), replicas=0)
    service.go(14, 100.0)
    assert service.replicas == 4


# ── unknown is not zero ───────────────────────────────────────────────────────────────────────────


def test_an_unknown_load_changes_nothing():
    service = Service(replicas=10)
    service.go(60, 50.0)
    service.unknown = "the proxy p is silent"
    decision = service.go(3600)
    assert (service.replicas, decision.reason, decision.load) == (10, "the proxy p is silent", None)
    service.unknown = ""
    service.go(299)
    assert service.replicas == 10
    service.go(2)
    assert service.replicas == 1


def test_without_a_sample_nothing_is_decided():
    now = Situation(replicas=3, live=3, ready=3)
    decision = decide(POLICY, [], 5000, now)
    assert (decision.target, decision.reason) == (3, "there is no sample of its load")


def test_bounds_hold_though_the_load_is_not_known():
    decision = decide(
        POLICY, [], 5000, Situation(replicas=30, live=30, ready=30, unknown="no proxy reports")
    )
    assert (decision.target, decision.reason) == (20, "scaled 30 -> 20: 1 to 20 routes are allowed")


# ── properties ────────────────────────────────────────────────────────────────────────────────────

POLICIES = st.builds(
    ScalingPolicy,
    minimum=st.integers(0, 3),
    maximum=st.integers(3, 30),
    outstanding=st.sampled_from((0.5, 1.0, 3.0, 10.0)),
    window_s=st.sampled_from((2.0, 10.0, 60.0)),
    panic_window_s=st.sampled_from((1.0, 2.0)),
    stabilization_s=st.sampled_from((60.0, 100.0)),
    cooldown_s=st.sampled_from((0.0, 5.0, 15.0)),
)
STRETCHES = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.sampled_from((0.0, 0.0, 1.0, 7.3, 40.0, 900.0)),
        st.booleans(),
        st.sampled_from(("", "", "unknown")),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=12,
)


@given(POLICIES, st.integers(0, 30), STRETCHES)
def test_the_number_stays_in_its_bounds_and_moves_in_steps(policy, replicas, stretches):
    service = Service(policy, replicas=policy.bounded(replicas))
    service.numbers.append(service.replicas)
    for (
        seconds,
        load,
        service.updating,
        service.unknown,
        service.starting,
        service.missing,
    ) in stretches:
        first = len(service.numbers)
        service.go(seconds, load)
        for at in range(first, len(service.numbers)):
            before, now = service.numbers[at - 1], service.numbers[at]
            assert policy.minimum <= now <= policy.maximum
            lately = service.numbers[max(0, at - max(1, int(policy.cooldown_s))) : at]
            assert now <= max(before, 2 * min(lately), min(lately) + 4)
            assert now >= before or not (service.updating or service.unknown)
            assert now > 0 or before in (0, 1)
            assert now == before or not service.unknown or (before, now) == (0, 1)


@given(POLICIES, STRETCHES, st.sampled_from((0.0, 1.0, 9.0, 50.0)))
def test_a_load_that_stays_brings_the_number_to_rest_where_it_is_enough(policy, stretches, load):
    service = Service(policy, replicas=policy.maximum)
    for seconds, before, service.updating, service.unknown, _, _ in stretches:
        service.go(seconds, before)
    service.updating, service.unknown = False, ""
    service.go(400, load)
    settled = service.go(1, load)
    assert len(set(service.numbers[-30:])) == 1
    enough = load / policy.outstanding
    assert service.replicas * 1.1 >= min(enough, policy.maximum) - 1e-9
    assert service.replicas <= max(policy.minimum, 1, enough / 0.9 + 1)
    assert settled.target == service.replicas


@given(POLICIES, STRETCHES)
def test_the_same_samples_give_the_same_decisions(policy, stretches):
    one, two = (Service(policy, replicas=policy.maximum) for _ in range(2))
    for service in (one, two):
        for (
            seconds,
            load,
            service.updating,
            service.unknown,
            service.starting,
            service.missing,
        ) in stretches:
            service.go(seconds, load)
    assert (one.numbers, one.memory) == (two.numbers, two.memory)
