"""The provisioner on a bus: whose orders it carries out, how often, and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from iris_bus.connection.keys import Keys
from iris_core import codec, subjects
from iris_core.access.roles import login
from iris_core.messages.state_provisioner import (
    FleetOrders,
    FoundSlice,
    ListOrder,
    ProviderOptions,
    ProvisionerReport,
    SliceOrder,
)
from iris_core.spec.pools import MAX_SLICES
from iris_provisioner.providers.provider import CallAnswer, ListFailed
from iris_provisioner.providers.slot_keys import SlotKeys
from iris_provisioner.service import Provisioner
from iris_service.wanted_keys import read_wanted
from tests.support.memory import Memory


class Cloud:
    """A provider that answers when it is let.

    Attributes:
        calls: the names of slices, in the order of the calls. trouble: what each call raises.
        has: what it lists.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.trouble: Exception | None = None
        self.has: tuple[FoundSlice, ...] = (FoundSlice("cpu-0", 1),)

    async def _answer(self, call: str, order: SliceOrder) -> CallAnswer:
        self.calls.append((call, order.slice))
        await self.open.wait()
        if self.trouble is not None:
            raise self.trouble
        return CallAnswer("accepted", "done")

    async def create(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        return await self._answer("create", order)

    async def delete(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        return await self._answer("delete", order)

    async def listed(self, options: ProviderOptions) -> tuple[FoundSlice, ...]:
        if self.trouble is not None:
            raise self.trouble
        return self.has


class Stage:
    """A provisioner, the leader's end of the bus, and a cloud."""

    def __init__(self, keys: str, wanted_keys: Path | None = None) -> None:
        memory = Memory()
        self.leader = memory.connect().bus
        self.cloud = Cloud()
        self.reports: asyncio.Queue[ProvisionerReport] = asyncio.Queue()
        self.stop = asyncio.Event()
        self.provisioner = Provisioner(
            memory.connect().bus,
            "p1",
            {"process": self.cloud},
            SlotKeys(keys),
            programs=("mine",),
            wanted_keys=wanted_keys,
        )

    async def begin(self) -> asyncio.Task[None]:
        await self.leader.subscribe(
            subjects.FLEET_REPORTS,
            lambda message: self.reports.put_nowait(codec.unpack(message.data, ProvisionerReport)),
        )
        return asyncio.create_task(self.provisioner.run(self.stop))

    def order(self, *calls: str, epoch: int = 1, to: str = "p1", **more: object) -> None:
        orders = tuple(
            SliceOrder(call, "process", {}, "cpu", "cpu-0", 1, number=1) for call in calls
        )
        message = FleetOrders(epoch, to, orders=orders, **more)  # type: ignore[arg-type]
        self.leader.publish(subjects.FLEET_ORDERS, codec.pack(message))

    async def told(self, wanted: Callable[[ProvisionerReport], object]) -> ProvisionerReport:
        """The next report of that kind."""
        async with asyncio.timeout(10):
            while True:
                report = await self.reports.get()
                if wanted(report):
                    return report


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(str(tmp_path))
    task = await made.begin()
    yield made
    made.stop.set()
    made.cloud.open.set()
    with suppress(asyncio.CancelledError):
        await task


async def test_it_tells_that_it_is_there_and_which_programs_it_has(stage: Stage) -> None:
    report = await stage.told(lambda _: True)
    assert (report.provisioner, report.programs, report.epoch) == ("p1", ("mine",), 0)


async def test_an_order_is_carried_out_and_answered(stage: Stage) -> None:
    stage.order("create", epoch=3)
    [answer] = (await stage.told(lambda report: report.answers)).answers
    assert (answer.call, answer.slice, answer.number, answer.answer, answer.detail) == (
        "create",
        "cpu-0",
        1,
        "accepted",
        "done",
    )


async def test_an_order_that_is_given_again_meanwhile_is_carried_out_once(stage: Stage) -> None:
    stage.cloud.open.clear()
    stage.order("create")
    stage.order("create")
    stage.order("create", "delete")
    await asyncio.sleep(0)
    stage.cloud.open.set()
    await stage.told(lambda report: [one for one in report.answers if one.call == "delete"])
    assert stage.cloud.calls == [("create", "cpu-0"), ("delete", "cpu-0")]


async def test_orders_of_an_older_leader_and_of_others_are_dropped(stage: Stage) -> None:
    stage.order("create", epoch=5)
    await stage.told(lambda report: report.answers)
    stage.order("delete", epoch=4)
    stage.order("delete", epoch=6, to="p2")
    stage.order(epoch=5, lists=(ListOrder("process", {}, 1),))
    await stage.told(lambda report: report.lists)
    assert stage.cloud.calls == [("create", "cpu-0")]


async def test_a_provider_that_raises_has_failed_that_call_only(stage: Stage) -> None:
    stage.cloud.trouble = OSError("no route")
    stage.order("create")
    [answer] = (await stage.told(lambda report: report.answers)).answers
    assert (answer.answer, "no route" in answer.detail) == ("failed", True)
    stage.cloud.trouble = None
    stage.order("create")
    [answer] = (await stage.told(lambda report: report.answers)).answers
    assert answer.answer == "accepted"


@pytest.mark.parametrize("trouble", [ListFailed("403"), OSError("403")])
async def test_a_list_that_failed_says_so(stage: Stage, trouble: Exception) -> None:
    stage.cloud.trouble = trouble
    stage.order(lists=(ListOrder("process", {}, 77),))
    [found] = (await stage.told(lambda report: report.lists)).lists
    assert (found.slices, "403" in found.error, found.asked_ms) == ((), True, 77)


async def test_a_list_that_no_message_holds_is_a_failed_one(stage: Stage) -> None:
    stage.cloud.has = tuple(FoundSlice("x" * 60 + str(n), n) for n in range(100_000))
    stage.order(lists=(ListOrder("process", {}, 77),))
    [found] = (await stage.told(lambda report: report.lists)).lists
    assert (found.slices, found.error.partition(" are ")[0]) == ((), "100,000 slices")


async def test_an_unknown_provider_is_a_failed_call_and_list(stage: Stage) -> None:
    order = SliceOrder("create", "gce", {}, "cpu", "cpu-0", 1, number=1)
    orders = FleetOrders(1, "p1", orders=(order,), lists=(ListOrder("gce", {}, 1),))
    stage.leader.publish(subjects.FLEET_ORDERS, codec.pack(orders))
    [found] = (await stage.told(lambda report: report.lists)).lists
    assert "no provider gce" in found.error


async def test_where_no_keys_are_needed_all_slots_are_told_to_have_them() -> None:
    stage = Stage("")
    task = await stage.begin()
    await stage.told(lambda _: True)  # it hears orders
    stage.order(slots={"cpu": (3, 2)})
    report = await stage.told(lambda report: report.keyed)
    assert report.keyed == {"cpu": MAX_SLICES}
    stage.stop.set()
    await task


async def test_hosts_without_keys_are_named_to_what_makes_keys(tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.json"
    stage = Stage(str(tmp_path / "keys"), wanted)
    task = await stage.begin()
    await stage.told(lambda _: True)  # it hears orders
    stage.order(slots={"cpu": (1, 2)})
    report = await stage.told(lambda report: report.keyed)
    assert (report.keyed, report.keys) == ({"cpu": 0}, "made")
    assert read_wanted(wanted) == ["cpu-0-0", "cpu-0-1"]
    Keys(tmp_path / "keys").ensure(login("worker", name).label for name in read_wanted(wanted))
    stage.order(slots={"cpu": (2, 2)})
    await stage.told(lambda report: report.keyed == {"cpu": 1})
    assert read_wanted(wanted) == ["cpu-1-0", "cpu-1-1"]
    stage.stop.set()
    await task


async def test_an_order_for_an_unknown_provider_is_refused(stage: Stage) -> None:
    order = SliceOrder("create", "moon", {}, "cpu", "cpu-0", 1, number=1)
    message = FleetOrders(1, "p1", orders=(order,))
    stage.leader.publish(subjects.FLEET_ORDERS, codec.pack(message))
    [answer] = (await stage.told(lambda report: report.answers)).answers
    assert (answer.answer, answer.detail) == ("refused", "this provisioner has no provider moon")


async def test_a_failure_is_logged_when_it_changes(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    for words in ("no key", "no key", "no disk", "no disk", "no key"):
        stage.cloud.trouble = ValueError(words)
        stage.order("create")
        [answer] = (await stage.told(lambda report: report.answers)).answers
        assert (answer.answer, answer.detail) == ("failed", repr(stage.cloud.trouble))
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "failed" in text] == [
        "create of cpu-0: failed: ValueError('no key')",
        "create of cpu-0: failed: ValueError('no disk')",
        "create of cpu-0: failed: ValueError('no key')",
    ]


async def test_slots_with_keys_are_counted_from_the_first(stage: Stage, tmp_path: Path) -> None:
    for host in ("cpu-0-0", "cpu-0-1", "cpu-1-0", "cpu-2-0", "cpu-2-1"):
        Keys(tmp_path).path(login("worker", host).label).touch()
    stage.order(slots={"cpu": (3, 2), "small": (2, 1)})
    report = await stage.told(lambda report: report.keyed)
    assert report.keyed == {"cpu": 1, "small": 0}
