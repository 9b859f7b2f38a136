"""Coscheduling: placed whole, ended together, started again together. CO; TS "WORKER_FAILED"; semantics.md 7."""

RACK = """
    worker a0 rack=a
    worker a1 rack=a
    worker b0 rack=b
    worker b1 rack=b
"""
RUNNING = """
    schedule                -> placed 2
    /g/0 prepared
    /g/1 prepared
    /g/0 running
    /g/1 running
    session /g              -> RUNNING
"""


def gang(**options):
    words = " ".join(f"{name}={value}" for name, value in options.items())
    return f"submit /g replicas=2 gang=rack {words} -> created"


# ── validation ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_slice_job_asks_for_a_tpu(script):
    script.play("submit /g replicas=2 gang=tpu-name -> invalid ~a job grouped by tpu-name asks for a TPU")


def test_a_slice_job_has_as_many_replicas_as_its_slice_has_hosts(script):
    script.play("""
        submit /g replicas=3 gang=tpu-name tpu=v5litepod-16 -> invalid ~replicas; a v5litepod-16 slice has
        submit /g replicas=4 gang=tpu-name tpu=v5litepod-16 -> created
    """)


def test_other_groups_may_gang_cpu_jobs(script):
    script.play("submit /g replicas=2 gang=rack -> created")


# ── placement ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gang_is_placed_whole_or_not_at_all(script):
    script.play(RACK + gang())
    script.play("""
        place /g a0             -> gang_incomplete
        place /g a0 b1          -> gang_split
        place /g a0 a0          -> gang_split
        /g/0                    -> PENDING
        /g/1                    -> PENDING
        place /g a0 a1          -> placed
        /g/0                    -> ASSIGNED
        /g/1                    -> ASSIGNED
    """)


def test_a_gang_with_one_place_gone_is_refused_whole(script):
    script.play(RACK + gang())
    script.play("""
        submit /other
        place /other/0 a1
        place /g a0 a1          -> no_room
        /g/0                    -> PENDING
        place /g b0 b1          -> placed
    """)


def test_a_gang_needs_the_attribute_it_is_grouped_by(script):
    script.play("""
        worker x0
        worker x1
        submit /g replicas=2 gang=rack
        place /g x0 x1          -> gang_split
    """)


def test_members_sit_by_their_worker_number(script):
    script.play("""
        worker w2 tpu-name=s tpu-worker-id=0 chips=4 device-type=tpu device-variant=v4-16
        worker w1 tpu-name=s tpu-worker-id=1 chips=4 device-type=tpu device-variant=v4-16
        submit /g replicas=2 gang=tpu-name tpu=v4-16
        schedule                -> placed 2
        /g/0                    -> ASSIGNED worker=w2
        /g/1                    -> ASSIGNED worker=w1
    """)


# ── the barrier ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_members_are_prepared_first_and_start_together(script):
    script.play(RACK + gang())
    script.play("""
        schedule                -> placed 2
        told a0                 -> prepare:/g/0#0
        told a1                 -> prepare:/g/1#0
        session /g              -> PREPARING
        /g/0 preparing
        /g/0 pulling
        /g/0 prepared           -> BUILDING
        session /g              -> PREPARING kernels=prepared,scheduled
        told a0                 -> nothing
        /g/1 prepared
        told a0                 -> start:/g/0#0
        told a1                 -> start:/g/1#0
        session /g              -> CREATING
        /g/0 creating
        /g/0 running            -> RUNNING
        session /g              -> CREATING
        /g/1 running
        session /g              -> RUNNING
        events session:/g       -> pending scheduled preparing prepared creating running
    """)


def test_every_member_is_told_where_the_others_are(script):
    script.play(RACK + gang() + "\n schedule")
    (order,) = script.world.hosts["a0"].orders
    assert order.gangs[0].hosts == ("a0.local", "a1.local")
    assert order.templates[0].name == "/g"


# ── one member ends ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_terminal_failure_ends_the_siblings(script):
    script.play(RACK + gang(preemptions=5) + RUNNING)
    script.play("""
        told a1
        /g/0 exit 1             -> FAILED failures=1
        /g/1                    -> WORKER_FAILED preemptions=0 error=~ended_because_task_0_failed:_exit_code_1
        attempt /g/1#0          -> state=worker_failed cause=coscheduled_sibling charged_to=- open=yes
        attempt /g/1#0          -> preemption_count=0>0
        told a1                 -> stop:/g/1#0
        job /g                  -> FAILED cause=failed
        session /g              -> TERMINATING
        capacity a1             -> cpu=0
        /g/1 stopped            -> WORKER_FAILED
        session /g              -> TERMINATED
        events session:/g       -> ~running terminating terminated
    """)


