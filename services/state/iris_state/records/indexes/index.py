"""Indexes of jobs for listings: their numbers in order, by each field that a listing filters on.

`apply` updates the index with every change and `check` verifies it. A field with one value per job
costs one sorted list per value. Out of scope: names, which the ledger keeps sorted itself, and the
    content of a listing (`views`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedList, SortedSet

from iris_core.spec.projects import within
from iris_core.states import JOB_TERMINAL, JobState
from iris_state.records.entities import Job

Field = tuple[str, object]
"""A field and its value, for example ``("user", "ann")``; a label is ``("label",
"team=vision")``.
"""


WAITING: Field = ("is_waiting", True)
_NONE: SortedList = SortedList()


def fields_of(job: Job) -> Iterator[Field]:
    """Every field under which a job is listed; by project under its own and those above it, but the
    root.
    """
    yield "state", job.state
    yield "user", job.user
    yield "band", job.band
    if job.is_waiting:
        yield WAITING
    if job.parent:
        yield "parent", job.parent
    if job.lineage and job.state not in JOB_TERMINAL:
        yield "lineage", job.lineage
    for key, value in job.spec.labels.items():
        yield "label", f"{key}={value}"  # a key contains no =
    if job.spec.project:
        for path in within(job.spec.project):
            yield "project", path


def has(job: Job, field: Field) -> bool:
    """Whether a job is listed under this field."""
    name, value = field
    if name == "label":
        key, _, text = str(value).partition("=")
        return job.spec.labels.get(key) == text
    if name == "project":
        return str(value) in within(job.spec.project)
    return bool(getattr(job, name) == value)


class JobIndex:
    """Sorted numbers of jobs: of all, and of those with some value of a field.

    Attributes:
        users: who has a job, by name.
    """

    def __init__(self) -> None:
        self.all = SortedList()
        self.users: SortedSet[str] = SortedSet()
        self._by: dict[Field, SortedList] = {}

    def restore(self, jobs: Iterable[Job]) -> None:
        """Index the jobs of a snapshot all at once."""
        every: list[int] = []
        numbers: dict[Field, list[int]] = {}
        for job in jobs:
            every.append(job.number)
            for field in fields_of(job):
                numbers.setdefault(field, []).append(job.number)
        self.all = SortedList(every)
        self._by = {field: SortedList(found) for field, found in numbers.items()}
        self.users = SortedSet(value for name, value in numbers if name == "user")

    def add(self, job: Job) -> None:
        """Index a new job."""
        self.all.add(job.number)
        for field in fields_of(job):
            self.enter(field, job.number)

    def move(self, job: Job, previous: JobState) -> None:
        """A job has left ``previous`` for its present state."""
        self.leave(("state", previous), job.number)
        self.enter(("state", job.state), job.number)
        if job.lineage and job.state in JOB_TERMINAL and previous not in JOB_TERMINAL:
            self.leave(("lineage", job.lineage), job.number)

    def relist(self, job: Job, before: set[Field]) -> None:
        """A job that was listed under the fields ``before`` has other ones now."""
        after = set(fields_of(job))
        for field in before - after:
            self.leave(field, job.number)
        for field in after - before:
            self.enter(field, job.number)

    def remove(self, job: Job) -> None:
        """Remove a job."""
        self.all.remove(job.number)
        for field in fields_of(job):
            self.leave(field, job.number)

    def of(self, field: Field) -> SortedList:
        """The numbers of the jobs with this value of a field: read-only."""
        return self._by.get(field, _NONE)

    def fields(self) -> dict[Field, list[int]]:
        """The whole index, for comparison with a recount."""
        return {field: list(numbers) for field, numbers in self._by.items()}

    def enter(self, field: Field, number: int) -> None:
        """A job is listed under one more field."""
        numbers = self._by.get(field)
        if numbers is None:
            numbers = self._by[field] = SortedList()
            if field[0] == "user":
                self.users.add(field[1])
        numbers.add(number)

    def leave(self, field: Field, number: int) -> None:
        """A job is listed under one field less."""
        numbers = self._by[field]
        numbers.remove(number)
        if not numbers:
            del self._by[field]
            if field[0] == "user":
                self.users.remove(field[1])
