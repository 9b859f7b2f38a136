"""What the state service knows of a job, read as the job's user would.

Rights are those of that user: a message holds nothing that its owner could not read.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

import msgspec

from iris_bus.contract import Bus, Unavailable
from iris_core.backoff import Backoff
from iris_core.codec import Undecodable, from_json, pack, unpack
from iris_core.errors import Code
from iris_core.messages.gateway_state import Answer, Caller, Query
from iris_core.spec.notify import NotifyRule
from iris_core.spec.projects import ROOT
from iris_core.subjects import STATE_QUERY
from iris_core.views.queries import (
    JobQuery,
    ProjectQuery,
    TasksQuery,
    ViewQuery,
    arguments_of,
    view_name,
)

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_PAGE = 500


class JobRules(msgspec.Struct):
    """What a specification says of notifications."""

    timeout_s: float | None = None
    notify: tuple[NotifyRule, ...] = ()


class Someone(msgspec.Struct):
    """Who gave a command."""

    user: str | None = None


class JobFacts(msgspec.Struct):
    """A job, as in `JobView`."""

    id: str
    name: str
    state: str
    user: str
    spec: JobRules
    project: str = ROOT
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    error: str | None = None
    cause: str | None = None
    task_counts: dict[str, int] = {}
    coscheduled: bool = False
    ended_by: Someone | None = None


class AttemptFacts(msgspec.Struct):
    """The newest attempt of a task."""

    started_at: datetime | None = None
    exit_code: int | None = None


class TaskFacts(msgspec.Struct):
    """A task, as in `TaskView`."""

    attempts: list[AttemptFacts]
    exit_code: int | None = None


class TaskFactsPage(msgspec.Struct):
    """One page of tasks."""

    items: list[TaskFacts]
    next_cursor: str | None


class StateReader:
    """Reads from the state service, until its leader answers."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def job(self, job: str, user: str) -> JobFacts | None:
        """A job by its id, or by a name of the user's; None: there is none (any more)."""
        body = await self._read(JobQuery(job), user)
        return None if body is None else from_json(body, JobFacts)

    async def has_project(self, path: str, user: str) -> bool:
        """Whether there is a project of that path."""
        return await self._read(ProjectQuery(path), user) is not None

    async def exit_code(self, job: JobFacts) -> int | None:
        """That of the first task that ended as the job did."""
        state = job.state if job.state != "unschedulable" else "failed"
        body = await self._read(TasksQuery(limit=1, job=job.id, state=state), job.user)
        tasks = [] if body is None else from_json(body, TaskFactsPage).items
        return tasks[0].exit_code if tasks else None

    async def first_start_ms(self, job: JobFacts) -> int | None:
        """When the running attempt began that has run for longest; None: none runs."""
        starts: list[float] = []
        cursor = ""
        while True:
            asked = TasksQuery(limit=_PAGE, cursor=cursor, job=job.id, state="running")
            body = await self._read(asked, job.user)
            if body is None:
                return None
            page = from_json(body, TaskFactsPage)
            newest = (task.attempts[-1] for task in page.items if task.attempts)
            starts += [one.started_at.timestamp() for one in newest if one.started_at is not None]
            if page.next_cursor is None:
                return int(min(starts) * 1000) if starts else None
            cursor = page.next_cursor

    async def _read(self, query: ViewQuery, user: str) -> bytes | None:
        """The JSON of a view; None: not found, or not this user's to read."""
        asked = Query(view_name(type(query)), arguments_of(query), Caller(user=user))
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                message = await self._bus.request(STATE_QUERY, pack(asked), timeout=_TIMEOUT_S)
                answer = unpack(message.data, Answer)
            except (Unavailable, Undecodable) as error:
                log.info("the state service did not answer: %s", error)
            else:
                if answer.status == "ok":
                    return answer.body
                if answer.status not in (Code.UNAVAILABLE, Code.INTERNAL):
                    return None
            await asyncio.sleep(backoff.next_s())
