"""Commits are spaced under load and never on a quiet cluster."""

from __future__ import annotations

from iris_state.pace import Pace


def test_a_few_commits_after_a_pause_follow_at_once() -> None:
    pace = Pace(burst=4, spacing_s=0.002)
    waits = []
    for _ in range(4):
        waits.append(pace.wait_s(10.0))
        pace.committed(10.0)
    assert waits == [0.0] * 4


def test_sustained_commits_are_spaced() -> None:
    pace, now, commits = Pace(burst=4, spacing_s=0.002), 10.0, 0
    while now < 11.0:
        now += pace.wait_s(now) + 0.0001
        pace.committed(now)
        commits += 1
    assert 450 <= commits <= 510


def test_no_spacing_never_waits() -> None:
    pace = Pace(burst=1, spacing_s=0.0)
    for _ in range(100):
        pace.committed(1.0)
    assert pace.wait_s(1.0) == 0.0