def test_a_terminal_failure_ends_siblings_that_are_still_built_or_assigned(script):
    script.play("""
        worker a0 rack=a
        worker a1 rack=a
        worker a2 rack=a
        submit /g replicas=3 gang=rack
        schedule                -> placed 3
        /g/0 building
        /g/1 building
        /g/0 exit 2             -> FAILED
        /g/1                    -> WORKER_FAILED
        /g/2                    -> WORKER_FAILED
        job /g                  -> FAILED
    """)


def test_a_terminal_loss_ends_the_siblings(script):
    script.play(RACK + gang(preemptions=0) + RUNNING)
    script.play("""
        lose a0
        /g/0                    -> WORKER_FAILED preemptions=1
        /g/1                    -> WORKER_FAILED preemptions=0
        attempt /g/0#0          -> cause=worker_lost charged_to=preemption
        attempt /g/1#0          -> cause=coscheduled_sibling charged_to=-
        attempt /g/1#0          -> error=~ended_because_task_0_had_a_worker_failure
        job /g                  -> WORKER_FAILED cause=worker_lost
    """)


def test_a_terminal_preemption_ends_the_siblings_at_once(script):
    """TS leaves this to job finalization; nothing else would end them."""
    script.play(RACK + gang(preemptions=0, band="batch") + RUNNING)
    script.play("""
        submit /p band=production
        /g/0 preempt /g/1 for /p/0  -> PREEMPTED preemptions=1
        job /g                      -> WORKER_FAILED
        queue                       -> /p/0
    """)
    states = [task["state"] for task in script.world.query("tasks", job="/g")["items"]]
    assert states == ["preempted", "preempted"]


def test_a_failure_tolerated_by_the_job_ends_the_gang_all_the_same(script):
    script.play(RACK + gang(tolerate=1) + RUNNING)
    script.play("""
        /g/0 exit 1             -> FAILED
        /g/1                    -> WORKER_FAILED
        job /g                  -> WORKER_FAILED tasks=failed:1,worker_failed:1
    """)


def test_a_failure_with_a_retry_left_starts_the_whole_gang_again(script):
    script.play(RACK + gang(retries=1) + RUNNING)
    script.play("""
        told a1
        /g/0 exit 1             -> PENDING failures=1 preemptions=0
        /g/1                    -> PENDING failures=0 preemptions=0
        attempt /g/0#0          -> state=failed charged_to=failure
        attempt /g/1#0          -> cause=coscheduled_restart charged_to=- open=yes
        attempt /g/1#0          -> error=~started_again_because_task_0_failed:_exit_code_1
        told a1                 -> stop:/g/1#0
        session /g              -> PENDING
        job /g                  -> RUNNING
        schedule                -> placed 0
        capacity a1             -> cpu=0
        /g/1#0 stopped
        capacity a1             -> cpu=1
        schedule                -> placed 2
        /g/0                    -> ASSIGNED attempts=2
        session /g              -> PREPARING
    """)


def test_a_gang_that_waits_again_holds_its_old_places_until_they_are_free(script):
    script.play(
        """
        worker a0 rack=a
        worker a1 rack=a
    """
        + gang(retries=1)
        + RUNNING
    )
    script.play("""
        /g/0 exit 1
        schedule                -> placed 0
        place /g a0 a1          -> not_pending
        /g/1#0 stopped
        schedule                -> placed 2
    """)


def test_a_lost_member_with_a_retry_left_starts_the_whole_gang_again(script):
    script.play(RACK + gang(preemptions=1) + RUNNING)
    script.play("""
        lose a0
        /g/0                    -> PENDING preemptions=1
        /g/1                    -> PENDING preemptions=0
        schedule                -> placed 0
        why /g                  -> delayed
        /g/1#0 stopped
        schedule                -> placed 2
        /g/0                    -> ASSIGNED worker=b0
    """)


def test_a_gang_that_lost_a_member_before_anything_started_pays_nothing(script):
    script.play(RACK + gang(preemptions=0))
    script.play("""
        schedule                -> placed 2
        lose a0
        /g/0                    -> PENDING preemptions=0
        /g/1                    -> PENDING preemptions=0
        session /g              -> PENDING
    """)


