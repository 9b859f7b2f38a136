"""How sessions of placed work progress:

orders taken or not, tries, timeout, history. Status Transitions;
docs/design/semantics.md#rules-and-judgement, docs/design/semantics.md#sessions.
"""

from iris_core.tables import session
from iris_state.policy import Policy
from tests.support.script import Script

RACK = """
    worker a0 rack=a
    worker a1 rack=a
    worker b0 rack=b
    worker b1 rack=b
    submit /g replicas=2 gang=rack
"""


# ── orders and their acknowledgement ──────────────────────────────────────────────────────────────


def test_a_session_is_preparing_when_every_worker_took_its_order(script):
    script.play(RACK)
    script.play("""
        orders a0 held
        orders a1 held
        schedule
        session /g          -> SCHEDULED
        orders a0 arrive
        session /g          -> SCHEDULED
        orders a1 arrive
        session /g          -> PREPARING
        history /g          -> ~PrepareSessions scheduled>preparing SUCCESS
    """)


def test_a_report_says_as_much_as_an_acknowledgement(script):
    script.play(RACK)
    script.play("""
        orders a0 held
        orders a1 held
        schedule
        /g/0 preparing
        /g/1 preparing
        session /g          -> PREPARING
    """)


def test_a_late_acknowledgement_of_preparing_is_none_of_starting(script):
    script.play(RACK)
    script.play("""
        orders a0 held
        orders a1 held
        schedule
        /g/0 prepared
        /g/1 prepared
        session /g          -> PREPARED
        orders a0 arrive
        orders a1 arrive
        session /g          -> CREATING
        told a0             -> prepare:/g/0#0 start:/g/0#0
    """)
    script.play("history /g -> ~StartSessions prepared>creating SUCCESS")


def test_prepare_acknowledgements_alone_start_nothing(script):
    script.play(RACK)
    script.play("""
        orders a0 held
        schedule
        /g/0 prepared
        /g/1 prepared
        session /g          -> PREPARED
    """)
    host = script.world.hosts["a0"]
    host.held = [order for order in host.held if order.prepare]
    script.play("""
        orders a0 arrive
        session /g          -> PREPARED
    """)


def test_an_order_that_could_not_be_delivered_is_a_failed_try(script):
    script.play(RACK)
    script.play("""
        orders a0 deaf
        schedule
        session /g          -> SCHEDULED tries=PrepareSessions:1
        history /g          -> ~PrepareSessions scheduled>scheduled NEED_RETRY
        told a0             -> prepare:/g/0#0
        wait 1
        told a0             -> prepare:/g/0#0
        session /g          -> SCHEDULED tries=PrepareSessions:2
    """)


def test_one_try_fails_once_however_many_workers_fail_it(script):
    script.play(RACK)
    script.play("""
        orders a0 deaf
        orders a1 deaf
        schedule
        session /g          -> SCHEDULED tries=PrepareSessions:1
        silence 1
        session /g          -> SCHEDULED tries=PrepareSessions:2
    """)


def test_the_sixth_failure_gives_up_and_the_session_goes_elsewhere(script):
    script.play(RACK)
    script.play("""
        orders a0 deaf
        schedule
        silence 4
        session /g          -> SCHEDULED tries=PrepareSessions:5
        silence 1
        session /g          -> PENDING tries=-
        /g/0                -> PENDING preemptions=0
        attempt /g/0#0      -> cause=undelivered charged_to=reschedule open=yes
        attempt /g/1#0      -> cause=coscheduled_restart charged_to=- open=yes
        history /g          -> ~NEED_RETRY x5
        history /g          -> ~PrepareSessions scheduled>pending GIVE_UP
        avoided             -> a0:0:5
        schedule            -> placed 2
        /g/0                -> ASSIGNED worker=b0
        capacity a0         -> cpu=0
    """)


def test_when_the_unreachable_worker_wakes_up_it_runs_nothing_of_it(script):
    script.play(RACK)
    script.play("""
        orders a0 held
        orders a1 listens
        policy prepare_tries=0
        schedule
        orders a0 fail
        session /g          -> PENDING
        told a0
        orders a0 listens
        heartbeat a0
        told a0             -> stop:/g/0#0
        /g/0#0 preparing
        told a0             -> stop:/g/0#0
        /g/0#0 missing
        capacity a0         -> cpu=1
    """)


