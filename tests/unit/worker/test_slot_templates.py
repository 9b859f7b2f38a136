"""Which attempts wait until the slot that they get is empty."""

from __future__ import annotations

import asyncio

import pytest

from iris_worker.attempt.templates.slot_templates import SlotTemplates
from iris_worker.launcher.records.records import EmptySlot, SlotEmptied


class Slots(SlotTemplates):
    """``sent``: what the launcher was asked."""

    def __init__(self, *, empties: bool = True, outlived: bool = False) -> None:
        self.sent: list[EmptySlot] = []
        super().__init__(self.sent.append, lambda slot: 1000 + slot)
        self.begin(empties=empties, outlived=outlived)


async def waits(slots: Slots, slot: int, job: int, user: str) -> bool:
    """Whether an attempt waits; then the slot is emptied."""
    if (future := slots.empty(slot, job, user)) is None:
        return False
    assert not future.done()
    slots.on_emptied(SlotEmptied(slot))
    assert await future == ""
    return True


async def test_a_slot_without_templates_is_asked_for_by_nobody():
    slots = Slots()
    assert not await waits(slots, 0, 1, "ann")
    slots.hold(1, 1, "ann", "bare/a")
    assert not await waits(slots, 0, 2, "bob")
    assert slots.sent == []


async def test_attempts_of_the_same_job_do_not_wait():
    slots = Slots()
    slots.hold(0, 1, "ann", "bare/a")
    assert not await waits(slots, 0, 1, "ann")


async def test_another_job_of_the_user_keeps_the_bare_template():
    slots = Slots()
    slots.hold(0, 1, "ann", "bare/a")
    assert await waits(slots, 0, 2, "ann")
    assert not await waits(slots, 0, 3, "ann")
    assert await waits(slots, 0, 4, "bob")
    assert not await waits(slots, 0, 5, "eve")
    assert slots.sent == [EmptySlot(0, "bare/a", 1000), EmptySlot(0, "", 1000)]


async def test_the_bare_template_of_a_single_call_serves_its_user_only():
    slots = Slots()
    slots.hold(0, 0, "ann", "bare/a")
    assert not await waits(slots, 0, 2, "ann")
    assert await waits(slots, 0, 3, "bob")
    assert slots.sent == [EmptySlot(0, "", 1000)]


async def test_an_interpreter_that_a_job_has_brought_serves_no_other():
    slots = Slots()
    slots.hold(0, 1, "ann", "")
    assert await waits(slots, 0, 2, "ann")
    assert not await waits(slots, 0, 3, "bob")
    assert slots.sent == [EmptySlot(0, "", 1000)]


async def test_each_slot_is_emptied_once_after_a_restart_of_the_worker():
    slots = Slots(outlived=True)
    assert await waits(slots, 0, 1, "ann")
    assert not await waits(slots, 0, 2, "bob")
    slots.hold(1, 1, "ann", "bare/a")
    assert not await waits(slots, 1, 1, "ann")


@pytest.mark.parametrize("outlived", [False, True])
async def test_hosts_that_do_not_confine_tasks_empty_no_slot(outlived: bool):
    slots = Slots(empties=False, outlived=outlived)
    slots.hold(0, 1, "ann", "bare/a")
    assert not await waits(slots, 0, 2, "bob")


async def test_the_trouble_of_a_launcher_is_handed_on():
    slots = Slots()
    slots.hold(0, 1, "ann", "bare/a")
    future = slots.empty(0, 2, "bob")
    assert future is not None
    slots.on_emptied(SlotEmptied(1))
    await asyncio.sleep(0)
    assert not future.done()
    slots.on_emptied(SlotEmptied(0, "it cannot be killed"))
    assert await future == "it cannot be killed"
