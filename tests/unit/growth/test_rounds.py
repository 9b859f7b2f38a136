"""What a command, a plan, a report and a heartbeat cost the leader, as there is more of everything
else: a row for each kind of thing that there may be ten times as many of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Placement, Plan
from iris_core.messages.state_worker import Ended, Stage
from iris_core.quota import Quota
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_state.machine.machine import Output
from iris_state.policy import Policy
from iris_state.records.inputs import Input
from iris_state.records.ledger import Ledger
from tests.support.work import exponent, work_of
from tests.support.world import Host, World

FLAT = 0.1
SMALL, LARGE = 12, 120
ANN = Caller("ann")
ROOM = Amount(10_000_000, 1 << 50, 1 << 50)
Rounds = dict[str, int]


class Bare(World):
    """The stories elsewhere look at everything after each round; here the rounds are measured.

    Attributes:
        counts: whether their work is counted, which is then ``work``.
    """

    def __init__(self) -> None:
        super().__init__(Policy(max_building=10_000))
        self.counts = False
        self.work = 0
        self.register(Host("w0", ROOM, {}))

    def check(self) -> None:
        pass

    def check_timeouts(self) -> None:
        pass

    def _judge(self, inputs: Sequence[Input]) -> Output:
        if not self.counts:
            return super()._judge(inputs)
        found: list[Output] = []
        judge = super()._judge
        self.work += work_of(lambda: found.append(judge(inputs)))
        return found[0]

    def work_for(self, act: Callable[[], object]) -> int:
        self.counts, self.work = True, 0
        act()
        self.counts = False
        return self.work

    def queue(self, name: str, caller: Caller = ANN, **fields: object) -> int:
        """Submit a job; returns its number."""
        answer = self.submit(job(name, user=caller.user, **fields), caller)
        assert answer.status == "created", answer
        return self.ledger.next_number - 1

    def change(self) -> None:
        answer = self.amend("/cancelled", ANN, patch=b'{"band":"batch"}')
        assert answer.status in ("ok", "accepted"), answer

    def stop(self, name: str) -> None:
        answer = self.cancel(name, ANN)
        assert answer.status == "accepted", answer

    def finish(self, name: str) -> None:
        self.queue(name)
        self.stop(name)

    def place(self, number: int, indexes: tuple[int, ...] = (0,)) -> None:
        placement = Placement(number, indexes, (0,) * len(indexes))
        self.plan(Plan("s", self.machine.sequence, ("w0",), (placement,)))

    def report(self, number: int, status: KernelStatus, ended: Ended | None = None) -> None:
        self.say("w0", Stage(AttemptRef(number, 0, 0), status, self.now_ms, ended))


def job(name: str, **fields: object) -> JobSpec:
    return JobSpec(name=name, command=("true",), **fields)  # type: ignore[arg-type]


def waiting_jobs(world: Bare, size: int) -> None:
    for number in range(size):
        world.queue(f"/waits-{number}")


def waiting_classes(world: Bare, size: int) -> None:
    for number in range(size):
        world.queue(f"/waits-{number}", resources=ResourceRequest(1000, (1 << 30) + number))


def hosts(world: Bare, size: int) -> None:
    for number in range(1, size):
        world.register(Host(f"w{number}", ROOM, {"serial": number}))


def running_jobs(world: Bare, size: int) -> None:
    for number in range(size):
        world.place(world.queue(f"/runs-{number}"))


def kept_jobs(world: Bare, size: int) -> None:
    for number in range(size):
        world.finish(f"/ended-{number}")


def runs_of_the_name(world: Bare, size: int) -> None:
    for _ in range(size):
        world.finish("/measured")


def children_of_one_job(world: Bare, size: int) -> None:
    world.queue("/parent")
    for number in range(size):
        world.queue(f"/parent/child-{number}")


def users(world: Bare, size: int) -> None:
    for number in range(size):
        world.queue(f"/waits-{number}", Caller(f"user-{number}"))


def tasks_of_one_job(world: Bare, size: int) -> None:
    world.place(world.queue("/wide", replicas=size), tuple(range(size)))


KINDS: tuple[Callable[[Bare, int], None], ...] = (
    waiting_jobs,
    waiting_classes,
    hosts,
    running_jobs,
    kept_jobs,
    runs_of_the_name,
    children_of_one_job,
    users,
    tasks_of_one_job,
)


def rounds_beside(kind: Callable[[Bare, int], None], size: int) -> Rounds:
    """The work of each round of a job's life, and of those that have to do with no job."""
    world = Bare()
    kind(world, size)
    number = world.ledger.next_number
    running, over = KernelStatus.RUNNING, Ended(Cause.EXITED, 0)
    found = {
        "submit": world.work_for(lambda: world.queue("/measured")),
        "place": world.work_for(lambda: world.place(number)),
        "start": world.work_for(lambda: world.report(number, running)),
        "end": world.work_for(lambda: world.report(number, KernelStatus.TERMINATED, over)),
    }
    assert world.ledger.jobs[number].is_terminal
    world.queue("/cancelled")
    found["amend"] = world.work_for(world.change)
    found["cancel"] = world.work_for(lambda: world.stop("/cancelled"))
    if kind not in (running_jobs, tasks_of_one_job):  # it lists what runs on its host
        found["heartbeat"] = world.work_for(lambda: world.heartbeat("w0"))
    found["nothing"] = world.work_for(world.step)
    return found


def growth_beside(kind: Callable[[Bare, int], None]) -> dict[str, float]:
    """The exponent of each round."""
    few, many = rounds_beside(kind, SMALL), rounds_beside(kind, LARGE)
    return {name: round(exponent(few[name], many[name]), 2) for name in few}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_round_costs_more_beside_ten_times_as_much(kind: Callable[[Bare, int], None]) -> None:
    grown = growth_beside(kind)
    assert {name: found for name, found in grown.items() if found >= FLAT} == {}


def test_a_planted_search_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    quota_of = Ledger.quota_of

    def search(ledger: Ledger, user: str) -> Quota:
        assert all(one == two or one != two for one in ledger.jobs for two in ledger.jobs)
        return quota_of(ledger, user)

    monkeypatch.setattr(Ledger, "quota_of", search)
    assert growth_beside(kept_jobs)["submit"] > FLAT
