"""Coscheduling: a gang is placed, ended and restarted as a whole.

Coscheduling; docs/design/semantics.md#tasks-and-attempts, docs/design/semantics.md#coscheduling.
"""

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
THREE = """
    worker a0 rack=a
    worker a1 rack=a
    worker a2 rack=a
    submit /g replicas=3 gang=rack
    schedule                -> placed 3
    /g/0 prepared
    /g/1 prepared
    /g/2 prepared
    /g/0 running
    /g/1 running
    /g/2 running
"""


def gang(**options):
    words = " ".join(f"{name}={value}" for name, value in options.items())
    return f"submit /g replicas=2 gang=rack {words} -> created"


# ── validation ────────────────────────────────────────────────────────────────────────────────────


def test_a_slice_job_asks_for_a_tpu(script):
    script.play(
        "submit /g replicas=2 gang=tpu-name -> invalid ~a job grouped by tpu-name asks for a TPU"
    )


def test_a_slice_job_has_as_many_replicas_as_its_slice_has_hosts(script):
    script.play("""
        submit /g replicas=3 gang=tpu-name tpu=v5litepod-16 -> invalid ~replicas; a v5litepod-16 slice has
        submit /g replicas=4 gang=tpu-name tpu=v5litepod-16 -> created
    """)


def test_other_groups_may_gang_cpu_jobs(script):
    script.play("submit /g replicas=2 gang=rack -> created")


# ── placement ─────────────────────────────────────────────────────────────────────────────────────


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


# ── the barrier ───────────────────────────────────────────────────────────────────────────────────


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


# ── one member ends ───────────────────────────────────────────────────────────────────────────────


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
    """Task States leaves this to job finalization; nothing else would end them."""
    script.play(RACK + gang(preemptions=0, band="batch") + RUNNING)
    script.play("""
        submit /p band=production
        /g/0 preempt /g/1 for /p/0  -> PREEMPTED preemptions=1
        job /g                      -> WORKER_FAILED
        queue                       -> /p/0
    """)
    states = [task["state"] for task in script.world.query("tasks", job="/g")["items"]]
    assert states == ["preempted", "preempted"]


def test_a_gang_tolerates_no_failed_task_while_others_run(script):
    script.play(RACK + gang(tolerate=1) + RUNNING)
    script.play("""
        /g/0 exit 1             -> FAILED
        /g/1                    -> WORKER_FAILED
        job /g                  -> FAILED cause=failed tasks=failed:1,worker_failed:1
    """)


