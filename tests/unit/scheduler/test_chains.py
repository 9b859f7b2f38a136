"""Tasks of a job with short attempts wait behind those that run; nothing else waits longer for
that.
"""

from __future__ import annotations

import msgspec
import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Extension, Ran
from iris_core.placement.chains import LONGEST, SEEN, SHORT_MS, WORK_MS
from iris_core.states import WorkerState
from tests.support.scheduling import Story, eq, worker


class Calls(Story):
    """A cluster whose jobs are maps of short calls."""

    def mapped(
        self, name: str, replicas: int, running: int, *, ms: int = 10, **options: object
    ) -> int:
        """A map of which so many calls run, and others have ended after that time; returns its
        job's number.
        """
        row = self.submit(name, replicas, **options)  # type: ignore[arg-type]
        row = self.rows[name] = msgspec.structs.replace(row, chained=True)
        self.tell(jobs=(row,), ran=(Ran(row.job, SEEN, SEEN * ms),))
        for index in range(running):
            self.start(name, {index: "w"}, building=False)
        return row.job

    def extensions(self) -> list[tuple[int, int]]:
        """What each extension of the next plan goes behind, by index, and how many tasks it has."""
        return [(one.chain.index, len(one.indexes)) for one in self.look().plan.extensions]

    def extend(self) -> tuple[Extension, ...]:
        """Carry the extensions of the next plan out."""
        found = self.look().plan.extensions
        holds = [
            msgspec.structs.replace(
                self._hold(one.chain.job, index, one.worker, False), chain=one.chain
            )
            for one in found
            for index in one.indexes
        ]
        self.tell(opened=tuple(holds))
        return found


@pytest.fixture
def calls() -> Calls:
    return Calls(worker("w", cpu=2))


def test_waiting_tasks_are_divided_evenly_behind_those_that_run(calls):
    calls.mapped("/a", 12, running=2)
    assert calls.extensions() == [(0, 5), (1, 5)]


def test_a_chain_is_as_long_as_its_work_allows(calls):
    calls.mapped("/a", 500, running=2, ms=25)
    assert calls.extensions() == [(0, WORK_MS // 25 - 1), (1, WORK_MS // 25 - 1)]


def test_no_chain_is_longer_than_the_longest(calls):
    calls.mapped("/a", 500, running=2, ms=0)
    assert calls.extensions() == [(0, LONGEST - 1), (1, LONGEST - 1)]


def test_a_chain_is_extended_when_it_is_half_empty(calls):
    calls.mapped("/a", 500, running=1, ms=25)
    calls.start("/a", {1: "w"}, building=False)
    calls.extend()
    assert calls.extensions() == []
    for index in (0, *range(2, 6)):
        calls.end("/a", index)
    assert calls.extensions() == [(0, 5)]


def test_tasks_that_take_long_wait_for_a_place_of_their_own(calls):
    calls.mapped("/a", 12, running=2, ms=SHORT_MS)
    assert calls.extensions() == []


def test_nothing_waits_behind_an_attempt_that_has_taken_long(calls):
    calls.mapped("/a", 12, running=2)
    calls.wait(1)
    calls.end("/a", 1)
    calls.start("/a", {2: "w"}, building=False)
    assert calls.extensions() == [(2, 9)]


def test_room_is_used_first_and_what_starts_there_gets_as_many_behind_it(calls):
    calls.mapped("/a", 12, running=1)
    made = calls.look().plan
    assert (made.placements[0].indexes, [one.indexes for one in made.extensions]) == (
        (1,),
        [(2, 3, 4, 5, 6)],
    )


def test_nothing_waits_on_a_worker_with_room(calls):
    calls.worker(worker("w", cpu=2, window=0))
    calls.mapped("/a", 12, running=1)
    made = calls.look().plan
    assert (made.placements, made.extensions) == ((), ())


def test_nothing_waits_on_a_worker_that_an_earlier_job_waits_for(calls):
    calls.mapped("/a", 12, running=2)
    calls.submit("/before", band="production")
    assert calls.extensions() == []


def test_a_job_that_waits_for_other_workers_keeps_nobody_from_waiting(calls):
    calls.worker(worker("v", cpu=1, zone="z"))
    calls.running("/busy", "v")
    calls.mapped("/a", 12, running=2)
    calls.submit("/before", band="production", constraints=(eq("zone", "z"),))
    assert calls.extensions() == [(0, 5), (1, 5)]


def test_nothing_waits_on_a_worker_that_is_drained(calls):
    calls.mapped("/a", 12, running=2)
    calls.worker(worker("w", cpu=2, state=WorkerState.DRAINING))
    assert calls.extensions() == []


def test_a_worker_has_no_more_attempts_than_it_may_have(calls):
    calls.worker(worker("w", cpu=2, attempts=5))
    calls.mapped("/a", 12, running=2)
    assert sum(count for _, count in calls.extensions()) == 3


def test_a_chain_counts_once_until_its_last_attempt_has_ended(calls):
    job = calls.mapped("/a", 6, running=2)
    calls.extend()
    host = calls.mirror.hosts.host("w")
    assert (host.used[0], calls.mirror.usage.of("ann")[0]) == (2000, 2000)
    for index in (0, 2):
        calls.end("/a", index)
        assert host.used[0] == 2000
    calls.end("/a", 3)
    assert (host.used[0], calls.mirror.usage.of("ann")[0]) == (1000, 1000)
    calls.stop(AttemptRef(job, 1, 0))
    assert (host.used[0], host.stopping[0]) == (1000, 0)
    calls.end("/a", 1, 4, 5)
    assert (host.used, host.chains, calls.mirror.chains) == (
        [0] * len(host.used),
        {},
        {job: calls.mirror.chains[job]},
    )
    assert calls.mirror.usage.of("ann")[0] == 0


def test_one_attempt_of_a_chain_is_a_victim(calls):
    calls.mapped("/a", 6, running=2, band="batch")
    calls.extend()
    calls.submit("/p", band="production")
    assert calls.evict()[0] == ["/a/0"]


def test_a_lost_worker_takes_its_chains_along(calls):
    calls.mapped("/a", 6, running=2)
    calls.extend()
    calls.tell(lost_workers=("w",))
    assert calls.mirror.usage.of("ann")[0] == 0
    assert [len(chains.open) for chains in calls.mirror.chains.values()] == [0]
