"""An attempt holds its capacity from assignment until its end is known, whatever happens to its
task.

docs/design/semantics.md#tasks-and-attempts.
"""

from iris_core.messages.message import AttemptRef
from iris_core.spec.jobs import NEEDS_RUNTIME
from iris_state.effects.deltas import job_row


def test_capacity_is_held_from_assignment_to_the_end(script):
    script.play("""
        worker w0 cpu=2 memory=4
        submit /a memory=3
        schedule
        capacity w0     -> cpu=1 memory=1 building=1
        /a/0 running
        capacity w0     -> cpu=1 memory=1 building=0
        /a/0 exit 0
        capacity w0     -> cpu=2 memory=4 building=0
    """)


def test_killing_frees_nothing_before_the_process_has_ended(script):
    script.play("""
        worker w0
        submit /a
        submit /b
        schedule        -> placed 1
        /a/0 running
        cancel /a
        capacity w0     -> cpu=0
        schedule        -> placed 0
        place /b/0 w0   -> no_room
        /a/0 stopped
        capacity w0     -> cpu=1
        schedule        -> placed 1
    """)


def test_preempting_frees_nothing_before_the_process_has_ended(script):
    script.play("""
        worker w0
        submit /low band=batch
        schedule
        /low/0 running
        submit /high band=production
        /low/0 preempt for /high/0
        capacity w0         -> cpu=0
        schedule            -> placed 0
        /low/0#0 stopped
        schedule            -> placed 1
        /high/0             -> ASSIGNED
    """)


def test_bouncing_a_late_task_frees_nothing_before_it_has_ended(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 building
        wait 901
        /a/0            -> PENDING preemptions=1
        capacity w0     -> cpu=0
        /a/0#0 missing
        capacity w0     -> cpu=1
    """)


def test_a_worker_takes_a_bounded_number_of_building_tasks(script):
    script.play("""
        worker w0 cpu=100
        submit /a replicas=10
        schedule            -> placed 8
        place /a/8 w0       -> building_window_full
        capacity w0         -> building=8
        /a/0 running
        place /a/8 w0       -> placed
        /a/1 exit 0
        place /a/9 w0       -> placed
    """)


def test_being_stopped_is_not_being_built(script):
    script.play("""
        worker w0 cpu=100
        submit /a replicas=8
        schedule
        capacity w0     -> building=8
        cancel /a
        capacity w0     -> building=0 cpu=92
    """)


def test_a_plan_cannot_take_the_same_room_twice(script):
    from iris_core.messages.scheduler_state import Placement, Plan

    script.play("""
        worker w0
        submit /a replicas=2
    """)
    taken = script.world.plan(Plan("s", 0, ("w0",), (Placement(1, (0, 1), (0, 0)),)))
    assert taken.placed == 1
    assert taken.refused == ((1, 1, "no_room"),)


def test_nothing_is_placed_on_a_worker_that_takes_no_work(script):
    script.play("""
        worker w0
        worker w1
        worker w2
        submit /a
        admin drain w0          -> accepted
        heartbeat w1 unhealthy       -> degraded
        lose w2                 -> lost
        place /a/0 w0           -> worker_unavailable
        place /a/0 w1           -> worker_unavailable
        place /a/0 w2           -> worker_unavailable
        place /a/0 w9           -> worker_unavailable
    """)


def test_a_task_is_placed_once(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        place /a/0 w0   -> placed
        place /a/0 w0   -> not_pending
    """)


def test_a_malformed_plan_is_refused_and_harms_nobody(script):
    from iris_core.messages.scheduler_state import Placement, Plan

    script.play("""
        worker w0
        submit /a
    """)
    nonsense = [
        Placement(1, (0,), (3,)),
        Placement(1, (0,), (1,)),
        Placement(1, (0,), (-1,)),
        Placement(1, (0, 0), (0,)),
        Placement(1, (1,), (0,)),
        Placement(1, (-1,), (0,)),
        Placement(9, (0,), (0,)),
    ]
    for placement in nonsense:
        assert script.world.plan(Plan("s", 0, ("w0",), (placement,))).placed == 0
    script.play("/a/0 -> PENDING")


