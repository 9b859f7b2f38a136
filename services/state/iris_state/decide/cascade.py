"""The consequences of a change: siblings of a gang, the derived job, its remaining tasks, its
children.

Each function reads the ledger and returns claims or changes; the machine applies them and calls
again until nothing follows. Sources: docs/design/semantics.md#tasks-and-attempts,
docs/design/semantics.md#coscheduling, docs/design/semantics.md#jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from iris_core.access.actor import named
from iris_core.lifecycle import derive
from iris_core.messages.state_worker import Ended
from iris_core.placement.constraints import TPU_NAME
from iris_core.spec.jobs import Attribute
from iris_core.states import (
    FAILURES,
    JOB_TERMINAL,
    NON_TERMINAL,
    Cause,
    Initiator,
    JobState,
    SessionStatus,
    TaskState,
)
from iris_core.tables import job as job_table
from iris_core.tables import task as table
from iris_state.decide import poison
from iris_state.policy import Policy
from iris_state.records.changes import JobClosed, JobMoved, Moved, SessionMoved
from iris_state.records.claims import Claim, Step
from iris_state.records.entities import Attempt, AttemptKey, Job
from iris_state.records.ledger import Ledger


class Death(NamedTuple):
    """A host was lost without a notice. ``together``: how many hosts with each attribute were at
    the same time.
    """

    together: Mapping[tuple[str, Attribute], int]
    policy: Policy


_LOST = Ended(Cause.WORKER_LOST, error="its worker was lost")
_SIBLING = frozenset({Cause.COSCHEDULED_SIBLING, Cause.COSCHEDULED_RESTART})


def siblings(ledger: Ledger, moved: Moved) -> list[Claim]:
    """A gang's member left its attempt: the other members end or restart with it."""
    job = ledger.jobs[moved.job]
    if not job.is_gang or moved.cause in _SIBLING or moved.attempt < 0:
        return []
    if moved.state is TaskState.KILLED and moved.cause is Cause.TIMEOUT:
        return complete(job)
    if moved.state in FAILURES or moved.state is TaskState.UNSCHEDULABLE:
        rule = table.END_WITH_SIBLING
        cause = Cause.COSCHEDULED_SIBLING
    elif moved.state is TaskState.PENDING:
        rule = table.RESTART_WITH_SIBLING
        cause = Cause.COSCHEDULED_RESTART
    else:
        return []
    note = f"{_FOLLOWING[cause]} because {_culprit(job, moved)}"
    done = complete(job) if rule is table.END_WITH_SIBLING else []
    return done + [
        Claim(rule, job.number, index, cause=cause, note=note)
        for index, task in job.numbered()
        if index != moved.index
        and task.state in rule.sources
        and not (done and task.waits_for_gang)
    ]


def complete(job: Job) -> list[Claim]:
    """A gang's waiting members have succeeded."""
    return [
        Claim(table.COMPLETE, job.number, index, cause=task.attempts[-1].cause or Cause.EXITED)
        for index, task in job.numbered()
        if task.waits_for_gang
    ]


def members(ledger: Ledger, moved: SessionMoved) -> list[Claim]:
    """A gang's session has ended, and its members succeed together; or its leader has succeeded,
    and the others are stopped.
    """
    job = ledger.jobs[moved.job]
    if moved.status is SessionStatus.TERMINATED:
        return complete(job)
    if moved.status is not SessionStatus.TERMINATING or not job.leader_is_done:
        return []
    return [
        Claim(table.STOP_FOR_LEADER, job.number, index, cause=Cause.LEADER_DONE)
        for index, task in job.numbered()
        if task.current is not None
    ]


_FOLLOWING = {Cause.COSCHEDULED_SIBLING: "ended", Cause.COSCHEDULED_RESTART: "started again"}
_CAME_TO = {
    TaskState.FAILED: "failed",
    TaskState.WORKER_FAILED: "had a worker failure",
    TaskState.PREEMPTED: "was preempted",
    TaskState.KILLED: "was stopped",
}


def _culprit(job: Job, moved: Moved) -> str:
    """The member whose end the other members follow, and a description of its end."""
    attempt = job.task(moved.index).attempts[moved.attempt]
    detail = attempt.error or end_of_process(attempt)
    words = f"task {moved.index} {_CAME_TO[moved.shown]}"
    return f"{words}: {detail}" if detail else words


def job(job: Job) -> JobMoved | None:
    """The job's state derived from its tasks' counts; None when it has not changed."""
    if job.is_terminal:
        return None
    tolerated = (
        0 if job.is_gang else job.spec.max_task_failures
    )  # a gang that lost a member has failed
    facts = {
        "max_task_failures": tolerated,
        "started": int(job.state is JobState.RUNNING),
        "ends_together": int(job.spec.ends_together),
    }
    counts = job.counted()
    if job.open:  # a call that may come counts as one that waits
        counts[TaskState.PENDING] = counts.get(TaskState.PENDING, 0) + 1
    row = derive(job_table.TABLE, counts, facts)
    assert row is not None, "the last row holds of every job"
    if row.target is job.state:
        return None
    cause, error = _why(job) if row.target in JOB_TERMINAL else (None, "")
    if row.target is JobState.FAILED and not job.is_gang:
        error += _rest(job, tolerated)
    return JobMoved(job.number, row.target, cause, error)


