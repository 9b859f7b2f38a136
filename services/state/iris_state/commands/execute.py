"""Executes commands: submissions, cancellations, and those of an operator. A rejection is a
`Refused` with its reason.

Sources: docs/design/semantics.md#coscheduling, docs/design/semantics.md#tasks-and-attempts,
docs/design/semantics.md#order, docs/design/semantics.md#jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from iris_core.access.actor import actor_of, named
from iris_core.access.rights import Verb, is_task, may
from iris_core.admission import actions
from iris_core.admission.amendments import AMENDABLE
from iris_core.admission.jobs import validate_spec
from iris_core.errors import Code, Invalid, Refused
from iris_core.limits import SENTENCE
from iris_core.messages.gateway_state import (
    AdminCommand,
    Caller,
    CancelJob,
    RequeueTasks,
    RerunJob,
    SubmitJob,
)
from iris_core.names import JobName
from iris_core.quota import Quota
from iris_core.spec import projects
from iris_core.spec.index_set import IndexSet
from iris_core.spec.jobs import JobSpec
from iris_core.states import JOB_TERMINAL, TERMINAL, Cause, Initiator, TaskState, WorkerState
from iris_core.tables import task as table
from iris_state.decide import cascade, gates, lineage, quota
from iris_state.decide.projects import project_of
from iris_state.inputs.reports.progress import lose
from iris_state.records.changes import (
    GraceEnded,
    JobAdmitted,
    QuotaSet,
    Requeued,
    WorkerForgotten,
    WorkerMoved,
)
from iris_state.records.claims import Claim, Step
from iris_state.records.entities import Job, idempotency
from iris_state.records.hosts import Worker
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_job, known_target, named_indexes, reference_of

ANONYMOUS = "anonymous"
"""The user of requests without authentication."""


def earlier(ledger: Ledger, command: SubmitJob) -> Job | None:
    """The job that this command's idempotency key has created before. Raises Refused when it is
    deleted, or is another job.
    """
    if not command.idempotency_key:
        return None
    user = owner(ledger, command)
    check_may_act_for(command.caller, user, "submit a job")
    number = ledger.idempotency.get(idempotency(user, command.idempotency_key))
    if number is None:
        return None
    if number not in ledger.jobs:
        raise Refused(
            Code.CONFLICT,
            f"this idempotency key has made job j{number}, which has ended and is forgotten",
        )
    job = ledger.jobs[number]
    spec = _with(command.spec, user=user, project=_asked_again(command.spec, job.spec))
    if job.version > 1:
        spec = _with(
            spec, **{field: getattr(job.spec, field) for field in (*AMENDABLE, "hold", "after")}
        )
    if is_grown(spec, job.spec):
        spec = _with(spec, replicas=job.spec.replicas, calls=job.spec.calls)
    if spec != job.spec:
        fields = [
            name
            for name in spec.__struct_fields__
            if getattr(spec, name) != getattr(job.spec, name)
        ]
        how = " and ".join(fields)
        raise Refused(
            Code.MISMATCH, f"this idempotency key has made {job.name}, which differs in {how}"
        )
    return job


def _asked_again(asked: JobSpec, got: JobSpec) -> str:
    """The project that a repeated submission gets: without one, what it got; the user's default may
    be another one by now.
    """
    path = projects.normal(asked.project) if asked.project else got.project
    return "" if path == projects.ROOT else path


def is_grown(spec: JobSpec, now: JobSpec) -> bool:
    """Whether the calls of a job are those it was submitted with, and further ones."""
    before = spec.calls
    calls = now.calls
    if before is None or calls is None or before.idle_s is None:
        return False
    had = len(before.segments)
    more = (calls.segments[had:], calls.firsts[had:], calls.count - before.count)
    return before.with_more(*more) == calls


def owner(ledger: Ledger, command: SubmitJob) -> str:
    """The owner of a new job: as given, else the caller; a child without an owner has its
    parent's.
    """
    user = command.spec.user or command.caller.user or ANONYMOUS
    parent = ledger.find_job(command.spec.name.rpartition("/")[0]) if user == ANONYMOUS else None
    return parent.user if parent is not None else user


def on_submit(ledger: Ledger, command: SubmitJob, now_ms: int) -> Iterator[Step]:
    """Admit a job, or raise Refused (Invalid lists every mistake)."""
    spec = command.spec
    mistakes = validate_spec(spec)
    if mistakes:
        raise Invalid(mistakes)
    name = JobName.job(spec.name)
    user = owner(ledger, command)
    check_may_act_for(command.caller, user, "submit a job")
    parent = _parent(ledger, name, command, user)
    _check_namespace(ledger, name, parent, user)
    descent = lineage.of_submission(ledger, command)
    project = project_of(ledger, spec.project, user, command.caller, parent)
    spec = _with(spec, user=user, project=project)
    is_as_its_parent = parent is not None and parent.band <= spec.priority_band
    caller = None if is_as_its_parent else command.caller
    quota.check(ledger, spec, user, _replaced(ledger, name, command, user), caller=caller)
    made = gates.gates_of(ledger, spec, user, actor_of(command.caller), now_ms=now_ms)
    yield from _make_room(ledger, name, command, user)
    yield JobAdmitted(
        number=ledger.next_number,
        name=str(name),
        spec=spec,
        user=user,
        submitted_ms=now_ms,
        root_submitted_ms=parent.root_submitted_ms if parent is not None else now_ms,
        parent=parent.number if parent is not None else 0,
        idempotency_key=command.idempotency_key,
        request_id=command.request_id,
        traceparent=command.traceparent,
        rerun_of=command.rerun_of,
        gates=made,
        lineage=descent,
    )


def _parent(ledger: Ledger, name: JobName, command: SubmitJob, user: str) -> Job | None:
    """The parent of a new job: None for a root, and for a child whose name's parent is unknown.

    One that is only in the name is looked for among the jobs of its owner, for an admin then among
    all.
    """
    above = str(name.parent or "")
    if command.parent.partition("@")[0] not in ("", above):
        raise Refused(Code.INVALID, f"{name} is not a child of {command.parent}")
    parent = ledger.job_of(user, above) if "@" not in command.parent else None
    if parent is None and (command.parent or _looks_among_all(command.caller)):
        parent = ledger.find_job(reference_of(ledger, command.parent or above, user))
    if parent is None:
        if command.parent:
            raise Refused(Code.NOT_FOUND, f"there is no job {command.parent}")
        return None
    if parent.is_terminal:
        raise Refused(
            Code.GONE,
            f"{parent.name} has ended ({parent.state.name.lower()}) and no longer accepts children",
        )
    if parent.user != user and not may(command.caller, Verb.SUBMIT_BELOW):
        raise Refused(
            Code.FORBIDDEN,
            f"{parent.name} belongs to {parent.user}; only its owner submits under it",
        )
    return parent


def _looks_among_all(caller: Caller) -> bool:
    """Whether a parent that is only in the name may be a job of anybody."""
    return is_task(caller) or may(caller, Verb.SUBMIT_BELOW)


def _check_namespace(ledger: Ledger, name: JobName, parent: Job | None, user: str) -> None:
    """Refuse names below the namespace of a deployment of the same owner, which is reserved for
    its routes and their children.
    """
    deployment = ledger.deployment_named(name.namespace)
    if deployment is None or deployment.is_terminal or deployment.user != user:
        return
    if parent is None:
        words = f"{name.namespace} is a deployment, and the names below /{name.namespace} are its routes'"
        raise Refused(Code.CONFLICT, f"{words}; choose another name for {name}")


def _replaced(ledger: Ledger, name: JobName, command: SubmitJob, user: str) -> Job | None:
    """The live job of the same name and owner that a new one replaces."""
    job = ledger.job_of(user, str(name)) if command.if_exists == "replace" else None
    return job if job is not None and not job.is_terminal else None


def _make_room(ledger: Ledger, name: JobName, command: SubmitJob, user: str) -> Iterator[Step]:
    """Refuse a second live job of one name and owner, or cancel the first when the caller wants to
    replace it.
    """
    job = ledger.job_of(user, str(name))
    if job is None or job.is_terminal:
        return
    if command.if_exists != "replace":
        raise Refused(Code.CONFLICT, f"{job.name} exists and is {job.state.name.lower()}")
    check_owner(ledger, command.caller, job, "replace", Verb.REPEAT)
    yield from cascade.subtree(
        ledger, job, Cause.REPLACED, Initiator.USER, note="replaced by a new run"
    )


def check_may_act_for(caller: Caller, user: str, what: str) -> None:
    if caller.user and not may(caller, Verb.SUBMIT_FOR, user):
        raise Refused(Code.FORBIDDEN, f"{caller.user} may not {what} for {user}")


def check_owner(
    ledger: Ledger, caller: Caller, job: Job, what: str, verb: Verb = Verb.CHANGE
) -> None:
    """Raises Refused unless a caller may do this with a job of its owner, or of its project."""
    membership = ledger.membership(caller.user, job.spec.project_path)
    if may(caller, verb, job.user, membership):
        return
    of_project = f", an admin of {job.spec.project}" if job.spec.project else ""
    who = (
        "its owner or an admin"
        if verb is Verb.REPEAT or not of_project
        else (f"its owner{of_project} or an admin of the cluster")
    )
    raise Refused(Code.FORBIDDEN, f"{job.name} belongs to {job.user}; only {who} may {what} it")


def check_length(what: str, text: str) -> None:
    """Limit a reason's length, because every task it applies to records it."""
    if len(text) > SENTENCE:
        raise Refused(
            Code.INVALID, f"the {what} is {len(text)} characters long; the limit is {SENTENCE}"
        )


