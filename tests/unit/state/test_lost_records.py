"""What a worker lists on a journal that has just begun may show that the records were lost."""

import asyncio

import pytest

from iris_bus.contract import RecordsLost
from iris_core import codec, subjects
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import HeartbeatMessage, Register, WorkerReport
from iris_core.spec.resources import Amount
from iris_core.states import KernelStatus
from iris_core.subjects import JOURNAL, RECORDS_LOST
from iris_state.policy import Policy
from tests.support.house import POLICY, House
from tests.support.memory import Memory
from tests.support.script import Script
from tests.support.world import Host, stage

OLD = stage(AttemptRef(9, 0, 1), KernelStatus.RUNNING, 1)
GRACE_S = Policy().lost_after_ms / 1000


@pytest.mark.parametrize(
    ("before", "refuses"),
    [
        ("", True),
        ("submit /a", True),
        (f"wait {GRACE_S - 1}\n submit /a", True),
        (f"submit /a\n wait {GRACE_S + 1}", False),
        ("submit /a\n takeover 1", False),
        ("takeover 1", True),
        (f"wait {10 * GRACE_S}", True),
    ],
    ids=[
        "a journal without a job",
        "its first leader took a job at once",
        "or later, within the grace of workers",
        "it had time to hear of every worker",
        "a later leader has jobs",
        "a later leader has none",
        "a journal that never had a job",
    ],
)
def test_attempts_of_unknown_jobs_are_judged_by_the_journals_age(before: str, refuses: bool):
    script = Script()
    script.play(before)
    if refuses:
        with pytest.raises(RecordsLost, match="worker w0 has task 0 of job j9"):
            script.world.register(Host("w0", Amount(1000), {}), attempts=[OLD])
    else:
        assert script.world.register(Host("w0", Amount(1000), {}), attempts=[OLD]).drop == (
            OLD.ref,
        )


def test_what_a_worker_has_of_known_jobs_is_no_loss():
    script = Script()
    script.play("submit /a")
    known = stage(AttemptRef(1, 0, 7), KernelStatus.RUNNING, 1)
    assert script.world.register(Host("w0", Amount(1000), {}), attempts=[known]).drop == (
        known.ref,
    )


def test_told_to_begin_anew_it_has_workers_stop_what_they_run():
    script = Script(Policy(begin_anew=True))
    assert script.world.register(Host("w0", Amount(1000), {}), attempts=[OLD]).drop == (OLD.ref,)


@pytest.mark.parametrize("how", ["heartbeat", "report"])
async def test_no_replica_leads_after_one_has_found_the_records_lost(how: str):
    memory = Memory()
    async with asyncio.timeout(60):
        first = House(memory)
        first.lead()
        await first.submit("/submitted-before-a-worker-was-heard")
        bus = first.wanting.bus
        if how == "heartbeat":
            bus.publish(
                subjects.heartbeat("w0"), codec.pack(HeartbeatMessage("w0", "1", 1, 1, (OLD,)))
            )
        else:
            register = Register("w0", "1", {}, Amount(1000), 1, (OLD,))
            report = codec.pack(WorkerReport("w0", "1", register=register))
            bus.publish(subjects.report("w0"), report, reply=bus.new_inbox())
        with pytest.raises(RecordsLost):
            await first.running
        end = await first.wanting.journal().end()
        for _ in range(2):
            with pytest.raises(RecordsLost, match="worker w0 has task 0 of job j9"):
                await House(memory).state.run()
        assert await first.wanting.journal().end() == end

        anew = House(memory, Policy(begin_anew=True, snapshot_changes=POLICY.snapshot_changes))
        anew.lead()
        assert (await anew.submit("/later")).status == "created"
        assert (await anew.wanting.streams.standing(JOURNAL.name)).notes == {RECORDS_LOST: ""}
        await anew.end()


@pytest.mark.parametrize("older", [0, 1])
async def test_a_leader_that_was_deposed_marks_nothing(older: int):
    memory = Memory()
    async with asyncio.timeout(60):
        first = House(memory)
        first.lead()
        await first.submit("/a")
        memory.copies = 3
        memory.older_ends = [await first.wanting.journal().end()] * older
        losing = asyncio.create_task(first.lose_the_lead())
        first.wanting.bus.publish(
            subjects.heartbeat("w0"), codec.pack(HeartbeatMessage("w0", "1", 1, 1, (OLD,)))
        )
        await losing
        await first.end()
        assert (await first.wanting.streams.standing(JOURNAL.name)).notes == {}
