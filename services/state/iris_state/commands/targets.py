"""Finds the job, task or deployment that a command or a query names, or says what there is instead.
Reads only.
"""

from __future__ import annotations

from iris_core.errors import Code, Invalid, Mistake, Refused
from iris_core.spec.index_set import IndexSet
from iris_state.deployments.records import Deployment
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger, whole_number

_MOST_SHOWN = 200
"""Characters of a set of indexes in a refusal."""


def known_target(ledger: Ledger, text: str) -> tuple[Job, int | None]:
    """A job, or a task by its index. Raises Refused not_found."""
    names_task = whole_number(text.rpartition("/")[2]) is not None
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


def known_task(ledger: Ledger, text: str) -> tuple[Job, int]:
    """The job and index of a task. Raises Refused not_found, which says which tasks its job has."""
    name, _, last = text.rpartition("/")
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
        message, hint = (
            f"the tasks of {job.name} are placed together: it is run again whole",
            "leave tasks out",
        )
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
    name, _, last = text.rpartition("/")
    return ledger.find_job(text if whole_number(last) is None else name)


def _tasks_of(job: Job) -> str:
    indexes = str(job.indexes if job.spec.indexes else IndexSet.whole(len(job.tasks)))
    if len(job.tasks) == 1:
        return f"its only task is {indexes}"
    shown = indexes if len(indexes) <= _MOST_SHOWN else f"{indexes[:_MOST_SHOWN]}..."
    return f"its tasks are {shown}"
