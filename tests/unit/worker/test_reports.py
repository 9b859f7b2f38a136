"""The queue of reports that a worker has not delivered yet."""

from __future__ import annotations

from iris_core import codec
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Stage, WorkerReport
from iris_core.states import Cause, KernelStatus
from iris_worker.agent.reports import Reports, fitting


def stage(index: int, tail: str = "") -> Stage:
    return Stage(
        AttemptRef(1, index, 0),
        KernelStatus.TERMINATED,
        0,
        Ended(Cause.EXITED, 1, stderr_tail=tail),
    )


def test_what_was_lost_comes_before_what_is_new():
    reports = Reports()
    for index in (0, 1):
        reports.add(stage(index))
    lost = reports.take()
    reports.add(stage(2))
    reports.give_back(lost)
    assert [s.ref.index for s in reports.take()] == [0, 1, 2]


def test_what_another_report_has_told_since_is_not_told_again():
    reports = Reports()
    for index in (0, 1):
        reports.add(stage(index))
    lost = reports.take()
    reports.answered([stage(0)])
    reports.give_back(lost)
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
