"""Figures of people, projects and hosts: the largest by name, and sums that stay right."""

from __future__ import annotations

import pytest

from iris_core import codec, subjects
from iris_core.messages.gateway_state import Caller, SubmitJob
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Placement, Plan
from iris_core.messages.state_worker import Ended, Register, Stage, WorkerReport
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount, ResourceLimits
from iris_core.states import Cause, KernelStatus
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.inputs import Request
from iris_state.replication import people_metrics
from iris_state.replication.metrics import StateMetrics
from iris_state.replication.people_metrics import HOUR_MS, OTHER, named
from tests.unit.state.test_metrics import scraped


def shown(metrics: StateMetrics, *names: str) -> dict[str, float]:
    return {name: value for name, value in scraped(metrics).items() if name.startswith(names)}


def test_who_waits_is_told_by_user_project_and_oldest_job(script) -> None:
    script.play("""
        submit /train replicas=3 user=ann
        update /train labels={"project":"vision"} user=ann
        wait 10
        submit /later user=ann
        submit /eval replicas=2 user=bob
        wait 5
    """)
    seen = shown(StateMetrics(lambda: script.world.machine), "iris_user_", "iris_project_")
    assert seen == {
        'iris_user_pending_tasks{user="ann"}': 4,
        'iris_user_pending_tasks{user="bob"}': 2,
        'iris_project_pending_tasks{project="vision"}': 3,
        'iris_project_pending_tasks{project="none"}': 3,
        'iris_user_oldest_pending_seconds{user="ann",waiting_job="/train"}': 15,
        'iris_user_oldest_pending_seconds{user="bob",waiting_job="/eval"}': 5,
    }


def test_a_job_waits_from_when_it_is_in_the_queue(script) -> None:
    """Else an alert names a job that its owner holds, and hides one of the same user that waits."""
    script.play("""
        submit /held user=ann
        hold /held
        submit /first user=bob
        submit /behind after=/first user=bob
        wait 50
        submit /waits user=ann
        wait 10
    """)

    def seen() -> dict[str, float]:
        metrics = StateMetrics(lambda: script.world.machine)
        return shown(metrics, "iris_user_oldest", "iris_oldest", "iris_user_pending")

    counts = {
        'iris_user_pending_tasks{user="ann"}': 2,
        'iris_user_pending_tasks{user="bob"}': 2,
    }
    assert seen() == counts | {
        'iris_user_oldest_pending_seconds{user="ann",waiting_job="/waits"}': 10,
        'iris_user_oldest_pending_seconds{user="bob",waiting_job="/first"}': 60,
        "iris_oldest_pending_seconds": 60,
    }
    script.play("""
        cancel /first user=bob
        cancel /behind user=bob
        cancel /waits user=ann
        release /held
        wait 5
    """)
    assert seen() == {
        'iris_user_pending_tasks{user="ann"}': 1,
        'iris_user_oldest_pending_seconds{user="ann",waiting_job="/held"}': 5,
        "iris_oldest_pending_seconds": 5,
    }


def test_a_job_that_was_preempted_waits_from_then(script) -> None:
    script.play("""
        worker w0 cpu=1
        submit /long cpu=1 user=ann
        schedule
        /long/0 run
        wait 1000
        lose w0
        wait 5
    """)
    seen = shown(StateMetrics(lambda: script.world.machine), "iris_user_oldest")
    assert seen == {'iris_user_oldest_pending_seconds{user="ann",waiting_job="/long"}': 5}


def test_what_is_held_is_told_by_user_and_project(script) -> None:
    script.play("""
        worker w0 cpu=8
        submit /train replicas=2 cpu=2 user=ann
        update /train labels={"project":"vision"} user=ann
        submit /eval cpu=1 user=bob
        schedule
        /train/0 run
    """)
    metrics = StateMetrics(lambda: script.world.machine)
    seen = shown(metrics, "iris_user_running", "iris_user_held", "iris_project_")
    assert {name: value for name, value in seen.items() if "memory" not in name} == {
        'iris_user_running_tasks{user="ann"}': 2,
        'iris_user_running_tasks{user="bob"}': 1,
        'iris_project_running_tasks{project="vision"}': 2,
        'iris_project_running_tasks{project="none"}': 1,
        'iris_user_held{resource="cpu_millis",user="ann"}': 4000,
        'iris_user_held{resource="cpu_millis",user="bob"}': 1000,
        'iris_project_held{project="vision",resource="cpu_millis"}': 4000,
        'iris_project_held{project="none",resource="cpu_millis"}': 1000,
    }


