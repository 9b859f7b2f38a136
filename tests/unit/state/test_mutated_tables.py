"""Changing any cell of the status tables makes `guard` refuse the table or a story fail.

Each story is one way through the task, job and session tables, told by what a user sees. A cell
that can be set to something else without any story noticing is named. `make test` changes one row
in `ONE_IN`, and `make soak` all. The tables of deployments and routes, and
the row by which a route's task is retired, have stories of their own, in `deployments`. Source:
    docs/design/semantics.md#rules-and-judgement, docs/design/semantics.md#tasks-and-attempts,
    docs/design/semantics.md#jobs, docs/design/semantics.md#sessions,
    docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from iris_core import states
from iris_core.guard import TableBroken, guard
from iris_core.states import Budget, SessionStatus, TaskState
from iris_core.tables import job, route, session, task
from tests.support.mutation import (
    Mutant,
    of_derivation,
    of_mapping,
    of_rule,
    others,
    quickly,
    unnoticed,
)
from tests.support.samples import one_in
from tests.support.script import Script
from tests.support.world import World

ONE_IN = 3

# ── stories ───────────────────────────────────────────────────────────────────────────────────────

STRAIGHT = """
    worker w0
    submit /a
    job /a              -> PENDING
    session /a/0        -> PENDING
    schedule            -> placed 1
    /a/0                -> ASSIGNED
    attempt /a/0#0      -> state=assigned
    session /a/0        -> SCHEDULED
    job /a              -> RUNNING
    /a/0 preparing      -> BUILDING
    attempt /a/0#0      -> state=building stage=preparing
    session /a/0        -> PREPARING
    /a/0 pulling        -> BUILDING
    attempt /a/0#0      -> state=building stage=pulling
    session /a/0        -> PREPARING
    /a/0 prepared       -> BUILDING
    session /a/0        -> PREPARED
    /a/0 creating       -> BUILDING
    session /a/0        -> CREATING
    /a/0 running        -> RUNNING
    attempt /a/0#0      -> state=running stage=running
    session /a/0        -> RUNNING
    /a/0 exit 0         -> SUCCEEDED
    attempt /a/0#0      -> state=succeeded
    session /a/0        -> TERMINATED
    job /a              -> SUCCEEDED
