"""Reports of workers that are late, duplicated, or about another worker's attempts.

docs/design/semantics.md#tasks-and-attempts, first bullet.
"""

import pytest

from iris_core.names import to_token


def test_a_report_that_changes_nothing_tells_nothing(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 building
        events /a/0     -> pending assigned building
        /a/0 building   -> BUILDING
        /a/0 pulling    -> BUILDING
        events /a/0     -> nothing
        /a/0 running
        /a/0 running    -> RUNNING
        events /a/0     -> running
        /a/0 exit 0
        /a/0 exit 0     -> SUCCEEDED
        events /a/0     -> succeeded
    """)


def test_a_repeated_report_is_not_committed(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
    """)
    before = script.world.machine.sequence
    script.play("/a/0 running")
    assert script.world.machine.sequence == before


def test_started_at_is_set_once(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
    """)
    started = script.world.query("task", task="/a/0")["attempts"][0]["started_at"]
    script.play("""
        wait 3
        /a/0 running
        heartbeat w0
    """)
    assert script.world.query("task", task="/a/0")["attempts"][0]["started_at"] == started


def test_pending_from_a_worker_is_ignored(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 pending    -> ASSIGNED
        capacity w0     -> cpu=0 building=1
    """)


def test_building_after_running_is_ignored(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        /a/0 building   -> RUNNING
    """)


def test_nothing_runs_again_before_its_last_attempt_has_ended(script):
    script.play("""
        worker w0 cpu=2
        submit /low band=batch
        schedule
        /low/0 running
        submit /high band=production
        /low/0 preempt for /high/0  -> PENDING
        place /low/0 w0             -> not_pending
        why /low                    -> delayed
        /low/0#0 stopped            -> PENDING
        attempt /low/0#0            -> state=preempted cause=preempted signal=15 open=no
        place /low/0 w0             -> placed
        /low/0#1 running            -> RUNNING
        /low/0#0 exit 0             -> RUNNING
        attempt /low/0#1            -> open=yes
    """)


def test_a_superseded_attempt_that_runs_is_dropped(script):
    script.play("""
        worker w0 cpu=2
        submit /low band=batch
        schedule
        /low/0 running
        submit /high band=production
        /low/0 preempt for /high/0
        told w0                     -> ~stop:/low/0#0
        /low/0#0 running            -> PENDING
        told w0                     -> stop:/low/0#0
    """)


def test_a_report_for_a_terminal_task_only_closes_its_attempt(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        cancel /a
        /a/0 exit 0     -> KILLED
        attempt /a/0#0  -> state=killed cause=cancelled exit_code=0 open=no
        job /a          -> KILLED
        capacity w0     -> cpu=1
    """)


def test_the_end_of_an_attempt_is_known_once(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        cancel /a
        /a/0 stopped
        /a/0 exit 7
        attempt /a/0#0  -> signal=15 exit_code=-
    """)


def test_what_another_worker_says_of_an_attempt_counts_for_nothing(script):
    script.play("""
        worker w0
        worker w1
        submit /a
        place /a/0 w0
        w1 says /a/0 exit 0     -> ASSIGNED
        w1 says /a/0 running    -> ASSIGNED
        told w1                 -> stop:/a/0#0
        /a/0 running            -> RUNNING
    """)


def test_an_attempt_nobody_knows_is_stopped(script):
    from iris_core.messages.message import AttemptRef
    from iris_core.messages.state_worker import Stage
    from iris_core.states import KernelStatus

    script.play("""
        worker w0
        submit /a
        takeover 1
        heartbeat w0
    """)
    ghost = AttemptRef(99, 0, 0)
    taken = script.world.say("w0", Stage(ghost, KernelStatus.RUNNING, script.world.now_ms))
    assert taken.drop == (ghost,)


def test_several_stages_in_one_report_are_taken_in_order(script):
    from iris_core.messages.state_worker import Ended, Stage
    from iris_core.states import Cause, KernelStatus

    script.play("""
        worker w0
        submit /a
        schedule
    """)
    (ref,) = script.world.hosts["w0"].believes
    now = script.world.now_ms
    script.world.say(
        "w0",
        Stage(ref, KernelStatus.PREPARING, now),
        Stage(ref, KernelStatus.RUNNING, now),
        Stage(ref, KernelStatus.TERMINATED, now, Ended(Cause.EXITED, exit_code=0)),
    )
    script.play("events /a/0 -> pending assigned building running succeeded")


def test_a_timeout_the_worker_itself_enforced_kills_the_task(script):
    script.play("""
        worker w0
        submit /a timeout=10 retries=3
        schedule
        /a/0 running
        /a/0 timeout    -> KILLED failures=0
        job /a          -> KILLED cause=timeout
    """)


def test_undecodable_bytes_change_nothing_and_stop_nobody(script):
    from iris_core import subjects
    from iris_state.records.inputs import Heartbeat, Request

    world = script.world
    before = world.machine.sequence
    world.step(
        Request(subjects.report("w0"), b"\xc1", "r"),
        Request(subjects.STATE_PLAN, b"\xc1", "r"),
        Heartbeat(subjects.heartbeat("w0"), b"\xc1"),
    )
    assert world.machine.sequence == before
    world.step(Request(subjects.CMD_SUBMIT, b"\xc1", "me"))
    script.play("submit /after -> created")


def test_a_worker_cannot_speak_for_another(script):
    """Its credentials let it publish under its own token; what it says there about another worker
    is ignored.
    """
    from iris_core import codec, subjects
    from iris_core.messages.message import AttemptRef
    from iris_core.messages.state_worker import (
        Ended,
        HeartbeatMessage,
        Register,
        Stage,
        WorkerReport,
    )
    from iris_core.spec.resources import Amount
    from iris_core.states import Cause, KernelStatus
    from iris_state.effects.kinds import ReplyTo
    from iris_state.records.inputs import Heartbeat, Request

    script.play("""
        worker w0
        worker w1
        submit /a
        schedule
        place /a/0 w0
    """)
    world = script.world
    ended = Stage(
        AttemptRef(1, 0, 0), KernelStatus.TERMINATED, world.now_ms, Ended(Cause.EXITED, 0)
    )
    before = world.machine.sequence
    for said in (
        WorkerReport("w0", world.hosts["w0"].incarnation, (ended,)),
        WorkerReport(
            "w0", "another start", register=Register("w0", "another start", {}, Amount(1), 1)
        ),
        WorkerReport(
            "w1", "another start", register=Register("w0", "another start", {}, Amount(1), 1)
        ),
        WorkerReport("w0", world.hosts["w0"].incarnation, leaving="gone"),
    ):
        assert not world.step(Request(subjects.report("w1"), codec.pack(said), "r")).of(ReplyTo)
    gone = HeartbeatMessage("w0", world.hosts["w0"].incarnation, 99, world.now_ms, healthy=False)
    world.step(Heartbeat(subjects.heartbeat("w1"), codec.pack(gone)))
    assert world.machine.sequence == before
    script.play("/a/0 -> ASSIGNED")


@pytest.mark.parametrize("worker", ["w0", "rack 1.host", "w=2E", "", "ü"])
def test_only_the_subject_of_a_worker_is_its_own(worker):
    from iris_core import subjects

    assert subjects.is_from(subjects.report(worker), worker)
    assert subjects.is_from(subjects.heartbeat(worker), worker)
    for other in ("w1", "w", "w00", to_token(worker) + "=", "=2E", "w."):
        assert not subjects.is_from(subjects.report(worker), other)