def test_limits_of_projects_are_told_with_what_is_used_of_them(script) -> None:
    world = script.world
    world.change_project("/a", members=("ann",), limit=ResourceLimits(cpu_millis=2000))
    world.change_project("/a/b")
    world.submit(JobSpec(name="/x", command=("true",), project="/a/b"), Caller("ann"))
    script.play("worker w0 cpu=8\nschedule")
    held = world.ledger.requested[1].cpu_millis
    assert shown(StateMetrics(lambda: world.machine), "iris_project_limit") == {
        'iris_project_limit{path="/a",resource="cpu_millis"}': 2000,
        'iris_project_limit_used{path="/a",resource="cpu_millis"}': held,
    }


def test_beyond_the_largest_there_is_one_sum(script) -> None:
    script.play("\n".join(f"submit /a-{n} replicas={n} user=u{n:02}" for n in range(1, 31)))
    seen = shown(StateMetrics(lambda: script.world.machine), "iris_user_pending_tasks")
    assert len(seen) == people_metrics.LARGEST + 1
    assert seen['iris_user_pending_tasks{user="u30"}'] == 30
    assert seen[f'iris_user_pending_tasks{{user="{OTHER}"}}'] == sum(range(1, 11))


def test_jobs_that_are_not_looked_at_wait_for_other_projects(
    script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people_metrics, "JOBS_LOOKED_AT", 1)
    script.play("""
        submit /first replicas=2 user=ann
        submit /second replicas=5 user=ann
    """)
    seen = shown(StateMetrics(lambda: script.world.machine), "iris_project_pending_tasks")
    assert seen == {
        'iris_project_pending_tasks{project="none"}': 2,
        f'iris_project_pending_tasks{{project="{OTHER}"}}': 5,
    }


def test_hosts_that_take_no_work_are_named(script) -> None:
    script.play("\n".join(f"worker w{n:02} cpu=1" for n in range(22)))
    script.play("\n".join(f"lose w{n:02}" for n in range(21)))
    seen = shown(StateMetrics(lambda: script.world.machine), "iris_host_unwell")
    assert len(seen) == people_metrics.LARGEST + 1
    assert seen['iris_host_unwell{host="w00",state="lost"}'] == 1
    assert seen[f'iris_host_unwell{{host="{OTHER}",state="lost"}}'] == 1


def test_failures_of_the_last_hour_are_told_by_host_and_cause() -> None:
    machine = Machine(Policy(), "leader")
    metrics = StateMetrics(lambda: machine)
    machine.replay(1, machine.bid(0))
    machine.lead(0)

    def happen(at_ms: int, subject: str, message: object) -> None:
        one = Request(subject, codec.pack(message), "reply")
        metrics.committed(machine.step([one], at_ms), 0.001)

    report = subjects.report("w0")
    register = Register("w0", "i0", {}, Amount(1000), 0)
    happen(0, report, WorkerReport("w0", "i0", register=register))
    for number, code in ((1, 3), (2, 0)):
        job = SubmitJob(JobSpec(name=f"/a{number}", command=("x",)), Caller("u"), f"r{number}", 0)
        at_ms = 1000 * number
        happen(at_ms, subjects.CMD_SUBMIT, job)
        plan = Plan("s", machine.sequence, ("w0",), (Placement(number, (0,), (0,)),))
        happen(at_ms + 10, subjects.STATE_PLAN, plan)
        ref = AttemptRef(number, 0, 0)
        for stage in (
            Stage(ref, KernelStatus.RUNNING, at_ms + 20),
            Stage(ref, KernelStatus.TERMINATED, at_ms + 30, Ended(Cause.EXITED, code)),
        ):
            happen(at_ms + 40, report, WorkerReport("w0", "i0", (stage,)))
    assert shown(metrics, "iris_host_failures") == {
        'iris_host_failures{cause="failed",host="w0"}': 1
    }
    happen(HOUR_MS + 5000, report, WorkerReport("w0", "i0"))
    assert shown(metrics, "iris_host_failures") == {}


def test_the_rest_of_a_name_is_summed_by_what_it_is() -> None:
    rows = {("a", "x"): 5.0, ("a", "y"): 1.0, ("b", "x"): 3.0, ("c", "y"): 2.0, ("d", "x"): 0.0}
    assert sum(named(rows).values()) == sum(rows.values())
    assert ("d", "x") not in named(rows)
