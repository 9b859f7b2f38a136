"""The public events of one commit, such as ``task.state.*``, with their ids.

An event's id is the commit's journal sequence and its place in the commit, so a new leader that
replays the commit makes the same events. Source: docs/design/reliability.md#promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec

from iris_bus.contract import Publication
from iris_core import codec, subjects
from iris_core.access.actor import Actor, named
from iris_core.states import Cause
from iris_core.views.events import (
    AmendmentEvent,
    DeploymentEvent,
    HoldEvent,
    JobEvent,
    NoticeEvent,
    PoolEvent,
    ProjectEvent,
    RouteEvent,
    SessionEvent,
    SliceEvent,
    TaskEvent,
)
from iris_state.records.deployments.records import DeploymentFact
from iris_state.records.entities import Fact, Job
from iris_state.records.facts import (
    AmendmentFact,
    HoldFact,
    NoticeFact,
    PoolFact,
    ProjectFact,
    PublicFact,
    SliceFact,
)


def events(facts: Sequence[PublicFact], sequence: int) -> list[Publication]:
    """The events for the facts of the commit with this journal sequence, in order."""
    out: list[Publication] = []
    for fact in facts:
        if not isinstance(fact, Fact):
            out.append(_OTHERS[type(fact)](fact, sequence, len(out)))
        elif fact.task is None:
            out.append(_whole_event(fact, sequence, len(out)))
        else:
            out += _task_events(fact, fact.task, sequence, len(out))
    return out


def unheard(
    facts: Sequence[PublicFact], sequence: int, place: tuple[int, int]
) -> list[Publication]:
    """The events of an earlier commit after the last published one."""
    if sequence < place[0] or not facts:
        return []
    worded = events(facts, sequence)
    return worded[place[1] + 1 :] if sequence == place[0] else worded


def _task_events(fact: Fact, index: int, sequence: int, first: int) -> list[Publication]:
    job = fact.job
    attempt = fact.attempt
    tasks = fact.tasks
    name = job.name
    id_ = job.id
    subject = subjects.event("task", fact.state)
    why = fact.cause and fact.cause.value
    number, worker = (None, None) if attempt is None else (attempt.number, attempt.worker)
    shared = _headers_of(job)
    if number is not None:
        shared["Iris-Attempt"] = str(number)
    by = _name(fact.by) if fact.by is not None else msgspec.UNSET
    out = []
    indexes = (
        islice(job.indexes.since(index), tasks) if tasks > 1 else (index,)
    )  # of a new job, or added to one
    for place, number_of_task in enumerate(indexes):
        task = f"{name}/{number_of_task}"
        body = TaskEvent(
            task=task,
            attempt=number,
            job=name,
            state=fact.state,
            previous=fact.previous,
            cause=why,
            exit_code=fact.exit_code,
            worker=worker,
            at_ms=fact.at_ms,
            seq=sequence,
            job_id=id_,
            task_id=f"{id_}/{number_of_task}",
            user=job.user,
            by=by,
            signal=fact.signal or msgspec.UNSET,
        )
        headers = shared if tasks == 1 else shared.copy()
        headers["Iris-Task"] = task
        out.append(
            Publication(subject, codec.to_json(body), f"{sequence}.{first + place}", headers)
        )
    return out


def _whole_event(fact: Fact, sequence: int, place: int) -> Publication:
    job = fact.job
    shared: dict[str, Any] = {
        "job": job.name,
        "state": fact.state,
        "previous": fact.previous,
        "cause": _word(fact.cause),
        "at_ms": fact.at_ms,
        "seq": sequence,
        "job_id": job.id,
        "user": job.user,
        "by": _name(fact.by),
    }
    if fact.entity == "job":
        is_first = fact.previous is None
        body: JobEvent | SessionEvent = JobEvent(
            **shared,
            notify=(is_first and job.spec.notify) or msgspec.UNSET,
            project=job.spec.project or msgspec.UNSET,
        )
    else:
        body = SessionEvent(session=job.id, **shared)
    message_id = f"{sequence}.{place}"
    return Publication(
        subjects.event(fact.entity, fact.state), codec.to_json(body), message_id, _headers_of(job)
    )


def _deployment_event(fact: DeploymentFact, sequence: int, place: int) -> Publication:
    deployment = fact.deployment
    route = fact.route
    body: DeploymentEvent | RouteEvent
    if route is None:
        body = DeploymentEvent(
            deployment=deployment.name,
            state=fact.state,
            previous=fact.previous,
            revision=fact.revision,
            at_ms=fact.at_ms,
            seq=sequence,
            by=_name(fact.by),
        )
    else:
        body = RouteEvent(
            route=route.id,
            deployment=deployment.name,
            job=deployment.job_name(route),
            state=fact.state,
            previous=fact.previous,
            revision=fact.revision,
            worker=fact.worker,
            reason=fact.reason or None,
            at_ms=fact.at_ms,
            seq=sequence,
            job_id=f"j{route.job}" if route.job else "",
        )
    headers = {"Iris-Deployment": deployment.name}
    if deployment.traceparent:
        headers["traceparent"] = deployment.traceparent
    return Publication(
        subjects.event(fact.entity, fact.state), codec.to_json(body), f"{sequence}.{place}", headers
    )


def _amendment_event(fact: AmendmentFact, sequence: int, place: int) -> Publication:
    job = fact.job
    body = AmendmentEvent(
        job=job.name,
        state=fact.state,
        previous=fact.state,
        cause=None,
        changes=list(fact.changes),
        at_ms=fact.at_ms,
        seq=sequence,
        job_id=job.id,
        user=job.user,
        by=_name(fact.by),
    )
    subject = subjects.event("job", "amended", "spec")
    return Publication(subject, codec.to_json(body), f"{sequence}.{place}", _headers_of(job))


def _hold_event(fact: HoldFact, sequence: int, place: int) -> Publication:
    hold = fact.hold
    body = HoldEvent(
        hold=hold.id,
        user=hold.user,
        band=hold.band,
        label=hold.label,
        reason=hold.reason,
        state=fact.state,
        previous=fact.previous,
        at_ms=fact.at_ms,
        seq=sequence,
        by=_name(fact.by),
    )
    return Publication(
        subjects.event("queue", fact.state), codec.to_json(body), f"{sequence}.{place}", {}
    )


def _notice_event(fact: NoticeFact, sequence: int, place: int) -> Publication:
    job = fact.job
    notice = fact.notice
    task = f"{job.name}/{fact.task}"
    body = NoticeEvent(
        task=task,
        attempt=fact.attempt.number,
        job=job.name,
        state=fact.state,
        previous=fact.state,
        cause=None,
        exit_code=None,
        worker=fact.attempt.worker,
        reason=notice.reason.value,
        deadline_ms=notice.deadline_ms or None,
        at_ms=fact.at_ms,
        seq=sequence,
        job_id=job.id,
        task_id=f"{job.id}/{fact.task}",
        user=job.user,
    )
    headers = {**_headers_of(job), "Iris-Task": task, "Iris-Attempt": str(fact.attempt.number)}
    subject = subjects.event("task", notice.reason.value, "notice")
    return Publication(subject, codec.to_json(body), f"{sequence}.{place}", headers)


def _slice_event(fact: SliceFact, sequence: int, place: int) -> Publication:
    body = SliceEvent(
        slice=fact.name,
        slice_id=fact.id,
        pool=fact.pool,
        state=fact.state,
        previous=fact.previous,
        cause=fact.cause,
        detail=fact.detail,
        hosts=list(fact.hosts),
        at_ms=fact.at_ms,
        seq=sequence,
        by=_name(fact.by),
    )
    subject = subjects.event("fleet", fact.state, "slice")
    return Publication(subject, codec.to_json(body), f"{sequence}.{place}", {})


def _pool_event(fact: PoolFact, sequence: int, place: int) -> Publication:
    body = PoolEvent(
        pool=fact.pool,
        state=fact.state,
        previous=None,
        cause=fact.cause,
        detail=fact.detail,
        at_ms=fact.at_ms,
        seq=sequence,
        by=_name(fact.by),
    )
    subject = subjects.event("fleet", fact.state, fact.kind)
    return Publication(subject, codec.to_json(body), f"{sequence}.{place}", {})


def _project_event(fact: ProjectFact, sequence: int, place: int) -> Publication:
    body = ProjectEvent(
        project=fact.path,
        state=fact.state,
        previous=None,
        changes=list(fact.changes),
        at_ms=fact.at_ms,
        seq=sequence,
        by=_name(fact.by),
    )
    subject = subjects.event("project", fact.state)
    return Publication(subject, codec.to_json(body), f"{sequence}.{place}", {})


_OTHERS: dict[type, Callable[[Any, int, int], Publication]] = {
    DeploymentFact: _deployment_event,
    AmendmentFact: _amendment_event,
    HoldFact: _hold_event,
    NoticeFact: _notice_event,
    SliceFact: _slice_event,
    PoolFact: _pool_event,
    ProjectFact: _project_event,
}


def _headers_of(job: Job) -> dict[str, str]:
    headers = {"Iris-Job": job.name}
    if job.traceparent:
        headers["traceparent"] = job.traceparent
    return headers


def _word(cause: Cause | None) -> str | None:
    return cause.value if cause is not None else None


def _name(actor: Actor | None) -> str | msgspec.UnsetType:
    """Left out of the event when nobody caused it, as in nearly all of them."""
    return msgspec.UNSET if actor is None else named(actor)


def event_place(message_id: str) -> tuple[int, int]:
    """Journal sequence and index of the event with this id; (0, -1) when there is none. Raises
    ValueError.
    """
    if not message_id:
        return 0, -1
    sequence, _, place = message_id.partition(".")
    return int(sequence), int(place)
