"""Hosts register, stop sending heartbeats, and return.

docs/design/semantics.md#tasks-and-attempts, docs/design/semantics.md#constraints-and-resources;
docs/ARCHITECTURE.md.
"""

from itertools import pairwise

import pytest

from iris_core import codec, subjects
from iris_core.messages.state_worker import Ended, HeartbeatMessage, Register, Stage
from iris_core.spec.resources import Amount
from iris_core.states import Cause, KernelStatus
from iris_state.effects.kinds import OrderTo
from iris_state.policy import Policy
from iris_state.records.inputs import DeliveryResult, Fate, Heartbeat
from iris_state.replication.leader import LONGEST_WAIT_S
from tests.support.script import Script
from tests.support.world import Host


def heartbeat(sequence, at_ms, stages=(), *, incarnation="1", monotonic_ms=0):
    """One of w0."""
    message = HeartbeatMessage(
        "w0", incarnation, sequence, at_ms, stages, monotonic_ms=monotonic_ms
    )
    return Heartbeat(subjects.heartbeat("w0"), codec.pack(message))


def whole_attempt(script, *statuses):
    """What w0 says of an attempt that came to these statuses and then succeeded, before anything of
    it was reported.
    """
    script.play("""
        worker w0
        submit /a
        schedule
        events /a/0     -> pending assigned
    """)
    world, host = script.world, script.world.hosts["w0"]
    (ref,) = host.believes
    ended = Stage(ref, KernelStatus.TERMINATED, world.now_ms, Ended(Cause.EXITED, 0))
    return world, host, (*(Stage(ref, status, world.now_ms) for status in statuses), ended)


def test_a_worker_that_restarts_keeps_the_processes_that_still_run(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2
        schedule
        /a/0 running
        /a/1 running
        restart w0              -> healthy
        /a/0                    -> RUNNING attempts=1
        capacity w0             -> cpu=0
        /a/0 exit 0             -> SUCCEEDED
    """)


def test_what_a_restarted_worker_cannot_find_is_missing(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2 preemptions=1
        schedule
        /a/0 running
        /a/1 running
        restart w0 without /a/1
        /a/0                    -> RUNNING
        /a/1                    -> PENDING preemptions=1
        attempt /a/1#0          -> cause=missing open=no
        capacity w0             -> cpu=1
    """)


def test_a_restarted_worker_is_told_to_stop_what_was_taken_from_it(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        orders w0 deaf
        cancel /a
        orders w0 listens
        told w0
        restart w0
        told w0                 -> stop:/a/0#0
        capacity w0             -> cpu=0
        /a/0 stopped
        capacity w0             -> cpu=1
    """)


def test_the_same_start_told_twice_declares_nothing_missing(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        schedule
        /a/0            -> ASSIGNED
    """)
    world, host = script.world, script.world.hosts["w0"]
    world._report(host, register=Register("w0", "1", {}, host.total, world.now_ms))
    script.play("""
        /a/0            -> ASSIGNED attempts=1
        /a/0 running    -> RUNNING
    """)


def test_the_same_start_may_tell_other_attributes_and_nothing_else_changes(script):
    script.play("""
        worker w0 rack=r1
        submit /a
        schedule
        submit /b where=rack:r2
        admin drain w0
        wait 1
    """)
    world, host = script.world, script.world.hosts["w0"]
    before = world.query("worker", id="w0")
    world._report(host, register=Register("w0", "1", {"rack": "r2"}, host.total, world.now_ms))
    world._report(
        host, register=Register("w0", "1", {"rack": "r3"}, host.total, 1)
    )  # it was under way for long
    assert world.query("worker", id="w0") == {**before, "attributes": {"rack": "r2"}}
    script.play("""
        /a/0            -> ASSIGNED attempts=1
        admin undrain w0
        /a/0 exit 0
        schedule
        /b/0            -> ASSIGNED
    """)


