"""Attempts in slots that earlier jobs have left something in."""

from __future__ import annotations

import asyncio

import pytest

from iris_core.messages.state_worker import Ended, Order, Stop, TaskTemplate
from iris_core.spec.resources import ResourceRequest
from iris_core.states import Cause
from iris_worker.attempt.executor import Executor
from iris_worker.attempt.slots.isolation import Isolation
from iris_worker.launcher.records.records import Confine, SlotEmptied
from tests.unit.worker.test_executor import A, B, Open, bus, end_of, opened, until, uploads

__all__ = ["bus", "opened", "uploads"]


async def launched_after_another_job(opened: Open) -> Executor:
    """One attempt is to have slot 0, which waits for the launcher to empty it."""
    executor = await opened(Isolation(wanted=Confine(no_new_privileges=True)))
    executor.slot_templates.hold(0, 7, "eve", "")
    template = TaskTemplate(1, "/t", ("true",), {}, 1, ResourceRequest())
    executor._agent.on_order(Order("me", 1, templates=(template,), run=(A,)), 1)
    executor.launch(executor._agent.next_launch())
    assert A not in executor.attempts.by_ref
    return executor


async def succeeds(executor: Executor) -> None:
    """Launch the attempt as the shell does."""
    executor.launch(executor._agent.next_launch())
    executor.flush()
    await until(lambda: end_of(executor) is not None)
    assert (end_of(executor).cause, end_of(executor).exit_code) == (Cause.EXITED, 0)


async def test_an_attempt_starts_when_its_slot_is_empty(opened: Open):
    executor = await launched_after_another_job(opened)
    await until(lambda: executor._agent.has_launches)
    await succeeds(executor)


async def test_an_attempt_stopped_after_its_slot_was_emptied_never_starts(opened: Open):
    executor = await launched_after_another_job(opened)
    await until(lambda: executor._agent.has_launches)
    _, [discard] = executor._agent.on_order(Order("me", 1, stop=(Stop(A, 0),)), 1)
    executor.discard(discard.ref)
    assert executor._agent.next_launch() is None
    assert end_of(executor) == Ended(Cause.CANCELLED, error="stopped before it started")
    assert A not in executor.attempts.by_ref


async def test_an_attempt_stopped_while_its_slot_is_emptied_never_starts(opened: Open):
    executor = await launched_after_another_job(opened)
    _, todo = executor._agent.on_order(Order("me", 1, stop=(Stop(A, 0),)), 1)
    for kill in todo:
        executor.kill(kill.ref, kill.grace_ms, kill.settle_ms)
    await until(lambda: end_of(executor) is not None)
    assert end_of(executor) == Ended(Cause.CANCELLED, error="stopped before it started")
    assert A not in executor.attempts.by_ref
    assert executor.slots.numbers.reserve() == 0


async def test_an_unconfirmed_worker_starts_nothing_in_an_emptied_slot(opened: Open):
    executor = await launched_after_another_job(opened)
    executor._agent.unconfirmed = True
    await until(lambda: executor.attempts.prepared(A) is not None)
    assert executor._agent.next_launch() is None
    executor._agent.unconfirmed = False
    await succeeds(executor)


async def test_nobody_gets_a_slot_that_cannot_be_emptied(opened: Open):
    executor = await launched_after_another_job(opened)
    executor.slot_templates.on_emptied(
        SlotEmptied(0, "what an earlier job has left cannot be killed")
    )
    await until(lambda: end_of(executor) is not None)
    assert end_of(executor).cause is Cause.INFRASTRUCTURE
    assert "cannot be killed" in end_of(executor).error
    executor.slot_templates.hold(1, 7, "eve", "")
    preparing = asyncio.ensure_future(executor.prepare(B, "ann"))
    await asyncio.sleep(0)
    executor.slot_templates.on_emptied(
        SlotEmptied(1, "what an earlier job has left cannot be killed")
    )
    with pytest.raises(OSError, match="cannot be killed"):
        await preparing
    assert executor.slots.numbers.reserve() == 2
