"""Makes the gates of a new job, and judges those that may have changed.

What has changed is noted when a change is applied (`indexes.gates`); the timers of the same round
call `judge`, for a bounded number of gates. Source:
    docs/adr/0079-gates-keep-tasks-out-of-the-queue.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from iris_core.access.actor import Actor, named
from iris_core.errors import Invalid, Mistake, pointer_to
from iris_core.moments import parse_moment
from iris_core.placement import reasons
from iris_core.placement.queue import as_ranges
from iris_core.placement.reasons import Reason
from iris_core.spec.jobs import Dependency, JobSpec
from iris_core.states import Cause, Initiator, JobState, TaskState, display_name
from iris_core.tables import task as table
from iris_core.units import counted
from iris_state.decide import cascade
from iris_state.records.changes import GatesOpened
from iris_state.records.claims import Claim, Step
from iris_state.records.entities import Job, Task
from iris_state.records.gates import (
    BACKOFF,
    WHOLE,
    Gate,
    GateKind,
    Verdict,
    judge_dependency,
    next_number,
)
from iris_state.records.ledger import Ledger, whole_number

_CHAIN = 32
"""Dependencies that are followed back to what ended the first."""
_Part: TypeAlias = tuple[Job, int | None]
"""A job, or its task in a place."""


def gates_of(ledger: Ledger, spec: JobSpec, user: str, by: Actor, now_ms: int) -> tuple[Gate, ...]:
    """The gates of a user's job that is admitted now, all closed. Raises Invalid for jobs that
    cannot be waited for.
    """
    made: list[Gate] = []
    mistakes: list[Mistake] = []
    for place, wanted in enumerate(spec.after):
        job = found(ledger, wanted, user)
        if job is None:
            mistakes.append(_unknown(ledger, wanted, user, pointer_to("after", place, "job")))
        elif wanted.each and job.open:
            words = f"{job.name} is open: how many tasks it will have is not known"
            mistakes.append(
                Mistake(pointer=pointer_to("after", place, "each"), code="open_job", message=words)
            )
        elif wanted.each and len(job.tasks) != spec.task_count:
            words = (
                f"{job.name} has {counted(len(job.tasks), 'task')} and this job {spec.task_count}"
            )
            hint = "as many tasks, or leave each out"
            mistakes.append(
                Mistake(
                    pointer=pointer_to("after", place, "each"),
                    code="other_size",
                    message=words,
                    hint=hint,
                )
            )
        else:
            made.append(
                Gate(len(made), GateKind.DEPENDENCY, job.number, wanted.when, each=wanted.each)
            )
    if mistakes:
        raise Invalid(mistakes)
    until_ms = parse_moment(spec.not_before, now_ms) if spec.not_before else 0
    if until_ms > now_ms:
        made.append(Gate(len(made), GateKind.NOT_BEFORE, until_ms=until_ms))
    if spec.singleton:
        made.append(Gate(len(made), GateKind.SINGLETON, key=spec.singleton))
    if spec.hold:
        made.append(Gate(len(made), GateKind.HELD, by=by, at_ms=now_ms))
    return under_holds(ledger, user, spec, made)


def under_holds(
    ledger: Ledger, user: str, spec: JobSpec, gates: Sequence[Gate]
) -> tuple[Gate, ...]:
    """The gates of a job with those of the holds on the queue that match it, and of no others."""
    holds = {hold.number: hold for hold in ledger.queue_holds.values() if hold.matches(user, spec)}
    kept = [gate for gate in gates if not gate.hold or gate.hold in holds]
    for number in holds.keys() - {gate.hold for gate in kept}:
        kept.append(holds[number].gate(next_number((*gates, *kept))))
    return tuple(kept)


def amended(
    job: Job, hold: bool | None, reason: str, drop_after: bool, by: Actor, now_ms: int
) -> tuple[Gate, ...]:
    """The gates of a job that is held or released, or waits for no other job any more."""
    gates = [gate for gate in job.gates if not (drop_after and gate.kind is GateKind.DEPENDENCY)]
    if hold is None:
        return tuple(gates)
    own = [gate for gate in gates if gate.kind is GateKind.HELD and not gate.hold]
    held = next((gate for gate in own if gate.is_closed), None)
    if hold and held is None:
        gates = [gate for gate in gates if gate not in own]
        gates.append(
            Gate(next_number(job.gates), GateKind.HELD, by=by, at_ms=now_ms, reason=reason)
        )
    elif not hold and held is not None:
        gates.remove(held)
    return tuple(gates)


def found(ledger: Ledger, wanted: Dependency, user: str) -> Job | None:
    """The job that a dependency of a user's job names: by id, or the newest run of a name, of the
    user or of the only one who has that name.
    """
    for text in (wanted.job, f"/{wanted.job}"):
        if text in ledger.shared_names:
            return ledger.job_of(user, text)
        if (job := ledger.find_job(text)) is not None:
            return job
    return None


def _unknown(ledger: Ledger, wanted: Dependency, user: str, pointer: str) -> Mistake:
    """That there is no such job, or that it is not said whose; of a task, that it is one."""
    for text in (wanted.job, f"/{wanted.job}"):
        if (owners := ledger.shared_names.get(text)) is not None:
            words = f"{text} is a job of {', '.join(sorted(owners))}, and none of {user}'s"
            hint = " or ".join(f"{text}@{owner}" for owner in sorted(owners))
            return Mistake(pointer=pointer, code="ambiguous_job", message=words, hint=hint)
    above, _, last = wanted.job.rpartition("/")
    if (
        whole_number(last) is None
        or found(ledger, msgspec.structs.replace(wanted, job=above), user) is None
    ):
        return Mistake(
            pointer=pointer, code="unknown_job", message=f"there is no job {wanted.job[:200]}"
        )
    words = f"{wanted.job[:200]} is a task"
    hint = "name its job; with each, a task waits for its counterpart there"
    return Mistake(pointer=pointer, code="unknown_job", message=words, hint=hint)


def judge(ledger: Ledger, number: int, index: int, now_ms: int) -> Iterator[Step]:
    """Open the gates of a job, or of one of its tasks, that may open now; end what can never
    open.
    """
    job = ledger.jobs.get(number)
    if job is None or job.is_terminal:
        return
    if index != WHOLE and not job.task(index).gates:
        if job.task(index).not_before_ms and job.task(index).not_before_ms <= now_ms:
            yield GatesOpened(number, BACKOFF, ((index, index + 1),))
        return
    for gate in job.closed_gates:
        if gate.each:
            yield from _each(ledger, job, gate, job.indexes if index == WHOLE else (index,))
            continue
        verdict = _verdict(ledger, job, gate, now_ms) if index == WHOLE else Verdict.STAYS
        if verdict is Verdict.NEVER:
            yield from cascade.kill(
                job, Cause.DEPENDENCY_FAILED, Initiator.SYSTEM, _impossible(ledger, gate)
            )
            return
        if verdict is Verdict.OPENS:
            yield GatesOpened(number, gate.number)


def _verdict(ledger: Ledger, job: Job, gate: Gate, now_ms: int) -> Verdict:
    """The verdict on a gate of a whole job."""
    if gate.kind is GateKind.DEPENDENCY:
        other = ledger.jobs.get(gate.job)
        if other is None:
            return Verdict.NEVER
        return judge_job(other, gate)
    if gate.kind is GateKind.NOT_BEFORE:
        opens = gate.until_ms <= now_ms
    elif gate.kind is GateKind.SINGLETON:
        opens = ledger.gates.singletons[job.user, gate.key][0] == job.number
    else:
        opens = (
            gate.hold > 0 and gate.hold not in ledger.queue_holds
        )  # another hold ends by a command
    return Verdict.OPENS if opens else Verdict.STAYS


def judge_job(other: Job, gate: Gate) -> Verdict:
    """The verdict on a dependency from the job it is on."""
    succeeded = other.state is JobState.SUCCEEDED
    return judge_dependency(
        gate.when,
        has_started=has_started(other),
        has_ended=other.is_terminal,
        has_succeeded=succeeded,
    )


def _each(ledger: Ledger, job: Job, gate: Gate, indexes: Iterable[int]) -> Iterator[Step]:
    """Open a gate for the tasks whose counterparts have done what it waits for; fail those whose
    never will.
    """
    other = ledger.jobs.get(gate.job)
    opened: list[int] = []
    for index in indexes:
        task = job.task(index)
        if not task.gates & gate.bit or task.state is not TaskState.PENDING:
            continue
        place = job.indexes.position(index)
        verdict = _verdict_on(other.tasks[place], gate) if other is not None else Verdict.NEVER
        if verdict is Verdict.OPENS:
            opened.append(index)
        elif verdict is Verdict.NEVER:
            note = _impossible(ledger, gate, place)
            yield Claim(
                table.FAIL_UNPLACED, job.number, index, cause=Cause.DEPENDENCY_FAILED, note=note
            )
    if opened:
        yield GatesOpened(job.number, gate.number, as_ranges(opened))


def _verdict_on(task: Task, gate: Gate) -> Verdict:
    succeeded = task.state is TaskState.SUCCEEDED
    started = succeeded or any(attempt.started_ms for attempt in task.attempts)
    return judge_dependency(
        gate.when, has_started=started, has_ended=task.is_terminal, has_succeeded=succeeded
    )


def has_started(job: Job) -> bool:
    """Whether a task of a job has ever run."""
    return job.counts[TaskState.RUNNING] + job.counts[TaskState.SUCCEEDED] > 0 or any(
        attempt.started_ms for task in job.tasks for attempt in task.attempts
    )


_WANTED = {
    "ok": "its success",
    "any": "its end",
    "notok": "its end without success",
    "start": "its start",
}


def _impossible(ledger: Ledger, gate: Gate, place: int | None = None) -> str:
    """Why a dependency can never be satisfied, and what the chain of them began with."""
    other = ledger.jobs.get(gate.job)
    if other is None:
        return f"job j{gate.job}, for which it waited, is forgotten"
    part: _Part = (other, place)
    words = f"{_ended(part)}, and this job waited for {_WANTED[gate.when]}"
    first = _first(ledger, part)
    return words if first is None or first is part else f"{words}; root cause: {_ended(first)}"


def _ended(part: _Part) -> str:
    """``/a (j1) is failed``."""
    job, place = part
    if place is None:
        return f"{job.name} ({job.id}) is {display_name(job.state)}"
    index = job.indexes[place]
    return f"{job.name}/{index} ({job.id}/{index}) is {display_name(job.tasks[place].state)}"


def _first(ledger: Ledger, part: _Part) -> _Part | None:
    """The first of the chain of dependencies that ended a job or a task: it ended for another
    reason. None when that is more than `_CHAIN` steps away, or forgotten.
    """
    for _ in range(_CHAIN):
        job, place = part
        if (job if place is None else job.tasks[place]).cause is not Cause.DEPENDENCY_FAILED:
            return part
        before = next(_ended_by(ledger, job, place), None)
        if before is None:
            return None
        part = before
    return None


def _ended_by(ledger: Ledger, job: Job, place: int | None) -> Iterator[_Part]:
    """What a job, or its task in a place, can wait for no longer."""
    for gate in job.closed_gates:
        other = ledger.jobs.get(gate.job)
        if gate.kind is not GateKind.DEPENDENCY or other is None:
            continue
        if not gate.each and judge_job(other, gate) is Verdict.NEVER:
            yield other, None
        for at in (range(len(other.tasks)) if place is None else (place,)) if gate.each else ():
            if _verdict_on(other.tasks[at], gate) is Verdict.NEVER:
                yield other, at


def reason_for(ledger: Ledger, job: Job, task: Task) -> Reason | None:
    """Why gates keep a pending task out of the queue, a hold first, which only people open; None
    when none does.
    """
    closed = [gate for gate in job.closed_gates if not gate.each or task.gates & gate.bit]
    closed.sort(key=lambda gate: gate.kind is not GateKind.HELD)
    if not closed:
        return reasons.retry_backoff(task.not_before_ms) if task.not_before_ms else None
    first, *others = (_REASONS[gate.kind](ledger, job, gate) for gate in closed)
    return msgspec.structs.replace(
        first, message="; ".join([first.message, *(one.message for one in others)])
    )


def reason_for_new(ledger: Ledger, spec: JobSpec, user: str) -> Reason | None:
    """Why a job would not be queued at once if it were submitted now; None when it would. Raises
    Invalid.
    """
    for gate in gates_of(ledger, spec, user, Actor(user), now_ms=ledger.now_ms):
        other = ledger.jobs.get(gate.job)
        if gate.kind is GateKind.HELD:
            return _held(ledger, gate) if gate.hold else reasons.held("")
        if gate.kind is GateKind.NOT_BEFORE:
            return reasons.not_before(gate.until_ms)
        if other is not None and judge_job(other, gate) is not Verdict.OPENS:
            return reasons.waits_for_job(f"{other.name} ({other.id})", gate.when, each=gate.each)
        if before := ledger.gates.singletons.get((user, gate.key)):
            first = ledger.jobs[before[0]]
            return reasons.singleton(gate.key, f"{first.name} ({first.id})")
    return None


def _waits_for_job(ledger: Ledger, job: Job, gate: Gate) -> Reason:
    other = ledger.jobs.get(gate.job)
    name = f"{other.name} ({other.id})" if other is not None else f"j{gate.job}"
    return reasons.waits_for_job(name, gate.when, each=gate.each)


def _held(ledger: Ledger, gate: Gate) -> Reason:
    hold = ledger.queue_holds.get(gate.hold)
    return reasons.held(
        named(gate.by), gate.reason, f"the queue of {hold.words} ({hold.id})" if hold else ""
    )


def _singleton(ledger: Ledger, job: Job, gate: Gate) -> Reason:
    first = ledger.jobs[ledger.gates.singletons[job.user, gate.key][0]]
    return reasons.singleton(gate.key, f"{first.name} ({first.id})")


_REASONS: dict[GateKind, Callable[[Ledger, Job, Gate], Reason]] = {
    GateKind.HELD: lambda ledger, job, gate: _held(ledger, gate),
    GateKind.DEPENDENCY: _waits_for_job,
    GateKind.NOT_BEFORE: lambda ledger, job, gate: reasons.not_before(gate.until_ms),
    GateKind.SINGLETON: _singleton,
}
