"""Finds the job, task, deployment, pool, slice or project that a command or a query names, or says
what there is instead. Reads only.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from iris_core.access.rights import is_task
from iris_core.errors import Code, Invalid, Mistake, Refused
from iris_core.messages.gateway_state import (
    Caller,
    UserCommand,
)
from iris_core.spec.index_set import IndexSet
from iris_core.spec.projects import normal
from iris_core.views.queries import ViewQuery
from iris_state.records.deployments.records import Deployment
from iris_state.records.entities import Job
from iris_state.records.fleet.records import HostPool, Slice
from iris_state.records.ledger import Ledger, parts_of_task, whole_number
from iris_state.records.projects import Project

Resolved = TypeVar("Resolved", bound=UserCommand)

_NAMED_IN_QUERIES = ("job", "task", "parent")
_MOST_SHOWN = 200
"""Characters of a set of indexes in a refusal."""


def reference_of(ledger: Ledger, text: str, user: str, *, task: bool = False) -> str:
    """What names a job or a task for one user, as `Ledger.find_job` and `find_task` read it.

    A name that several users have gets its owner: the user's own comes first. Raises Refused
    conflict when the name is several others', and none of the user's; for a ``task``, which is not
    told what there is outside of its subtree, that stays as it is.
    """
    owners = ledger.shared_names.get(_job_name(text))
    if owners is None:
        return text
    if user in owners:
        return f"{text}@{user}"
    if task:
        return text
    choice = " or ".join(f"{text}@{owner}" for owner in sorted(owners))
    raise Refused(
        Code.CONFLICT,
        f"{_job_name(text)} is a job of {', '.join(sorted(owners))}, and none of yours: "
        f"say {choice}, or use the id of the job",
    )


def note_of_owner(ledger: Ledger, text: str, caller: Caller) -> str:
    """That a plain name led to the job of somebody else, since the caller has none of that name;
    empty otherwise, and for a caller whom nothing proves.
    """
    name = _job_name(text)
    job = ledger.find_job(name) if name.startswith("/") and "@" not in text else None
    is_own = job is None or caller.claimed or caller.user in ("", job.user)
    if job is None or is_own or name in ledger.shared_names:
        return ""
    return f"{job.name} ({job.id}) is a job of {job.user}: {caller.user} has none of that name"


def _job_name(text: str) -> str:
    """The job of a text that names a job or a task."""
    name, last = parts_of_task(text)
    return text if whole_number(last) is None else name


def resolved_command(ledger: Ledger, command: Resolved, target: str) -> Resolved:
    """The command with the job or task that its caller means; ``target``: its field that names it.
    Raises Refused conflict, see `reference_of`.
    """
    if not target:
        return command
    caller = command.caller
    text = getattr(command, target)
    reference = reference_of(ledger, text, caller.user, task=is_task(caller))
    return msgspec.structs.replace(command, **{target: reference})


def resolved_query(ledger: Ledger, query: ViewQuery, caller: Caller) -> ViewQuery:
    """The query with the jobs and tasks that its caller means. Raises Refused conflict, see
    `reference_of`.
    """
    named = {
        field: text for field in _NAMED_IN_QUERIES if (text := getattr(query, field, "")) != ""
    }
    if not named or not ledger.shared_names:
        return query
    meant = {
        field: reference_of(ledger, text, caller.user, task=is_task(caller))
        for field, text in named.items()
    }
    return msgspec.structs.replace(query, **meant)


def known_target(ledger: Ledger, text: str) -> tuple[Job, int | None]:
    """A job, or a task by its index. Raises Refused not_found."""
    names_task = whole_number(parts_of_task(text)[1]) is not None
    return known_task(ledger, text) if names_task else (known_job(ledger, text), None)


def known_job(ledger: Ledger, text: str) -> Job:
    """Raises Refused not_found."""
    job = ledger.find_job(text)
    if job is None:
        number = whole_number(text[1:]) if text.startswith("j") else None
        if number is not None and 0 < number < ledger.next_number:
            raise Refused(Code.NOT_FOUND, f"job {text} has ended and is no longer kept")
        raise Refused(Code.NOT_FOUND, f"there is no job {text}")
    return job


def known_deployment(ledger: Ledger, name: str) -> Deployment:
    """Raises Refused not_found."""
    deployment = ledger.find_deployment(name)
    if deployment is None:
        raise Refused(Code.NOT_FOUND, f"there is no deployment {name[:80]}")
    return deployment


def known_pool(ledger: Ledger, name: str) -> HostPool:
    """Raises Refused not_found."""
    pool = ledger.fleet.pools.get(name)
    if pool is None:
        raise Refused(Code.NOT_FOUND, f"there is no pool {name[:80]}")
    return pool


def known_project(ledger: Ledger, text: str) -> Project:
    """Raises Refused not_found."""
    try:
        path = normal(text)
    except Refused as refused:
        raise Refused(Code.NOT_FOUND, f"there is no such project: {refused.detail}") from None
    project = ledger.projects.find(path)
    if project is None:
        near = ledger.projects.nearest(path)
        raise Refused(Code.NOT_FOUND, f"there is no project {path}; the nearest is {near}")
    return project


def known_slice(ledger: Ledger, text: str) -> Slice:
    """A slice by its name, of which it is the newest, or its id. Raises Refused not_found."""
    found = ledger.fleet.find(text)
    if found is None:
        raise Refused(Code.NOT_FOUND, f"there is no slice {text[:80]}")
    return found


def known_task(ledger: Ledger, text: str) -> tuple[Job, int]:
    """The job and index of a task. Raises Refused not_found, which says which tasks its job has."""
    name, last = parts_of_task(text)
    index = whole_number(last)
    if index is None or not name:
        raise Refused(Code.NOT_FOUND, f"there is no task {text}")
    job = known_job(ledger, name)
    if not job.has(index):
        raise Refused(Code.NOT_FOUND, f"{job.name} has no task {index}: {_tasks_of(job)}")
    return job, index


def named_indexes(job: Job, text: str) -> IndexSet:
    """The tasks of a job that a set of indexes names. Raises Refused for a gang, and for one that
    it does not have.
    """
    if job.is_gang:
        message = f"the tasks of {job.name} are placed together: it is run again whole"
        hint = "leave tasks out"
        raise Invalid([Mistake(pointer="/tasks", code="unexpected", message=message, hint=hint)])
    try:
        found = IndexSet.parse(text)
    except ValueError as error:
        raise Invalid(
            [Mistake(pointer="/tasks", code="bad_indexes", message=str(error), hint="3-7")]
        ) from None
    missing = next((index for index in found if not job.has(index)), None)
    if missing is not None:
        raise Refused(Code.NOT_FOUND, f"{job.name} has no task {missing}: {_tasks_of(job)}")
    return found


def named_job(ledger: Ledger, text: str) -> Job | None:
    """The job of the name of a job or of a task, whether it has that task or not."""
    return ledger.find_job(_job_name(text))


def _tasks_of(job: Job) -> str:
    indexes = str(job.indexes if job.spec.indexes else IndexSet.whole(len(job.tasks)))
    if len(job.tasks) == 1:
        return f"its only task is {indexes}"
    shown = indexes if len(indexes) <= _MOST_SHOWN else f"{indexes[:_MOST_SHOWN]}..."
    return f"its tasks are {shown}"
