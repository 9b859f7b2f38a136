"""What waits to be told."""

from __future__ import annotations

from iris_core import codec
from iris_core.messages import AttemptRef, Ended, Stage, WorkerReport
from iris_core.states import Cause, KernelStatus
from iris_worker.reports import Pace, Reports, fitting


def stage(index: int, tail: str = "") -> Stage:
    return Stage(AttemptRef(1, index, 0), KernelStatus.TERMINATED, 0, Ended(Cause.EXITED, 1, stderr_tail=tail))


def test_what_was_lost_comes_before_what_is_new():
    reports = Reports()
    for index in (0, 1):
        reports.add(stage(index))
    lost = reports.take()
    reports.add(stage(2))
    reports.give_back(lost, lambda ref: True)
    assert [s.ref.index for s in reports.take()] == [0, 1, 2]


def test_what_nobody_cares_for_any_more_is_not_told_again():
    reports = Reports()
    reports.give_back([stage(0), stage(1)], lambda ref: ref.index == 1)
    assert [s.ref.index for s in reports.take()] == [1]


def test_a_report_stays_far_below_the_largest_message():
    reports = Reports()
    for index in range(1000):
        reports.add(stage(index, "é" * 4096))
    sizes = []
    while taken := reports.take():
        sizes.append(len(codec.pack(WorkerReport("w0", "me", taken))))
    assert len(sizes) > 10
    assert max(sizes) < 900_000


def test_a_whole_list_that_is_too_large_goes_without_the_words_of_tasks():
    stages = tuple(stage(index, "x" * 4096) for index in range(1000))
    assert fitting(stages[:10]) == stages[:10]
    assert {s.ended.stderr_tail for s in fitting(stages) if s.ended is not None} == {""}
    assert [s.ref for s in fitting(stages)] == [s.ref for s in stages]


def test_a_few_reports_go_at_once_and_many_in_steady_steps():
    pace, now, sent = Pace(longest_s=1.0, burst=3), 100.0, []
    for _ in range(6):
        now += pace.wait_s(now)
        pace.spend(now, 1000)
        sent.append(now)
    assert sent == [100.0, 100.0, 100.0, 101.0, 102.0, 103.0]


def test_after_a_rest_reports_go_at_once_again():
    pace = Pace(longest_s=1.0, burst=2)
    for _ in range(2):
        pace.spend(100.0, 1000)
    assert pace.wait_s(100.5) == 0.5
    assert pace.wait_s(102.0) == 0.0
    pace.spend(102.0, 1000)
    assert pace.wait_s(102.0) == 0.0


def test_few_attempts_make_short_steps():
    waits = []
    for attempts in (1, 10, 50, 100, 500):
        pace = Pace(longest_s=1.0, burst=1)
        pace.spend(0.0, attempts)
        waits.append(pace.wait_s(0.0))
    assert waits == [0.1, 0.1, 0.5, 1.0, 1.0]
