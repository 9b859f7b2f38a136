"""A notifier on a bus in memory, beside a state service that knows a few jobs and a sender that
keeps what it is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from iris_bus.contract import Message
from iris_core import codec, subjects
from iris_core.messages.gateway_notifier import NotifyRequest, NotifyVerb
from iris_core.messages.gateway_state import Answer, Caller, Query
from iris_core.spec.notify import NotifyRule
from iris_core.views.events import JobEvent
from iris_notifier.service import NotifierProcess
from iris_notifier.settings import NotifierSettings
from tests.support.memory import Memory
from tests.support.notifier import OPS, QUICK, KeptMessages, answering, now_ms


class SmallState:
    """The leader's end of the bus: answers queries about a few jobs.

    Attributes:
        jobs: by id. projects: their paths. tasks: of a job, by its id and their state.
    """

    def __init__(self, memory: Memory) -> None:
        self.connection = memory.connect("state")
        self.jobs: dict[str, dict[str, Any]] = {}
        self.projects: set[str] = set()
        self.tasks: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._sequence = 0

    async def begin(self) -> None:
        """Answer from now on."""
        bus = self.connection.bus
        self._subscription = await bus.subscribe(subjects.STATE_QUERY, self._on_query)

    async def leave(self) -> None:
        """Answer nothing any more."""
        await self._subscription.close()

    def add(self, job_id: str, name: str, user: str = "ann", **more: Any) -> None:
        """Add a job, or replace it."""
        self.jobs[job_id] = {
            "id": job_id,
            "name": name,
            "user": user,
            "state": "pending",
            "spec": {},
            "submitted_at": datetime.now(UTC),
            "started_at": None,
            "task_counts": {"pending": 1},
            **more,
        }

    async def publish(
        self,
        job_id: str,
        state: str,
        previous: str | None = None,
        notify: tuple[NotifyRule, ...] = (),
        **more: Any,
    ) -> None:
        """Change a job's state, and publish the event."""
        job = self.jobs[job_id]
        job |= {"state": state, **more}
        self._sequence += 1
        event = JobEvent(
            job=job["name"],
            job_id=job_id,
            user=job["user"],
            state=state,
            previous=previous,
            cause=job.get("cause"),
            at_ms=now_ms(),
            seq=self._sequence,
            notify=notify or msgspec.UNSET,
            project=job.get("project", msgspec.UNSET),
        )
        await self.connection.streams.publish(f"job.state.{state}", codec.to_json(event))

    def _on_query(self, message: Message) -> None:
        query = codec.unpack(message.data, Query)
        if query.what == "job":
            found = next(
                (
                    job
                    for job in self.jobs.values()
                    if query.arguments["job"] in (job["id"], job["name"])
                ),
                None,
            )
            answer = Answer("not_found") if found is None else Answer("ok", codec.to_json(found))
        elif query.what == "project":
            is_there = query.arguments["project"] in self.projects
            answer = Answer("ok", b"{}") if is_there else Answer("not_found")
        else:
            key = (query.arguments["job"], query.arguments["state"])
            page = {"items": self.tasks.get(key, []), "next_cursor": None}
            answer = Answer("ok", codec.to_json(page))
        self.connection.bus.publish(message.reply, codec.pack(answer))


class Stage:
    """One cluster: a bus, its state service, and notifiers."""

    def __init__(self, settings: NotifierSettings = QUICK) -> None:
        self.memory = Memory()
        self.state = SmallState(self.memory)
        self.sender = KeptMessages()
        self.settings = settings
        self.people = self.memory.connect("gateway").bus
        self._running: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    def start(self) -> NotifierProcess:
        """One more notifier."""
        stop = asyncio.Event()
        made = NotifierProcess(
            self.memory.connect("notifier"), self.sender, self.settings, now_ms=now_ms
        )
        self._running.append((stop, asyncio.create_task(made.run(stop))))
        return made

    async def end(self) -> None:
        """Stop all notifiers."""
        for stop, _ in self._running:
            stop.set()
        for _, task in self._running:
            await task
        self._running.clear()

    async def ask(
        self, verb: NotifyVerb, body: Any = None, name: str = "", user: str = "ann", **more: Any
    ) -> tuple[str, Any]:
        """The status and the body of an answer, once a notifier gives one; asked again while it is
        ``unavailable``, as clients do.
        """
        caller = Caller(user=user, role=more.pop("role", "user"))
        sent = codec.to_json({} if body is None else body)
        request = codec.pack(NotifyRequest(verb, caller, name, sent, **more))
        await answering(self.memory)
        while True:
            message = await self.people.request(subjects.NOTIFIER_REQUEST, request, timeout=10)
            answer = codec.unpack(message.data, Answer)
            if answer.status != "unavailable":
                break
        return answer.status, msgspec.json.decode(answer.body)

    async def until(self, is_so: Callable[[], object]) -> None:
        """Return when it is so."""
        async with asyncio.timeout(10):
            while not is_so():
                await asyncio.sleep(0.005)


@pytest.fixture
async def empty() -> AsyncIterator[Stage]:
    """Without a notifier."""
    made = Stage()
    await made.state.begin()
    yield made
    await made.end()


@pytest.fixture
async def stage(empty: Stage) -> Stage:
    """With a notifier, and the target ``ops`` of ann."""
    empty.start()
    assert (await empty.ask(NotifyVerb.ADD_TARGET, OPS))[0] == "created"
    return empty
