"""What a task is told before it is stopped, and what becomes of it: by exit 0 in time it succeeds.

docs/design/semantics.md#tasks-and-attempts; docs/howto/checkpoints.md.
"""

import pytest

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import GivenNotice, Stage
from iris_core.moments import LAST_MS
from iris_core.spec.jobs import NoticePolicy
from iris_core.states import Cause, KernelStatus, NoticeReason
from iris_state.effects.orders import template
from iris_state.machine.machine import Machine
from iris_state.snapshots import snapshot
from tests.support.script import Script


def starts(options: str, worker: str = "worker w0") -> str:
    return f"{worker}\n submit /a {options}\n place /a/0 w0\n /a/0 run\n"


def test_exit_0_within_the_grace_period_of_a_time_limit_succeeds(script: Script) -> None:
    script.play(starts("timeout=30 notice=USR1@10 grace=60"))
    script.play("""
        told w0                 -> run:/a/0#0
        wait 31
        told w0                 -> stop:/a/0#0
        /a/0                    -> RUNNING
        capacity w0             -> cpu=0
        /a/0 left 0             -> SUCCEEDED error=-
        capacity w0             -> cpu=1
        job /a                  -> SUCCEEDED
    """)


def test_a_success_by_exit_0_after_a_stop_says_that_it_was_told_to_stop(script: Script) -> None:
    """A handler that saves and exits with 0 ended the training for good, and nothing said why."""
    script.play(starts("notice=USR1@10 grace=60 band=batch"))
    script.play("""
        submit /p band=production
        /a/0 preempt for /p/0   -> RUNNING
        /a/0 left 0             -> SUCCEEDED
        note /a/0               -> ended with 0, which is success, after it was told to stop: preempted for /p
        submit /b notice=USR1@10
        place /b/0 w0
        /b/0 run
    """)
    notice = GivenNotice(NoticeReason.SPOT, script.world.now_ms, script.world.now_ms + 20_000)
    script.world.say(
        "w0",
        Stage(AttemptRef(3, 0, 0), KernelStatus.RUNNING, script.world.now_ms, notices=(notice,)),
    )
    script.play("/b/0 left 0")
    script.play(
        "note /b/0 -> ended with 0, which is success, after it was told to stop: its worker is taken away"
    )


@pytest.mark.parametrize("end", ["left 1", "stopped", "infra", "missing"])
def test_any_other_end_after_a_time_limit_is_the_time_limit(script: Script, end: str) -> None:
    script.play(starts("timeout=30 notice=USR1@10 retries=3"))
    script.play(f"""
        wait 31
        /a/0                    -> RUNNING
        /a/0 {end}              -> KILLED failures=0 preemptions=0
        job /a                  -> KILLED cause=timeout error=~ran_longer_than_30_s
    """)


def test_a_task_is_requeued_at_its_time_limit_and_keeps_its_place(script: Script) -> None:
    script.play(starts("timeout=30 on_timeout=requeue requeues=1"))
    script.play("""
        submit /b
        wait 31
        told w0                 -> run:/a/0#0 stop:/a/0#0
        capacity w0             -> cpu=0
        /a/0                    -> RUNNING
        /a/0 left 143           -> PENDING requeues=1 failures=0 preemptions=0
        attempt /a/0#0          -> state=killed cause=timeout charged_to=requeue open=no
        queue                   -> /a/0 /b/0
        schedule                -> placed 1
        /a/0 run                -> RUNNING
        wait 31
        /a/0 left 1             -> KILLED requeues=2
        job /a                  -> KILLED cause=timeout error=~ran_longer_than_30_s,_more_than_1_time_(max_requeues):
    """)


def test_exit_0_after_a_time_limit_that_requeues_succeeds(script: Script) -> None:
    script.play(starts("timeout=30 on_timeout=requeue requeues=0"))
    script.play("""
        wait 31
        /a/0 left 0             -> SUCCEEDED requeues=0
    """)


def test_exit_0_after_a_time_limit_without_notice_is_too_late(script: Script) -> None:
    script.play(starts("timeout=30 grace=60"))
    script.play("""
        wait 31
        /a/0                    -> KILLED
        /a/0#0 left 0           -> KILLED
    """)


def test_exit_0_after_a_cancellation_is_none_also_after_a_notice(script: Script) -> None:
    script.play(starts("timeout=30 notice=USR1@10 grace=60"))
    script.play("""
        wait 31
        /a/0#0 noticed timeout  -> RUNNING
        cancel /a
        /a/0                    -> KILLED
        capacity w0             -> cpu=0
        /a/0#0 left 0           -> KILLED
        capacity w0             -> cpu=1
    """)