def test_a_plain_task_whose_order_is_not_taken_goes_back_for_free(script):
    script.play("""
        worker w0
        submit /a preemptions=0
        orders w0 deaf
        schedule
        session /a/0        -> SCHEDULED tries=PrepareSessions:1
        silence 4
        /a/0                -> ASSIGNED
        session /a/0        -> SCHEDULED tries=PrepareSessions:5
        silence 1
        /a/0                -> PENDING preemptions=0
        attempt /a/0#0      -> cause=undelivered charged_to=reschedule
        session /a/0        -> PENDING tries=-
        history /a          -> ~PrepareSessions scheduled>pending GIVE_UP
    """)


def test_a_failure_to_deliver_what_has_begun_is_no_failure(script):
    script.play("""
        worker w0
        submit /a
        orders w0 held
        schedule
        /a/0 running
        orders w0 fail
        session /a/0        -> RUNNING tries=-
        /a/0                -> RUNNING
    """)


def test_a_failure_to_deliver_a_superseded_attempt_is_no_failure(script):
    script.play("""
        worker w0
        submit /a
        orders w0 held
        schedule
        cancel /a
        orders w0 fail
        /a/0                -> KILLED
        submit /b
        /a/0#0 missing
    """)


def test_a_late_failure_to_prepare_is_none_of_starting(script):
    script.play(RACK)
    script.play("""
        orders a0 held
        orders a1 held
        schedule
        /g/0 prepared
        orders a0 fail
        session /g          -> SCHEDULED tries=-
        /g/1 prepared
        session /g          -> PREPARED
    """)
    host = script.world.hosts["a1"]
    host.held = [order for order in host.held if order.prepare]
    script.play("""
        orders a1 fail
        session /g          -> PREPARED tries=-
    """)


def test_a_new_leader_starts_what_is_prepared_again(script):
    script.play(RACK)
    script.play("""
        schedule
        orders a0 held
        orders a1 held
        /g/0 prepared
        /g/1 prepared
        session /g          -> PREPARED
        told a0
    """)
    script.world._lead()
    script.world.mirror = None
    script.play("""
        told a0             -> start:/g/0#0
        orders a0 arrive
        orders a1 arrive
        session /g          -> CREATING
    """)


def test_a_start_that_is_not_taken_is_tried_again_and_given_up(script):
    script.play(RACK)
    script.play("""
        schedule
        /g/0 prepared
        orders a0 deaf
        orders a1 deaf
        /g/1 prepared
        session /g          -> PREPARED tries=StartSessions:1
        silence 5
        session /g          -> PENDING
        /g/0                -> PENDING preemptions=1
        /g/1                -> PENDING preemptions=1
        attempt /g/0#0      -> cause=start_timeout charged_to=preemption
        history /g          -> ~StartSessions prepared>pending GIVE_UP
    """)


def test_a_start_that_was_not_heard_is_given_again_by_the_next_heartbeat(script):
    script.play(RACK)
    script.play("""
        schedule
        /g/0 prepared
        orders a0 held
        /g/1 prepared
        session /g          -> PREPARED
        told a0             -> prepare:/g/0#0 start:/g/0#0
        heartbeat a0
        told a0             -> start:/g/0#0
        /g/0 running
        heartbeat a0
        told a0             -> nothing
    """)


def test_a_member_prepared_early_is_not_started_by_a_heartbeat(script):
    script.play(RACK)
    script.play("""
        schedule
        /g/0 prepared
        told a0             -> prepare:/g/0#0
        heartbeat a0
        told a0             -> nothing
    """)


def test_tries_end_with_the_status_they_were_made_in(script):
    script.play(RACK)
    script.play("""
        orders a0 deaf
        schedule
        silence 2
        session /g          -> SCHEDULED tries=PrepareSessions:3
        orders a0 listens
        silence 1
        session /g          -> PREPARING tries=-
    """)


def test_tries_of_a_plain_task_end_with_the_status_too(script):
    script.play("""
        worker w0
        submit /a
        orders w0 deaf
        schedule
        session /a/0        -> SCHEDULED tries=PrepareSessions:1
        /a/0 building
        session /a/0        -> PREPARING tries=-
    """)


def test_each_handler_has_its_own_number_of_tries(script):
    script.play(RACK)
    script.play("""
        policy prepare_tries=0
        orders a0 deaf
        schedule
        session /g          -> PENDING
        history /g          -> ~PrepareSessions scheduled>pending GIVE_UP
    """)