def on_cancel(ledger: Ledger, command: CancelJob) -> Iterator[Step]:
    """Kill a whole subtree, or one task whose job goes on without it; ended jobs are unchanged.
    Raises Refused.
    """
    job, index = known_target(ledger, command.job)
    check_owner(ledger, command.caller, job, "cancel")
    check_length("reason", command.reason)
    if index is None:
        jobs = [job, *cascade.below(ledger, job)] if command.now else []
        yield from (step for one in jobs for step in ends_of_grace(one, one.indexes))
        yield from cascade.subtree(
            ledger, job, Cause.CANCELLED, Initiator.USER, note=command.reason
        )
        return
    name = f"{job.name}/{index}"
    state = job.task(index).state
    if job.spec.ends_together:
        words = f"a killed task would end all of {job.name}: cancel {job.name}, or requeue {name}"
        raise Refused(Code.CONFLICT, words)
    if state in TERMINAL and state is not TaskState.KILLED:
        raise Refused(Code.CONFLICT, f"{name} has ended ({state.name.lower()})")
    if command.now:
        yield from ends_of_grace(job, (index,))
    yield Claim(
        table.KILL,
        job.number,
        index,
        cause=Cause.CANCELLED,
        initiator=Initiator.USER,
        note=command.reason,
    )


