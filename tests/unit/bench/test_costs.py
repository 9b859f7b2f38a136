"""What a task costs in commits, messages and bytes on any machine: these figures grow only on
purpose.

A figure that falls well below its bound is a reason to lower the bound.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import pytest

from benchmarks.loopback import Loopback
from iris_core.admission.jobs import validate_spec
from iris_core.spec.jobs import JobSpec

HOSTS = 2


def turned(slots: int, tasks: int) -> Loopback:
    """A cluster that has just run one job, and was warm before."""
    loopback = Loopback(HOSTS, slots)
    loopback.submit("/warm", tasks)
    loopback.run()
    loopback.counts.clear()
    loopback.submit("/job", tasks)
    loopback.run()
    return loopback


@pytest.fixture(scope="module")
def wide() -> Loopback:
    """1,000 tasks with room for all of them."""
    return turned(slots=1_000, tasks=1_000)


@pytest.fixture(scope="module")
def narrow() -> Loopback:
    """1,000 tasks through 20 slots, ten of them on each host."""
    return turned(slots=10, tasks=1_000)


def test_a_job_with_room_for_all_takes_three_commits(wide):
    assert wide.counts["commits"] == 3


def test_slots_that_turn_over_cost_two_commits_a_turn(narrow):
    assert narrow.counts["commits"] <= 2 * 1_000 / 20 + 2


def test_each_task_is_told_five_times_and_its_job_three_times(wide):
    assert wide.counts["events"] == 5 * 1_000 + 3


def test_a_task_is_no_more_than_100_bytes_of_journal(narrow, wide):
    assert max(narrow.counts["journal bytes"], wide.counts["journal bytes"]) <= 100 * 1_000


def test_a_task_is_no_more_than_33_bytes_of_deltas(narrow, wide):
    assert max(narrow.counts["delta bytes"], wide.counts["delta bytes"]) <= 33 * 1_000


def test_a_task_is_no_more_than_167_bytes_of_messages_between_services(narrow, wide):
    assert max(narrow.counts["message bytes"], wide.counts["message bytes"]) <= 167 * 1_000


def test_the_scheduler_sends_no_more_plans_than_there_are_commits(narrow):
    assert narrow.counts["plans"] <= narrow.counts["commits"]


def test_no_worker_gets_more_than_one_order_or_sends_one_report_a_turn(narrow):
    most = HOSTS * narrow.counts["rounds"]
    assert narrow.counts["orders"] <= most
    assert narrow.counts["reports"] <= most


def test_a_task_takes_no_more_than_236_calls_of_functions():
    loopback = turned(slots=1_000, tasks=1_000)
    loopback.submit("/counted", 1_000)
    calls = _calls(loopback.run)
    assert calls <= 236 * 1_000, f"{calls / 1_000:.1f} a task"


def test_a_plain_job_is_validated_with_at_most_20_calls_of_functions():
    plain = JobSpec(name="/plain", command=("true",))
    validate_spec(plain)
    assert _calls(lambda: validate_spec(plain)) <= 20


def _calls(work: Callable[[], object]) -> int:
    """How many functions of Iris are called."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and "/iris_" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_a_finished_task_weighs_less_than_400_bytes_in_all_services():
    loopback = turned(slots=1_000, tasks=1_000)
    tracemalloc.start()
    try:
        loopback.submit("/heavy", 5_000)
        loopback.run()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / 5_000 < 400