# ── timeout ───────────────────────────────────────────────────────────────────────────────────────


def test_scheduled_for_a_minute_and_not_a_moment_longer():
    script = Script(Policy(order_expires_s=100))
    script.play("""
        worker w0
        submit /a preemptions=0
        orders w0 held
        schedule
        wait 60
        /a/0                -> ASSIGNED
        wait 0.001
        /a/0                -> PENDING preemptions=0
        attempt /a/0#0      -> cause=prepare_timeout charged_to=reschedule
        history /a          -> ~PrepareSessions scheduled>pending EXPIRED (SCHEDULED for more than 60 s)
    """)


def test_preparing_for_fifteen_minutes_is_charged(script):
    script.play("""
        worker w0
        submit /a preemptions=0
        schedule
        /a/0 preparing
        wait 500
        /a/0 pulling
        wait 400
        /a/0                -> BUILDING
        wait 0.001
        /a/0                -> WORKER_FAILED preemptions=1
        attempt /a/0#0      -> cause=prepare_timeout charged_to=preemption
    """)


def test_a_gang_with_one_slow_member_starts_again_and_only_that_one_pays(script):
    script.play(RACK)
    script.play("""
        schedule
        /g/0 prepared
        /g/1 preparing
        wait 901
        session /g          -> PENDING
        /g/0                -> PENDING preemptions=0
        /g/1                -> PENDING preemptions=1
        attempt /g/0#0      -> cause=coscheduled_restart charged_to=-
        attempt /g/1#0      -> cause=prepare_timeout charged_to=preemption
        history /g          -> ~PrepareSessions preparing>pending EXPIRED
    """)


def test_creating_for_ten_minutes_is_charged(script):
    script.play(RACK)
    script.play("""
        schedule
        /g/0 prepared
        /g/1 prepared
        session /g          -> CREATING
        /g/0 running
        wait 601
        session /g          -> PENDING
        /g/0                -> PENDING preemptions=0
        /g/1                -> PENDING preemptions=1
        attempt /g/1#0      -> cause=start_timeout charged_to=preemption
        history /g          -> ~StartSessions creating>pending EXPIRED
    """)


def test_a_slow_member_without_a_retry_left_ends_the_gang(script):
    script.play(RACK.replace("gang=rack", "gang=rack preemptions=0"))
    script.play("""
        schedule
        /g/0 prepared
        /g/1 preparing
        wait 901
        /g/1                -> WORKER_FAILED
        /g/0                -> WORKER_FAILED
        session /g          -> TERMINATING
        job /g              -> WORKER_FAILED
        history /g          -> ~PrepareSessions preparing>preparing EXPIRED
        history /g          -> ~DetectTermination preparing>terminating SUCCESS
    """)


def test_terminating_past_its_timeout_is_over_for_the_user_only(script):
    script.play(RACK)
    script.play("""
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        cancel /g
        session /g          -> TERMINATING
        wait 120
        session /g          -> TERMINATING
        wait 0.001
        session /g          -> TERMINATED
        history /g          -> ~TerminateSessions terminating>terminated EXPIRED
        capacity a0         -> cpu=0
        told a0             -> ~stop:/g/0#0
        /g/0 stopped
        capacity a0         -> cpu=1
        lose a1
        capacity a1         -> cpu=1
    """)


def test_a_stage_within_a_status_does_not_restart_its_clock(script):
    script.play("""
        worker w0
        submit /a
        schedule
        at 10
        /a/0 preparing
        at 20
        /a/0 pulling
        session /a/0        -> PREPARING since=10
    """)


def test_timeouts_are_configurable(script):
    script.play("""
        policy preparing_timeout_s=5
        worker w0
        submit /a
        schedule
        /a/0 building
        wait 6
        /a/0                -> PENDING preemptions=1
    """)


# ── a place that was gone ─────────────────────────────────────────────────────────────────────────


def test_a_place_that_was_gone_is_a_failure_to_schedule(script):
    script.play("""
        worker w0
        submit /x
        submit /a
        schedule            -> placed 1
        place /a/0 w0       -> no_room
        session /a/0        -> PENDING tries=ScheduleNewSessions:1
        history /a          -> ~ScheduleNewSessions pending>pending NEED_RETRY (refused: no_room)
        /x/0 exit 0
        place /a/0 w0       -> placed
        session /a/0        -> SCHEDULED tries=-
    """)


