"""A running task is stopped and returned to the queue by command, and what it exits with does not
end it.

docs/design/semantics.md#tasks-and-attempts.
"""

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from tests.support.script import Script


def test_a_requeued_task_is_stopped_and_keeps_its_place(script: Script) -> None:
    script.play("""
        worker w0
        submit /a for_user=mia requeues=2
        submit /b
        place /a/0 w0
        /a/0 run
        told w0                 -> run:/a/0#0
        events /a/0
        requeue /a/0 user=mia reason=checkpoint -> accepted
        /a/0                    -> PENDING requeues=1 failures=0 preemptions=0
        attempt /a/0#0          -> state=killed cause=requeued charged_to=requeue open=yes
        told w0                 -> stop:/a/0#0
        events /a/0             -> pending
        queue                   -> /b/0
        schedule                -> placed 0
        /a/0#0 stopped          -> PENDING requeues=1
        queue                   -> /a/0 /b/0
        schedule                -> placed 1
        /a/0                    -> ASSIGNED
    """)
    entry = script.world.query("audit", limit=10)["items"][0]
    assert (entry["action"], entry["name"], entry["detail"]) == (
        "requeue",
        "/a",
        "task 0: checkpoint",
    )


def test_exit_0_or_255_after_a_requeue_ends_nothing(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /a replicas=2
        schedule
        /a/0 run
        /a/1 run
        requeue /a              -> accepted
        /a/0#0 exit 0           -> PENDING requeues=1
        /a/1#0 exit 255         -> PENDING requeues=1 failures=0
        queue                   -> /a/0 /a/1
        schedule
        /a/0 exit 0             -> SUCCEEDED
        /a/1 exit 0             -> SUCCEEDED
        job /a                  -> SUCCEEDED
    """)


def test_a_preempted_task_that_requeues_itself_does_not_succeed_by_exit_0(script: Script) -> None:
    script.play("""
        worker w0
        submit /a band=batch
        submit /p band=production
        place /a/0 w0
        /a/0 run
        /a/0 preempt for /p/0   -> PENDING preemptions=1
        requeue /a/0            -> accepted
        requeue /a/0            -> accepted
        takeover 1
        heartbeat w0
        /a/0#0 exit 0           -> PENDING preemptions=1 requeues=0
        attempt /a/0#0          -> state=preempted cause=preempted
        queue                   -> /p/0 /a/0
    """)
    assert [entry["action"] for entry in script.world.query("audit", limit=10)["items"]].count(
        "requeue"
    ) == 1


def test_over_its_limit_a_task_fails_and_says_why(script: Script) -> None:
    script.play("""
        worker w0
        submit /a requeues=1 retries=5
        schedule
        requeue /a/0
        /a/0#0 stopped
        schedule
        /a/0 run
        requeue /a/0            -> accepted
        /a/0                    -> FAILED requeues=2 failures=0 no_retry=yes
        job /a                  -> FAILED cause=requeued error=~more_than_1_time_(max_requeues)
        capacity w0             -> cpu=0
        /a/0#1 exit 0           -> FAILED
        capacity w0             -> cpu=1
    """)


def test_a_requeue_waits_as_long_as_another_retry_that_is_asked_for(script: Script) -> None:
    script.play("""
        worker w0
        submit /a backoff=10
        schedule
        requeue /a
        /a/0#0 stopped
        queue                   -> nothing
        wait 11
        queue                   -> /a/0
    """)


def test_a_gang_is_requeued_whole_and_charged_once(script: Script) -> None:
    script.play("""
        worker w0 rack=r1
        worker w1 rack=r1
        submit /g replicas=2 gang=rack requeues=1
        place /g w0 w1
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        requeue /g/1            -> accepted
        /g/1                    -> PENDING requeues=1
        /g/0                    -> PENDING requeues=0
        attempt /g/0#0          -> cause=coscheduled_restart
        /g/0#0 exit 0           -> PENDING
        queue                   -> nothing
        /g/1#0 exit 0           -> PENDING
        queue                   -> /g/0 /g/1
        session /g              -> PENDING
        place /g w0 w1          -> placed
        requeue /g              -> accepted
        /g/0                    -> PENDING requeues=1
        /g/1                    -> PENDING requeues=1
        /g/0#1 stopped
        /g/1#1 stopped
        place /g w0 w1          -> placed
        requeue /g/1            -> accepted
        /g/1                    -> FAILED requeues=2
        /g/0                    -> WORKER_FAILED requeues=1
        job /g                  -> FAILED
    """)


def test_what_does_not_run_is_not_requeued(script: Script) -> None:
    script.play("""
        worker w0
        submit /a for_user=mia
        requeue /a              -> conflict
        requeue /a/0            -> conflict
        requeue /b              -> not_found
        requeue /a/7            -> not_found
        schedule
        requeue /a user=ann     -> forbidden
        /a/0 exit 0
        requeue /a/0            -> conflict
    """)


def test_a_requeued_task_of_a_held_job_stays_out_of_the_queue(script: Script) -> None:
    script.play("""
        worker w0
        submit /a
        schedule
        hold /a
        requeue /a              -> accepted
        /a/0#0 stopped          -> PENDING
        queue                   -> nothing
        release /a
        queue                   -> /a/0
    """)


def test_a_task_requeues_itself_with_its_own_token_and_nothing_outside(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /a for_user=mia
        submit /b for_user=mia
        schedule                -> placed 2
        /a/0 run
        /b/0 run
    """)
    own = Caller("mia", "task", AttemptRef(1, 0, 0), "w0")
    assert script.world.requeue("/b/0", own).status == "forbidden"
    assert script.world.requeue("/a/0", own).status == "accepted"
    script.play("""
        /a/0                    -> PENDING requeues=1
        /b/0                    -> RUNNING
        /a/0#0 exit 0           -> PENDING
    """)
    assert script.world.requeue("/a/0", own).status == "forbidden"


def test_a_requeue_of_what_does_not_run_is_refused_in_words(script: Script) -> None:
    script.play("""
        worker w0
        submit /a
        place /a/0 w0
        /a/0 run
        requeue /a -> accepted
        /a/0#0 stopped -> PENDING requeues=1
        job /a -> RUNNING
        requeue /a -> conflict no task of /a runs
        requeue /a/0 -> conflict /a/0 is pending: nothing of it runs
        cancel /a
        requeue /a -> conflict /a is killed: nothing of it runs
    """)
