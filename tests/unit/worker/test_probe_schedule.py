"""When a route is probed, and how results are counted."""

from __future__ import annotations

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import ProbeResult
from iris_core.spec.jobs import Probe
from iris_worker.attempt.probes.schedule import DETAILS, ProbeOutcome, ProbeSchedule

A, B, C = AttemptRef(1, 0, 0), AttemptRef(2, 0, 0), AttemptRef(3, 0, 0)
WHERE = "10.0.0.4:31002"
PASSED, FAILED, NOT_READY = (
    ProbeOutcome(),
    ProbeOutcome("refused"),
    ProbeOutcome("", "GET /ready: status 503"),
)


class Route:
    """One attempt that is probed, with a clock that is moved from probe to probe."""

    def __init__(self, probe: Probe, began_s: float = 100.0, adopted: bool = False) -> None:
        self.schedule = ProbeSchedule()
        self.now_s = began_s
        self.schedule.begin(A, probe, WHERE, began_s, adopted)

    def next(self, outcome: ProbeOutcome, takes_s: float = 0.0) -> bool:
        """Wait for the next probe and end it so; whether that is news."""
        wait_s = self.schedule.wait_s(self.now_s)
        assert wait_s is not None
        self.now_s += wait_s
        assert self.schedule.take_due(self.now_s) == [A]
        self.now_s += takes_s
        return self.schedule.on_outcome(A, outcome, self.now_s)

    @property
    def result(self) -> ProbeResult:
        [found] = self.schedule.results(self.now_s)
        return found


def test_a_route_is_probed_every_second_until_its_first_pass():
    route, times = Route(Probe(interval_s=10.0)), []
    for outcome in (FAILED, FAILED, PASSED, FAILED, PASSED):
        route.next(outcome)
        times.append(route.now_s)
    assert times == [100.0, 101.0, 102.0, 112.0, 122.0]


def test_an_interval_shorter_than_a_second_holds_from_the_start():
    route = Route(Probe(interval_s=0.5))
    route.next(FAILED)
    assert route.schedule.wait_s(route.now_s) == 0.5


@pytest.mark.parametrize("interval_s", [0.0, -1.0])
def test_no_interval_makes_the_worker_spin(interval_s: float):
    route = Route(Probe(interval_s=interval_s))
    route.next(PASSED)
    assert route.schedule.wait_s(route.now_s) == pytest.approx(0.1)


def test_the_first_probe_waits_for_the_initial_delay():
    route = Route(Probe(initial_delay_s=30.0))
    assert (route.schedule.take_due(129.9), route.schedule.wait_s(129.0)) == ([], 1.0)
    assert route.schedule.take_due(130.0) == [A]


def test_a_route_is_not_probed_while_its_last_probe_is_under_way():
    route = Route(Probe(interval_s=2.0))
    route.next(PASSED)
    assert route.schedule.take_due(102.0) == [A]
    assert (route.schedule.take_due(105.0), route.schedule.wait_s(105.0)) == ([], None)
    route.schedule.on_outcome(A, FAILED, 105.0)
    assert route.schedule.wait_s(105.0) == 0.0


def test_results_are_counted_in_a_row():
    route, seen = Route(Probe()), []
    for outcome in (FAILED, FAILED, PASSED, PASSED, FAILED):
        route.next(outcome)
        seen.append((route.result.passes, route.result.failures))
    assert seen == [(0, 1), (0, 2), (1, 0), (2, 0), (0, 1)]


def test_news_is_what_changes_whether_a_route_gets_requests():
    route = Route(Probe(failures=3, passes=2))
    outcomes = (FAILED, PASSED, PASSED, PASSED, FAILED, FAILED, FAILED, FAILED, PASSED, PASSED)
    assert [route.next(outcome) for outcome in outcomes] == [
        *(False, False, True, False),  # two passes in a row: healthy
        *(False, False, True, False),  # the third failure: not any more
        *(False, True),
    ]


def test_a_route_that_never_passes_is_news_once():
    route = Route(Probe(failures=2))
    assert [route.next(FAILED) for _ in range(4)] == [False, True, False, False]