def test_the_sixth_refusal_gives_the_session_up(script):
    script.play("""
        worker w0
        submit /x
        submit /a
        schedule            -> placed 1
        place /a/0 w0
        place /a/0 w0
        place /a/0 w0
        place /a/0 w0
        place /a/0 w0
        session /a/0        -> PENDING tries=ScheduleNewSessions:5
        place /a/0 w0
        /a/0                -> UNSCHEDULABLE error=~no_room
        job /a              -> UNSCHEDULABLE
    """)


def test_a_gang_refused_too_often_is_cancelled(script):
    script.play(RACK)
    script.play("""
        policy schedule_tries=0
        submit /x
        place /x/0 a0
        place /g a0 a1      -> no_room
        session /g          -> CANCELLED
        job /g              -> UNSCHEDULABLE tasks=unschedulable:2
        history /g          -> ScheduleNewSessions pending>cancelled GIVE_UP (refused: no_room)
    """)


def test_a_scheduler_that_does_not_know_of_a_refusal_cannot_fail_again(script):
    script.play("""
        worker w0
        submit /x
        submit /a
        schedule            -> placed 1
        place /a/0 w0
        place /a/0 w0 behind=5
        place /a/0 w0 behind=5
        session /a/0        -> PENDING tries=ScheduleNewSessions:1
    """)


def test_what_nobody_waits_for_any_more_is_no_failure(script):
    script.play("""
        worker w0 cpu=2
        submit /a
        place /a/0 w0       -> placed
        place /a/0 w0       -> not_pending
        session /a/0        -> SCHEDULED tries=-
    """)


# ── what was passed over ──────────────────────────────────────────────────────────────────────────


def test_what_was_passed_over_is_skipped_with_its_reason(script):
    script.play("""
        submit /a
        why /a                      -> not_yet_looked_at
        explain /a no_workers       -> no_workers
        why /a                      -> no_workers
        history /a                  -> ScheduleNewSessions pending>pending SKIPPED (no_workers)
        session /a/0                -> PENDING tries=-
    """)


def test_equal_looks_are_one_row_that_counts(script):
    script.play("""
        submit /a
        explain /a not_enough_chips looks=30 say=short
        wait 60
        explain /a not_enough_chips looks=12 say=shorter
        history /a                  -> ScheduleNewSessions pending>pending SKIPPED x42 (short)
        explain /a behind
        explain /a not_enough_chips say=again
        history /a                  -> ~SKIPPED x42 (short) | ScheduleNewSessions pending>pending SKIPPED (behind) |
    """)
    first = script.world.query("history", job="/a")["items"][0]
    assert (first["attempts"], first["first_at"], first["last_at"]) == (
        42,
        "1970-01-01T00:16:40Z",
        "1970-01-01T00:17:40Z",
    )


def test_looks_of_one_kind_are_recorded_now_and_then(script):
    script.play("""
        submit /a
        explain /a behind say=behind_9
    """)
    before = script.world.machine.sequence
    script.play("""
        wait 1
        explain /a behind say=behind_8
        explain /a behind say=behind_7
        why /a                      -> behind
        history /a                  -> ScheduleNewSessions pending>pending SKIPPED (behind_9)
    """)
    assert script.world.machine.sequence == before
    script.play("""
        wait 10
        explain /a behind say=behind_6
        history /a                  -> ScheduleNewSessions pending>pending SKIPPED x4 (behind_9)
        explain /a behind
        explain /a no_match
        history /a                  -> ~SKIPPED x5 (behind_9) | ScheduleNewSessions pending>pending SKIPPED (no_match)
    """)