def test_what_the_same_start_tells_the_second_time_counts(script):
    """Its first answer was lost, and its second acknowledges everything it says, ends too."""
    world, host, stages = whole_attempt(script, KernelStatus.RUNNING)
    world._report(host, register=Register("w0", "1", {}, host.total, world.now_ms, stages))
    script.play("""
        events /a/0     -> running succeeded
        /a/0            -> SUCCEEDED attempts=1
    """)


def test_a_heartbeat_that_tells_a_whole_attempt_tells_it_in_order(script):
    world, host, stages = whole_attempt(script, KernelStatus.PREPARING, KernelStatus.RUNNING)
    output = world.step(heartbeat(1, world.now_ms, stages, incarnation=host.incarnation))
    assert not output.of(OrderTo)
    script.play("""
        events /a/0     -> building running succeeded
    """)


def test_a_start_that_a_later_one_has_overtaken_counts_for_nothing(script):
    script.play("""
        worker w0
        wait 5
        restart w0
        submit /a
        schedule
        /a/0 running
    """)
    world, host = script.world, script.world.hosts["w0"]
    late = Register("w0", "1", {}, host.total, world.now_ms - 5000)
    world._report(host, register=late)
    script.play("""
        /a/0            -> RUNNING
        heartbeat w0         -> healthy
    """)


def test_a_rebooted_host_is_taken_up_though_its_clock_restarted(script):
    script.play("""
        worker w0
        wait 5
        submit /a
        schedule
        /a/0 running
    """)
    world, host = script.world, script.world.hosts["w0"]
    world._report(host, register=Register("w0", "2", {}, host.total, 7, boot="another"))
    script.play("/a/0            -> PENDING preemptions=1")
    assert world.ledger.workers["w0"].incarnation == "2"


def test_a_silent_worker_is_lost_after_its_grace_and_not_before(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        silence 30
        worker? w0      -> healthy
        /a/0            -> RUNNING
        silence 1
        worker? w0      -> lost detail=~not_heard_of_for
        /a/0            -> PENDING preemptions=1
        attempt /a/0#0  -> cause=worker_lost
        capacity w0     -> cpu=1
    """)


def test_a_stall_of_the_service_itself_loses_nobody(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
    """)
    script.world.now_ms += 600_000
    script.world.step()
    script.play("""
        worker? w0      -> healthy
        /a/0            -> RUNNING
        silence 31
        worker? w0      -> lost
    """)


def test_a_leader_that_waits_longer_than_a_heartbeat_does_not_stand_still():
    script = Script(Policy(heartbeat_interval_s=0.3, worker_grace_s=5.0))
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
    """)
    for _ in range(11):
        script.world.now_ms += round(LONGEST_WAIT_S * 1000) + 20
        script.world.step()
    script.play("worker? w0 -> lost")
    script.close()


def test_a_report_is_a_sign_of_life_too(script):
    script.play("""
        worker w0
        submit /a
        schedule
        silence 20
        /a/0 running
        silence 20
        worker? w0      -> healthy
    """)


def test_a_lost_worker_that_comes_back_kills_what_is_no_longer_its(script):
    script.play("""
        worker w0
        worker w1
        submit /a
        place /a/0 w0
        /a/0 running
        lose w0                 -> lost
        place /a/0 w1           -> placed
        told w0
        heartbeat w0                 -> lost
        told w0                 -> register
        restart w0              -> healthy
        told w0                 -> stop:/a/0#0
        /a/0                    -> ASSIGNED worker=w1
        /a/0#0 exit 0           -> ASSIGNED
        attempt /a/0#0          -> state=worker_failed cause=worker_lost open=no
        /a/0 running            -> RUNNING
    """)


def test_a_lost_worker_must_register_before_it_is_heard(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        lose w0
        /a/0            -> PENDING
    """)
    (ref,) = script.world.hosts["w0"].believes
    ended = Stage(
        ref, KernelStatus.TERMINATED, script.world.now_ms, Ended(Cause.EXITED, exit_code=0)
    )
    assert not script.world.say("w0", ended).known
    script.play("/a/0 -> PENDING")


