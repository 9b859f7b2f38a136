"""Status table of tasks, one row per event; the part of a row is the status its attempt shows
afterwards.

Sources: docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

from typing import TypeAlias

from iris_core.guard import TableBroken, guard
from iris_core.lifecycle import FAILS, SUCCEEDS, Rule, To
from iris_core.spec.exit_rules import ExitAction
from iris_core.spec.jobs import OnTimeout
from iris_core.states import ACTIVE, NON_TERMINAL, TERMINAL, Budget, KernelStatus, TaskState

T = TaskState
K = KernelStatus
TaskRule: TypeAlias = Rule[TaskState, TaskState]


def to(state: TaskState, *, attempt: TaskState | None = None) -> To[TaskState, TaskState]:
    """A target: the task's state, and its attempt's when it differs."""
    return To(state, attempt or state)


_FREE_TOO_OFTEN = to(T.UNSCHEDULABLE, attempt=T.WORKER_FAILED)

ASSIGN = TaskRule(
    name="assign", sources=frozenset({T.PENDING}), outcomes=SUCCEEDS, success=to(T.ASSIGNED)
)
BUILD = TaskRule(
    name="build",
    sources=frozenset({T.ASSIGNED, T.BUILDING}),
    outcomes=SUCCEEDS,
    success=to(T.BUILDING),
)
RUN = TaskRule(name="run", sources=ACTIVE, outcomes=SUCCEEDS, success=to(T.RUNNING))
SUCCEED = TaskRule(name="succeed", sources=ACTIVE, outcomes=SUCCEEDS, success=to(T.SUCCEEDED))

FAIL = TaskRule(
    name="fail",
    sources=ACTIVE,
    outcomes=FAILS,
    budget=Budget.FAILURE,
    need_retry=to(T.PENDING, attempt=T.FAILED),
    give_up=to(T.FAILED),
)
REQUEUE = TaskRule(
    name="requeue",
    sources=ACTIVE,
    outcomes=FAILS,
    budget=Budget.REQUEUE,
    need_retry=to(T.PENDING, attempt=T.FAILED),
    give_up=to(T.FAILED),
)
"""It failed with an exit code that its job's rules requeue."""
REQUEUE_ON_COMMAND = TaskRule(
    name="requeue_on_command",
    sources=ACTIVE,
    outcomes=FAILS,
    budget=Budget.REQUEUE,
    need_retry=to(T.PENDING, attempt=T.KILLED),
    give_up=to(T.FAILED, attempt=T.KILLED),
)
"""Somebody wants it stopped and tried again, whatever its attempt exits with."""
STOP_FOR_HOLD = TaskRule(
    name="stop_for_hold", sources=ACTIVE, outcomes=SUCCEEDS, success=to(T.PENDING, attempt=T.KILLED)
)
"""Somebody holds its job and wants what runs stopped: nothing is charged, whatever its attempt
exits with.
"""
REQUEUE_ON_TIMEOUT = TaskRule(
    name="requeue_on_timeout",
    sources=ACTIVE,
    outcomes=FAILS,
    budget=Budget.REQUEUE,
    need_retry=to(T.PENDING, attempt=T.KILLED),
    give_up=to(T.KILLED),
)
"""It has run for as long as it may, and its job wants it to go on in a further attempt."""
FAIL_FOR_GOOD = TaskRule(
    name="fail_for_good",
    sources=ACTIVE,
    outcomes=FAILS,
    budget=Budget.FAILURE,
    need_retry=to(T.FAILED),
    give_up=to(T.FAILED),
)
"""It failed with an exit code after which its job's rules allow no retry: that is charged as any
failure is, and ends it whatever is left of the budget.
"""
LOSE = TaskRule(
    name="lose",
    sources=ACTIVE,
    outcomes=FAILS,
    budget=Budget.PREEMPTION,
    free_from=frozenset({T.ASSIGNED}),  # the attempt never started, so no budget is charged
    need_retry=to(T.PENDING, attempt=T.WORKER_FAILED),
    give_up=to(T.WORKER_FAILED),
    free_give_up=_FREE_TOO_OFTEN,
)
LOSE_BESIDE = TaskRule(
    name="lose_beside",
    sources=ACTIVE,
    outcomes=FAILS,
    budget=Budget.RESCHEDULE,
    need_retry=to(T.PENDING, attempt=T.WORKER_FAILED),
    give_up=to(T.WORKER_FAILED),
)
"""As `LOSE`, when another attempt is suspected of the loss: the bystander gets its attempt back."""
PREEMPT = TaskRule(
    name="preempt",
    sources=ACTIVE,
    outcomes=FAILS,
    budget=Budget.PREEMPTION,
    free_from=frozenset({T.ASSIGNED}),
    need_retry=to(T.PENDING, attempt=T.PREEMPTED),
    give_up=to(T.PREEMPTED),
    free_give_up=_FREE_TOO_OFTEN,
)
RECLAIM = TaskRule(
    name="reclaim",
    sources=ACTIVE,
    outcomes=FAILS,
    budget=Budget.RECLAIM,
    need_retry=to(T.PENDING, attempt=T.PREEMPTED),
    give_up=to(T.PREEMPTED),
)
"""It held what another project is guaranteed: that is counted, and never too often."""
UNDELIVER = TaskRule(
    name="undeliver",
    sources=frozenset({T.ASSIGNED}),
    outcomes=FAILS,
    budget=Budget.RESCHEDULE,
    need_retry=to(T.PENDING, attempt=T.WORKER_FAILED),
    give_up=_FREE_TOO_OFTEN,
)
HAND_BACK = TaskRule(
    name="hand_back",
    sources=frozenset({T.ASSIGNED}),
    outcomes=SUCCEEDS,
    success=to(T.PENDING, attempt=T.KILLED),
)
"""Its worker has not started it, because the one before it in its chain takes long: nothing is
charged.
"""
OVERDUE = TaskRule(
    name="overdue",
    sources=frozenset({T.ASSIGNED, T.BUILDING}),
    outcomes=FAILS,
    budget=Budget.PREEMPTION,
    free_from=frozenset({T.ASSIGNED}),
    need_retry=to(T.PENDING, attempt=T.WORKER_FAILED),
    give_up=to(T.WORKER_FAILED),
    free_give_up=_FREE_TOO_OFTEN,
)
FINISH = TaskRule(
    name="finish", sources=ACTIVE, outcomes=SUCCEEDS, success=to(T.RUNNING, attempt=T.SUCCEEDED)
)
"""Exit 0 of a gang's member: its attempt has ended, its task waits for the gang."""
STOP_FOR_LEADER = TaskRule(
    name="stop_for_leader", sources=ACTIVE, outcomes=SUCCEEDS, success=To(None, T.SUCCEEDED)
)
"""The gang's leader has succeeded: the attempt is stopped, its task waits for the gang."""
COMPLETE = TaskRule(name="complete", sources=ACTIVE, outcomes=SUCCEEDS, success=To(T.SUCCEEDED))
"""A task that waited for its gang has succeeded; its attempt has ended before."""
END_WITH_SIBLING = TaskRule(
    name="end_with_sibling", sources=NON_TERMINAL, outcomes=SUCCEEDS, success=to(T.WORKER_FAILED)
)
RESTART_WITH_SIBLING = TaskRule(
    name="restart_with_sibling",
    sources=ACTIVE,
    outcomes=SUCCEEDS,
    success=to(T.PENDING, attempt=T.WORKER_FAILED),
)
KILL = TaskRule(name="kill", sources=NON_TERMINAL, outcomes=SUCCEEDS, success=to(T.KILLED))
RETIRE = TaskRule(
    name="retire", sources=frozenset({T.RUNNING}), outcomes=SUCCEEDS, success=to(T.SUCCEEDED)
)
"""The task of a route that served and is not wanted any more: it is stopped, and its work is
done.
"""
EXPIRE = TaskRule(
    name="expire", sources=frozenset({T.PENDING}), outcomes=SUCCEEDS, success=To(T.UNSCHEDULABLE)
)
FAIL_UNPLACED = TaskRule(
    name="fail_unplaced", sources=frozenset({T.PENDING}), outcomes=SUCCEEDS, success=To(T.FAILED)
)
"""The task's counterpart in another job has ended otherwise than it waits for: it fails without an
attempt.
"""
SUCCEED_LATE = TaskRule(
    name="succeed_late", sources=frozenset({T.PENDING}), outcomes=SUCCEEDS, success=to(T.SUCCEEDED)
)
"""The last attempt of a pending task was ordered to stop and had exited 0 before: its work is
done.
"""
FAIL_LATE = TaskRule(
    name="fail_late",
    sources=frozenset({T.PENDING}),
    outcomes=FAILS,
    budget=Budget.FAILURE,
    need_retry=to(T.PENDING, attempt=T.FAILED),
    give_up=to(T.FAILED),
)
"""As `SUCCEED_LATE`, but it had failed: that is charged in place of what the attempt was charged
for.
"""

