"""Which histories the judge of the simulation rejects, and which it accepts."""

from __future__ import annotations

import random

import msgspec
import pytest

from iris_bus.contract import JournalEntry
from iris_core.messages.gateway_state import SubmitJob
from iris_state.policy import Policy
from iris_state.records.changes import Assigned, Commit, Nominated
from tests.sim import nominations
from tests.sim.judge import Judge, Violation
from tests.sim.network import Server
from tests.sim.people import Promises
from tests.support.script import spec
from tests.support.world import ADMIN, World


class Asking:
    """Somebody who submits jobs to a state service that keeps one finished job, and remembers each
    last answer.
    """

    def __init__(self) -> None:
        self.world = World(Policy(keep_jobs=1))
        self.promises = Promises()

    def submit(self, name: str, *, request: str, behind: int = 0) -> str:
        """The status of the answer, which is noted with a position that is ``behind`` too low."""
        job = spec(name, {})
        answer = self.world.submit(job, request=request)
        noted = msgspec.structs.replace(answer, position=answer.position - behind)
        self.promises.note(SubmitJob(job, ADMIN, request, 1), noted)
        return answer.status

    def forget(self, name: str) -> None:
        """The job ends, and then a younger one, so that the first is kept no longer."""
        assert self.submit("/younger", request="younger") == "created"
        for job in (name, "/younger"):
            self.world.cancel(job)
        self.world.wait(1)

    def judge(self) -> None:
        server = Server(random.Random(1))
        server.journal_of_all_times = [
            JournalEntry(sequence, data) for sequence, data in self.world.commits
        ]
        Judge(server)._no_job_is_lost(self.world.machine, self.promises)


def test_a_late_repeated_request_may_be_told_that_its_job_is_forgotten():
    asking = Asking()
    asking.world.submit(spec("/a", {}), request="once")  # this answer is lost
    asking.forget("/a")
    assert asking.submit("/a", request="once") == "conflict"
    asking.judge()


def test_nobody_may_be_told_that_a_job_is_forgotten_before_it_is():
    asking = Asking()
    asking.world.submit(spec("/a", {}), request="once")
    asking.forget("/a")
    assert (
        asking.submit("/a", request="once", behind=1) == "conflict"
    )  # of before the commit that forgets it
    with pytest.raises(Violation, match="j1 was said to be forgotten before it was"):
        asking.judge()


def test_a_refusal_of_what_was_done_is_a_broken_promise():
    asking = Asking()
    asking.world.submit(spec("/a", {}), request="once")
    assert asking.submit("/a", request="another") == "conflict"
    with pytest.raises(Violation, match=r"people were told \{'once': None\}"):
        asking.judge()


def test_work_that_is_evicted_for_one_task_again_and_again_is_found():
    promised = Commit(epoch=1, serial=1, at_ms=1, changes=[Nominated(1, 0, "a")])
    placed = Commit(epoch=1, serial=1, at_ms=1, changes=[Assigned(1, 0, 0, "a")])
    often = [promised] * nominations.MOST
    assert list(nominations.violations([*often, placed, *often])) == []
    assert len(list(nominations.violations([*often, promised, promised]))) == 1