"""


def three(options: str = "") -> str:
    """A job of three tasks: ASSIGNED, BUILDING and RUNNING."""
    return f"""
        worker w0 cpu=3
        submit /a replicas=3 tolerate=9 {options}
        schedule        -> placed 3
        /a/1 building   -> BUILDING
        /a/2 running    -> RUNNING
    """


def four(options: str = "") -> str:
    """A gang of four: the first, then ASSIGNED, BUILDING and RUNNING."""
    return f"""
        worker a0 rack=a
        worker a1 rack=a
        worker a2 rack=a
        worker a3 rack=a
        submit /g replicas=4 gang=rack {options}
        schedule        -> placed 4
        /g/2 building   -> BUILDING
        /g/3 running    -> RUNNING
    """


def rack(status: SessionStatus, options: str = "") -> str:
    """A gang of two that has come to a status."""
    held = "orders a0 held\n orders a1 held\n"
    story = f"""
        worker a0 rack=a
        worker a1 rack=a
        submit /g replicas=2 gang=rack {options}
        session /g      -> PENDING
        {held if status is SessionStatus.SCHEDULED else ""}
        schedule        -> placed 2
    """
    prepared = "/g/0 prepared\n /g/1 prepared\n"
    story += {
        SessionStatus.PREPARED: held + prepared,
        SessionStatus.CREATING: prepared,
        SessionStatus.RUNNING: prepared + "/g/0 running\n /g/1 running\n",
    }.get(status, "")
    return story + f"session /g -> {status.value}\n"


def each(line: str, *indexes: int, job: str = "/a") -> str:
    """The lines for each of these tasks; ``@`` is the task."""
    return "\n".join(line.replace("@", f"{job}/{index}") for index in indexes) + "\n"


S = SessionStatus


def path(status: SessionStatus) -> str:
    """What is told of a session on its straight way to a status."""
    way = list(SessionStatus)
    return " ".join(one.value.lower() for one in way[: way.index(status) + 1])


STORIES: dict[str, tuple[str, ...]] = {
    "assign": (STRAIGHT,),
    "build": (STRAIGHT,),
    "run": (
        STRAIGHT,
        "worker w0\n submit /a\n schedule\n /a/0 running -> RUNNING\n attempt /a/0#0 -> state=running",
        "worker w0\n submit /a\n schedule\n /a/0 running\n /a/0 running detail=storing -> RUNNING note=storing",
    ),
    "succeed": (three() + each("@ exit 0 -> SUCCEEDED\n attempt @#0 -> state=succeeded", 0, 1, 2),),
    "fail": (
        three()
        + each(
            "@ exit 1 -> FAILED failures=1\n attempt @#0 -> state=failed charged_to=failure",
            0,
            1,
            2,
        ),
        three("retries=1")
        + each(
            "@ exit 1 -> PENDING failures=1 preemptions=0\n attempt @#0 -> state=failed", 0, 1, 2
        )
        + "job /a -> RUNNING",
    ),
    "requeue": (
        three("on_exit=3=requeue requeues=1")
        + each(
            "@ exit 3 -> PENDING failures=0 requeues=1\n attempt @#0 -> state=failed charged_to=requeue",
            0,
            1,
            2,
        ),
        three("on_exit=3=requeue requeues=0 retries=5")
        + each(
            "@ exit 3 -> FAILED failures=0 requeues=1 no_retry=yes\n attempt @#0 -> state=failed",
            0,
            1,
            2,
        ),
    ),
    "fail_for_good": (
        three("on_exit=3=fail retries=5")
        + each(
            "@ exit 3 -> FAILED failures=1 no_retry=yes\n attempt @#0 -> state=failed charged_to=failure",
            0,
            1,
            2,
        ),
        three("on_exit=3=fail retries=0")
        + each("@ exit 3 -> FAILED failures=1 no_retry=no\n attempt @#0 -> state=failed", 0, 1, 2),
    ),
    "requeue_on_command": (
        three("requeues=1")
        + "requeue /a -> accepted\n"
        + each(
            "@ -> PENDING failures=0 requeues=1\n attempt @#0 -> state=killed charged_to=requeue",
            0,
            1,
            2,
        ),
        three("requeues=0 retries=5")
        + each("requeue @ -> accepted\n @ -> FAILED failures=0 requeues=1 no_retry=yes", 0, 1, 2)
        + each("attempt @#0 -> state=killed charged_to=requeue", 0, 1, 2),
    ),
    "stop_for_hold": (
        three("requeues=0")
        + "hold /a --stop -> accepted\n"
        + each(
            "@ -> PENDING failures=0 requeues=0\n attempt @#0 -> state=killed charged_to=-", 0, 1, 2
        ),
    ),
    "hand_back": (
        three("map=yes").replace("replicas=3", "replicas=4")
        + "chain /a/3 behind /a/2 -> placed\n /a/3 -> ASSIGNED\n"
        + "/a/3 handed_back -> PENDING failures=0 preemptions=0\n attempt /a/3#0 -> state=killed charged_to=- open=no\n"
        + each("@ handed_back", 1, 2)
        + "/a/1 -> BUILDING\n /a/2 -> RUNNING\n chain /a/3 behind /a/2 -> placed\n /a/3 running -> RUNNING\n",
    ),
    "requeue_on_timeout": (
        three("on_timeout=requeue timeout=99 requeues=1")
        + each(
            "@ timeout -> PENDING failures=0 requeues=1\n attempt @#0 -> state=killed charged_to=requeue",
            0,
            1,
            2,
        ),
        *(
            three("on_timeout=requeue timeout=99 requeues=0")
            + each(
                "@ timeout -> KILLED failures=0 requeues=1\n attempt @#0 -> state=killed charged_to=requeue",
                index,
            )
            for index in (0, 1, 2)
        ),
    ),
    "requeue_late": tuple(
        f"""
        worker w0
        submit /a preemptions=1 on_exit=3=requeue requeues={requeues}
        schedule
        /a/0 preparing
        wait 901
        /a/0                -> PENDING preemptions=1
        /a/0#0 exit 3       -> {state} failures=0 preemptions=0 requeues=1
        attempt /a/0#0      -> state=failed charged_to=requeue
        """
        for requeues, state in ((1, "PENDING"), (0, "FAILED"))
    ),
    "fail_for_good_late": (
        *(
            f"""
        worker w0
        submit /a preemptions=1 retries={retries} on_exit=3=fail
        schedule
        /a/0 preparing
        wait 901
        /a/0                -> PENDING preemptions=1
        /a/0#0 exit 3       -> FAILED failures=1 preemptions=0 no_retry={left}
        attempt /a/0#0      -> state=failed charged_to=failure
        """
            for retries, left in ((1, "yes"), (0, "no"))
        ),
    ),
    "lose": (
        three()
        + each(
            "@ missing -> PENDING preemptions=0\n attempt @#0 -> state=worker_failed charged_to=reschedule",
            0,
        )
        + each(
            "@ missing -> PENDING preemptions=1\n attempt @#0 -> state=worker_failed charged_to=preemption",
            1,
            2,
        ),
        three("preemptions=0")
        + each(
            "@ missing -> WORKER_FAILED preemptions=1\n attempt @#0 -> state=worker_failed", 1, 2
        ),
        three()
        + "policy max_reschedules=0\n"
        + each("@ missing -> UNSCHEDULABLE preemptions=0\n attempt @#0 -> state=worker_failed", 0)
        + "attempt /a/0#0 -> cause=reschedules_spent",
    ),
    "lose_beside": (
        three("preemptions=0")
        + "restart w0 without /a/0 /a/1 /a/2\n"
        + each(
            "@ -> PENDING preemptions=0\n attempt @#0 -> state=worker_failed charged_to=reschedule",
            0,
            1,
            2,
        ),
        three("preemptions=0")
        + "policy max_reschedules=0\n restart w0 without /a/0 /a/1 /a/2\n"
        + each("@ -> WORKER_FAILED preemptions=0\n attempt @#0 -> state=worker_failed", 0, 1, 2),
    ),
    "preempt": (
        three("band=batch")
        + "submit /p replicas=3 band=production\n"
        + "/a/0 preempt for /p/0 -> PENDING preemptions=0\n attempt /a/0#0 -> state=preempted charged_to=reschedule\n"
        + "/a/1 preempt for /p/1 -> PENDING preemptions=1\n attempt /a/1#0 -> state=preempted charged_to=preemption\n"
        + "/a/2 preempt for /p/2 -> PENDING preemptions=1\n attempt /a/2#0 -> state=preempted charged_to=preemption\n",
        three("band=batch preemptions=0")
        + "submit /p replicas=2 band=production\n"
        + "/a/1 preempt for /p/0 -> PREEMPTED preemptions=1\n attempt /a/1#0 -> state=preempted\n"
        + "/a/2 preempt for /p/1 -> PREEMPTED preemptions=1\n attempt /a/2#0 -> state=preempted\n",
        three("band=batch")
        + "policy max_reschedules=0\n submit /p band=production\n"
        + "/a/0 preempt for /p/0 -> UNSCHEDULABLE\n attempt /a/0#0 -> state=worker_failed cause=reschedules_spent",
    ),
    "succeed_late": (
        """
        worker w0
        submit /a preemptions=1
        schedule
        /a/0 preparing
        wait 901
        /a/0                -> PENDING preemptions=1
        /a/0#0 exit 0       -> SUCCEEDED preemptions=0
        attempt /a/0#0      -> state=succeeded charged_to=-
        """,
    ),
    "fail_late": tuple(
        f"""
        worker w0
        submit /a preemptions=1 retries={retries}
        schedule
        /a/0 preparing
        wait 901
        /a/0                -> PENDING preemptions=1
        /a/0#0 exit 1       -> {state} failures=1 preemptions=0
        attempt /a/0#0      -> state=failed charged_to=failure
        """
        for retries, state in ((1, "PENDING"), (0, "FAILED"))
    ),
    "undeliver": (
        """
        worker w0
        submit /a
        orders w0 deaf
        policy prepare_tries=0
        schedule
        /a/0            -> PENDING preemptions=0
        attempt /a/0#0  -> state=worker_failed charged_to=reschedule cause=undelivered
        session /a/0    -> PENDING
        """,
        """
        worker w0
        submit /a
        orders w0 deaf
        policy prepare_tries=0 max_reschedules=0
        schedule
        /a/0            -> UNSCHEDULABLE preemptions=0
        attempt /a/0#0  -> state=worker_failed charged_to=reschedule cause=reschedules_spent
        """,
    ),
    "overdue": (
        """
        worker w0 cpu=3
        submit /a replicas=2
        policy scheduled_timeout_s=5 preparing_timeout_s=20
        orders w0 held
        schedule
        /a/1 building
        wait 5.001
        /a/0            -> PENDING preemptions=0
        attempt /a/0#0  -> state=worker_failed charged_to=reschedule
        wait 15
        /a/1            -> PENDING preemptions=1
        attempt /a/1#0  -> state=worker_failed charged_to=preemption
        """,
        """
        worker w0
        submit /a preemptions=0
        policy preparing_timeout_s=20
        schedule
        /a/0 building
        wait 20.001
        /a/0            -> WORKER_FAILED preemptions=1
        attempt /a/0#0  -> state=worker_failed
        """,
        """
        worker w0
        submit /a
        policy scheduled_timeout_s=5 max_reschedules=0
        orders w0 held
        schedule
        wait 5.001
        /a/0            -> UNSCHEDULABLE preemptions=0
        attempt /a/0#0  -> state=worker_failed
        """,
    ),
    "fail_unplaced": (
        "worker w0\n submit /b\n submit /a after=/b each=yes tolerate=1\n"
        "place /b/0 w0\n /b/0 exit 1 -> FAILED\n /a/0 -> FAILED failures=0 attempts=0 no_retry=yes",
    ),
    "finish": (
        four()
        + "/g/0 running\n"
        + each("@ exit 0 -> RUNNING\n attempt @#0 -> state=succeeded", 1, 2, 3, job="/g")
        + "session /g -> RUNNING\n /g/0 exit 0 -> SUCCEEDED\n"
        + each("@ -> SUCCEEDED", 1, 2, 3, job="/g")
        + "session /g -> TERMINATED\n job /g -> SUCCEEDED",
    ),
    "stop_for_leader": (
        four("success=leader")
        + "/g/0 exit 0 -> RUNNING\n session /g -> TERMINATING\n"
        + each("attempt @#0 -> state=succeeded cause=leader_done open=yes", 1, 2, 3, job="/g")
        + "/g/1 -> ASSIGNED\n /g/2 -> BUILDING\n /g/3 -> RUNNING\n"
        + each("@ stopped", 1, 2, 3, job="/g")
        + "session /g -> TERMINATED\n"
        + each("@ -> SUCCEEDED\n attempt @#0 -> state=succeeded", 0, 1, 2, 3, job="/g")
        + "job /g -> SUCCEEDED",
    ),
    "end_with_sibling": (
        four()
        + "/g/0 exit 1 -> FAILED\n session /g -> TERMINATING\n"
        + each(
            "@ -> WORKER_FAILED\n attempt @#0 -> state=worker_failed cause=coscheduled_sibling",
            1,
            2,
            3,
            job="/g",
        )
        + "job /g -> FAILED",
        rack(S.RUNNING, "preemptions=1")
        + """
        /g/1 missing    -> PENDING preemptions=1
        /g/0#0 stopped
        schedule        -> placed 2
        /g/0 running
        /g/1 running
        silence 40      # both hosts at once, and only the second has no retry left
        /g/1            -> WORKER_FAILED preemptions=2
        /g/0            -> WORKER_FAILED preemptions=1
        """,
    ),
    "restart_with_sibling": (
        four("retries=1")
        + "/g/0 exit 1 -> PENDING failures=1\n session /g -> PENDING\n"
        + each(
            "@ -> PENDING\n attempt @#0 -> state=worker_failed cause=coscheduled_restart",
            1,
            2,
            3,
            job="/g",
        )
        + "job /g -> RUNNING",
    ),
    "kill": (
        """
        worker w0 cpu=3
        submit /a replicas=4
        schedule        -> placed 3
        /a/1 building
        /a/2 running
        cancel /a
        job /a          -> KILLED tasks=killed:4
        session /a/0    -> TERMINATING
        session /a/3    -> CANCELLED
        attempt /a/0#0  -> state=killed
        attempt /a/1#0  -> state=killed
        attempt /a/2#0  -> state=killed
        /a/2 stopped
        session /a/2    -> TERMINATED
        """,
    ),
    "expire": (
        "submit /a scheduling_timeout=10\n wait 11\n /a/0 -> UNSCHEDULABLE\n session /a/0 -> CANCELLED",
    ),
    "ScheduleNewSessions": (
        """
        submit /g replicas=2 gang=rack scheduling_timeout=10
        wait 11
        session /g      -> CANCELLED
        /g/1            -> UNSCHEDULABLE
        history /g      -> ~ScheduleNewSessions pending>cancelled EXPIRED
        """,
        """
        worker a0 rack=a
        worker b0 rack=b
        submit /g replicas=2 gang=rack
        place /g a0 b0  -> gang_split
        session /g      -> PENDING tries=ScheduleNewSessions:1
        /g/0            -> PENDING
        policy schedule_tries=0
        place /g a0 b0  -> gang_split
        session /g      -> CANCELLED
        /g/1            -> UNSCHEDULABLE
        history /g      -> ~ScheduleNewSessions pending>cancelled GIVE_UP
        """,
        """
        worker w0
        submit /a cpu=2
        place /a/0 w0   -> no_room
        session /a/0    -> PENDING tries=ScheduleNewSessions:1
        policy schedule_tries=0
        place /a/0 w0   -> no_room
        /a/0            -> UNSCHEDULABLE
        history /a      -> ~ScheduleNewSessions pending>cancelled GIVE_UP
        """,
        rack(S.SCHEDULED) + "events session:/g -> pending scheduled",
    ),
    "PrepareSessions": (
        rack(S.PREPARING) + "events session:/g -> pending scheduled preparing",
        """
        worker a0 rack=a
        worker a1 rack=a
        submit /g replicas=2 gang=rack
        orders a0 deaf
        schedule
        session /g      -> SCHEDULED tries=PrepareSessions:1
        /g/0            -> ASSIGNED
        silence 5
        session /g      -> PENDING
        /g/0            -> PENDING preemptions=0
        history /g      -> ~PrepareSessions scheduled>pending GIVE_UP
        """,
        "policy scheduled_timeout_s=5\n"
        + rack(S.SCHEDULED)
        + "wait 5.001\n session /g -> PENDING\n history /g -> ~PrepareSessions scheduled>pending EXPIRED",
        "policy preparing_timeout_s=20\n"
        + rack(S.PREPARING)
        + "/g/0 prepared\n /g/1 preparing\n wait 20.001\n session /g -> PENDING\n"
        + "/g/0 -> PENDING preemptions=0\n /g/1 -> PENDING preemptions=1",
    ),
    "StartSessions": (
        rack(S.CREATING) + "events session:/g -> pending scheduled preparing prepared creating",
        rack(S.PREPARING)
        + """
        /g/0 prepared
        orders a0 deaf
        orders a1 deaf
        /g/1 prepared
        session /g      -> PREPARED tries=StartSessions:1
        silence 5
        session /g      -> PENDING
        /g/0            -> PENDING preemptions=1
        history /g      -> ~StartSessions prepared>pending GIVE_UP
        """,
        "policy prepared_timeout_s=5\n" + rack(S.PREPARED) + "wait 5.001\n session /g -> PENDING",
        "policy creating_timeout_s=20\n"
        + rack(S.CREATING)
        + "/g/0 running\n wait 20.001\n session /g -> PENDING\n /g/0 -> PENDING preemptions=0\n"
        + "/g/1 -> PENDING preemptions=1",
    ),
    "TerminateSessions": (
        "policy terminating_timeout_s=20\n"
        + rack(S.RUNNING)
        + "cancel /g\n session /g -> TERMINATING\n wait 20.001\n session /g -> TERMINATED\n"
        + "history /g -> ~TerminateSessions terminating>terminated EXPIRED",
        """
        worker w0
        policy terminating_timeout_s=20
        submit /a
        schedule
        /a/0 running
        cancel /a
        session /a/0    -> TERMINATING
        wait 20.001
        session /a/0    -> TERMINATED
        """,
    ),
    "DetectCancellation": (
        "submit /g replicas=2 gang=rack\n cancel /g\n session /g -> CANCELLED",
        rack(S.RUNNING, "retries=1")
        + "/g/0 exit 1\n session /g -> PENDING\n cancel /g\n session /g -> TERMINATING\n"
        + "/g/1#0 stopped\n session /g -> TERMINATED",
    ),
    "DetectTermination": tuple(
        rack(status) + f"cancel /g\n events session:/g -> {path(status)} terminating"
        for status in (S.SCHEDULED, S.PREPARING, S.PREPARED, S.CREATING, S.RUNNING)
    ),
    "RegressToPending": tuple(
        rack(status, "retries=1")
        + f"/g/0 exit 1 -> PENDING\n /g/1 -> PENDING\n events session:/g -> {path(status)} pending"
        for status in (S.SCHEDULED, S.PREPARING, S.PREPARED, S.CREATING, S.RUNNING)
    ),
    "PromoteToPrepared": (
        rack(S.PREPARING)
        + "/g/0 prepared\n session /g -> PREPARING\n orders a0 held\n /g/1 prepared\n"
        "session /g -> PREPARED",
    ),
    "PromoteToRunning": (
        rack(S.CREATING)
        + "/g/0 running\n session /g -> CREATING\n /g/1 running\n session /g -> RUNNING",
    ),
    "PromoteToTerminated": (
        rack(S.RUNNING) + "cancel /g\n /g/0 stopped\n session /g -> TERMINATING\n /g/1 stopped\n"
        "session /g -> TERMINATED\n history /g -> ~PromoteToTerminated terminating>terminated SUCCESS",
    ),
    "all_succeeded": (
        three()
        + "/a/0 exit 0\n job /a -> RUNNING\n /a/1 exit 0\n /a/2 exit 0\n job /a -> SUCCEEDED",
    ),
    "too_many_failed": (
        """
        worker w0 cpu=4
        submit /a replicas=4 tolerate=1
        schedule
        /a/0 exit 1
        job /a          -> RUNNING
        /a/1 exit 0
        /a/2 exit 1
        job /a          -> FAILED tasks=failed:2,killed:1,succeeded:1
        """,
    ),
    "any_unschedulable": (
        """
        worker w0
        submit /a replicas=2 scheduling_timeout=10
        schedule        -> placed 1
        job /a          -> RUNNING
        /a/0 running
        wait 11
        /a/0            -> KILLED
        job /a          -> UNSCHEDULABLE
        """,
    ),
    "any_killed": (
        """
        worker w0
        submit /a replicas=2 timeout=5
        schedule        -> placed 1
        /a/0 running
        wait 6
        job /a          -> KILLED tasks=killed:2
        """,
        """
        worker w0 cpu=3
        submit /a replicas=3 tolerate=3 timeout=5 map=yes
        schedule
        /a/0 running
        /a/1 running
        /a/1 exit 0
        wait 6
        /a/0            -> KILLED
        job /a          -> RUNNING tasks=assigned:1,killed:1,succeeded:1
        /a/2 exit 0
        job /a          -> KILLED tasks=killed:1,succeeded:2
        """,
    ),
    "all_ended_some_lost": (
        three("preemptions=0")
        + "/a/1 missing -> WORKER_FAILED\n job /a -> RUNNING\n /a/0 exit 0\n /a/2 exit 0\n job /a -> WORKER_FAILED",
        three("preemptions=0 band=batch")
        + "submit /p band=production\n /a/1 preempt for /p/0 -> PREEMPTED\n /a/0 exit 0\n /a/2 exit 0\n"
        + "job /a -> WORKER_FAILED",
    ),
    "all_ended_some_failed": (
        three() + "/a/0 exit 1\n job /a -> RUNNING\n /a/1 exit 0\n /a/2 exit 0\n job /a -> FAILED",
    ),
    "any_live_or_started": (
        """
        worker w0
        submit /a replicas=2 retries=1
        job /a          -> PENDING
        schedule        -> placed 1
        job /a          -> RUNNING
        /a/0 exit 1     -> PENDING
        job /a          -> RUNNING
        """,
    ),
    "waiting": ("submit /a\n job /a -> PENDING",),
    "BUDGET_OF_STATE": (
        three() + "/a/0 exit 1 -> FAILED no_retry=no",
        three("preemptions=0 band=batch")
        + "submit /p band=production\n /a/1 missing -> WORKER_FAILED no_retry=no\n"
        + "/a/2 preempt for /p/0 -> PREEMPTED no_retry=no",
    ),
    "STAGES": (STRAIGHT,),
    "SINGLE": (
        STRAIGHT,
        "worker w0\n submit /a preemptions=0\n schedule\n /a/0 running\n /a/0 missing\n session /a/0 -> TERMINATED",
    ),
}
"""Stories by the row they are about first; a change that its own stories miss is tried on all the
others.
"""
STORIES["complete"] = STORIES["stop_for_leader"]

SAME: dict[str, str] = {
    "RegressToPending.any_of[0][0].match = ALL": "a gang waits whole, so where one member waits all do",
}
"""Changes that are none, with the reason."""


# ── changes ───────────────────────────────────────────────────────────────────────────────────────


MUTANTS: dict[str, list[Mutant]] = {
    **{rule.name: list(of_rule(rule, TaskState)) for rule in task.TABLE if rule is not task.RETIRE},
    **{rule.name: list(of_rule(rule, SessionStatus)) for rule in session.HANDLERS},
    **{row.name: list(of_derivation(row)) for row in (*session.PROMOTIONS, *job.TABLE)},
    "STAGES": list(
        of_mapping(
            "STAGES", task.STAGES, lambda row: [r for r in (task.BUILD, task.RUN) if r is not row]
        )
    ),
    "SINGLE": list(
        of_mapping("SINGLE", session.SINGLE, lambda status: others(SessionStatus, status))
    ),
    "BUDGET_OF_STATE": list(
        of_mapping(
            "BUDGET_OF_STATE",
            task.BUDGET_OF_STATE,
            lambda one: [b for b in (Budget.FAILURE, Budget.PREEMPTION) if b is not one],
        )
    ),
}


# ── who notices ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], bool]:
    """Plays a story and says whether it holds."""
    return quickly(monkeypatch, play, 1_000)


def play(story: str) -> World:
    script = Script()
    script.play(story)
    return script.world


def refused() -> bool:
    """Whether the tables as they are now could not be imported."""
    try:
        guard("task", others(TaskState, None), states.TERMINAL, task.TABLE, task.WAYS_OUT)
        rows = (*session.HANDLERS, *session.PROMOTIONS)
        guard(
            "session",
            SessionStatus,
            states.SESSION_TERMINAL,
            rows,
            session.WAYS_OUT,
            clocked=session.CLOCKED,
        )
    except TableBroken:
        return True
    return False


def stories_of(row: str) -> Iterator[str]:
    """Those about a row, then all."""
    yield from STORIES.get(row, ())
    for stories in STORIES.values():
        yield from stories


def test_every_story_holds_with_the_tables_as_they_are(quick):
    assert not refused()
    assert [story for stories in STORIES.values() for story in stories if not quick(story)] == []


@pytest.mark.parametrize("row", one_in(ONE_IN, MUTANTS))
def test_some_story_notices_each_cell_that_is_changed(quick, row):
    found = unnoticed(MUTANTS[row], stories_of(row), refused, quick)
    assert found == [name for name in SAME if name.startswith(f"{row}.")]


def test_a_cell_that_drives_nothing_is_named(quick):
    idle = Mutant("EndRoute.success = keep", "EndRoute", route.END, "success", None)
    assert unnoticed([idle], stories_of(idle.row), refused, quick) == ["EndRoute.success = keep"]


def test_every_row_of_the_tables_that_drive_is_changed():
    rows = {row.name for row in (*task.TABLE, *session.HANDLERS, *session.PROMOTIONS, *job.TABLE)}
    assert rows - {task.RETIRE.name} < set(MUTANTS)
    assert {row for row, mutants in MUTANTS.items() if not mutants} == set()