REQUEUE_LATE = TaskRule(
    name="requeue_late",
    sources=frozenset({T.PENDING}),
    outcomes=FAILS,
    budget=Budget.REQUEUE,
    need_retry=to(T.PENDING, attempt=T.FAILED),
    give_up=to(T.FAILED),
)
FAIL_FOR_GOOD_LATE = TaskRule(
    name="fail_for_good_late",
    sources=frozenset({T.PENDING}),
    outcomes=FAILS,
    budget=Budget.FAILURE,
    need_retry=to(T.FAILED),
    give_up=to(T.FAILED),
)

LATE = {
    SUCCEED.name: SUCCEED_LATE,
    FAIL.name: FAIL_LATE,
    REQUEUE.name: REQUEUE_LATE,
    FAIL_FOR_GOOD.name: FAIL_FOR_GOOD_LATE,
}
"""The row for the exit of an attempt that its pending task has left, by the row for one that it has
not.
"""

ON_EXIT: dict[ExitAction | None, TaskRule] = {
    None: FAIL,
    "retry": FAIL,
    "requeue": REQUEUE,
    "fail": FAIL_FOR_GOOD,
}
"""The row for an exit code other than 0, by what the job's rules say of it."""

ON_TIMEOUT: dict[OnTimeout, TaskRule] = {"kill": KILL, "requeue": REQUEUE_ON_TIMEOUT}
"""The row for a task that has run for as long as it may."""