def ends_of_grace(job: Job, indexes: Iterable[int]) -> list[Step]:
    """What is open of these tasks is killed at once, when it is stopped or as soon as it is."""
    return [
        GraceEnded(job.number, index, attempt.number)
        for index in indexes
        for attempt in job.task(index).attempts
        if attempt.is_open and not attempt.at_once
    ]


def on_requeue(
    ledger: Ledger, job: Job, index: int | None, command: RequeueTasks
) -> Iterator[Step]:
    """Stop the attempts of a job, or of one task, and return what they ran to the queue; a gang
    whole. Raises Refused.

    One that is being stopped for another reason is charged for that; only its exit does not count
    any more.
    """
    check_owner(ledger, command.caller, job, "requeue")
    check_length("reason", command.reason)
    whole = index is None or job.is_gang
    tasks = list(job.numbered()) if index is None or whole else [(index, job.task(index))]
    running = [i for i, task in tasks if task.current is not None]
    stopping = [(i, task.attempts[-1]) for i, task in tasks if task.is_leaving]
    if not running and not stopping:
        if index is None and job.state not in JOB_TERMINAL:
            raise Refused(Code.CONFLICT, f"no task of {command.target} runs")
        state = job.state if index is None else job.task(index).state
        raise Refused(
            Code.CONFLICT, f"{command.target} is {state.name.lower()}: nothing of it runs"
        )
    current = [(i, attempt) for i in running if (attempt := job.task(i).current) is not None]
    stopping += [(i, attempt) for i, attempt in current if attempt.ending is not None]
    for i, attempt in stopping:
        if not attempt.exit_ignored:
            yield Requeued(job.number, i, attempt.number)
    running = [i for i, attempt in current if attempt.ending is None]
    if job.is_gang:
        running = [index if index in running else running[0]] if running else []
    words = f"requeued by {named(actor_of(command.caller))}" + (
        f": {command.reason}" if command.reason else ""
    )
    for i in running:
        yield Claim(
            table.REQUEUE_ON_COMMAND,
            job.number,
            i,
            cause=Cause.REQUEUED,
            initiator=Initiator.USER,
            note=words,
        )


