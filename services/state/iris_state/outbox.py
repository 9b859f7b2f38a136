"""The public facts of one commit, worded and numbered: ``task.state.*`` and its like.

An event's id is the commit's journal sequence and its place in the commit, so a new leader that replays the commit
words the very same events. Source: interfaces.md section 4; reliability.md P6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iris_bus.contract import Telling
from iris_core import codec, subjects
from iris_core.states import Cause
from iris_core.views import JobEvent, SessionEvent, TaskEvent
from iris_state.records import Told


def events(told: Sequence[Told], sequence: int) -> list[Telling]:
    """Word the facts of the commit that has this journal sequence, in order."""
    out: list[Telling] = []
    for fact in told:
        if fact.entity == "task":
            out.extend(_task_events(fact, sequence, len(out)))
        else:
            out.append(_whole_event(fact, sequence, len(out)))
    return out


def unheard(facts: Sequence[Told], sequence: int, told: tuple[int, int]) -> list[Telling]:
    """The events of a commit of the past that stand behind the last one told."""
    if sequence < told[0] or not facts:
        return []
    worded = events(facts, sequence)
    return worded[told[1] + 1 :] if sequence == told[0] else worded


def _task_events(fact: Told, sequence: int, first: int) -> Iterator[Telling]:
    job, attempt = fact.job, fact.attempt
    name, cause = job.name, _word(fact.cause)
    subject = subjects.event("task", fact.state)
    assert fact.task is not None
    for place, index in enumerate(range(fact.task, fact.task + fact.tasks), first):
        task = f"{name}/{index}"
        body = TaskEvent(
            task=task,
            attempt=attempt.number if attempt is not None else None,
            job=name,
            state=fact.state,
            previous=fact.previous,
            cause=cause,
            exit_code=fact.exit_code,
            worker=attempt.worker if attempt is not None else None,
            at_ms=fact.at_ms,
            seq=sequence,
        )
        headers = {"Iris-Job": name, "Iris-Task": task}
        if attempt is not None:
            headers["Iris-Attempt"] = str(attempt.number)
        if job.traceparent:
            headers["traceparent"] = job.traceparent
        yield Telling(subject, codec.to_json(body), f"{sequence}.{place}", headers)


def _whole_event(fact: Told, sequence: int, place: int) -> Telling:
    job = fact.job
    body: JobEvent | SessionEvent
    if fact.entity == "job":
        body = JobEvent(
            job=job.name,
            state=fact.state,
            previous=fact.previous,
            cause=_word(fact.cause),
            at_ms=fact.at_ms,
            seq=sequence,
        )
    else:
        body = SessionEvent(
            session=job.id,
            job=job.name,
            state=fact.state,
            previous=fact.previous,
            cause=_word(fact.cause),
            at_ms=fact.at_ms,
            seq=sequence,
        )
    headers = {"Iris-Job": job.name}
    if job.traceparent:
        headers["traceparent"] = job.traceparent
    return Telling(subjects.event(fact.entity, fact.state), codec.to_json(body), f"{sequence}.{place}", headers)


def _word(cause: Cause | None) -> str | None:
    return cause.value if cause is not None else None


def told_before(message_id: str) -> tuple[int, int]:
    """Journal sequence and place of the last event told; (0, -1) when there is none. Raises ValueError."""
    if not message_id:
        return 0, -1
    sequence, _, place = message_id.partition(".")
    return int(sequence), int(place)
