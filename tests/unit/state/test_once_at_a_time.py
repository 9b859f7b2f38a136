"""A task runs at most once at a time: a retry waits until the previous attempt has ended or its
host is given up.
"""

from iris_core import codec, subjects
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import FullSnapshot, Placement, Plan
from iris_core.messages.state_worker import Register, WorkerReport
from iris_core.spec.resources import Amount
from iris_core.states import TaskState
from iris_state.effects.kinds import OrderTo
from iris_state.machine.machine import Machine
from iris_state.records.inputs import Request
from iris_state.records.ledger import Ledger
from iris_state.snapshots import snapshot
from tests.support.script import Script

GANG = """
    worker a0 rack=a
    worker a1 rack=a
    submit /g replicas=2 gang=rack retries=1
    schedule
    /g/0 prepared
    /g/1 prepared
    /g/0 running
    /g/1 running
    /g/0 exit 1             -> PENDING
"""

FULL = """
    worker w0 cpu=2
    submit /low replicas=3 band=batch
    place /low/0 w0
    place /low/1 w0
    /low/0 running
    /low/1 running
    submit /high band=production
"""


def restored(machine: Machine) -> Machine:
    """Another one that begins with its snapshot."""
    other = Machine(machine.policy, "other")
    other.restore(snapshot.read(snapshot.cut(machine.ledger, machine.sequence, machine.last_ms)))
    return other


def queue(ledger: Ledger) -> list[tuple[int, int]]:
    return list(ledger.queue)


def test_a_gang_stands_in_the_queue_whole_once_its_last_member_has_stopped(script: Script):
    script.play(GANG)
    assert queue(script.world.ledger) == []
    script.play("/g/1#0 stopped")
    assert queue(script.world.ledger) == [(1, 0), (1, 1)]


def test_it_does_not_after_a_restart_either(script: Script):
    script.play(GANG)
    assert queue(restored(script.world.machine).ledger) == []
    script.play("/g/1#0 stopped")
    assert queue(restored(script.world.machine).ledger) == [(1, 0), (1, 1)]


def test_the_loss_of_the_host_that_does_not_stop_it_lets_it_go_on(script: Script):
    script.play(GANG)
    script.play("""
        why /g                  -> delayed
        lose a1
        why /g                  -> not_yet_looked_at
    """)
    assert queue(script.world.ledger) == [(1, 0), (1, 1)]


def test_who_waits_for_an_end_can_be_cancelled(script: Script):
    script.play(GANG)
    script.play("""
        cancel /g
        job /g                  -> KILLED
        /g/1#0 stopped
    """)
    assert queue(script.world.ledger) == []


def test_a_host_is_not_told_to_run_what_it_has_just_said_it_does_not_know():
    script = Script()
    script.play("""
        worker a0
        submit /a
    """)
    world = script.world
    placed = Plan("s", world.machine.sequence, ("a0",), (Placement(1, (0,), (0,)),))
    anew = Register("a0", "another start", {}, Amount(1000), world.now_ms + 1)
    request = [
        Request(subjects.STATE_PLAN, codec.pack(placed), "p"),
        Request(
            subjects.report("a0"),
            codec.pack(WorkerReport("a0", "another start", register=anew)),
            "r",
        ),
    ]
    output = world.machine.step(request, world.now_ms)
    [task] = world.ledger.jobs[1].tasks
    assert (task.state, len(task.attempts)) == (TaskState.PENDING, 1)
    ordered = [
        ref
        for one in output.of(OrderTo)
        for ref in (*one.order.run, *one.order.prepare, *one.order.start)
    ]
    assert AttemptRef(1, 0, 0) not in ordered


def test_a_scheduler_is_told_that_a_task_waits_when_it_may_be_placed(script: Script):
    script.play(GANG)
    before: FullSnapshot = script.world.snapshot()
    script.play("/g/1#0 stopped")
    after: FullSnapshot = script.world.snapshot()
    assert before.queued == ()
    assert [(tasks.job, tasks.ranges) for tasks in after.queued] == [(1, ((0, 2),))]


def test_each_task_says_why_it_waits_itself(script: Script):
    script.play(FULL)
    script.play("""
        /low/0 preempt for /high/0
        explain /low behind
    """)
    for task, code in [
        ("/low/0", "delayed"),
        ("/low/1", None),
        ("/low/2", "behind"),
        ("/high/0", "waiting_for_victim"),
    ]:
        reason = script.world.query("why", task=task)["pending_reason"]
        assert (reason and reason["code"]) == code, task
    assert script.world.query("why", job="/low")["task"] == "/low/2"
    shown = script.world.query("tasks", job="/low")["items"]
    assert [task["pending_reason"] and task["pending_reason"]["code"] for task in shown] == [
        "delayed",
        None,
        "behind",
    ]


def test_a_job_whose_only_waiting_task_is_ending_names_that_task(script: Script):
    script.play(FULL)
    script.play("""
        worker w1
        place /low/2 w1
        /low/1 preempt for /high/0
    """)
    why = script.world.query("why", job="/low")
    assert (why["task"], why["state"], why["ahead"]) == ("/low/1", "pending", None)
    assert why["pending_reason"]["code"] == "delayed"


REPLACED = """
    worker w0
    worker w1
    submit /a replicas=2
    place /a/0 w0
    place /a/1 w1
    /a/0 running
    /a/1 running
    submit /a replicas=2 if_exists=replace  -> created j2
    j1/1 stopped
"""


def test_a_new_run_waits_until_the_one_it_replaces_has_stopped_everywhere(script: Script):
    script.play(REPLACED)
    script.play("place /a/0 w1          -> not_pending")
    reason = script.world.query("why", job="/a")["pending_reason"]
    assert (reason["code"], reason["message"]) == (
        "delayed",
        "waits for the earlier run of its name to end on w0",
    )
    assert queue(script.world.ledger) == queue(restored(script.world.machine).ledger) == []
    script.play("""
        j1/0 stopped
        queue                   -> /a/0 /a/1
        place /a/0 w1           -> placed
    """)


def test_a_new_run_of_a_gang_waits_for_the_one_it_replaces(script: Script):
    script.play("""
        worker a0 rack=a
        worker a1 rack=a
        submit /g replicas=2 gang=rack
        schedule
        /g/0 prepared
        submit /g replicas=2 gang=rack if_exists=replace    -> created j2
        place /g a0 a1          -> not_pending
        j1/0 stopped
        queue                   -> nothing
        j1/1 stopped
        queue                   -> /g/0 /g/1
        place /g a0 a1          -> placed
    """)


def test_the_loss_of_its_host_ends_the_run_before(script: Script):
    script.play(REPLACED)
    script.play("""
        lose w0
        queue                   -> /a/0 /a/1
    """)


def test_a_run_that_is_replaced_while_it_is_held_back_never_starts(script: Script):
    script.play(REPLACED)
    script.play("""
        submit /a if_exists=replace     -> created j3
        job j2                          -> KILLED cause=replaced
        j1/0 stopped
        queue                           -> /a/0
        job /a                          -> PENDING id=j3
    """)
