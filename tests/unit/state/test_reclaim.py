"""Work that borrows gives way to work within the guarantee of its project: what the state service
takes of a plan, and what it records. Source: docs/design/team.md#guarantee-and-share.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Eviction, Nomination, Plan
from iris_core.messages.state_worker import Ended
from iris_core.spec.jobs import Coscheduling, JobSpec, Level, NoticePolicy
from iris_core.spec.resources import Amount, ResourceLimits, ResourceRequest
from iris_core.states import Budget, Cause, KernelStatus, TaskState
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import plan
from iris_scheduler.settings import SchedulerSettings
from tests.support.serving import Serving, spec
from tests.support.world import Host, World, stage

ADA, BOB = (Caller(name, "user") for name in ("ada", "bob"))
MEMBERS = {"members": ("ada", "bob")}


def cores(count: int) -> ResourceLimits:
    return ResourceLimits(cpu_millis=1000 * count)


def job(name: str, tasks: int = 1, **fields: Any) -> JobSpec:
    return JobSpec(
        name=name,
        command=("true",),
        replicas=tasks,
        resources=ResourceRequest(cpu_millis=1000),
        **fields,
    )


def team(world: World | None = None, hosts: int = 2) -> World:
    """Hosts of one core; /nlp is guaranteed one, /other nothing."""
    world = world or World()
    for number in range(hosts):
        world.register(Host(f"w{number}", Amount(1000, 1 << 30), {"rack": "r"}))
    world.change_project("/nlp", guarantee=cores(1), **MEMBERS)
    world.change_project("/other", **MEMBERS)
    return world


def planned(world: World) -> Plan:
    mirror = Mirror.of([world.snapshot()])
    return plan(mirror, Cache(), world.now_ms, SchedulerSettings()).plan


def cycle(world: World) -> Plan:
    made = planned(world)
    world.plan(made)
    world.check()
    return made


def run(world: World, name: str) -> None:
    """What is assigned of a job runs."""
    for ref, attempt in attempts(world, name):
        world.say(attempt.worker, stage(ref, KernelStatus.RUNNING, world.now_ms))


def attempts(world: World, name: str) -> list[tuple[AttemptRef, Any]]:
    found = world.ledger.job_of("ada", name) or world.ledger.job_of("bob", name)
    return [
        (AttemptRef(found.number, index, task.current.number), task.current)
        for index, task in found.numbered()
        if task.current is not None
    ]


def end(world: World, ref: AttemptRef, cause: Cause = Cause.CANCELLED, code: int = 143) -> None:
    task = world.ledger.jobs[ref.job].task(ref.index)
    ended = Ended(cause, exit_code=code)
    worker = task.attempts[ref.attempt].worker
    world.say(worker, stage(ref, KernelStatus.TERMINATED, world.now_ms, ended))


def lent(**fields: Any) -> World:
    """/other runs on all hosts, and a task of /nlp waits."""
    world = team()
    world.submit(job("/old", 2, project="/other", **fields), BOB)
    cycle(world)
    run(world, "/old")
    world.submit(job("/near", project="/nlp"), ADA)
    return world


def test_what_is_reclaimed_knows_why_is_uncharged_and_keeps_its_place():
    world = lent()
    made = cycle(world)
    (eviction,) = made.evictions
    (ref,) = eviction.victims
    task = world.ledger.jobs[ref.job].task(ref.index)
    attempt = task.attempts[0]
    assert (task.state, attempt.shown) == (TaskState.PENDING, TaskState.PREEMPTED)
    assert (attempt.cause, attempt.error) == (Cause.RECLAIMED, "reclaimed by /nlp for /near")
    assert (task.reclaim_count, task.preemption_count, task.reschedules) == (1, 0, 0)
    assert attempt.charged_to is Budget.RECLAIM
    assert world.hosts[attempt.worker].stopping == {ref}
    end(world, ref)
    assert world.snapshot().reclaimed[0].at_ms == attempt.ended_ms
    cycle(world)
    assert [one.worker for _, one in attempts(world, "/near")] == [attempt.worker]
    world.reader = BOB
    shown = world.query("task", task=f"/old/{ref.index}")
    assert (shown["reclaim_count"], shown["state"]) == (1, "pending")


def test_the_queue_and_why_say_the_side_and_who_has_reclaimed():
    world = lent()
    world.submit(job("/more", project="/other"), BOB)
    world.reader = BOB
    sides = {row["job"]: row["side"] for row in world.query("queue")["items"]}
    assert sides == {"/near": "near", "/more": "far"}
    assert world.query("why", job="/more")["side_note"] == (
        "far side: /other would borrow, so work within a guarantee goes first"
    )
    assert world.query("why", job="/near@ada")["side_note"] == (
        "near side: within what is guaranteed to /nlp, so it goes before what borrows"
    )
    (ref,) = cycle(world).evictions[0].victims
    interrupted = world.query("why", task=f"/old/{ref.index}")["interrupted"]
    assert "reclaimed by /nlp for /near" in interrupted["message"]
    bare = World()
    bare.submit(job("/a"), ADA)
    assert [row["side"] for row in bare.query("queue")["items"]] == [""]
    assert bare.query("why", job="/a")["side_note"] is None


def test_it_is_never_reclaimed_too_often():
    world = lent(max_retries_preemption=0)
    for count in range(1, 4):
        (ref,) = cycle(world).evictions[0].victims
        end(world, ref)
        cycle(world)
        assert world.ledger.jobs[ref.job].task(ref.index).reclaim_count == count
        ((near, _),) = attempts(world, "/near")
        run(world, "/near")
        end(world, near, Cause.EXITED, code=0)
        cycle(world)
        run(world, "/old")
        world.submit(job("/near", project="/nlp"), ADA)


def test_work_that_had_ended_by_itself_before_its_stop_counts_as_that():
    world = lent()
    (ref,) = cycle(world).evictions[0].victims
    end(world, ref, Cause.EXITED, code=0)
    task = world.ledger.jobs[ref.job].task(ref.index)
    assert (task.state, task.reclaim_count) == (TaskState.SUCCEEDED, 0)


def test_it_has_its_notice_and_its_grace():
    world = lent(notice=NoticePolicy(before_s=60))
    (ref,) = cycle(world).evictions[0].victims
    task = world.ledger.jobs[ref.job].task(ref.index)
    assert task.state is TaskState.RUNNING
    assert task.attempts[0].ending.cause is Cause.RECLAIMED
    end(world, ref)
    assert (task.state, task.reclaim_count) == (TaskState.PENDING, 1)
    assert task.attempts[0].error == "reclaimed by /nlp for /near"


def evictions(world: World, victims: list[AttemptRef], name: str = "/near") -> Plan:
    """A plan that reclaims these for the first task of a job."""
    waiting = world.ledger.job_of("ada", name)
    nomination = Nomination(waiting.number, 0, "w0")
    eviction = Eviction(tuple(victims), (nomination,), reclaims=True)
    return Plan("s", world.machine.sequence, evictions=(eviction,))


def is_taken(world: World, made: Plan) -> bool:
    world.plan(made)
    world.check()
    return bool(world.ledger.nominations)


def test_a_plan_that_reclaims_what_it_may_not_is_refused():
    def victim(world: World) -> list[AttemptRef]:
        return [attempts(world, "/old")[0][0]]

    world = lent()
    assert is_taken(world, evictions(world, victim(world)))
    world = lent()
    both = [ref for ref, _ in attempts(world, "/old")]
    assert is_taken(world, evictions(world, both))  # how many it needs the scheduler knows
    for change in ("/nlp", "/other"):  # nothing is guaranteed any more; all that runs is
        world = lent()
        amount = cores(0 if change == "/nlp" else 2)
        world.change_project(change, guarantee=amount, **MEMBERS)
        assert not is_taken(world, evictions(world, victim(world))), change
    world = lent()
    world.submit(job("/low", project="/nlp", band="batch"), ADA)
    assert not is_taken(world, evictions(world, victim(world), "/low"))
    world = lent(protect_s=3600)
    assert not is_taken(world, evictions(world, victim(world)))
    world = lent()
    unmarked = evictions(world, victim(world))
    plain = replace(unmarked, evictions=(replace(unmarked.evictions[0], reclaims=False),))
    assert not is_taken(world, plain)


def test_no_two_evictions_of_a_plan_together_take_what_is_guaranteed():
    world = lent()
    world.change_project("/nlp", guarantee=cores(2), **MEMBERS)
    world.change_project("/other", guarantee=cores(1), **MEMBERS)
    world.submit(job("/more", project="/nlp"), ADA)
    first, second = (ref for ref, _ in attempts(world, "/old"))
    plans = [evictions(world, [first]), evictions(world, [second], "/more")]
    made = replace(plans[0], evictions=tuple(one.evictions[0] for one in plans))
    world.plan(made)
    world.check()
    assert len(world.ledger.nominations) == 1
    assert [attempt.cause for _, attempt in attempts(world, "/old")] == [None]
    assert not is_taken_more(world, plans[1])


def is_taken_more(world: World, made: Plan) -> bool:
    before = len(world.ledger.nominations)
    world.plan(made)
    return len(world.ledger.nominations) > before


def test_a_gang_is_reclaimed_whole_and_waits_whole():
    world = team()
    gang = Coscheduling((Level("rack"),))
    world.submit(job("/gang", 2, project="/other", coscheduling=gang), BOB)
    cycle(world)
    run(world, "/gang")
    world.submit(job("/near", project="/nlp"), ADA)
    first, second = (ref for ref, _ in attempts(world, "/gang"))
    assert not is_taken(world, evictions(world, [first]))
    made = cycle(world)
    assert sorted(made.evictions[0].victims) == [first, second]
    found = world.ledger.jobs[first.job]
    assert [task.state for task in found.tasks] == [TaskState.PENDING] * 2
    assert [task.reclaim_count for task in found.tasks] == [1, 1]
    assert {task.attempts[0].cause for task in found.tasks} == {Cause.RECLAIMED}
    for ref in (first, second):
        end(world, ref)
    cycle(world)
    assert len(attempts(world, "/near")) == 1


def test_a_route_that_is_reclaimed_is_replaced():
    world = Serving(room=1, hosts=1)
    world.change_project("/nlp", guarantee=cores(1), **MEMBERS)
    world.change_project("/other", **MEMBERS)
    assert world.deploy("create", BOB, spec=replace(spec(1), project="/other")).status == "created"
    world.go(5)
    (route,) = world.ledger.jobs.values()
    (host,) = world.hosts
    world.submit(job("/near", project="/nlp"), ADA)
    waiting = world.ledger.job_of("ada", "/near")
    eviction = Eviction(
        (AttemptRef(route.number, 0, 0),), (Nomination(waiting.number, 0, host),), reclaims=True
    )
    world.plan(Plan("s", world.machine.sequence, evictions=(eviction,)))
    assert route.task(0).attempts[0].cause is Cause.RECLAIMED
    assert route.is_terminal
    world.step()
    world.check()
    (other,) = (one for one in world.ledger.jobs.values() if one.number not in (1, 2))
    assert (other.spec.project, other.state.name) == ("/other", "PENDING")


@pytest.mark.parametrize("count", [1, 2])
def test_a_mirror_knows_what_was_reclaimed_by_deltas_as_by_snapshot(count: int):
    world = team()
    world.submit(job("/old", 2, project="/other"), BOB)
    cycle(world)
    run(world, "/old")
    world.change_project("/nlp", guarantee=cores(count), **MEMBERS)
    world.submit(job("/near", count, project="/nlp"), ADA)
    mirror = world.mirror = Mirror.of([world.snapshot()])
    for eviction in cycle(world).evictions:
        for ref in eviction.victims:
            end(world, ref)
    assert len(mirror.reclaimed) == count
    world.check()
    world.amend("/old@bob", hold=True)
    world.check()
    world.amend("/old@bob", hold=False)
    world.check()
    assert len(mirror.reclaimed) == count
    world.cancel("/near@ada")
    cycle(world)
    world.check()