def test_a_preempted_task_goes_on_until_its_end_is_known(script: Script) -> None:
    script.play(starts("notice=USR1@10 grace=60 band=batch preemptions=0"))
    script.play("""
        submit /p band=production
        /a/0 preempt for /p/0   -> RUNNING
        told w0                 -> run:/a/0#0 stop:/a/0#0
        promised                -> w0:/p/0
        place /p/0 w0           -> no_room
        /a/0 preempt for /p/0   -> RUNNING
        told w0                 -> nothing
        heartbeat w0
        told w0                 -> stop:/a/0#0
        /a/0 left 0             -> SUCCEEDED preemptions=0
        place /p/0 w0           -> placed
    """)


def test_a_preempted_task_that_does_not_exit_0_is_charged_once(script: Script) -> None:
    script.play(starts("notice=USR1@10 band=batch preemptions=1 retries=3 on_exit=75=fail"))
    script.play("""
        submit /p band=production
        /a/0 preempt for /p/0   -> RUNNING
        /a/0 left 75            -> PENDING preemptions=1 failures=0
        attempt /a/0#0          -> state=preempted cause=preempted charged_to=preemption initiator=scheduler
    """)


def test_what_has_failed_by_itself_before_its_stop_arrived_has_failed(script: Script) -> None:
    script.play(starts("notice=USR1@10 band=batch"))
    script.play("""
        submit /p band=production
        /a/0 preempt for /p/0   -> RUNNING
        /a/0 exit 3             -> FAILED failures=1 preemptions=0
    """)


def test_a_preempted_task_that_requeues_itself_does_not_succeed(script: Script) -> None:
    script.play(starts("notice=USR2@10 band=batch for_user=mia"))
    script.play("""
        submit /p band=production
        /a/0 preempt for /p/0   -> RUNNING
    """)
    assert (
        script.world.requeue("/a/0", Caller("mia", "task", AttemptRef(1, 0, 0), "w0")).status
        == "accepted"
    )
    script.play("""
        requeue /a/0            -> accepted
        /a/0 left 0             -> PENDING preemptions=1 requeues=0
        queue                   -> /p/0 /a/0
    """)


def test_a_requeue_after_the_time_limit_outweighs_that_the_limit_kills(script: Script) -> None:
    script.play(starts("timeout=30 notice=USR2@10"))
    script.play("""
        wait 31
        requeue /a/0            -> accepted
        /a/0 left 0             -> PENDING requeues=1
    """)


def test_a_lost_host_ends_what_was_told_to_stop(script: Script) -> None:
    script.play(starts("timeout=30 notice=USR2@10"))
    script.play("""
        wait 31
        lose w0
        /a/0                    -> KILLED preemptions=0
    """)


def test_a_new_leader_repeats_the_stop_and_the_end_is_judged_alike(script: Script) -> None:
    script.play(starts("timeout=30 on_timeout=requeue"))
    script.play("""
        wait 31
        told w0
        takeover 1
        told w0                 -> stop:/a/0#0
        /a/0 left 1             -> PENDING requeues=1
    """)


def test_an_end_that_nobody_confirms_is_not_waited_for_for_ever(script: Script) -> None:
    script.play(starts("timeout=30 on_timeout=requeue grace=60"))
    script.play("""
        wait 31
        wait 170
        /a/0                    -> RUNNING
        wait 20
        /a/0                    -> PENDING requeues=1
        capacity w0             -> cpu=0
        queue                   -> nothing
        /a/0#0 left 0           -> PENDING
        capacity w0             -> cpu=1
        queue                   -> /a/0
    """)


RACK = """
    worker a0 rack=a
    worker a1 rack=a
    submit /g replicas=2 gang=rack {}
    place /g a0 a1
    /g/0 prepared
    /g/1 prepared
    /g/0 running
"""


def test_the_members_of_a_gang_have_one_time_limit_from_when_all_run(script: Script) -> None:
    script.play(RACK.format("timeout=30 notice=USR1@10"))
    script.play("""
        wait 20
        /g/1 running
        told a0
        told a1
        wait 25
        told a0                 -> nothing
        wait 6
        told a0                 -> stop:/g/0#0
        told a1                 -> stop:/g/1#0
        /g/0 left 0             -> RUNNING
        /g/1 left 0             -> SUCCEEDED
        job /g                  -> SUCCEEDED
    """)