def test_a_member_that_succeeded_lets_the_others_run_on(script):
    script.play(RACK + gang() + RUNNING)
    script.play("""
        /g/0 exit 0             -> SUCCEEDED
        /g/1                    -> RUNNING
        session /g              -> RUNNING kernels=terminated,running
        /g/1 exit 0             -> SUCCEEDED
        job /g                  -> SUCCEEDED
        session /g              -> TERMINATED
    """)


def test_a_gang_with_a_finished_member_cannot_start_again(script):
    """A gang is placed whole, and what has ended stays ended: the failure of the rest is terminal, budget or not."""
    script.play(RACK + gang(retries=3) + RUNNING)
    script.play("""
        /g/0 exit 0             -> SUCCEEDED
        /g/1 exit 1             -> FAILED failures=1
        job /g                  -> FAILED
        session /g              -> TERMINATED
    """)


def test_a_gang_with_a_finished_member_that_loses_another_ends(script):
    script.play("""
        worker a0 rack=a
        worker a1 rack=a
        worker a2 rack=a
        submit /g replicas=3 gang=rack
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/2 prepared
        /g/0 running
        /g/1 running
        /g/2 running
        /g/0 exit 0
        lose a1
        /g/1                    -> WORKER_FAILED preemptions=1
        /g/2                    -> WORKER_FAILED preemptions=0
        job /g                  -> WORKER_FAILED
        session /g              -> TERMINATING
        /g/2 stopped
        session /g              -> TERMINATED
    """)


def test_two_members_lost_at_once_are_both_charged(script):
    script.play(RACK + gang() + RUNNING)
    script.play("""
        silence 31
        /g/0                    -> PENDING preemptions=1
        /g/1                    -> PENDING preemptions=1
    """)


def test_the_second_loss_of_a_gang_that_is_already_back_is_free(script):
    script.play(RACK + gang() + RUNNING)
    script.play("""
        lose a0
        lose a1
        /g/0                    -> PENDING preemptions=1
        /g/1                    -> PENDING preemptions=0
        capacity a1             -> cpu=1
    """)


def test_free_returns_of_a_gang_end_somewhere_too(script):
    script.play(RACK + gang() + "\n policy max_reschedules=1 avoid_s=1")
    script.play("""
        schedule                -> placed 2
        /g/0 infra              -> PENDING
        /g/1#0 stopped
        wait 10
        schedule                -> placed 2
        /g/0 infra              -> UNSCHEDULABLE
        /g/1                    -> WORKER_FAILED
        job /g                  -> UNSCHEDULABLE
    """)


def test_cancelling_a_gang_that_waits(script):
    script.play(gang())
    script.play("""
        cancel /g
        session /g              -> CANCELLED
        job /g                  -> KILLED
        events session:/g       -> pending cancelled
    """)


def test_cancelling_a_gang_that_runs(script):
    script.play(RACK + gang() + RUNNING)
    script.play("""
        cancel /g
        session /g              -> TERMINATING
        /g/0 stopped
        session /g              -> TERMINATING
        /g/1 stopped
        session /g              -> TERMINATED
    """)


def test_a_member_that_outruns_its_timeout_ends_the_gang(script):
    script.play(RACK + gang(timeout=10))
    script.play("""
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        wait 5
        /g/1 running
        wait 5
        /g/0                    -> KILLED
        /g/1                    -> KILLED
        job /g                  -> KILLED cause=timeout
        session /g              -> TERMINATING
    """)


def test_a_gang_of_one_is_a_gang(script):
    script.play("""
        worker a0 rack=a
        submit /g gang=rack retries=1
        schedule                -> placed 1
        told a0                 -> prepare:/g/0#0
        /g/0 prepared
        told a0                 -> start:/g/0#0
        /g/0 running
        session /g              -> RUNNING
        /g/0 exit 1             -> PENDING
        session /g              -> PENDING
        schedule
        /g/0 prepared
        /g/0 running
        /g/0 exit 0             -> SUCCEEDED
        session /g              -> TERMINATED
    """)


def test_a_sibling_that_ended_with_the_others_has_no_retry_and_no_counter_says_so(script):
    script.play(RACK + gang() + RUNNING + "\n /g/0 exit 9 -> FAILED")
    culprit, sibling = script.world.query("tasks", job="/g")["items"]
    assert (culprit["no_retry"], culprit["failure_count"]) == (False, 1)
    assert (sibling["no_retry"], sibling["failure_count"], sibling["preemption_count"]) == (True, 0, 0)
    assert sibling["error"] == "ended because task 0 failed: exit code 9"
