"""The end of a job cancels its descendants. docs/design/semantics.md#jobs."""


def test_a_job_that_failed_kills_what_is_left_of_it(script):
    script.play("""
        worker w0 cpu=2
        submit /a replicas=3
        schedule                -> placed 2
        /a/0 running
        /a/1 running
        told w0
        /a/0 exit 1
        /a/1                    -> KILLED
        /a/2                    -> KILLED attempts=0
        attempt /a/1#0          -> cause=job_ended initiator=system charged_to=- open=yes
        told w0                 -> stop:/a/1#0
    """)


def test_children_of_a_failed_job_are_cancelled_recursively(script):
    script.play("""
        worker w0 cpu=4
        submit /a
        submit /a/b
        submit /a/b/c
        submit /other
        schedule                -> placed 4
        /a/0 exit 1
        job /a                  -> FAILED
        job /a/b                -> KILLED cause=parent_ended
        job /a/b/c              -> KILLED cause=parent_ended
        job /other              -> RUNNING
    """)


def test_children_of_a_job_that_succeeded_live_on(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        submit /a/b
        schedule
        /a/0 exit 0
        job /a                  -> SUCCEEDED
        job /a/b                -> RUNNING
        /a/b/0 exit 0
        job /a/b                -> SUCCEEDED
    """)


def test_descendants_under_a_child_that_succeeded_end_too(script):
    script.play("""
        worker w0 cpu=3
        submit /a
        submit /a/b
        submit /a/b/c
        schedule
        /a/b/0 exit 0
        job /a/b                -> SUCCEEDED
        /a/0 exit 1
        job /a/b                -> SUCCEEDED
        job /a/b/c              -> KILLED
    """)


def test_children_of_every_other_end_are_cancelled(script):
    script.play("""
        worker w0 cpu=9
        submit /lost preemptions=0
        submit /lost/child
        submit /killed
        submit /killed/child
        submit /late scheduling_timeout=30 where=zone:nowhere
        submit /late/child
        schedule
        /lost/0 running
        /lost/0 missing
        job /lost               -> WORKER_FAILED
        job /lost/child         -> KILLED
        cancel /killed
        job /killed/child       -> KILLED
        wait 31
        job /late               -> UNSCHEDULABLE
        job /late/child         -> KILLED
    """)


def test_a_cancelled_child_leaves_its_parent_alone(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        submit /a/b
        schedule
        cancel /a/b             -> accepted
        job /a/b                -> KILLED
        job /a                  -> RUNNING
    """)


def test_cancel_kills_a_whole_subtree_in_one_step(script):
    script.play("""
        worker w0 cpu=3
        submit /a replicas=2
        submit /a/b
        submit /a/b/c
        schedule
        /a/0 running
        told w0
    """)
    before = script.world.machine.sequence
    script.play("""
        cancel /a               -> accepted j1
        told w0                 -> ~stop:
    """)
    assert script.world.machine.sequence == before + 1, "one commit"
    script.play("""
        job /a                  -> KILLED cause=cancelled
        job /a/b                -> KILLED cause=parent_ended
        job /a/b/c              -> KILLED cause=parent_ended
        queue                   -> nothing
    """)


def test_cancel_twice_is_cancel_once(script):
    script.play("""
        worker w0
        submit /a
        schedule
        cancel /a               -> accepted
        events /a/0
        cancel /a               -> accepted
        events /a/0             -> nothing
        /a/0                    -> KILLED
    """)


def test_a_cancelled_job_whose_tasks_wait_says_why_it_ended(script):
    script.play("""
        submit /a
        cancel /a reason=no_longer_needed
        job /a                  -> KILLED cause=cancelled error=~no_longer_needed
        /a/0                    -> KILLED error=no_longer_needed
    """)


def test_a_job_cancelled_without_a_word_says_so(script):
    script.play("""
        submit /a
        cancel /a
        job /a                  -> KILLED error=~task_0_killed_by_root:_cancelled
    """)


def test_cancelling_an_ended_root_still_ends_what_lives_below_it(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        submit /a/b
        schedule
        /a/0 exit 0
        job /a                  -> SUCCEEDED
        cancel /a               -> accepted
        job /a                  -> SUCCEEDED
        job /a/b                -> KILLED
    """)


def test_only_its_owner_and_admins_cancel_a_job(script):
    script.play("""
        submit /a user=ann              -> created
        cancel /a user=bob              -> forbidden /a belongs to ann; only its owner or an admin may cancel it
        job /a                          -> PENDING
        cancel /a user=ann              -> accepted
        submit /b user=ann
        cancel /b user=ops role=admin   -> accepted
    """)


def test_what_is_not_there_cannot_be_cancelled(script):
    script.play("""
        cancel /nothing     -> not_found there is no job /nothing
        cancel j7           -> not_found
    """)


def test_cancel_before_the_order_was_taken_stops_what_may_have_begun(script):
    script.play("""
        worker w0
        orders w0 held
        submit /a
        schedule
        cancel /a
        told w0             -> run:/a/0#0 stop:/a/0#0
        capacity w0         -> cpu=0
        heartbeat w0
        capacity w0         -> cpu=0
        told w0             -> stop:/a/0#0
        /a/0#0 missing
        capacity w0         -> cpu=1
    """)