def _rest(job: Job, tolerated: int) -> str:
    """What the failures of a job's tasks mean for those that have not ended; empty when all
    have.
    """
    left = sum(job.counts[state] for state in NON_TERMINAL)
    tasks = (
        "1 task that had not ended was" if left == 1 else f"{left} tasks that had not ended were"
    )
    return (
        f"; {tasks} killed, because at most {tolerated} may fail (max_task_failures)"
        if left
        else ""
    )


_INFORMATIVE = (
    TaskState.FAILED,
    TaskState.UNSCHEDULABLE,
    TaskState.KILLED,
    TaskState.WORKER_FAILED,
    TaskState.PREEMPTED,
)


def _why(job: Job) -> tuple[Cause | None, str]:
    """The cause and a sentence, from the first task that did not succeed; for a gang from the
    member the others follow.
    """
    worst = next((state for state in _INFORMATIVE if job.counts[state]), None)
    if worst is None:
        return None, ""
    index = min((task.cause in _SIBLING, i) for i, task in job.numbered() if task.state is worst)[1]
    task = job.task(index)
    word = worst.name.lower() + (f" by {named(task.by)}" if task.by is not None else "")
    detail = task.note or end_of_process(task.attempts[-1] if task.attempts else None)
    detail = detail or (task.cause.value.replace("_", " ") if task.cause is not None else "")
    return task.cause, f"task {index} {word}: {detail}" if detail else f"task {index} {word}"


def end_of_process(last: Attempt | None) -> str:
    """A description of the end of a process."""
    if last is None:
        return ""
    if last.exit_code is not None:
        return f"exit code {last.exit_code}"
    return f"signal {last.signal}" if last.signal else last.error


def remaining(ledger: Ledger, moved: JobMoved) -> list[Step]:
    """A job has ended: kill its remaining tasks, and its children unless it succeeded."""
    ended = ledger.jobs[moved.job]
    if moved.state is JobState.SUCCEEDED:
        return []
    return subtree(ledger, ended, Cause.JOB_ENDED, Initiator.SYSTEM)


def kill(job: Job, cause: Cause, initiator: Initiator, note: str = "") -> list[Step]:
    """Kill every task of one job that has not ended; it takes no further calls."""
    closed: list[Step] = [JobClosed(job.number)] if job.open else []
    return closed + [
        Claim(table.KILL, job.number, index, cause=cause, initiator=initiator, note=note)
        for index, task in job.numbered()
        if task.state in NON_TERMINAL
    ]


def subtree(
    ledger: Ledger, root: Job, cause: Cause, initiator: Initiator, note: str = ""
) -> list[Step]:
    """Kill a job and all its descendants in one step; the children have the cause parent_ended."""
    claims = kill(root, cause, initiator, note)
    for child in below(ledger, root):
        claims += kill(child, Cause.PARENT_ENDED, initiator, note)
    return claims


def retire(ledger: Ledger, root: Job, note: str) -> list[Step]:
    """End a job that served and is not wanted any more: what runs has succeeded, what does not is
    killed, and so are its children.
    """
    runs = [
        Claim(table.RETIRE, root.number, index, cause=Cause.RETIRED, note=note)
        for index, task in root.numbered()
        if task.state in table.RETIRE.sources
    ]
    return runs + subtree(ledger, root, Cause.CANCELLED, Initiator.SYSTEM, note=note)


def below(ledger: Ledger, root: Job) -> Iterator[Job]:
    """Every descendant of a job, also below children that have ended."""
    numbers = list(root.children)
    while numbers:
        child = ledger.jobs.get(numbers.pop())
        if child is not None:
            yield child
            numbers += child.children


def lost_with(ledger: Ledger, worker: str, death: Death | None = None) -> list[Claim]:
    """A host is lost: every attempt that is open on it has ended. ``death``: None when the host
    gave notice.
    """
    presence = ledger.presence.get(worker)
    if presence is None:
        return []
    sudden = frozenset(
        key for key in presence.open if death is not None and _was_alone(ledger, death, key, worker)
    )
    beside = poison.bystanders(ledger, death.policy, sudden) if death is not None else frozenset()
    return [
        Claim(
            table.LOSE_BESIDE if key in beside else table.LOSE,
            *key,
            Cause.WORKER_LOST,
            Initiator.SYSTEM,
            ended=_LOST,
            note=f"worker {worker} was lost" + (poison.NOT_CHARGED if key in beside else ""),
            sudden=key in sudden,
        )
        for key in presence.open
    ]


def _was_alone(ledger: Ledger, death: Death, key: AttemptKey, worker: str) -> bool:
    """Whether no other host of the slice, or of the gang's group, was lost with the host of an
    attempt.
    """
    return death.together.get(_group(ledger, key[0], worker), 1) < 2


def _group(ledger: Ledger, number: int, worker: str) -> tuple[str, Attribute]:
    """The slice of a host, or the group attribute of the gang on it."""
    gang = ledger.jobs[number].spec.coscheduling
    name = gang.key if gang is not None else TPU_NAME
    return name, ledger.workers[worker].attributes.get(name, "")