def test_a_worker_nobody_knows_is_asked_to_register(script):
    script.world.hosts["new"] = Host("new", Amount(1000), {})
    script.world.heartbeat("new")
    script.play("told new -> register")


def test_an_order_that_never_arrived_is_given_again_by_the_next_heartbeat(script):
    script.play("""
        worker w0
        orders w0 held
        submit /a
        schedule
        told w0         -> run:/a/0#0
        heartbeat w0
        told w0         -> run:/a/0#0
        /a/0 building
        heartbeat w0
        told w0         -> nothing
    """)


def test_an_attempt_a_heartbeat_does_not_speak_of_is_missing(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        wait 1
        heartbeat w0 without /a/0
        /a/0            -> PENDING preemptions=1
        attempt /a/0#0  -> cause=missing open=no
        capacity w0     -> cpu=1
    """)


@pytest.mark.parametrize("older_ms", [1000, 0])  # of one millisecond nobody knows which was first
def test_a_heartbeat_older_than_a_report_declares_nothing_missing(script, older_ms):
    script.play("""
        worker w0
        submit /a
        schedule
        wait 5
        /a/0 running
    """)
    script.world.step(heartbeat(99, 0, monotonic_ms=script.world.now_ms - older_ms))
    script.play("/a/0 -> RUNNING")


def next_leader(script):
    """Another leader, that knows what the journal has and nothing else."""
    world = script.world
    world.machine, world.mirror = world.replayed(), None
    world._lead()


def late_heartbeat(world):
    """A heartbeat of w0 that is on its way from now on."""
    return heartbeat(world.hosts["w0"].beats + 1, world.now_ms, monotonic_ms=world.now_ms)


@pytest.mark.parametrize("manner", ["listens", "deaf", "held"])
def test_a_heartbeat_older_than_a_report_to_the_last_leader_misses_none(script, manner):
    """The new leader has the stage from the journal, but not when it was reported: a second attempt
    ran beside it.
    """
    script.play("""
        worker w0 cpu=2
        submit /a
        wait 3
    """)
    late = late_heartbeat(script.world)
    script.world.wait(0.1, heartbeat=False)
    script.play(f"""
        place /a/0 w0    -> placed
        /a/0 running     -> RUNNING
        orders w0 {manner}
    """)
    next_leader(script)
    script.world.step(late)
    script.play("/a/0   -> RUNNING failures=0 preemptions=0 attempts=1")


def test_reports_to_a_new_leader_are_newer_than_its_first_answer(script):
    """Its answer was given first and arrives last."""
    script.play("""
        worker w0 cpu=2
        submit /a
        place /a/0 w0    -> placed
        orders w0 held
    """)
    world = script.world
    next_leader(script)
    [probe], asked_ms = world.hosts["w0"].held, world.now_ms
    world.wait(1, heartbeat=False)
    late = late_heartbeat(world)
    world.wait(1, heartbeat=False)
    script.play("/a/0 running   -> RUNNING")
    world.step(DeliveryResult("w0", probe, monotonic_ms=asked_ms))
    world.step(late)
    script.play("/a/0   -> RUNNING preemptions=0 attempts=1")


def test_an_attempt_is_found_missing_once_its_host_answers_a_new_leader(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        place /a/0 w0    -> placed
        /a/0 running     -> RUNNING
        orders w0 deaf
        wait 1
    """)
    next_leader(script)
    script.play("""
        wait 1
        heartbeat w0 without /a/0
        /a/0            -> RUNNING preemptions=0
        orders w0 listens
        heartbeat w0 without /a/0
        /a/0            -> RUNNING preemptions=0
    """)
    script.world.now_ms += 1000
    script.play("""
        heartbeat w0 without /a/0
        /a/0            -> PENDING preemptions=1
        attempt /a/0#0  -> cause=missing open=no
    """)