def test_a_ready_path_that_fails_is_news_and_no_failure():
    route = Route(Probe(ready_path="/ready"))
    assert not route.result.ready
    assert [route.next(outcome) for outcome in (NOT_READY, NOT_READY, PASSED, NOT_READY)] == [
        True,
        False,
        True,
        True,
    ]
    assert route.result == ProbeResult(A, WHERE, 4, 0, False, 0, "GET /ready: status 503")


def test_a_route_without_a_ready_path_is_ready():
    assert Route(Probe()).result == ProbeResult(A, WHERE)


def test_the_age_is_that_of_the_last_result_and_before_it_of_the_process():
    route = Route(Probe(initial_delay_s=5.0))
    assert route.schedule.results(103.0)[0].age_ms == 3000
    route.next(PASSED, takes_s=1.0)
    assert [route.schedule.results(at)[0].age_ms for at in (106.0, 108.5)] == [0, 2500]


def test_the_last_failure_is_kept_in_one_printable_line():
    route = Route(Probe())
    route.next(ProbeOutcome("exit code 1: \x1b[31mno\nluck\x00" + "x" * 1000))
    route.next(PASSED)
    assert route.result.detail.startswith("exit code 1:  [31mno luck xxx")
    assert len(route.result.detail) == 200


def test_thousands_of_failures_fit_into_one_heartbeat():
    schedule, refs = ProbeSchedule(at_once=10_000), [AttemptRef(job, 0, 0) for job in range(5000)]
    for ref in refs:
        schedule.begin(ref, Probe(), WHERE, 0.0)
    for ref in schedule.take_due(0.0):
        schedule.on_outcome(ref, ProbeOutcome("x" * 1000), 0.0)
    assert sum(len(result.detail) for result in schedule.results(0.0)) == DETAILS


def test_a_probe_that_waited_for_a_stopped_worker_is_made_again():
    route = Route(Probe(timeout_s=5.0, failures=1))
    route.next(PASSED)
    assert not route.next(FAILED, takes_s=60.0)
    assert (route.result.passes, route.result.failures, route.result.age_ms) == (1, 0, 70_000)
    assert route.schedule.take_due(route.now_s) == [A]


def test_nothing_is_said_of_an_adopted_route_before_its_first_result():
    route = Route(Probe(initial_delay_s=30.0, ready_path="/ready"), began_s=10.0, adopted=True)
    assert route.schedule.results(1000.0) == ()
    assert route.schedule.take_due(1000.0) == [A]
    assert route.schedule.on_outcome(A, PASSED, 1000.0)
    assert route.schedule.results(1000.0) == (ProbeResult(A, WHERE, 1),)


def test_a_process_that_ended_is_not_probed_and_its_last_probe_is_void():
    route = Route(Probe())
    assert route.schedule.take_due(100.0) == [A]
    route.schedule.end(A)
    assert not route.schedule.on_outcome(A, PASSED, 101.0)
    assert (route.schedule.results(101.0), route.schedule.wait_s(101.0)) == ((), None)


def test_so_many_are_probed_at_once_and_the_longest_overdue_first():
    schedule = ProbeSchedule(at_once=2)
    for ref, began_s in ((A, 3.0), (B, 1.0), (C, 2.0)):
        schedule.begin(ref, Probe(), WHERE, began_s, user=f"of {ref.job}")
    assert schedule.take_due(10.0) == [B, C]
    assert (schedule.take_due(11.0), schedule.wait_s(11.0)) == ([], None)
    schedule.on_outcome(C, PASSED, 11.0)
    assert schedule.wait_s(11.0) == 0.0
    assert schedule.take_due(11.0) == [A]


def test_the_end_of_a_process_makes_room_for_the_probe_of_another():
    schedule = ProbeSchedule(at_once=1)
    schedule.begin(A, Probe(), WHERE, 0.0)
    schedule.begin(B, Probe(), WHERE, 0.0)
    assert schedule.take_due(0.0) == [A]
    schedule.end(A)
    assert schedule.take_due(0.0) == [B]