def test_a_gang_is_requeued_whole_unless_all_members_exit_0_in_time(script: Script) -> None:
    script.play(RACK.format("timeout=30 on_timeout=requeue requeues=1"))
    script.play("""
        /g/1 running
        wait 31
        /g/0 left 0             -> RUNNING
        /g/1 stopped            -> PENDING requeues=1
        /g/0                    -> PENDING requeues=0
        queue                   -> /g/0 /g/1
    """)


def test_the_start_order_of_a_gang_has_its_deadline_by_each_hosts_clock(script: Script) -> None:
    script.play(RACK.format("timeout=30 notice=USR1@10"))
    at_ms = script.world.now_ms + 30_000
    for host in ("a0", "a1"):
        orders = script.world.hosts[host].orders
        assert [gang.deadline_ms for order in orders for gang in order.gangs if order.start] == [
            at_ms
        ]


def test_a_drained_host_is_told_until_it_has_given_the_notice(script: Script) -> None:
    script.play(
        "worker w0 cpu=2\n submit /b\n place /b/0 w0\n /b/0 run\n" + starts("notice=USR1@10", "")
    )
    script.play("""
        told w0                 -> run:/b/0#0 run:/a/0#0
        admin drain w0
        told w0                 -> drained:/a/0#0
        heartbeat w0
        told w0                 -> drained:/a/0#0
        /a/0 noticed drain      -> RUNNING
        heartbeat w0
        told w0                 -> nothing
        /a/0 exit 0             -> SUCCEEDED
    """)


def test_all_members_of_a_gang_are_told_when_the_host_of_one_is_drained(script: Script) -> None:
    script.play(RACK.format("notice=USR1@10"))
    script.play("""
        /g/1 running
        told a0
        told a1
        admin drain a1
        told a0                 -> drained:/g/0#0
        told a1                 -> drained:/g/1#0
    """)


def test_all_members_of_a_gang_are_told_when_the_host_of_one_is_taken_away(script: Script) -> None:
    script.play(RACK.format("notice=USR1@10"))
    script.play("""
        /g/1 running
        told a0
        stop a1
        told a0                 -> drained:/g/0#0
        heartbeat a1
        told a0                 -> drained:/g/0#0
        /g/0 noticed drain      -> RUNNING
        heartbeat a1
        told a0                 -> nothing
    """)


def test_exit_0_counts_when_the_host_is_taken_away_after_a_notice(script: Script) -> None:
    script.play(starts("notice=USR1@10"))
    script.play("""
        stop w0
        /a/0 noticed spot       -> RUNNING
        /a/0 left 0             -> SUCCEEDED preemptions=0
    """)


def test_exit_0_without_notice_on_a_host_that_is_taken_away_is_a_loss(script: Script) -> None:
    script.play(starts(""))
    script.play("""
        stop w0
        /a/0 left 0             -> PENDING preemptions=1
    """)


def test_a_notice_is_kept_once_and_shown(script: Script) -> None:
    script.play(starts("notice=USR1@10 timeout=60"))
    script.play("""
        /a/0 noticed timeout    -> RUNNING
        heartbeat w0
        /a/0 noticed timeout    -> RUNNING
        history /a              -> ~notice
    """)
    at_ms = script.world.now_ms
    attempt = script.world.ledger.jobs[1].task(0).attempts[0]
    assert attempt.notices == (GivenNotice(NoticeReason.TIMEOUT, at_ms),)
    [shown] = script.world.query("task", task="/a/0")["attempts"][0]["notices"]
    assert (shown["reason"], shown["deadline_at"]) == ("timeout", None)


def test_notices_of_a_host_are_kept_once_at_times_that_there_are(script: Script) -> None:
    """A host may say anything of its own attempts; a task with a notice of no year could not be
    read.
    """
    script.play(starts("notice=USR1@10 timeout=60"))
    ref, notice = AttemptRef(1, 0, 0), GivenNotice(NoticeReason.TIMEOUT, 2**62, -(2**62))
    script.world.say("w0", Stage(ref, KernelStatus.RUNNING, 0, notices=(notice,) * 20_000))
    attempt = script.world.ledger.jobs[1].task(0).attempts[0]
    assert attempt.notices == (GivenNotice(NoticeReason.TIMEOUT, LAST_MS, 0),)
    [shown] = script.world.query("task", task="/a/0")["attempts"][0]["notices"]
    assert (shown["at"][:4], shown["deadline_at"]) == ("9999", None)