def test_the_first_order_of_a_leader_is_answered_though_it_only_stops(script):
    """Nobody else waits for the answer to such an order."""
    script.play("""
        worker w0 cpu=2
        submit /a
        submit /b
        schedule
        /a/0 running
        /b/0 running
        wait 1
        cancel /b
        told w0         -> ~stop:/b/0#0
    """)
    next_leader(script)
    script.play("told w0 -> stop:/b/0#0")
    script.world.now_ms += 1000
    script.play("""
        heartbeat w0 without /a/0
        /a/0            -> PENDING preemptions=1
    """)


def test_a_host_that_refuses_the_first_order_of_a_leader_is_asked_again(script):
    """It was paused and is in doubt: it takes nothing until somebody has answered its report."""
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        orders w0 held
        wait 1
    """)
    world = script.world
    next_leader(script)
    [probe], world.hosts["w0"].held = world.hosts["w0"].held, []
    world.step(DeliveryResult("w0", probe, "worker w0 was paused", Fate.REFUSED, world.now_ms))
    script.play("heartbeat w0")
    world.answer_held("w0")
    world.now_ms += 1000
    script.play("""
        heartbeat w0 without /a/0
        /a/0            -> PENDING preemptions=1
    """)


def test_a_heartbeat_that_arrives_after_a_later_one_changes_nothing(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        wait 5
    """)
    script.world.step(heartbeat(1, script.world.now_ms))
    script.play("/a/0 -> RUNNING")


def test_a_heartbeat_twice_is_a_heartbeat_once(script):
    script.play("""
        worker w0
        orders w0 held
        submit /a
        schedule
        told w0
    """)
    once = heartbeat(7, script.world.now_ms)
    script.world.step(once)
    script.play("told w0 -> run:/a/0#0")
    script.world.step(once)
    script.play("told w0 -> nothing")


def test_a_heartbeat_heals_a_lost_report(script):
    script.play("""
        worker w0
        submit /a
        schedule
    """)
    host = script.world.hosts["w0"]
    (ref,) = host.believes
    host.believes[ref] = Stage(ref, KernelStatus.RUNNING, script.world.now_ms)
    script.play("""
        heartbeat w0
        /a/0            -> RUNNING
    """)


def test_a_heartbeat_repeats_a_stop_that_was_not_heard(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        orders w0 held
        cancel /a
        told w0         -> ~stop:/a/0#0
        heartbeat w0
        told w0         -> stop:/a/0#0
    """)


def test_a_stop_that_could_not_be_delivered_is_tried_again(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        orders w0 deaf
        cancel /a
        told w0         -> ~stop:/a/0#0
        silence 2
        told w0         -> stop:/a/0#0
    """)


def test_a_host_that_registers_with_a_fault_gets_nothing_until_it_is_well(script):
    script.play("""
        worker w0
        submit /a
    """)
    world, host = script.world, script.world.hosts["w0"]
    world.restart("w0")
    fault = Register(
        "w0", "3", {}, host.total, world.now_ms + 1, trouble="host check failed: GPU 3 is gone"
    )
    host.incarnation = "3"
    world._report(host, register=fault)
    view = world.query("worker", id="w0")
    assert (view["state"], view["detail"]) == ("degraded", "host check failed: GPU 3 is gone")
    script.play("""
        schedule
        /a/0                     -> PENDING
        heartbeat w0             -> healthy
        schedule
        /a/0                     -> ASSIGNED
    """)


def test_a_drained_host_that_registers_with_a_fault_stays_drained(script):
    script.play("""
        worker w0
        admin drain w0
    """)
    world, host = script.world, script.world.hosts["w0"]
    host.incarnation = "3"
    world._report(
        host, register=Register("w0", "3", {}, host.total, world.now_ms + 1, trouble="no disk")
    )
    assert world.query("worker", id="w0")["state"] == "draining"


