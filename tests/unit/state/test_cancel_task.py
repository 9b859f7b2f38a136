"""One call of a map, or task of an array, is cancelled, and the others go on.

docs/design/semantics.md#tasks-and-attempts.
"""

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Stage
from iris_core.states import Cause, KernelStatus
from tests.support.script import Script


def test_a_cancelled_call_is_stopped_and_the_others_go_on(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /m map=yes replicas=4 tolerate=4 for_user=mia
        schedule                -> placed 2
        /m/0 run
        /m/1 run
        cancel /m/0 user=mia reason=wrong -> accepted
        /m/0                    -> KILLED error=wrong
        attempt /m/0#0          -> cause=cancelled open=yes
        told w0                 -> run:/m/0#0 run:/m/1#0 stop:/m/0#0
        cancel /m/3 user=mia    -> accepted
        /m/3                    -> KILLED
        queue                   -> /m/2
        job /m                  -> RUNNING
        /m/0#0 stopped          -> KILLED
        schedule                -> placed 1
        /m/1 exit 0             -> SUCCEEDED
        /m/2 exit 0             -> SUCCEEDED
        job /m                  -> KILLED
    """)
    entries = [
        (one["action"], one["name"], one["detail"])
        for one in script.world.query("audit", limit=10)["items"]
    ]
    assert entries[:2] == [("cancel", "/m", "task 3"), ("cancel", "/m", "task 0: wrong")]


def test_a_call_that_has_ended_is_not_cancelled_any_more(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /m map=yes replicas=3 tolerate=3
        schedule
        /m/0 exit 0             -> SUCCEEDED
        cancel /m/0             -> conflict /m/0 has ended (succeeded)
        cancel /m/1             -> accepted
        cancel /m/1             -> accepted
        cancel /m/7             -> not_found
    """)
    assert len(script.world.query("audit", limit=10)["items"]) == 1


def test_a_task_of_another_kind_of_job_is_not_cancelled_alone(script: Script) -> None:
    script.play("""
        submit /a replicas=2
        cancel /a/0             -> conflict
        /a/0                    -> PENDING
    """)


def test_a_task_of_an_array_whose_tasks_may_all_fail_is_cancelled_alone(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /a array=0-2 replicas=3 tolerate=3
        schedule                -> placed 2
        /a/0 run
        cancel /a/0             -> accepted
        cancel /a/2             -> accepted
        job /a                  -> RUNNING
        /a/0#0 stopped          -> KILLED
        /a/1 exit 0             -> SUCCEEDED
        job /a                  -> KILLED cause=cancelled
        submit /b array=0-2 replicas=3 tolerate=2
        cancel /b/0             -> conflict a killed task would end all of /b: cancel /b, or requeue /b/0
    """)


def test_a_task_of_such_an_array_ends_alone_at_its_time_limit(script: Script) -> None:
    script.play("""
        worker w0 cpu=2
        submit /a array=0-1 replicas=2 tolerate=2 timeout=10
        schedule                -> placed 2
        /a/0 run
        wait 5
        /a/1 run
        wait 5
        /a/0                    -> KILLED
        job /a                  -> RUNNING
        /a/1 exit 0             -> SUCCEEDED
    """)


def test_only_the_owner_and_admins_cancel_a_call(script: Script) -> None:
    script.play("""
        submit /m map=yes replicas=2 for_user=mia
        cancel /m/0 user=ann    -> forbidden /m belongs to mia; only its owner or an admin may cancel it
        cancel /m/0 user=mia    -> accepted
    """)


def test_a_task_cancels_calls_of_its_own_subtree_only(script: Script) -> None:
    script.play("""
        worker w0
        submit /m map=yes replicas=2 for_user=mia
        submit /m/child map=yes replicas=2 for_user=mia
        submit /other map=yes replicas=2 for_user=mia
        place /m/0 w0
        /m/0 run
    """)
    token = Caller("mia", "task", AttemptRef(1, 0, 0), "w0")
    answers = [
        script.world.cancel(task, token).status for task in ("/m/child/1", "/m/1", "/other/0")
    ]
    assert answers == ["accepted", "accepted", "forbidden"]


def test_a_killed_task_has_the_signal_that_ended_it(script: Script) -> None:
    script.play("""
        worker w0
        submit /a for_user=mia
        schedule
        /a/0 run
        cancel /a user=mia
    """)
    assert script.world.query("task", task="/a/0")["signal"] is None
    ended = Ended(Cause.CANCELLED, signal=9)
    script.world.say(
        "w0", Stage(AttemptRef(1, 0, 0), KernelStatus.TERMINATED, script.world.now_ms, ended)
    )
    assert script.world.query("task", task="/a/0")["signal"] == 9
