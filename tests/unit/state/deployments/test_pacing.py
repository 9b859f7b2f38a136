"""Backoff between failed starts of a deployment's routes, and when retries stop."""

from __future__ import annotations

from iris_state.records.deployments.pacing import (
    RESTED,
    STARTS,
    WINDOW_MS,
    Pacing,
    failed,
    may_create,
)


def after(failures: int, every_ms: int = 1, **how: bool) -> Pacing:
    pacing = RESTED
    for n in range(failures):
        pacing = failed(pacing, 7, n * every_ms, **how)
    return pacing


def test_the_first_route_is_created_at_once():
    assert may_create(RESTED, 0)


def test_the_pause_doubles_up_to_five_minutes():
    for failures, pause_ms in ((1, 10_000), (2, 20_000), (3, 40_000), (6, 300_000), (40, 300_000)):
        pacing = after(failures)
        assert 0.8 * pause_ms <= pacing.retry_ms - (failures - 1) <= 1.2 * pause_ms


def test_a_route_is_created_again_when_the_pause_is_over():
    pacing = after(1)
    assert not may_create(pacing, pacing.retry_ms - 1)
    assert may_create(pacing, pacing.retry_ms)


def test_deployments_that_failed_together_do_not_try_together():
    assert len({failed(RESTED, number, 0).retry_ms for number in range(20)}) > 10


def test_every_replica_of_the_service_comes_to_the_same_time():
    assert failed(RESTED, 7, 5) == failed(RESTED, 7, 5)


def test_six_failed_starts_within_half_an_hour_end_the_tries():
    assert not after(STARTS - 1).stopped
    stopped = after(STARTS)
    assert stopped.stopped
    assert not may_create(stopped, 10**12)


def test_failed_starts_that_lie_further_apart_do_not():
    assert not after(STARTS + 1, every_ms=WINDOW_MS // (STARTS - 1) + 1).stopped


def test_what_a_deployment_fell_back_to_is_tried_for_ever():
    pacing = after(50, for_ever=True)
    assert not pacing.stopped
    assert len(pacing.times) == STARTS
