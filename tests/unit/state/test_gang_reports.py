"""The result of a gang does not depend on the order in which the ends of its members are reported.

Of two ends that are no success the first one reported is the culprit, and a leader's exit 0 ends
its gang; everything else may be told in any order. Source: docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Stage
from iris_core.spec.jobs import Coscheduling, JobSpec, SuccessPolicy
from iris_core.spec.resources import Amount
from iris_core.states import Cause, KernelStatus
from iris_state.check.records import check
from tests.support import first_fit
from tests.support.world import Host, World

ROUNDS = 4
DONE = Ended(Cause.EXITED, exit_code=0)
BAD_ENDS = (Ended(Cause.EXITED, exit_code=9), Ended(Cause.MISSING), Ended(Cause.EXITED, signal=9))
_STARTING = (KernelStatus.PREPARED, KernelStatus.RUNNING)


class Reported(World):
    """A world that asks for the invariants of the ledger only, which is all that reports change."""

    def check(self) -> None:
        check(self.ledger)


def live(spec: JobSpec, draws: random.Random, order: random.Random) -> dict[str, Any]:
    """One life of a gang: ``draws`` says how its members end each time, ``order`` how their reports
    are shuffled.
    """
    world = Reported()
    for index in range(spec.replicas):
        world.register(Host(f"a{index}", Amount(1000), {"rack": "a"}))
    world.submit(spec)
    job = world.ledger.jobs[1]
    for number in range(ROUNDS):
        if job.is_terminal:
            break
        world.plan(first_fit.plan(world.snapshot()))
        refs = [AttemptRef(1, index, number) for index in range(spec.replicas)]
        for status in _STARTING:
            for ref in refs:
                say(world, ref, status)
        ends = {ref: draws.choice((DONE, DONE, *BAD_ENDS)) for ref in refs}
        for ref in in_some_order(ends, spec, draws, order):
            say(world, ref, KernelStatus.TERMINATED, ends[ref])
    return {
        "job": (job.state, job.cause, job.error),
        "counted": [
            (task.failure_count, task.preemption_count, task.reschedules) for task in job.tasks
        ],
        "charged": [[attempt.charged_to for attempt in task.attempts] for task in job.tasks],
        "exits": [[attempt.exit_code for attempt in task.attempts] for task in job.tasks],
        "open": [name for name, presence in world.ledger.presence.items() if presence.open],
    }


def in_some_order(
    ends: dict[AttemptRef, Ended], spec: JobSpec, draws: random.Random, order: random.Random
) -> list[AttemptRef]:
    """All reports shuffled; those that decide stay in one order among themselves."""
    gang = spec.coscheduling
    leads = gang is not None and gang.success == "leader"
    deciding = [ref for ref, end in ends.items() if end is not DONE or (leads and ref.index == 0)]
    draws.shuffle(deciding)
    places = list(ends)
    order.shuffle(places)
    turns = iter(deciding)
    return [next(turns) if ref in deciding else ref for ref in places]


def say(world: World, ref: AttemptRef, status: KernelStatus, ended: Ended | None = None) -> None:
    world.say(f"a{ref.index}", Stage(ref, status, world.now_ms, ended))


@pytest.mark.parametrize("success", ["all", "leader"])
@given(
    replicas=st.integers(2, 4),
    failures=st.integers(0, 1),
    preemptions=st.integers(0, 1),
    tolerated=st.integers(0, 2),
    draws=st.integers(0, 2**32),
    orders=st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)),
)
def test_the_order_of_reports_decides_nothing(
    success: SuccessPolicy,
    replicas: int,
    failures: int,
    preemptions: int,
    tolerated: int,
    draws: int,
    orders: tuple[int, int],
) -> None:
    spec = JobSpec(
        name="/g",
        command=("true",),
        replicas=replicas,
        coscheduling=Coscheduling("rack", success),
        max_retries_failure=failures,
        max_retries_preemption=preemptions,
        max_task_failures=tolerated,
    )
    first, second = (live(spec, random.Random(draws), random.Random(order)) for order in orders)
    assert first == second
    assert not first["open"]


def test_a_gang_whose_members_report_start_and_end_together_has_run():
    world = Reported()
    for index in range(2):
        world.register(Host(f"a{index}", Amount(1000), {"rack": "a"}))
    world.submit(
        JobSpec(name="/g", command=("true",), replicas=2, coscheduling=Coscheduling("rack"))
    )
    world.plan(first_fit.plan(world.snapshot()))
    refs = [AttemptRef(1, index, 0) for index in range(2)]
    for ref in refs:
        say(world, ref, KernelStatus.PREPARED)
    for ref in refs:
        started = Stage(ref, KernelStatus.RUNNING, world.now_ms)
        world.say(f"a{ref.index}", started, Stage(ref, KernelStatus.TERMINATED, world.now_ms, DONE))
    passed = [row.to_status for row in world.ledger.jobs[1].history if row.result == "SUCCESS"]
    assert passed[-3:] == ["RUNNING", "TERMINATING", "TERMINATED"]