def rerun_of(ledger: Ledger, command: RerunJob) -> SubmitJob:
    """The submission that repeats a finished job, or some of its tasks, under their indexes. Raises
    Refused.

    A gang is repeated whole. It waits for what the command says, and no longer for what the job had
    waited for; only a singleton key stays.
    """
    job = known_job(ledger, command.job)
    check_owner(ledger, command.caller, job, "rerun", Verb.REPEAT)
    spec = job.spec
    if command.tasks or (command.failed_only and not job.is_gang):
        wanted = named_indexes(job, command.tasks) if command.tasks else job.indexes
        if command.failed_only:
            wanted = IndexSet.of(
                index for index in wanted if job.task(index).state is not TaskState.SUCCEEDED
            )
        if not wanted:
            which = f" that {command.tasks} names" if command.tasks else ""
            raise Refused(Code.CONFLICT, f"every task of {job.name}{which} has succeeded")
        spec = _with(spec, indexes=str(wanted) if len(wanted) < spec.replicas else "")
    if spec.calls is not None:
        spec = _with(spec, calls=msgspec.structs.replace(spec.calls, idle_s=None))
    return SubmitJob(
        spec=_with(
            spec,
            user=job.user,
            name=job.name,
            project=spec.project_path,
            env={**spec.env, **command.env},
            resources=msgspec.structs.replace(spec.resources, **command.resources),
            after=command.after,
            not_before="",
            hold=False,
        ),
        caller=command.caller,
        request_id=command.request_id,
        submitted_ms=command.requested_ms,
        rerun_of=job.number,
    )


def _with(spec: JobSpec, **fields: Any) -> JobSpec:
    return msgspec.structs.replace(spec, **fields)


def on_admin(ledger: Ledger, command: AdminCommand) -> Iterator[Step]:
    """Execute an operator's command. Raises Refused."""
    if not may(command.caller, Verb.ADMINISTER):
        raise Refused(Code.FORBIDDEN, f"only an admin may {command.action.replace('_', ' ')}")
    check_length("target", command.target)
    asked = command.asked
    if isinstance(asked, actions.SetQuota):
        yield QuotaSet(Quota(command.target, **msgspec.structs.asdict(asked)))
        return
    worker = ledger.workers.get(command.target)
    if worker is None:
        raise Refused(Code.NOT_FOUND, f"there is no worker {command.target}")
    yield from _WORKER_ACTIONS[type(asked)](ledger, worker, asked, named(actor_of(command.caller)))


def _with_reason(what: str, asked: actions.WorkerAction) -> str:
    """``drained by root: a new disk``."""
    return what + (f": {asked.reason}" if asked.reason else "")


def _drain(ledger: Ledger, worker: Worker, asked: actions.DrainWorker, by: str) -> Iterator[Step]:
    state = WorkerState.LOST if worker.state is WorkerState.LOST else WorkerState.DRAINING
    yield WorkerMoved(worker.id, state, _with_reason(f"drained by {by}", asked), drained=True)


def _undrain(
    ledger: Ledger, worker: Worker, asked: actions.UndrainWorker, by: str
) -> Iterator[Step]:
    if worker.drained:
        state = WorkerState.LOST if worker.state is WorkerState.LOST else WorkerState.HEALTHY
        yield WorkerMoved(worker.id, state, asked.reason, drained=False)


def _mark_lost(
    ledger: Ledger, worker: Worker, asked: actions.MarkWorkerLost, by: str
) -> Iterator[Step]:
    if worker.state is not WorkerState.LOST:
        yield from lose(ledger, worker.id, _with_reason(f"marked lost by {by}", asked))


def _forget(ledger: Ledger, worker: Worker, asked: actions.ForgetWorker, by: str) -> Iterator[Step]:
    if worker.state is not WorkerState.LOST:
        words = f"{worker.id} is {worker.state.value}; only a lost worker is forgotten: mark it lost first"
        raise Refused(Code.CONFLICT, words)
    yield WorkerForgotten(worker.id)


_WORKER_ACTIONS: dict[
    type[actions.Action], Callable[[Ledger, Worker, Any, str], Iterator[Step]]
] = {
    actions.DrainWorker: _drain,
    actions.UndrainWorker: _undrain,
    actions.MarkWorkerLost: _mark_lost,
    actions.ForgetWorker: _forget,
}
