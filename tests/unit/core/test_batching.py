"""Batching of commits, plans and reports: none when idle, longer intervals as more attempts are
open.
"""

from __future__ import annotations

from iris_core.batching import Batcher


def test_a_few_go_at_once_and_many_in_steady_steps():
    pace, now, sent = Batcher(longest_s=1.0, burst=3), 100.0, []
    for _ in range(6):
        now += pace.wait_s(now)
        pace.spend(now, 1000)
        sent.append(now)
    assert sent == [100.0, 100.0, 100.0, 101.0, 102.0, 103.0]


def test_after_a_rest_they_go_at_once_again():
    pace = Batcher(longest_s=1.0, burst=2)
    for _ in range(2):
        pace.spend(100.0, 1000)
    assert pace.wait_s(100.5) == 0.5
    assert pace.wait_s(102.0) == 0.0
    pace.spend(102.0, 1000)
    assert pace.wait_s(102.0) == 0.0


def test_few_attempts_make_short_steps():
    waits = []
    for attempts in (1, 10, 50, 100, 500):
        pace = Batcher(longest_s=1.0, burst=1)
        pace.spend(0.0, attempts)
        waits.append(pace.wait_s(0.0))
    assert waits == [0.02, 0.1, 0.5, 1.0, 1.0]


def test_one_task_after_another_never_waits():
    pace, now, waited = Batcher(longest_s=0.01, burst=16), 0.0, 0.0
    for _ in range(1000):
        for _ in range(4):
            waited += pace.wait_s(now)
            pace.spend(now, 1)
            now += 0.001
    assert waited == 0.0


def test_no_step_never_waits():
    pace = Batcher(longest_s=0.0, burst=1)
    for _ in range(100):
        pace.spend(1.0, 1000)
    assert pace.wait_s(1.0) == 0.0