def test_a_reason_is_of_those_who_wait(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 exit 0
        submit /b
        cancel /b
        history /b                  -> DetectCancellation pending>cancelled SUCCESS (cancelled)
    """)
    from iris_core.messages.scheduler_state import JobReason, Plan
    from iris_core.placement.reasons import NOT_YET_LOOKED_AT

    before = script.world.machine.sequence
    script.world.plan(
        Plan("s", 0, reasons=(JobReason(1, NOT_YET_LOOKED_AT), JobReason(99, NOT_YET_LOOKED_AT)))
    )
    assert script.world.machine.sequence == before


# ── history ───────────────────────────────────────────────────────────────────────────────────────


def test_the_history_of_a_gang_is_complete(script):
    script.play(RACK)
    script.play("""
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        /g/0 exit 0
        /g/1 exit 0
    """)
    rows = script.world.query("history", job="/g")["items"]
    assert [(row["handler"], row["from"], row["to"]) for row in rows] == [
        ("ScheduleNewSessions", "pending", "scheduled"),
        ("PrepareSessions", "scheduled", "preparing"),
        ("PromoteToPrepared", "preparing", "prepared"),
        ("StartSessions", "prepared", "creating"),
        ("PromoteToRunning", "creating", "running"),
        ("DetectTermination", "running", "terminating"),
        ("PromoteToTerminated", "terminating", "terminated"),
    ]
    assert {row["result"] for row in rows} == {"SUCCESS"}


def test_the_history_of_a_plain_task_is_worded_from_its_attempts(script):
    script.play("""
        worker w0
        submit /a retries=1
        schedule
        wait 1
        /a/0 building
        wait 1
        /a/0 running
        wait 1
        /a/0 exit 1
    """)
    rows = script.world.query("history", job="/a")["items"]
    assert [(row["entity"], row["handler"], row["from"], row["to"]) for row in rows] == [
        ("j1-0", "ScheduleNewSessions", "pending", "scheduled"),
        ("j1-0", "PrepareSessions", "scheduled", "preparing"),
        ("j1-0", "PromoteToPrepared", "preparing", "prepared"),
        ("j1-0", "StartSessions", "prepared", "creating"),
        ("j1-0", "PromoteToRunning", "creating", "running"),
        ("j1-0", "RegressToPending", "running", "pending"),
    ]


def test_the_history_of_a_task_says_how_far_it_came_and_why_it_ended(script):
    script.play("""
        worker w0
        submit /a
        schedule
        wait 1
        /a/0 infra
        submit /b
        wait 6
        place /b/0 w0
        wait 1
        /b/0 running
        wait 1
        /b/0 exit 0
        history /a  -> ~RegressToPending scheduled>pending SUCCESS (infrastructure)
        history /b  -> ~PrepareSessions scheduled>preparing SUCCESS | PromoteToPrepared preparing>prepared SUCCESS |
        history /b  -> ~DetectTermination running>terminating SUCCESS (exited)
    """)


def edges(world, job):
    """Each row of a job's history that led somewhere, in order."""
    rows = world.query("history", job=job, limit=500)["items"]
    return [(row["from"], row["to"]) for row in rows if row["from"] != row["to"]]


def test_the_history_of_a_task_is_one_way_through_the_statuses_of_a_gang(script):
    """Each row starts where the one before it has led, and goes where the table lets a gang go."""
    script.play("""
        worker w0
        submit /a retries=1
        schedule
        /a/0 running
        /a/0 exit 1             -> PENDING
        wait 1
        schedule
        wait 1
        orders w0 deaf
        wait 70
        /a/0                    -> PENDING
        orders w0 listens
        /a/0#1 stopped
        wait 60
        schedule
        /a/0 building
        wait 1
        /a/0 running
        wait 1
        /a/0 exit 0             -> SUCCEEDED
        submit /b
        cancel /b
        session /b/0            -> CANCELLED
        submit /c scheduling_timeout=5
        wait 6
        submit /d retries=1
        schedule
        /d/0 running
        /d/0 preempt for /d/0
        wait 1
        /d/0 exit 1             -> PENDING
        cancel /d
        session /d/0            -> CANCELLED
    """)
    allowed = {
        (source.value.lower(), target.value.lower())
        for row in session.TABLE
        for source in row.sources
        for target in (to.status for to in row.targets)
        if target is not None
    } | {
        (source.value.lower(), row.target.value.lower())
        for row in session.PROMOTIONS
        for source in row.sources
    }
    for job in ("/a", "/b", "/c", "/d"):
        steps = edges(script.world, job)
        assert [first for first, _ in steps[1:]] == [last for _, last in steps[:-1]], steps
        assert steps[0][0] == "pending"
        assert set(steps) <= allowed
        assert steps[-1][1] in ("terminated", "cancelled")


def test_a_task_cancelled_while_its_last_attempt_runs_is_terminating(script):
    script.play("""
        worker w0
        submit /b band=batch
        schedule
        /b/0 running
        submit /p band=production
        /b/0 preempt for /p/0   -> PENDING
        wait 1
        cancel /b
        session /b/0            -> TERMINATING
        history /b              -> ~DetectTermination pending>terminating SUCCESS (cancelled)
        wait 1
        /b/0#0 stopped
        session /b/0            -> TERMINATED
        history /b              -> ~PromoteToTerminated terminating>terminated SUCCESS
    """)


def test_a_final_judgement_without_a_retry_leads_to_no_waiting(script):
    script.play("""
        worker w0
        policy max_reschedules=0
        submit /a
        schedule
        wait 61
        /a/0                    -> UNSCHEDULABLE
        history /a              -> ~PrepareSessions scheduled>scheduled EXPIRED (SCHEDULED for more than 60 s) |
        history /a              -> ~DetectTermination scheduled>terminating SUCCESS
    """)


def test_equal_rows_of_many_tasks_are_merged_however_many_there_are(script):
    places = "place /a" + " w0" * 100
    script.play("worker w0 cpu=1\n submit /full\n place /full/0 w0\n submit /a replicas=100")
    script.play(places)
    script.play(places)
    rows = script.world.query("history", job="/a", limit=500)["items"]
    refused = [row["attempts"] for row in rows if row["result"] == "NEED_RETRY"]
    assert refused == [2] * 100


def test_without_its_history_everything_goes_on_the_same(script):
    script.play(RACK)
    script.play("""
        orders a0 deaf
        schedule
        silence 2
        session /g          -> SCHEDULED tries=PrepareSessions:3
    """)
    for job in script.world.ledger.jobs.values():
        job.history = []
    script.world.growth = type(script.world.growth)()
    script.play("""
        silence 3
        session /g          -> PENDING
    """)
    script._broken = True  # history was taken away by hand, so replay has more of it


# ── reading and telling ───────────────────────────────────────────────────────────────────────────


def test_sessions_are_listed_newest_first_and_by_status(script):
    script.play(RACK)
    script.play("""
        submit /a replicas=2
        place /a/0 b0
    """)
    items = script.world.query("sessions")["items"]
    assert [(row["id"], row["status"]) for row in items] == [
        ("j2-0", "scheduled"),
        ("j2-1", "pending"),
        ("j1", "pending"),
    ]
    waiting = script.world.query("sessions", status="pending")["items"]
    assert [row["id"] for row in waiting] == ["j2-1", "j1"]
    assert [row["id"] for row in script.world.query("sessions", job="/g")["items"]] == ["j1"]


def test_sessions_are_paged_without_loss_while_jobs_come(script):
    script.play("submit /a replicas=5")
    first = script.world.query("sessions", limit=2)
    script.play("submit /b")
    rest = script.world.query("sessions", limit=100, cursor=first["next_cursor"])
    assert [row["id"] for row in first["items"] + rest["items"]] == [
        "j1-0",
        "j1-1",
        "j1-2",
        "j1-3",
        "j1-4",
    ]


def test_a_session_shows_its_kernels(script):
    script.play(RACK)
    script.play("""
        schedule
        /g/0 prepared
    """)
    session = script.world.query("session", id="j1")
    assert [(k["task"], k["attempt"], k["worker"], k["status"]) for k in session["kernels"]] == [
        ("/g/0", 0, "a0", "prepared"),
        ("/g/1", 0, "a1", "scheduled"),
    ]
    assert script.world.query("session", id="j9") is None
    assert script.world.query("session", id="j1-7") is None


def test_every_stored_change_of_a_session_is_told_once(script):
    script.play(RACK)
    script.play("""
        schedule
        /g/0 prepared
        /g/1 prepared
        /g/0 running
        /g/1 running
        cancel /g
        /g/0 stopped
        /g/1 stopped
        events session:/g   -> pending scheduled preparing prepared creating running terminating terminated
    """)
    subjects = [subject for subject, _ in script.world.events if subject.startswith("session.")]
    assert subjects[:3] == [
        "session.state.pending",
        "session.state.scheduled",
        "session.state.preparing",
    ]


def test_a_session_of_one_has_no_events_of_its_own(script):
    script.play("""
        worker w0
        submit /a
        schedule
        /a/0 running
        /a/0 exit 0
    """)
    assert not [subject for subject, _ in script.world.events if subject.startswith("session.")]


def test_the_clock_of_a_task_that_waits_again_starts_anew(script):
    script.play("""
        worker w0
        submit /a retries=1
        at 5
        schedule
        session /a/0    -> SCHEDULED since=5
        at 10
        /a/0 running
        session /a/0    -> RUNNING since=10
        at 20
        /a/0 exit 1
        session /a/0    -> PENDING since=20
    """)
