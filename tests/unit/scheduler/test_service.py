"""The scheduler's shell on an in-memory bus: it loads a snapshot, follows deltas, plans once, and
recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from iris_bus.contract import Message
from iris_core import codec, subjects
from iris_core.messages.gateway_scheduler import PlanPreview, PlanRequest
from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.processes import Ping
from iris_core.messages.scheduler_state import Delta, FullSnapshot, Plan, PlanTaken
from iris_core.placement.reasons import ReasonCode
from iris_core.spec.jobs import JobSpec
from iris_scheduler.service import Scheduler
from iris_scheduler.settings import SchedulerSettings
from tests.support.memory import Memory, MemoryConnection
from tests.support.scheduling import Story, worker


class StatePart:
    """Plays the state service on the bus: answers snapshots, takes plans, tells deltas.

    Attributes:
        refuse: asked for each plan; a cause refuses all of it. told: whether deltas are published.
        plans: every plan that arrived. snapshots: how often everything was asked for.
    """

    def __init__(self, connection: MemoryConnection, story: Story) -> None:
        self.bus = connection.bus
        self.story = story
        self.refuse: Callable[[Plan], str] = lambda _: ""
        self.plans: list[Plan] = []
        self.snapshots = 0
        self.chunks = 1
        self.epoch = 1
        self.mute = False
        self.tell = True
        self.changes = asyncio.Event()
        story.on_delta = self._delta

    async def start(self) -> None:
        await self.bus.subscribe(subjects.SNAPSHOT_FULL, self._full)
        await self.bus.subscribe(subjects.STATE_PLAN, self._plan)
        await self.bus.subscribe(subjects.STATE_PING, self._ping)

    def _delta(self, delta: Delta) -> None:
        if self.tell:
            self.bus.publish(subjects.SNAPSHOT, codec.pack(delta))

    def _full(self, message: Message) -> None:
        self.snapshots += 1
        whole = self.story.mirror.snapshot()
        parts = [
            FullSnapshot(
                whole.version,
                whole.at_ms,
                whole.jobs,
                whole.workers,
                whole.quotas,
                last=self.chunks == 1,
            ),
            FullSnapshot(
                whole.version, whole.at_ms, holds=whole.holds, queued=whole.queued, chunk=1
            ),
        ]
        for part in parts if self.chunks > 1 else [whole]:
            self.bus.publish(message.reply, codec.pack(part))
        self.changes.set()

    def _plan(self, message: Message) -> None:
        made = codec.unpack(message.data, Plan)
        self.plans.append(made)
        self.changes.set()
        if self.mute:
            return
        cause = self.refuse(made)
        refused = (
            [(p.job, index, cause) for p in made.placements for index in p.indexes] if cause else []
        )
        if not cause:
            self.story.carry_out(made)
        placed = sum(len(p.indexes) for p in made.placements) - len(refused)
        self.bus.publish(
            message.reply, codec.pack(PlanTaken(self.story.mirror.version, placed, tuple(refused)))
        )

    def _ping(self, message: Message) -> None:
        self.bus.publish(
            message.reply, codec.pack(Ping("me", self.epoch, self.story.mirror.version))
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.changes.clear()
                await self.changes.wait()

    def placed(self) -> dict[str, str]:
        return {task: host for made in self.plans for task, host in self.story.places(made).items()}


class Stage:
    """A bus with a state service and a scheduler on it."""

    def __init__(self, story: Story) -> None:
        self.memory = Memory()
        self.state = StatePart(self.memory.connect("state"), story)
        self.stop = asyncio.Event()
        settings = SchedulerSettings(answer_timeout_s=0.3, check_s=0.05)
        self.scheduler = Scheduler(self.memory.connect("scheduler").bus, settings, self.stop)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(Story(worker("a", 4), worker("b", 4)))
    running = asyncio.ensure_future(stage.scheduler.run())
    yield stage
    stage.stop.set()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(running, 60)
    assert running.done()
    running.result()


async def test_what_waited_before_it_came_is_placed(stage: Stage) -> None:
    stage.state.story.submit("/early", 2)
    await stage.state.start()
    await stage.state.until(lambda: len(stage.state.placed()) == 2)
    assert stage.state.placed() == {"/early/0": "a", "/early/1": "a"}


async def test_a_submission_is_placed_as_soon_as_it_is_told(stage: Stage) -> None:
    await stage.state.start()
    await stage.state.until(lambda: stage.state.snapshots == 1)
    stage.state.story.submit("/one")
    await stage.state.until(lambda: bool(stage.state.plans))
    assert stage.state.placed() == {"/one/0": "a"}


async def test_nothing_is_planned_twice(stage: Stage) -> None:
    await stage.state.start()
    for number in range(8):
        stage.state.story.submit(f"/job-{number}")
        await asyncio.sleep(0)
    await stage.state.until(lambda: len(stage.state.placed()) == 8)
    tasks = [task for made in stage.state.plans for task in stage.state.story.places(made)]
    assert sorted(tasks) == sorted(set(tasks))


async def test_a_snapshot_may_come_in_chunks(stage: Stage) -> None:
    stage.state.chunks = 2
    stage.state.story.submit("/early")
    await stage.state.start()
    await stage.state.until(lambda: bool(stage.state.placed()))
    assert stage.state.placed() == {"/early/0": "a"}


async def test_a_gap_in_the_deltas_makes_it_ask_for_everything(stage: Stage) -> None:
    await stage.state.start()
    await stage.state.until(lambda: stage.state.snapshots == 1)
    stage.state.tell = False
    stage.state.story.submit("/missed")
    stage.state.tell = True
    stage.state.story.submit("/heard")
    await stage.state.until(lambda: len(stage.state.placed()) == 2)
    assert stage.state.snapshots == 2


async def test_a_draft_right_behind_a_full_snapshot_is_planned(stage: Stage) -> None:
    story, bus = stage.state.story, stage.state.bus
    drafts: list[Delta] = []
    story.on_delta = lambda delta: drafts.append(
        msgspec.structs.replace(delta, version=delta.after)
    )
    story.submit("/drafted")

    def full(message: Message) -> None:
        bus.publish(
            message.reply, codec.pack(FullSnapshot(drafts[0].version, 1, workers=(worker("a", 4),)))
        )
        bus.publish(subjects.SNAPSHOT, codec.pack(drafts[0]))

    await bus.subscribe(subjects.SNAPSHOT_FULL, full)
    await bus.subscribe(subjects.STATE_PLAN, stage.state._plan)
    await stage.state.until(lambda: bool(stage.state.plans))
    assert stage.state.placed() == {"/drafted/0": "a"}


async def test_a_delta_lost_before_a_silence_is_missed(stage: Stage) -> None:
    await stage.state.start()
    await stage.state.until(lambda: stage.state.snapshots == 1)
    stage.state.tell = False
    stage.state.story.submit("/missed")
    stage.state.tell = True
    await stage.state.until(lambda: len(stage.state.placed()) == 1)
    assert stage.state.snapshots == 2


async def test_another_leader_is_told_every_reason_again(stage: Stage) -> None:
    await stage.state.start()
    stage.state.story.submit("/large", cpu=99)
    await stage.state.until(lambda: len(stage.state.plans) == 1)
    stage.state.epoch = 2
    await stage.state.until(lambda: len(stage.state.plans) == 2)
    assert stage.state.plans[0].reasons == stage.state.plans[1].reasons


async def test_a_state_service_that_begins_anew_makes_it_ask_for_everything(stage: Stage) -> None:
    await stage.state.start()
    await stage.state.until(lambda: stage.state.snapshots == 1)
    stage.state.bus.publish(subjects.SNAPSHOT, codec.pack(Delta(0, 0)))
    await stage.state.until(lambda: stage.state.snapshots == 2)


async def test_a_plan_without_an_answer_is_forgotten_and_everything_asked_again(
    stage: Stage,
) -> None:
    stage.state.mute = True
    await stage.state.start()
    stage.state.story.submit("/one")
    await stage.state.until(lambda: bool(stage.state.plans))
    stage.state.mute = False
    await stage.state.until(lambda: stage.state.snapshots == 2)
    await stage.state.until(lambda: len(stage.state.plans) == 2)


async def test_a_refused_task_pauses_with_a_reason_and_is_tried_again(stage: Stage) -> None:
    stage.state.refuse = lambda made: "no_room" if len(stage.state.plans) < 2 else ""
    await stage.state.start()
    stage.state.story.submit("/one")
    await stage.state.until(lambda: any(made.placements for made in stage.state.plans[1:]))
    update = [update.reason.code for made in stage.state.plans for update in made.reasons]
    assert update == [ReasonCode.DELAYED]


async def test_a_dry_run_is_answered_and_creates_nothing(stage: Stage) -> None:
    await stage.state.start()
    stage.state.story.submit("/one")
    await stage.state.until(lambda: bool(stage.state.plans))
    asker = stage.memory.connect("gateway").bus
    request = PlanRequest(JobSpec(name="/what-if", command=("true",), replicas=9), Caller("ann"), 0)
    answer = await asker.request(subjects.SCHEDULER_PLAN, codec.pack(request), timeout=5)
    preview = codec.unpack(answer.data, PlanPreview)
    assert preview.verdict == "not_now"
    assert [host for _, host in preview.placements] == ["a"] * 3 + ["b"] * 4
    assert len(stage.state.placed()) == 1


@pytest.mark.parametrize("reply", ["", "no subject", "a\x01b"])
async def test_who_asks_and_cannot_be_answered_ends_nobody(stage: Stage, reply: str) -> None:
    await stage.state.start()
    stage.state.story.submit("/one")
    await stage.state.until(lambda: bool(stage.state.plans))
    asker = stage.memory.connect("gateway").bus
    request = codec.pack(PlanRequest(JobSpec(name="/what-if", command=("true",)), Caller("ann"), 0))
    asker.publish(subjects.SCHEDULER_PLAN, request, reply=reply)
    answer = await asker.request(subjects.SCHEDULER_PLAN, request, timeout=5)
    assert codec.unpack(answer.data, PlanPreview)


async def test_room_that_comes_free_is_used_at_once(stage: Stage) -> None:
    await stage.state.start()
    stage.state.story.submit("/many", 9)
    await stage.state.until(lambda: len(stage.state.placed()) == 8)
    stage.state.story.tell(closed=(AttemptRef(1, 0, 0),))
    await stage.state.until(lambda: len(stage.state.placed()) == 9)
    assert stage.state.placed()["/many/8"] == "a"


@pytest.mark.parametrize("now_ms", [1_000_000, 10_000_000_000_000], ids=["behind", "ahead"])
async def test_a_delay_is_over_by_the_clock_of_whoever_set_it(stage: Stage, now_ms: int) -> None:
    story, loop = stage.state.story, asyncio.get_running_loop()
    story.now_ms = now_ms
    story.submit("/held")
    for host in ("a", "b"):
        story.avoid("/held", 0, host, 0.8)
    began_s = loop.time()
    await stage.state.start()
    await stage.state.until(lambda: bool(stage.state.placed()))
    assert loop.time() - began_s > 0.79