def test_what_was_told_to_stop_outlives_a_snapshot(script: Script) -> None:
    script.play(starts("timeout=30 notice=USR1@10"))
    script.play("/a/0 noticed timeout\n wait 31")
    machine = script.world.machine
    restored = Machine(machine.policy, "restored")
    restored.restore(snapshot.read(snapshot.cut(machine.ledger, machine.sequence, machine.last_ms)))
    attempt = restored.ledger.jobs[1].task(0).attempts[0]
    assert attempt.ending is not None
    assert (attempt.ending.cause, len(attempt.notices)) == (Cause.TIMEOUT, 1)


def test_a_scheduler_sees_that_it_stops_and_when_it_should_have(script: Script) -> None:
    script.play(starts("timeout=30 notice=USR1@10 grace=60"))
    script.play("wait 31")
    [hold] = script.world.snapshot().holds
    assert hold.stopping
    assert 59_000 <= hold.stopping_ms - script.world.now_ms <= 60_000


@pytest.mark.parametrize(
    ("band", "most_ms"), [("batch", 300_000), ("interactive", 600_000), ("production", 3_600_000)]
)
def test_a_scheduler_counts_on_a_grace_period_up_to_a_limit(
    script: Script, band: str, most_ms: int
) -> None:
    script.play(starts(f"grace=3600 band={band}"))
    script.play("cancel /a")
    [hold] = script.world.snapshot().holds
    assert hold.stopping_ms - script.world.now_ms == most_ms


def test_a_protected_attempt_is_not_preempted(script: Script) -> None:
    script.play(starts("band=batch protect=60"))
    script.play("""
        submit /p band=production
        wait 50
        /a/0 preempt for /p/0   -> RUNNING
        told w0                 -> run:/a/0#0
        promised                -> nothing
        wait 11
        /a/0 preempt for /p/0   -> PENDING preemptions=1
    """)


def test_the_notice_is_told_with_the_task(script: Script) -> None:
    script.play("submit /a notice=USR2@5\n submit /b")
    assert template(script.world.ledger.jobs[1]).notice == NoticePolicy(
        signal="SIGUSR2", before_s=5.0
    )
    assert template(script.world.ledger.jobs[2]).notice is None


CHAIN = """
    worker w0 cpu=1
    submit /a replicas=3 map=yes band=batch preemptions=0 {}
    place /a/0 w0
    chain /a/1 /a/2 behind /a/0 -> placed
    /a/0 running
    submit /p band=production
"""


def test_a_preempted_chain_goes_when_the_one_that_runs_is_done(script: Script) -> None:
    script.play(
        CHAIN.format("notice=USR1@10 grace=60")
        + """
        /a/0 preempt for /p/0   -> RUNNING
        /a/1                    -> PENDING preemptions=0
        /a/2                    -> PENDING preemptions=0
        promised                -> w0:/p/0
        /a/1#0 stopped
        /a/2#0 stopped
        place /p/0 w0           -> no_room
        /a/0 left 0             -> SUCCEEDED preemptions=0
        place /p/0 w0           -> placed
        """
    )


def test_what_was_told_to_stop_in_a_chain_is_not_told_again(script: Script) -> None:
    script.play(
        CHAIN.format("notice=USR1@10 grace=60 timeout=30")
        + """
        wait 31
        told w0                 -> run:/a/0#0 run:/a/1#0 run:/a/2#0 stop:/a/0#0
        attempt /a/0#0          -> stopping=timeout
        /a/1 preempt for /p/0   -> PENDING preemptions=0
        /a/2                    -> PENDING preemptions=0
        attempt /a/0#0          -> stopping=timeout
        told w0                 -> stop:/a/1#0 stop:/a/2#0
        """
    )


def test_a_protected_attempt_keeps_its_whole_chain(script: Script) -> None:
    script.play(
        CHAIN.format("protect=20")
        + """
        wait 21
        /a/0 exit 0             -> SUCCEEDED
        /a/1 running            -> RUNNING
        /a/2 preempt for /p/0   -> ASSIGNED
        /a/1                    -> RUNNING
        promised                -> nothing
        wait 21
        /a/2 preempt for /p/0   -> PENDING preemptions=0
        /a/1                    -> PREEMPTED
        """
    )
