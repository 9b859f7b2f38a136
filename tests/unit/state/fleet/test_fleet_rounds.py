"""The fleet in the state machine: orders to a provisioner, its reports, hosts of slices, and the
work on them.

Source: docs/design/fleet.md#orders-and-lists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime

import pytest
from msgspec.structs import replace

from iris_core.codec import pack, to_json
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_provisioner import (
    FoundSlice,
    ListAnswer,
    OrderAnswer,
    ProvisionerReport,
    SliceOrder,
)
from iris_core.messages.state_worker import Ended
from iris_core.spec.jobs import Attribute, Constraint, Coscheduling, JobSpec
from iris_core.spec.pools import MAX_SLICES, PoolSpec
from iris_core.spec.resources import Amount, HostResources, ResourceRequest
from iris_core.states import Cause, ConstraintOp, KernelStatus, TaskState, WorkerState
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import plan
from iris_scheduler.settings import SchedulerSettings
from iris_state.records.inputs import FleetReport
from iris_state.replication.metrics import StateMetrics
from tests.support.world import Host, World, stage
from tests.unit.state.test_metrics import scraped

CPU = PoolSpec(
    name="cpu",
    provider="process",
    max=2,
    resources=HostResources(cpu_millis=4000),
    idle_s=30.0,
)


@dataclass
class Provisioner:
    """One that carries out every order at once, and tells so when it is asked to.

    Attributes:
        has: what its provider has, by name. answer, detail, retry_after_s: to each creation.
            delete_answer: to each deletion.
        keyed: what it tells of the keys of slots. list_error: why its lists fail; empty: they do
            not.
    """

    world: World
    name: str = "p1"
    epoch: int = 0
    has: dict[str, SliceOrder] = field(default_factory=dict)
    answer: str = "accepted"
    detail: str = ""
    retry_after_s: float = 0.0
    delete_answer: str = "accepted"
    keyed: dict[str, int] = field(default_factory=lambda: {"cpu": MAX_SLICES})
    list_error: str = ""
    read: int = 0
    answers: list[OrderAnswer] = field(default_factory=list)
    lists: list[ListAnswer] = field(default_factory=list)

    def work(self) -> None:
        """Carry out what it was ordered since."""
        for orders in self.world.fleet_orders[self.read :]:
            self.read += 1
            if orders.provisioner != self.name:
                continue
            self.epoch = orders.epoch
            for one in orders.orders:
                said = self.answer if one.call == "create" else self.delete_answer
                if one.call == "delete":
                    self.has.pop(one.slice, None)
                elif said == "accepted":
                    self.has[one.slice] = one
                about = (one.call, one.slice, one.label, one.number)
                self.answers.append(OrderAnswer(*about, said, self.detail, self.retry_after_s))
            for asked in orders.lists:
                found = tuple(FoundSlice(name, one.label) for name, one in self.has.items())
                if self.list_error:
                    found = ()
                self.lists.append(
                    ListAnswer(
                        asked.provider,
                        asked.options,
                        asked.asked_ms,
                        slices=found,
                        error=self.list_error,
                    )
                )

    def report(self) -> None:
        told = ProvisionerReport(
            self.name,
            self.epoch,
            keyed=self.keyed,
            answers=tuple(self.answers),
            lists=tuple(self.lists),
        )
        self.answers.clear()
        self.lists.clear()
        self.world.step(FleetReport(pack(told)))


def turn(world: World, *provisioners: Provisioner, seconds: float = 1.0) -> None:
    """Some time passes, and each provisioner works and tells."""
    world.wait(seconds)
    for one in provisioners:
        one.work()
        one.report()


def boot(world: World, name: str, chips: int = 0, **attributes: Attribute) -> None:
    """The only host of a slice registers as it was promised."""
    given = {"tpu-name": name, "tpu-worker-id": 0, "capacity": "on_demand", **attributes}
    world.register(Host(f"{name}-0", Amount(4000, 1 << 34, 1 << 34, chips), given))


def schedule(world: World) -> None:
    mirror = Mirror.of([world.snapshot()])
    world.plan(plan(mirror, Cache(), world.now_ms, SchedulerSettings()).plan)


def with_work(tasks: int = 1, *, spec: PoolSpec = CPU) -> tuple[World, Provisioner]:
    """A pool, a provisioner, and tasks that each fill a host and wait."""
    world = World()
    provisioner = Provisioner(world)
    world.change_fleet("set", spec.name, spec=spec)
    resources = ResourceRequest(cpu_millis=4000)
    world.submit(JobSpec(name="/a", command=("true",), replicas=tasks, resources=resources))
    schedule(world)
    provisioner.report()
    return world, provisioner


def statuses(world: World) -> list[str]:
    return [one.status.value for one in world.ledger.fleet.slices.values()]


def test_waiting_work_makes_a_slice_which_goes_when_it_is_idle() -> None:
    world, provisioner = with_work(1)
    turn(world, provisioner)
    assert statuses(world) == ["creating"]
    [order] = provisioner.has.values()
    assert [host.name for host in order.hosts] == ["cpu-0-0"]
    boot(world, "cpu-0")
    turn(world, provisioner)
    assert statuses(world) == ["ready"]
    schedule(world)
    assert world.ledger.jobs[1].task(0).state is TaskState.ASSIGNED
    ref = AttemptRef(1, 0, 0)
    ended = Ended(Cause.EXITED, 0)
    world.say("cpu-0-0", stage(ref, KernelStatus.RUNNING, world.now_ms))
    world.say("cpu-0-0", stage(ref, KernelStatus.TERMINATED, world.now_ms, ended))
    assert world.ledger.jobs[1].task(0).state is TaskState.SUCCEEDED
    for _ in range(20):
        turn(world, provisioner, seconds=5.0)
    assert provisioner.has == {}
    assert statuses(world) == ["deleted"]


def test_a_host_is_given_no_work_before_its_slice_is_ready() -> None:
    world, provisioner = with_work(1, spec=replace(CPU, hosts=2))
    turn(world, provisioner)
    boot(world, "cpu-0")
    schedule(world)
    assert world.ledger.jobs[1].task(0).state is TaskState.PENDING
    row = next(one for one in world.snapshot().workers if one.worker == "cpu-0-0")
    assert (row.state, row.reason) == (WorkerState.DRAINING, "its slice is creating")


def test_a_host_of_a_pool_without_such_a_slice_is_given_no_work() -> None:
    world, _ = with_work(1)
    boot(world, "cpu-7")
    schedule(world)
    assert world.ledger.jobs[1].task(0).state is TaskState.PENDING


def told_since(world: World) -> tuple[str, float | None]:
    """The state of the pool, and since how many seconds."""
    told = world.query("pool", pool="cpu")
    since = told["since"]
    ago_s = None if since is None else world.now_ms / 1000 - _seconds(since)
    return told["state"], ago_s


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_pool_says_since_when_it_is_hindered() -> None:
    world, provisioner = with_work(1)
    assert told_since(world) == ("ok", None)
    provisioner.answer = "exhausted"
    turn(world, provisioner)
    assert told_since(world) == ("exhausted", 0.0)
    for _ in range(8):
        turn(world, provisioner, seconds=10.0)
    assert told_since(world) == ("exhausted", 80.0)
    world.change_fleet("pause", "cpu", reason="repairs")
    world.wait(5.0)
    world.change_fleet("set", "cpu", spec=replace(CPU, paused=True, price=2.0))
    assert told_since(world) == ("paused", 5.0)
    world.change_fleet("resume", "cpu")
    assert told_since(world) == ("ok", None)


def test_a_pool_says_since_when_its_longest_idle_slice_has_no_work() -> None:
    world, provisioner = with_work(2)
    turn(world, provisioner)
    assert world.query("pool", pool="cpu")["idle_since"] is None
    for number in range(2):
        world.wait(4.0)
        boot(world, f"cpu-{number}")
        turn(world, provisioner)
    shown = world.query("fleet_slices", pool="cpu")["items"]
    newer, older = (_seconds(one["idle_since"]) for one in shown)
    assert newer > older
    told = world.query("pool", pool="cpu")
    assert (told["idle"], _seconds(told["idle_since"])) == (2, older)


def test_lists_that_fail_are_told_and_no_time_of_a_list() -> None:
    world, provisioner = with_work(1)
    provisioner.list_error = "403"
    turn(world, provisioner)
    turn(world, provisioner, seconds=30.0)
    words = "what its provider has is not known, for its lists fail: 403"
    assert words in world.query("pool", pool="cpu")["warnings"]
    assert world.query("fleet")["listed_at"] is None
    provisioner.list_error = ""
    turn(world, provisioner, seconds=30.0)
    assert world.query("pool", pool="cpu")["warnings"] == []
    assert world.query("fleet")["listed_at"] is not None


def test_nothing_is_made_while_no_provisioner_is_there() -> None:
    world = World()
    world.change_fleet("set", "cpu", spec=replace(CPU, min=1))
    world.wait(20.0)
    assert (statuses(world), world.fleet_orders) == ([], [])
    turn(world, Provisioner(world))
    world.wait(1.0)
    assert statuses(world) == ["requested"]


def test_a_dry_run_tells_what_it_would_do_and_does_nothing_of_it() -> None:
    world = World()
    world.ledger.fleet_policy = world.ledger.fleet_policy._replace(dry_run=True)
    provisioner = Provisioner(world)
    world.change_fleet("set", "cpu", spec=CPU)
    resources = ResourceRequest(cpu_millis=4000)
    world.submit(JobSpec(name="/a", command=("true",), replicas=3, resources=resources))
    schedule(world)
    for _ in range(3):
        turn(world, provisioner, seconds=10.0)
    assert (statuses(world), world.fleet_orders) == ([], [])
    fleet = world.query("fleet")
    assert (fleet["dry_run"], fleet["need"]) == (True, 2)
    [unmet] = fleet["unmet"]
    assert (unmet["tasks"], [one["code"] for one in unmet["pools"]]) == (1, ["at_max"])
    plan = world.query("pool_plan", spec=to_json(CPU).decode())
    assert plan == {"create": 2, "delete": 0, "tasks": 2, "left": 1}
    [obstacle] = world.query("why", job="/a")["pending_reason"]["facts"]["pools"]
    assert (obstacle["pool"], obstacle["code"]) == ("cpu", "dry_run")
    told = scraped(StateMetrics(lambda: world.machine))
    assert (told["iris_fleet_dry_run"], told['iris_fleet_need_slices{pool="cpu"}']) == (1, 2)


def test_one_of_two_provisioners_is_ordered_and_the_other_takes_over() -> None:
    world, first = with_work(2)
    second = Provisioner(world, "p2")
    turn(world, first, second)
    turn(world, first, second)
    assert (sorted(first.has), sorted(second.has)) == (["cpu-0", "cpu-1"], [])
    world.change_fleet("drain", "cpu-0")
    for _ in range(4):
        turn(world, second, seconds=5.0)
    assert {one.provisioner for one in world.fleet_orders[-2:]} == {"p2"}


def test_an_answer_to_an_earlier_leader_is_no_consent() -> None:
    world, provisioner = with_work(1)
    world.wait(1.0)
    provisioner.work()
    world.take_over(1.0)
    provisioner.report()
    assert statuses(world) == ["requested"]
    for _ in range(3):
        turn(world, provisioner)
    assert statuses(world) == ["creating"]


def test_a_refusal_for_capacity_puts_the_pool_off_and_says_so() -> None:
    world, provisioner = with_work(1)
    provisioner.answer = "exhausted"
    turn(world, provisioner)
    assert statuses(world) == ["failed"]
    assert world.query("pool", pool="cpu")["state"] == "exhausted"
    said = [(subject, body["cause"]) for subject, body in world.events if "fleet" in subject]
    assert ("fleet.slice.failed", "exhausted") in said
    assert ("fleet.pool.exhausted", "exhausted") in said


@pytest.mark.parametrize(
    ("asked_s", "waits_s", "reason"),
    [
        (0.0, 30, "no capacity"),
        (5.0, 30, "no capacity"),
        (7200.0, 7200, "no capacity"),
        (86_400.0, 86_400, "no capacity"),
        (172_800.0, 86_400, "no capacity (asks for 2d, is asked again after 1d)"),
        (math.inf, 86_400, "no capacity (asks for 1000000000s, is asked again after 1d)"),
        (math.nan, 30, "no capacity"),
        (-1.0, 30, "no capacity"),
    ],
)
def test_a_provider_is_asked_again_when_it_says_and_what_is_cut_is_said(
    asked_s: float, waits_s: int, reason: str
) -> None:
    world, provisioner = with_work(1)
    provisioner.answer, provisioner.detail = "exhausted", "no capacity"
    provisioner.retry_after_s = asked_s
    turn(world, provisioner)
    told = world.query("pool", pool="cpu")
    assert told["reason"] == reason
    assert round(_seconds(told["until"]) - world.now_ms / 1000) == waits_s
    world.change_fleet("resume", "cpu")
    assert told_since(world) == ("ok", None)


def test_of_slices_that_are_refused_together_the_longest_delay_counts() -> None:
    world, provisioner = with_work(2)
    provisioner.answer, provisioner.detail = "exhausted", "no capacity"
    world.wait(1.0)
    provisioner.work()
    assert len(provisioner.answers) == 2
    asked = {"cpu-0": 3600.0, "cpu-1": 7200.0}
    provisioner.answers = [
        replace(one, retry_after_s=asked[one.slice]) for one in provisioner.answers
    ]
    provisioner.report()
    told = world.query("pool", pool="cpu")
    assert round(_seconds(told["until"]) - world.now_ms / 1000) == 7200


def test_what_runs_on_a_slice_that_is_taken_away_is_preempted() -> None:
    world, provisioner = with_work(1)
    turn(world, provisioner)
    boot(world, "cpu-0")
    turn(world, provisioner)
    schedule(world)
    provisioner.has.clear()
    source = ListAnswer("process", {}, world.now_ms, (FoundSlice("cpu-0", 1, "preempted"),))
    provisioner.lists.append(source)
    provisioner.report()
    turn(world)
    task = world.ledger.jobs[1].task(0)
    assert statuses(world)[0] == "deleting"
    assert task.attempts[0].cause is Cause.PREEMPTED
    assert task.state is TaskState.PENDING


def gang_on_a_slice() -> tuple[World, Provisioner]:
    """A gang of two runs on the only slice of a pool whose slices have two hosts."""
    spec = replace(CPU, hosts=2, attributes={"rack": "a"})
    world = World()
    provisioner = Provisioner(world)
    world.change_fleet("set", "cpu", spec=spec)
    resources = ResourceRequest(cpu_millis=4000)
    together = Coscheduling("rack")
    world.submit(
        JobSpec(
            name="/g", command=("true",), replicas=2, resources=resources, coscheduling=together
        )
    )
    schedule(world)
    provisioner.report()
    turn(world, provisioner)
    for index in range(2):
        given = {"tpu-name": "cpu-0", "tpu-worker-id": index, "capacity": "on_demand", "rack": "a"}
        world.register(Host(f"cpu-0-{index}", Amount(4000, 1 << 34, 1 << 34), given))
    turn(world, provisioner)
    schedule(world)
    return world, provisioner


def test_a_host_that_is_to_be_taken_away_ends_its_slice_and_makes_another() -> None:
    world, provisioner = gang_on_a_slice()
    world.leave("cpu-0-0", "stopping", "this VM is being preempted", notice_ms=30_000)
    [one] = world.ledger.fleet.slices.values()
    assert (one.status.value, one.cause.value) == ("draining", "spot_notice")
    assert one.deadline_ms == world.now_ms + 30_000
    job = world.ledger.jobs[1]
    ends = [task.attempts[0].cause for task in map(job.task, range(2))]
    assert ends == [Cause.PREEMPTED, Cause.PREEMPTED]
    schedule(world)
    turn(world, provisioner)
    assert statuses(world) == ["draining", "creating"]


def test_a_notice_outlives_its_leader_and_a_slice_that_boots_is_withdrawn() -> None:
    world, provisioner = with_work(1)
    turn(world, provisioner)
    attributes = {"tpu-name": "cpu-0", "tpu-worker-id": 0, "capacity": "on_demand"}
    world.register(Host("cpu-0-0", Amount(1000, 1 << 34, 1 << 34), attributes))
    world.leave("cpu-0-0", "stopping", "this VM is being preempted", notice_ms=1 << 60)
    [one] = world.ledger.fleet.slices.values()
    assert (one.status.value, one.cause.value) == ("deleting", "spot_notice")
    world.take_over(1.0)
    noticed_ms = world.ledger.workers["cpu-0-0"].notice_ms
    assert world.now_ms < noticed_ms <= world.now_ms + 24 * 3_600_000


def test_a_cluster_without_pools_sets_no_timer_and_orders_nothing() -> None:
    world = World()
    provisioner = Provisioner(world)
    provisioner.report()
    assert world.machine.round.fleet.next_due() is None
    world.wait(60.0)
    assert world.fleet_orders == []


def test_the_slot_of_a_deleted_slice_is_free_at_once() -> None:
    world, provisioner = with_work(1, spec=replace(CPU, max=1))
    turn(world, provisioner)
    boot(world, "cpu-0")
    turn(world, provisioner)
    world.change_fleet("drain", "cpu-0")
    for _ in range(8):
        turn(world, provisioner, seconds=5.0)
        world.leave("cpu-0-0", "gone") if "cpu-0" not in provisioner.has else None
        if statuses(world)[0] == "deleted":
            break
    schedule(world)
    for _ in range(2):
        turn(world, provisioner)
    assert statuses(world) == ["deleted", "creating"]


def end_slice(world: World, provisioner: Provisioner) -> None:
    """The slice of the only ready host is deleted, and its worker says that it ends."""
    turn(world, provisioner)
    boot(world, "cpu-0")
    turn(world, provisioner)
    world.change_fleet("drain", "cpu-0")
    turn(world, provisioner, seconds=6.0)
    world.leave("cpu-0-0", "gone")


def test_the_lost_host_of_a_slice_is_no_lost_worker_while_it_is_deleted() -> None:
    world, provisioner = with_work(1, spec=replace(CPU, max=1))
    end_slice(world, provisioner)
    assert statuses(world) == ["deleting"]
    [row] = world.query("workers")["items"]
    assert (row["state"], row["given_up"]) == ("lost", True)
    seen = scraped(StateMetrics(lambda: world.machine))
    assert [name for name in seen if name.startswith("iris_host_unwell")] == []


def test_lost_hosts_are_forgotten_with_their_slice() -> None:
    world, provisioner = with_work(1, spec=replace(CPU, max=1))
    end_slice(world, provisioner)
    world.change_fleet("set", "cpu", spec=replace(CPU, paused=True))
    assert sorted(world.ledger.workers) == ["cpu-0-0"]
    for _ in range(4):
        turn(world, provisioner, seconds=5.0)
    assert statuses(world) == ["deleted"]
    assert sorted(world.ledger.workers) == []


def test_a_removed_pool_leaves_no_host_that_is_lost_later() -> None:
    world, provisioner = with_work(1)
    turn(world, provisioner)
    boot(world, "cpu-0")
    turn(world, provisioner)
    world.hosts["cpu-0-0"].silent = True  # its machine is deleted, and it says nothing
    world.change_fleet("remove", "cpu", drain=True)
    for _ in range(30):
        turn(world, provisioner, seconds=5.0)
    assert world.ledger.fleet.pools == {}
    assert sorted(world.ledger.workers) == []


def test_nothing_is_made_before_the_keys_of_a_pool_are_counted() -> None:
    world = World()
    provisioner = Provisioner(world, keyed={})
    world.change_fleet("set", "cpu", spec=replace(CPU, min=1))
    turn(world, provisioner)
    turn(world, provisioner, seconds=10.0)
    assert statuses(world) == []
    assert world.fleet_orders[-1].slots == {"cpu": (2, 1)}
    provisioner.keyed = {"cpu": 0}  # it has counted: there are none
    turn(world, provisioner, seconds=10.0)
    assert statuses(world) == []
    provisioner.keyed = {"cpu": 1}
    turn(world, provisioner)
    turn(world, provisioner)
    assert statuses(world) == ["creating"]


def test_a_pool_that_no_program_can_serve_is_halted_and_goes() -> None:
    world, provisioner = with_work(1)
    provisioner.answer = "refused"
    turn(world, provisioner)
    assert statuses(world) == ["failed"]
    shown = world.query("pool", pool="cpu")
    assert (shown["state"], shown["paused"]) == ("paused", False)
    world.change_fleet("remove", "cpu", drain=True)
    assert world.ledger.fleet.pools == {}


def test_what_nobody_accepted_needs_no_list_to_be_deleted() -> None:
    world, provisioner = with_work(1)
    world.wait(1.0)
    assert statuses(world) == ["requested"]
    provisioner.read = len(world.fleet_orders)  # the order is lost
    provisioner.delete_answer = "refused"
    world.change_fleet("remove", "cpu", drain=True)
    world.wait(6.0)
    provisioner.work()
    provisioner.lists.clear()  # none works
    provisioner.report()
    assert statuses(world) == ["deleted"]
    world.wait(6.0)
    assert world.ledger.fleet.pools == {}


def test_a_slice_says_why_its_creation_failed_while_it_is_tried_again() -> None:
    world, provisioner = with_work(1)
    provisioner.answer, provisioner.detail = "failed", "host cpu-0-0 has no key"
    turn(world, provisioner)
    [row] = world.query("fleet_slices")["items"]
    assert (row["status"], row["detail"]) == ("requested", "host cpu-0-0 has no key")
    provisioner.answer, provisioner.detail = "accepted", "made"
    turn(world, provisioner, seconds=6.0)
    [row] = world.query("fleet_slices")["items"]
    assert (row["status"], row["detail"]) == ("creating", "made")


TPU = replace(
    CPU,
    resources=HostResources(cpu_millis=4000, chips=1),
    attributes={"device-type": "tpu", "device-variant": "v5litepod-1"},
    min=1,
)
ON_TPU = Constraint("device-type", ConstraintOp.EQ, "tpu")


@pytest.mark.parametrize(
    ("only", "constraints", "is_placed"),
    [("", (), False), ("device", (), False), ("any", (), True), ("", (ON_TPU,), True)],
)
def test_work_without_a_device_is_placed_on_no_host_for_devices(
    only: str, constraints: tuple[Constraint, ...], is_placed: bool
) -> None:
    world = World()
    provisioner = Provisioner(world)
    world.change_fleet("set", "cpu", spec=replace(TPU, only=only))
    provisioner.report()
    turn(world, provisioner)
    turn(world, provisioner)
    boot(world, "cpu-0", **TPU.attributes, chips=1)
    turn(world, provisioner, seconds=6.0)
    assert statuses(world) == ["ready"]
    spec = JobSpec(name="/a", command=("true",), constraints=constraints)
    world.submit(spec)
    schedule(world)
    task = world.ledger.jobs[1].task(0)
    assert (task.state is TaskState.ASSIGNED) == is_placed


@pytest.mark.parametrize(
    ("keys", "keyed", "warnings"),
    [
        ("none", {"cpu": 10_000}, []),
        ("given", {}, ["its slots are not counted yet: those without keys will not be used"]),
        ("given", {"cpu": 1}, ["1 of 2 slots have no keys and are not used"]),
        ("made", {}, []),
        ("made", {"cpu": 1}, ["1 of 2 slots have no keys yet"]),
        ("made", {"cpu": 2}, []),
    ],
)
def test_a_pool_says_which_slots_have_no_keys(
    keys: str, keyed: dict[str, int], warnings: list[str]
) -> None:
    world = World()
    world.change_fleet("set", CPU.name, spec=CPU)
    report = ProvisionerReport(provisioner="p1", keys=keys, keyed=keyed)
    world.step(FleetReport(pack(report)))
    assert world.query("pool", pool="cpu")["warnings"] == warnings


def test_what_becomes_of_orphans_is_told_once() -> None:
    world, provisioner = with_work(0)
    provisioner.has = {
        name: SliceOrder("create", "process", {}, name[:-2], name, 77)
        for name in ("cpu-1", "old-1")
    }
    boot(world, "cpu-1")
    for _ in range(8):
        turn(world, provisioner, seconds=150.0)
    said = [(subject, body) for subject, body in world.events if "fleet.orphan" in subject]
    assert [(subject, body["pool"], body["cause"]) for subject, body in said] == [
        ("fleet.orphan.adopted", "cpu", "adopted"),
        ("fleet.orphan.deleted", "old", "orphan"),
    ]
    assert said[1][1]["detail"] == "old-1, which its provider has with number 77"