def test_a_gang_tolerates_no_failed_task_when_the_others_are_done(script):
    script.play(RACK + gang(tolerate=1) + RUNNING)
    script.play("""
        /g/1 exit 0
        /g/0 exit 1             -> FAILED
        /g/1                    -> SUCCEEDED
        job /g                  -> FAILED cause=failed tasks=failed:1,succeeded:1
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


def test_a_member_that_exits_0_waits_for_the_others_to_succeed_together(script):
    script.play(RACK + gang() + RUNNING)
    script.play("""
        /g/0 exit 0             -> RUNNING
        attempt /g/0#0          -> state=succeeded stage=terminated cause=exited exit_code=0 open=no
        note /g/0               -> done, waiting for its gang: 1 of 2 tasks are done
        capacity a0             -> cpu=1
        /g/1                    -> RUNNING
        session /g              -> RUNNING kernels=terminated,running
        events /g/0             -> pending assigned building running
        /g/1 exit 0             -> SUCCEEDED
        /g/0                    -> SUCCEEDED
        job /g                  -> SUCCEEDED
        session /g              -> TERMINATED
        events /g/0             -> succeeded
        events session:/g       -> ~running terminating terminated
    """)
    ends = [
        body["seq"] for subject, body in script.world.events if subject == "task.state.succeeded"
    ]
    assert ends == ends[:1] * 2


def test_a_gang_restarts_whole_when_a_member_fails_after_another_was_done(script):
    script.play(RACK + gang(retries=1) + RUNNING)
    script.play("""
        /g/0 exit 0
        /g/1 exit 1             -> PENDING failures=1 preemptions=0
        /g/0                    -> PENDING failures=0 preemptions=0
        attempt /g/0#0          -> state=succeeded exit_code=0 charged_to=-
        session /g              -> PENDING
        job /g                  -> RUNNING
        schedule                -> placed 2
        /g/0                    -> ASSIGNED attempts=2
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        /g/1 exit 0             -> RUNNING
        /g/0 exit 0             -> SUCCEEDED failures=0
        /g/1                    -> SUCCEEDED failures=1
        job /g                  -> SUCCEEDED
    """)


def test_a_gang_that_loses_a_host_after_members_were_done_restarts_whole(script):
    script.play(THREE)
    script.play("""
        /g/0 exit 0
        lose a1
        /g/0                    -> PENDING preemptions=0
        /g/1                    -> PENDING preemptions=1
        /g/2                    -> PENDING preemptions=0
        session /g              -> PENDING
        attempt /g/2#0          -> error=~started_again_because_task_1_had_a_worker_failure
    """)


def test_members_that_were_done_have_succeeded_when_their_gang_ends_badly(script):
    script.play(THREE)
    script.play("""
        /g/0 exit 0
        /g/1 exit 1             -> FAILED failures=1
        /g/0                    -> SUCCEEDED
        /g/2                    -> WORKER_FAILED preemptions=0 error=~ended_because_task_1_failed:_exit_code_1
        job /g                  -> FAILED cause=failed
        session /g              -> TERMINATING
        /g/2 stopped
        session /g              -> TERMINATED
    """)


def test_members_that_were_done_succeed_when_another_times_out(script):
    script.play(RACK + gang(timeout=10) + RUNNING)
    script.play("""
        /g/0 exit 0             -> RUNNING
        wait 11
        /g/0                    -> SUCCEEDED
        /g/1                    -> KILLED
        job /g                  -> KILLED cause=timeout
    """)


def test_the_timeout_of_a_member_that_is_done_is_over(script):
    script.play(RACK + gang(timeout=10))
    script.play("""
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/0 exit 0             -> RUNNING
        wait 8
        /g/1 running
        wait 8
        /g/0                    -> RUNNING
        /g/1 exit 0             -> SUCCEEDED
    """)


def test_the_loss_of_a_host_on_which_a_member_was_done_touches_nothing(script):
    script.play(RACK + gang(preemptions=0) + RUNNING)
    script.play("""
        /g/0 exit 0
        lose a0
        /g/0                    -> RUNNING
        /g/1                    -> RUNNING
        /g/1 exit 0             -> SUCCEEDED
        /g/0                    -> SUCCEEDED preemptions=0
    """)


def test_a_member_that_is_done_is_not_missed_by_its_host_nor_started_again(script):
    script.play(RACK + gang() + RUNNING)
    script.play("""
        /g/0 exit 0
        told a0
        heartbeat a0 without /g/0
        restart a0 without /g/0
        told a0                 -> nothing
        /g/0                    -> RUNNING
        /g/1 exit 0             -> SUCCEEDED
        /g/0                    -> SUCCEEDED attempts=1
    """)


def test_a_member_done_before_the_others_start_is_not_started_again(script):
    script.play(RACK + gang())
    script.play("""
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 exit 0             -> RUNNING
        told a0
        heartbeat a0
        told a0                 -> nothing
        session /g              -> CREATING kernels=terminated,prepared
        /g/1 running
        session /g              -> RUNNING
        /g/1 exit 0             -> SUCCEEDED
    """)


def test_cancelling_a_gang_kills_its_members_that_are_done(script):
    script.play(RACK + gang() + RUNNING)
    script.play("""
        /g/0 exit 0
        cancel /g
        /g/0                    -> KILLED
        attempt /g/0#0          -> exit_code=0 stage=terminated
        /g/1                    -> KILLED
        job /g                  -> KILLED
        session /g              -> TERMINATING
        /g/1 stopped
        session /g              -> TERMINATED
    """)


def test_preempting_what_is_left_of_a_gang_starts_it_again_whole(script):
    script.play(RACK + gang(preemptions=1, band="batch") + RUNNING)
    script.play("""
        submit /p band=production
        /g/0 exit 0
        /g/1 preempt for /p/0   -> PENDING preemptions=1
        /g/0                    -> PENDING preemptions=0
        session /g              -> PENDING
    """)


# ── the leader's success ──────────────────────────────────────────────────────────────────────────


def test_a_gang_succeeds_with_its_leader(script):
    script.play(RACK + gang(success="leader") + RUNNING)
    script.play("""
        told a1
        /g/0 exit 0             -> RUNNING
        session /g              -> TERMINATING kernels=terminated,terminating
        told a1                 -> stop:/g/1#0
        /g/1                    -> RUNNING error=-
        note /g/1               -> waiting for its gang to stop: task 0, its leader, is done
        attempt /g/1#0          -> cause=leader_done open=yes charged_to=-
        capacity a1             -> cpu=0
        job /g                  -> RUNNING
        /g/1 stopped            -> SUCCEEDED failures=0 preemptions=0
        /g/0                    -> SUCCEEDED
        attempt /g/1#0          -> state=succeeded cause=leader_done open=no
        session /g              -> TERMINATED
        job /g                  -> SUCCEEDED
    """)
    ends = [body for subject, body in script.world.events if subject == "task.state.succeeded"]
    assert [(body["task"], body["cause"], body["attempt"]) for body in ends] == [
        ("/g/0", "exited", 0),
        ("/g/1", "leader_done", 0),
    ]
    assert len({body["seq"] for body in ends}) == 1


def test_a_member_stopped_for_its_leader_has_succeeded_however_it_ends(script):
    for end in ("exit 1", "exit 0", "infra", "missing"):
        script.play(f"""
            worker {end[-1]}0 rack={end[-1]}
            worker {end[-1]}1 rack={end[-1]}
            submit /{end[0]}{end[-1]} replicas=2 gang=rack success=leader
            place /{end[0]}{end[-1]} {end[-1]}0 {end[-1]}1
            /{end[0]}{end[-1]}/0 prepared
            /{end[0]}{end[-1]}/1 prepared
            /{end[0]}{end[-1]}/0 running
            /{end[0]}{end[-1]}/1 running
            /{end[0]}{end[-1]}/0 exit 0
            /{end[0]}{end[-1]}/1 {end}  -> SUCCEEDED failures=0 preemptions=0
            job /{end[0]}{end[-1]}      -> SUCCEEDED
        """)


def test_a_host_lost_while_its_member_stops_ends_that_member(script):
    script.play(RACK + gang(success="leader", preemptions=0) + RUNNING)
    script.play("""
        /g/0 exit 0
        lose a1
        /g/1                    -> SUCCEEDED preemptions=0
        job /g                  -> SUCCEEDED
    """)


def test_a_member_that_never_confirms_its_stop_does_not_block_its_gang(script):
    script.play(RACK + gang(success="leader") + RUNNING)
    script.play("""
        /g/0 exit 0
        wait 121
        job /g                  -> SUCCEEDED
        session /g              -> TERMINATED
        capacity a1             -> cpu=0
        /g/1 stopped            -> SUCCEEDED
        capacity a1             -> cpu=1
    """)


def test_a_member_that_is_not_yet_running_is_stopped_for_the_leader_too(script):
    script.play(RACK + gang(success="leader"))
    script.play("""
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/0 exit 0
        /g/1                    -> BUILDING
        /g/1 stopped            -> SUCCEEDED
        job /g                  -> SUCCEEDED
    """)


def test_cancelling_a_gang_whose_leader_is_done_kills_it(script):
    script.play(RACK + gang(success="leader") + RUNNING)
    script.play("""
        /g/0 exit 0
        cancel /g
        /g/0                    -> KILLED
        /g/1                    -> KILLED
        session /g              -> TERMINATING
        /g/1 stopped
        session /g              -> TERMINATED
    """)


def test_other_members_ends_are_those_of_any_gang(script):
    script.play(RACK + gang(success="leader", retries=1) + RUNNING)
    script.play("""
        /g/1 exit 0             -> RUNNING
        /g/0 exit 1             -> PENDING failures=1
        /g/1                    -> PENDING failures=0
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


def test_cancelling_a_gang_between_restarts_waits_for_what_still_runs(script):
    script.play(RACK + gang(retries=1) + RUNNING)
    script.play("""
        /g/0 exit 1             -> PENDING
        session /g              -> PENDING
        cancel /g
        job /g                  -> KILLED
        session /g              -> TERMINATING
        /g/1#0 stopped
        session /g              -> TERMINATED
        history /g              -> ~DetectTermination pending>terminating SUCCESS
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


def test_a_gang_that_outruns_its_timeout_ends(script):
    script.play(RACK + gang(timeout=10))
    script.play("""
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        wait 5
        /g/1 running
        wait 5
        /g/0                    -> RUNNING
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


def test_a_sibling_that_ended_with_the_others_has_no_retry(script):
    script.play(RACK + gang() + RUNNING + "\n /g/0 exit 9 -> FAILED")
    culprit, sibling = script.world.query("tasks", job="/g")["items"]
    assert (culprit["no_retry"], culprit["failure_count"]) == (False, 1)
    assert (sibling["no_retry"], sibling["failure_count"], sibling["preemption_count"]) == (
        True,
        0,
        0,
    )
    assert sibling["error"] == "ended because task 0 failed: exit code 9"