STAGES = {
    K.PREPARING: BUILD,
    K.PULLING: BUILD,
    K.PREPARED: BUILD,
    K.CREATING: BUILD,
    K.RUNNING: RUN,
}
"""The row that applies to a task when its attempt reports a stage
(docs/design/semantics.md#enumerations).
"""

TABLE: tuple[TaskRule, ...] = (
    ASSIGN,
    BUILD,
    RUN,
    SUCCEED,
    FAIL,
    REQUEUE,
    REQUEUE_ON_COMMAND,
    STOP_FOR_HOLD,
    REQUEUE_ON_TIMEOUT,
    FAIL_FOR_GOOD,
    LOSE,
    LOSE_BESIDE,
    PREEMPT,
    RECLAIM,
    UNDELIVER,
    HAND_BACK,
    OVERDUE,
    FINISH,
    STOP_FOR_LEADER,
    COMPLETE,
    END_WITH_SIBLING,
    RESTART_WITH_SIBLING,
    KILL,
    RETIRE,
    EXPIRE,
    FAIL_UNPLACED,
    SUCCEED_LATE,
    FAIL_LATE,
    REQUEUE_LATE,
    FAIL_FOR_GOOD_LATE,
)

WAYS_OUT: dict[TaskState, TaskRule] = {
    T.PENDING: EXPIRE,
    T.ASSIGNED: LOSE,
    T.BUILDING: OVERDUE,
    T.RUNNING: LOSE,
}
"""The scheduling timeout, the loss of a worker, the timeout of what is built."""

guard(
    "task",
    (state for state in TaskState if state is not T.UNSPECIFIED),
    TERMINAL,
    TABLE,
    ways_out=WAYS_OUT,
)

BUDGET_OF_STATE = {
    T.FAILED: Budget.FAILURE,
    T.WORKER_FAILED: Budget.PREEMPTION,
    T.PREEMPTED: Budget.PREEMPTION,
}
"""The counter that decides whether a task is finished when its attempt ended in this state."""

ALWAYS_FINISHED = frozenset({T.SUCCEEDED, T.KILLED, T.UNSCHEDULABLE})


def becomes(rule: TaskRule) -> tuple[TaskState, TaskState]:
    """The state of the task and of its attempt after a row whose success names both."""
    to = rule.success
    if to is None or to.status is None or to.part is None:
        raise TableBroken(f"{rule.name} does not name the state of its task and of its attempt")
    return to.status, to.part


def is_finished(state: TaskState, spent: int, limit: int, *, no_retry: bool = False) -> bool:
    """Whether a task whose last attempt ended as ``state`` gets no further attempt.

    Args:
        spent: the counter of the state's budget, ``limit`` its limit; both unused for states
            without one.
        no_retry: the task's mark that it gets no retry; counts as a spent budget.

    Source: docs/design/semantics.md#tasks-and-attempts.
    """
    return state in ALWAYS_FINISHED or (state in BUDGET_OF_STATE and (no_retry or spent > limit))
