"""No valid sequence of inputs leads to a message larger than the limit."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_bus.contract import Message, Publication
from iris_bus.journal import framing
from iris_core import codec, subjects
from iris_core.admission.jobs import validate_spec
from iris_core.limits import (
    ATTEMPTS,
    CHUNK_BYTES,
    MESSAGE_BYTES,
    REASONS_BYTES,
    SENTENCE,
    SPEC_BYTES,
    TAIL,
    WORKER_BYTES,
)
from iris_core.messages.gateway_state import SubmitJob
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Delta, FullSnapshot, JobReason, Plan, Reasons
from iris_core.messages.state_worker import (
    Artifact,
    Ended,
    Gang,
    Order,
    Register,
    ReportTaken,
    Stop,
    TaskTemplate,
    WorkerReport,
)
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.spec.jobs import (
    MAX_COMMAND_BYTES,
    MAX_ENV_BYTES,
    MAX_TEXT,
    MAX_VALUES,
    Constraint,
    JobSpec,
)
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.states import Cause, ConstraintOp, KernelStatus
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import plan
from iris_scheduler.settings import SchedulerSettings
from iris_state.effects import orders
from iris_state.effects.kinds import MirrorDelta, OrderTo, Output, ReplyTo
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.inputs import Request
from iris_worker.agent.agent import Agent
from iris_worker.agent.heartbeat import HeartbeatSchedule
from tests.support import first_fit
from tests.support import memory as bus_memory
from tests.support.house import House
from tests.support.script import Script
from tests.support.world import ADMIN, Host, World, stage

NOW_MS = 1_700_000_000_000
SIZES = st.sampled_from((0, 1, 1000, 100_000, 1 << 30))
"""1 << 30: as large as it may be."""


class Weighed(World):
    """A world in which every message is weighed."""

    def __init__(self) -> None:
        self.largest = 0
        super().__init__()

    def send(self, output: Output) -> None:
        sizes = [
            len(one.data) for kind in (ReplyTo, MirrorDelta, Publication) for one in output.of(kind)
        ]
        sizes += [
            len(codec.pack(part)) for one in output.of(OrderTo) for part in orders.parts(one.order)
        ]
        commit = output.commit or b""
        sizes += [len(part) for part in framing.split(commit, self.policy.journal_part_bytes)]
        self.largest = max(self.largest, *sizes)
        super().send(output)

    def check(self) -> None:
        """The mirror is that of another test: here deltas are too large to follow."""


def job(number: int, size: int, *, replicas: int = 1, where: int = 0) -> JobSpec:
    """About so many bytes, or as many as there may be, in its environment, its command, its
    constraints, or all.
    """
    values = tuple(f"{v:v>{MAX_TEXT}}" for v in range(min(MAX_VALUES - 1, size // MAX_TEXT)))
    near = Constraint("zone", ConstraintOp.IN, values=("eu", *values))
    env = {"A": "e" * min(size, MAX_ENV_BYTES - 3)} if where in (0, 3) else {}
    command = ("work", "c" * min(size, MAX_COMMAND_BYTES - 20)) if where in (1, 3) else ("work",)
    constraints = (near,) * 2 if where in (2, 3) else ()
    return JobSpec(
        name=f"/a{number}", command=command, env=env, constraints=constraints, replicas=replicas
    )


def host(number: int) -> Host:
    padding = {f"a{n}": "x" * MAX_TEXT for n in range(200)}
    return Host(f"w{number}", Amount(64_000, 1 << 40, 1 << 40), {"zone": "eu", **padding})


steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), SIZES, st.integers(1, 400), st.integers(0, 3)),
        st.tuples(st.just("place")),
        st.tuples(st.just("cancel"), st.integers(0, 9), SIZES),
        st.tuples(st.just("end"), SIZES),
    ),
    max_size=12,
)


@given(steps)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_message_is_larger_than_one_may_be(walk: list[tuple]):
    world = Weighed()
    for number in range(4):
        world.register(host(number))
    submitted = 0
    for what, *given_ in walk:
        if what == "submit":
            size, replicas, where = given_
            submitted += 1
            assert (
                world.submit(job(submitted, size, replicas=replicas, where=where)).status
                == "created"
            )
        elif what == "place":
            whole = Mirror.of(everything(world.machine)).snapshot()
            world.plan(first_fit.plan(whole))
        elif what == "cancel":
            number, size = given_
            answer = world.cancel(
                f"/a{number}", reason="r" * size if size < 1 << 30 else "r" * SENTENCE
            )
            assert answer.status in ("accepted", "not_found", "invalid")
        else:
            say_ends(world, given_[0])
        everything(world.machine)
    assert world.largest <= MESSAGE_BYTES


def say_ends(world: World, size: int) -> None:
    """Everything that runs fails, with as many words as a host may use."""
    words = min(size, 100_000)
    artifact = Artifact("u" * words, 1, 1, "n" * words)
    ended = Ended(Cause.EXITED, 1, error="e" * words, stderr_tail="t" * words, artifact=artifact)
    for name, presence in world.ledger.presence.items():
        for key in list(presence.open)[:3]:
            world.say(name, stage(AttemptRef(*key), KernelStatus.TERMINATED, world.now_ms, ended))
            closed = world.ledger.attempt(key)
            if closed is not None and closed.artifact is not None:
                texts = closed.error, closed.artifact.note, closed.artifact.upload
                assert max(map(len, texts)) <= SENTENCE
                assert len(closed.stderr_tail) <= TAIL


def everything(machine: Machine) -> list[FullSnapshot]:
    """The chunks of a full snapshot, each within its bound."""
    output = machine.step([Request(subjects.SNAPSHOT_FULL, b"", "full")], machine.last_ms)
    chunks = [one.data for one in output.of(ReplyTo)]
    assert max(map(len, chunks)) <= CHUNK_BYTES + 2 * SPEC_BYTES < MESSAGE_BYTES
    read = [codec.unpack(data, FullSnapshot) for data in chunks]
    assert [chunk.last for chunk in read] == [False] * (len(read) - 1) + [True]
    return read


def test_many_small_waiting_jobs_are_sent_in_chunks_and_explained_in_plans():
    machine = Machine(Policy(), "m")
    machine.replay(1, machine.bid(NOW_MS))
    machine.lead(NOW_MS)
    count = 16_000
    near = (Constraint("zone", ConstraintOp.IN, values=("x" * 90, "y" * 90)),)
    for first in range(0, count, 4000):
        wishes = [
            SubmitJob(
                JobSpec(name=f"/a{n}", command=("true",), constraints=near), ADMIN, f"r{n}", NOW_MS
            )
            for n in range(first, first + 4000)
        ]
        output = machine.step(
            [Request(subjects.CMD_SUBMIT, codec.pack(command), "") for command in wishes],
            NOW_MS,
        )
        assert [len(delta.data) <= MESSAGE_BYTES for delta in output.of(MirrorDelta)] == [True]
    chunks = everything(machine)
    assert sum(len(codec.pack(chunk)) for chunk in chunks) > MESSAGE_BYTES
    mirror, cache = Mirror.of(chunks), Cache()
    assert len(mirror.jobs) == count
    told: set[int] = set()
    plans = 0
    while len(told) < count:
        decision = plan(mirror, cache, NOW_MS, SchedulerSettings())
        cache.learn(decision.columns, decision.findings, mirror.looked())
        mirror.changes.fresh |= decision.left
        assert len(codec.pack(decision.plan)) <= MESSAGE_BYTES
        assert decision.plan.reasons
        told |= {reason.job for reason in decision.plan.reasons}
        plans += 1
    assert plans > 1


def test_a_delta_that_is_too_large_follows_nothing():
    world = Weighed()
    wishes = [SubmitJob(job(n, 1 << 30, where=2), ADMIN, f"r{n}", world.now_ms) for n in range(6)]
    inputs = [Request(subjects.CMD_SUBMIT, codec.pack(command), "") for command in wishes]
    output = world.machine.step(inputs, world.now_ms)
    mirror = Mirror.of(everything(world.machine))
    assert mirror.version == output.sequence
    [delta] = output.of(MirrorDelta)
    assert not mirror.apply(codec.unpack(delta.data, Delta))
    assert not Mirror().apply(codec.unpack(delta.data, Delta))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), SIZES), max_size=30), st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_order_in_parts_says_what_the_whole_order_says(
    request: list[tuple[int, int, int]], register: bool
):
    refs: dict[str, list[AttemptRef]] = {"run": [], "prepare": [], "start": [], "stop": []}
    for index, (number, kind, _) in enumerate(request):
        refs[list(refs)[kind]].append(AttemptRef(number, index, 0))
    sizes = {number: size for number, _, size in request}
    templates = tuple(
        TaskTemplate(
            n, f"/a{n}", ("work",), {"A": "x" * min(size, MAX_ENV_BYTES)}, 1, ResourceRequest()
        )
        for n, size in sizes.items()
    )
    gangs = tuple(
        Gang(n, ("host",) * min(size // 100, 10_000)) for n, size in sizes.items() if n % 2
    )
    stops = tuple(map(Stop, refs.pop("stop")))
    order = Order(
        "i",
        1,
        templates,
        **{name: tuple(found) for name, found in refs.items()},
        stop=stops,
        gangs=gangs,
    )
    order = msgspec.structs.replace(order, register=register)
    parts = list(orders.parts(order))
    for name in ("run", "prepare", "start", "stop"):
        assert tuple(ref for part in parts for ref in getattr(part, name)) == getattr(order, name)
    for part in parts:
        assert len(codec.pack(part)) <= CHUNK_BYTES + MAX_ENV_BYTES + MAX_COMMAND_BYTES
        named = {ref.job for ref in (*part.run, *part.prepare, *part.start)}
        assert named == {t.job for t in part.templates} or len(parts) == 1
        assert {n for n in named if n % 2} == {gang.job for gang in part.gangs} or len(parts) == 1
        assert (part.incarnation, part.epoch, part.register) == ("i", 1, register)


def test_a_job_that_is_too_large_is_refused_with_its_size_and_the_limit():
    values = tuple(f"{v:v>{MAX_TEXT}}" for v in range(MAX_VALUES))
    near = tuple(Constraint(f"zone-{n}", ConstraintOp.IN, values=values) for n in range(5))
    (mistake,) = validate_spec(JobSpec(name="/a", command=("true",), constraints=near))
    assert mistake.code == "too_large"
    assert "bytes long; the limit is 1048576" in mistake.message


def test_a_job_of_very_many_mistakes_is_refused_with_the_first_of_them():
    near = tuple(Constraint(f"ZONE-{n}") for n in range(64))
    env = {f"{n}": "x" for n in range(1000)}
    assert (
        len(validate_spec(JobSpec(name="/a", command=("true",), env=env, constraints=near))) == 100
    )


@pytest.mark.parametrize("what", ["cancel", "drain", "target"])
def test_a_reason_is_a_sentence(what: str):
    world = World()
    world.register(host(0))
    world.submit(job(1, 0))
    answer = {
        "cancel": lambda: world.cancel("/a1", reason="r" * (SENTENCE + 1)),
        "drain": lambda: world.admin("drain", "w0", reason="r" * (SENTENCE + 1)),
        "target": lambda: world.admin("set_quota", "u" * (SENTENCE + 1)),
    }[what]()
    assert answer.status == "invalid"
    assert (
        f"{SENTENCE} characters" in answer.body.decode()
        or f"the limit is {SENTENCE}" in answer.body.decode()
    )


def test_a_host_that_says_too_much_of_itself_is_not_registered():
    world = World()
    register = Register(
        "w0", "1", {f"a{n}": "x" * 1000 for n in range(100)}, Amount(), world.now_ms
    )
    report = codec.pack(WorkerReport("w0", "1", register=register))
    assert not world.step(Request(subjects.report("w0"), report, "r")).of(ReplyTo)
    assert world.register(host(0)) == ReportTaken()


def test_the_heartbeat_of_a_host_fits_whatever_it_is_ordered_to_run():
    agent = Agent("i" * 32)
    words = Ended(
        Cause.EXITED, 255, None, "\N{GRINNING FACE}" * SENTENCE, "t" * TAIL, 1 << 50, 1 << 50
    )
    large = 1 << 40
    template = TaskTemplate(large, "/a", ("true",), {}, 1, ResourceRequest(), bundle="b")
    for first in range(0, 4 * ATTEMPTS, 1000):
        refs = tuple(AttemptRef(large, index, large) for index in range(first, first + 1000))
        taken, _ = agent.on_order(Order(agent.incarnation, 1, (template,), prepare=refs), NOW_MS)
        assert taken.taken == (first < ATTEMPTS)
        if taken.taken:
            for ref in refs:
                agent.on_prepared(ref, NOW_MS)
            agent.on_order(Order(agent.incarnation, 1, start=refs), NOW_MS)
    while (held := agent.next_launch()) is not None:
        agent.on_started(held.ref, NOW_MS)
        agent.on_ended(held.ref, words, NOW_MS)
    stages = agent.attempts()
    assert (len(agent), len(stages)) == (ATTEMPTS, 6 * ATTEMPTS)
    heartbeat, _ = HeartbeatSchedule("w" * 255, agent.incarnation, 5.0).heartbeat(
        stages, 1e9, NOW_MS, "d" * SENTENCE
    )
    assert len(codec.pack(heartbeat)) + 2 * WORKER_BYTES <= MESSAGE_BYTES


def test_a_host_is_given_no_more_attempts_than_it_says_it_takes(script: Script):
    script.play("""
        worker w0 cpu=8 attempts=2
        submit /a replicas=3
        place /a/0 w0
        place /a/1 w0
        place /a/2 w0   -> no_room
        /a/0 running
        /a/0 exit 0
        place /a/2 w0
        /a/2            -> ASSIGNED
    """)


def test_a_host_is_given_as_many_tasks_as_fit_a_heartbeat():
    world = World()
    world.register(Host("w0", Amount(64_000), {}, 10 * ATTEMPTS))
    assert world.ledger.workers["w0"].max_attempts == ATTEMPTS


async def test_reasons_of_many_plans_are_sent_in_messages_that_fit():
    house = House(bus_memory.Memory())
    house.lead()
    told: list[Reasons] = []
    sizes: list[int] = []

    def hear(message: Message) -> None:
        sizes.append(len(message.data))
        told.append(codec.unpack(message.data, Reasons))

    async with asyncio.timeout(60):
        await house.submit("/a")
        bus = house.wanting.bus
        await bus.subscribe(subjects.STATE_REASONS, hear)
        reasons = tuple(
            JobReason(1, Reason(ReasonCode.NO_MATCH, "x" * SENTENCE)) for _ in range(500)
        )
        plan_of = Plan("scheduler", 1, reasons=reasons)
        assert len(codec.pack(plan_of)) < REASONS_BYTES
        taken = [
            bus.request(subjects.STATE_PLAN, codec.pack(plan_of), timeout=20) for _ in range(12)
        ]
        await asyncio.gather(*taken)
        while sum(len(each.reasons) for each in told) < 12 * len(reasons):
            await asyncio.sleep(0)
        await house.end()
    assert max(sizes) <= MESSAGE_BYTES