def test_nothing_is_placed_where_it_does_not_match(script):
    """A plan may have been made before a host said what it is; what it says now counts."""
    script.play("""
        worker eu zone=eu
        worker us zone=us
        worker bad taint:flaky=1
        submit /a where=zone:eu
        submit /b
        submit /c tpu=v4-8
        submit /d image=lab/train:1
        place /a/0 us       -> no_match
        place /d/0 us       -> no_match
        place /b/0 bad      -> no_match
        place /c/0 eu       -> no_room
        place /a/0 eu       -> placed
        place /b/0 us       -> placed
        session /c/0        -> PENDING tries=ScheduleNewSessions:1
    """)


def test_the_scheduler_is_told_what_follows_from_an_image(script):
    script.play("submit /a image=lab/train:1")
    (job,) = script.world.ledger.jobs.values()
    assert job_row(script.world.ledger, job).constraints == (NEEDS_RUNTIME,)


def test_what_waits_for_anothers_build_is_not_in_the_building_window(script):
    """One that begins to build itself, when the other has failed, is in it again."""
    script.play("""
        policy max_building=2
        worker w0 cpu=10
        submit /a replicas=4
        submit /b
        place /a/0 w0
        place /a/1 w0
        place /b/0 w0           -> building_window_full
        /a/0 pulling detail=builds
        /a/1 pulling detail=waits_for_it waits
        capacity w0             -> building=1
        place /a/2 w0           -> placed
        place /b/0 w0           -> building_window_full
        /a/2 pulling detail=waits_for_it waits
        place /b/0 w0           -> placed
        /a/1 pulling detail=builds
        place /a/3 w0           -> building_window_full
        /b/0 run
        /a/0 run
        /a/2 run
        place /a/3 w0           -> placed
    """)
    building = {hold.ref: hold.building for hold in script.world.snapshot().holds}
    assert [building[AttemptRef(1, index, 0)] for index in range(4)] == [False, True, False, True]


def test_a_full_building_window_keeps_a_share_for_each_user(script):
    """Two users have half of it each, three a third, whoever filled it."""
    script.play("""
        policy max_building=4
        worker w0 cpu=100
        submit /eve replicas=10 user=eve
        submit /ada replicas=10 user=ada
        submit /bob replicas=10 user=bob
        schedule                -> placed 4
        capacity w0             -> building=4
        place /eve/4 w0         -> building_window_full
        place /ada/0 w0         -> placed
        place /ada/1 w0         -> placed
        place /ada/2 w0         -> building_window_full
        place /bob/0 w0         -> placed
        place /bob/1 w0         -> building_window_full
        /eve/0 run
        /eve/1 run
        /eve/2 run
        place /eve/4 w0         -> building_window_full
        /eve/3 run
        place /bob/1 w0         -> placed
        place /bob/2 w0         -> building_window_full
    """)


def test_a_gang_of_another_user_passes_a_full_building_window(script):
    script.play("""
        worker w0 cpu=9 rack=r1
        worker w1 cpu=9 rack=r1
        submit /eve replicas=16 user=eve
        schedule                -> placed 16
        submit /more replicas=2 gang=rack user=eve
        submit /gang replicas=2 gang=rack user=ada
        place /more w0 w1       -> building_window_full
        place /gang w0 w1       -> placed
    """)


def test_many_users_prepare_within_three_windows_on_a_host(script):
    script.play("""
        policy max_building=2
        worker w0 cpu=100
        submit /a replicas=9 user=u1
        submit /b replicas=9 user=u2
        submit /c replicas=9 user=u3
        submit /d replicas=9 user=u4
        submit /e replicas=9 user=u5
        submit /f replicas=9 user=u6
        place /a/0 w0           -> placed
        place /a/1 w0           -> placed
        place /b/0 w0           -> placed
        place /b/1 w0           -> building_window_full
        place /c/0 w0           -> placed
        place /d/0 w0           -> placed
        place /e/0 w0           -> placed
        place /f/0 w0           -> building_window_full
        /a/0 run
        place /a/2 w0           -> building_window_full
        place /f/0 w0           -> placed
    """)
