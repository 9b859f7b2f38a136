"""When a worker sends heartbeats, and when it stops trusting its clock or its connection."""

from __future__ import annotations

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import HeartbeatMessage, ProbeResult
from iris_worker.agent.heartbeat import HeartbeatSchedule, StallDetector


@pytest.fixture
def stall_detector() -> StallDetector:
    made = StallDetector(pause_s=3.0, fresh_s=10.0)
    made.begin(100.0)
    return made


def test_a_worker_that_ticks_regularly_did_not_sleep(stall_detector: StallDetector):
    assert [stall_detector.tick(at) for at in (100.25, 100.5, 103.5)] == [False, False, False]


def test_a_long_gap_is_a_sleep_whoever_notices_it_first(stall_detector: StallDetector):
    assert stall_detector.slept(103.1)
    assert not stall_detector.may_launch(103.1)
    assert stall_detector.tick(103.1)
    assert stall_detector.may_launch(103.2)


def test_nothing_is_launched_on_contact_that_is_too_old(stall_detector: StallDetector):
    for at in range(101, 115):
        stall_detector.tick(at)
    assert not stall_detector.may_launch(114)
    stall_detector.touch(114)
    assert stall_detector.may_launch(114)


def test_heartbeats_are_due_at_fixed_times():
    heart = HeartbeatSchedule("w0", "me", 5.0)
    lags = [heart.heartbeat((), at, 7)[1] for at in (100.0, 105.5, 110.0, 115.25)]
    assert lags == [0.0, 0.5, 0.0, 0.25]
    assert heart.wait_s(116.0) == 4.0


def test_heartbeats_that_were_missed_are_not_made_up_for():
    heart = HeartbeatSchedule("w0", "me", 5.0)
    heart.heartbeat((), 100.0, 7)
    assert heart.heartbeat((), 130.0, 7)[1] == 25.0
    assert heart.wait_s(130.0) == 5.0


def test_a_heartbeat_reports_the_fault_of_the_host():
    heart = HeartbeatSchedule("w0", "me", 5.0)
    assert heart.heartbeat((), 0.0, 7, "disk full") == (
        HeartbeatMessage("w0", "me", 1, 7, (), False, "disk full", 1),
        0.0,
    )
    assert heart.heartbeat((), 5.0, 8)[0] == HeartbeatMessage("w0", "me", 2, 8, monotonic_ms=5000)


def test_a_heartbeat_with_news_is_due_at_once_and_then_by_interval():
    heart = HeartbeatSchedule("w0", "me", 5.0)
    heart.heartbeat((), 100.0, 7)
    heart.advance(102.0)
    assert heart.wait_s(102.0) == 0.0
    assert heart.heartbeat((), 102.0, 7)[1] == 0.0
    assert heart.wait_s(102.0) == 5.0


def test_news_without_end_make_no_more_than_ten_heartbeats_of_one():
    heart = HeartbeatSchedule("w0", "me", 5.0)
    heart.heartbeat((), 100.0, 7)
    heart.advance(100.1)
    assert heart.wait_s(100.1) == pytest.approx(0.4)


def test_news_delay_no_heartbeat():
    heart = HeartbeatSchedule("w0", "me", 5.0)
    heart.advance(99.0)
    assert heart.wait_s(99.0) == 0.0
    heart.heartbeat((), 100.0, 7)
    heart.advance(104.9)
    heart.advance(106.0)
    assert heart.wait_s(104.9) == 0.0


def test_a_heartbeat_has_the_newest_result_of_each_probe():
    result = ProbeResult(AttemptRef(1, 0, 0), "10.0.0.4:31002", 3)
    assert HeartbeatSchedule("w0", "me", 5.0).heartbeat((), 0.0, 7, "", (result,))[0].probes == (
        result,
    )