def test_a_degraded_host_says_its_newest_fault(script):
    """Numbers that change with each heartbeat are not worth a commit."""
    script.play("worker w0")
    world, host = script.world, script.world.hosts["w0"]
    commits = [world.machine.sequence]
    for fault in (
        "disk full: 99 MiB free",
        "disk full: 7 MiB free",
        "host check failed: GPU 3 is gone",
    ):
        host.beats += 1
        beat = HeartbeatMessage(
            "w0", host.incarnation, host.beats, world.now_ms, healthy=False, detail=fault
        )
        world.step(Heartbeat(subjects.heartbeat("w0"), codec.pack(beat)))
        commits.append(world.machine.sequence)
    view = world.query("worker", id="w0")
    assert (view["state"], view["detail"]) == ("degraded", "host check failed: GPU 3 is gone")
    assert [after > before for before, after in pairwise(commits)] == [True, False, True]


def test_an_unhealthy_worker_keeps_what_it_has_and_gets_nothing_new(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        schedule
        /a/0 running
        heartbeat w0 unhealthy   -> degraded
        submit /b
        schedule            -> placed 0
        /a/0                -> RUNNING
        heartbeat w0             -> healthy
        schedule            -> placed 1
    """)


def test_a_drained_worker_finishes_its_work_and_gets_nothing_new(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        schedule
        admin drain w0          -> accepted
        worker? w0              -> draining tasks=/a/0
        submit /b
        schedule                -> placed 0
        /a/0 exit 0             -> SUCCEEDED
        heartbeat w0 unhealthy       -> draining
        admin undrain w0        -> accepted
        schedule                -> placed 1
    """)


def test_a_drained_worker_stays_drained_over_restart_and_loss(script):
    script.play("""
        worker w0
        admin drain w0
        restart w0              -> draining
        lose w0                 -> lost
        restart w0              -> draining
        admin undrain w0
        worker? w0              -> healthy
        lose w0
        restart w0              -> healthy
    """)


def test_a_lost_worker_comes_back_as_an_admin_wants_it_by_then(script):
    script.play("""
        worker w0
        admin drain w0
        lose w0                 -> lost
        admin undrain w0        -> accepted
        worker? w0              -> lost
        restart w0              -> healthy
        lose w0
        admin drain w0          -> accepted
        worker? w0              -> lost
        restart w0              -> draining
    """)


def test_only_an_admin_drains(script):
    script.play("""
        worker w0
        admin drain w0 user=ann     -> forbidden only an admin may drain
        admin drain w9              -> not_found there is no worker w9
        admin explode w0            -> invalid unknown action: explode
        worker? w0                  -> healthy
    """)


def test_a_new_leader_gives_full_graces_and_every_open_order_again(script):
    script.play("""
        worker w0 cpu=3
        submit /a replicas=3
        schedule
        /a/1 running
        /a/2 running
        orders w0 deaf
        cancel /a
        told w0
    """)
    world = script.world
    world.now_ms += 25_000
    world._lead()
    world.mirror = None
    script.play("""
        told w0             -> stop:/a/0#0 stop:/a/1#0 stop:/a/2#0
        silence 29
        worker? w0          -> degraded detail=~did_not_reach_it
        silence 2
        worker? w0          -> lost
    """)


def test_a_lost_worker_is_lost_once(script):
    script.play("""
        worker w0
        submit /a
        silence 31
        worker? w0          -> lost
    """)
    before = script.world.machine.sequence
    script.play("silence 60")
    assert script.world.machine.sequence == before


def test_a_worker_that_is_back_is_no_longer_said_to_be_gone(script):
    script.play("""
        worker w0
        silence 31
        worker? w0      -> lost detail=~not_heard_of
        restart w0      -> healthy
        worker? w0      -> healthy detail=-
    """)
