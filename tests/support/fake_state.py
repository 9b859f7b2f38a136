"""A minimal state service for tests of the gateway: real messages on a real or in-memory bus, no
rules.

It keeps jobs in a dict, answers commands and queries, and tells events and output when a test says
so.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iris_bus.contract import Bus, Message, Streams, Subscription
from iris_core import subjects
from iris_core.codec import pack, to_json, unpack
from iris_core.messages.gateway_scheduler import PlanPreview, PlanRequest
from iris_core.messages.gateway_state import (
    AdminCommand,
    AmendJob,
    Answer,
    CancelJob,
    DeployCommand,
    FleetCommand,
    GrowJob,
    HoldQueue,
    ProjectCommand,
    Query,
    RequeueTasks,
    RerunJob,
    SubmitJob,
)
from iris_core.messages.gateway_worker import LogChunk, TaskOutput
from iris_core.messages.message import AttemptRef
from iris_core.messages.processes import Ping, ReplicaInfo, ServiceInfo
from iris_core.views.events import JobEvent, TaskEvent
from iris_core.views.jobs import AttemptView, JobView, Page, TaskView, moment
from iris_core.views.queries import DEFAULT_LIMIT

COMMANDS = {
    subjects.CMD_SUBMIT: SubmitJob,
    subjects.CMD_CANCEL: CancelJob,
    subjects.CMD_ADMIN: AdminCommand,
    subjects.CMD_RERUN: RerunJob,
    subjects.CMD_AMEND: AmendJob,
    subjects.CMD_REQUEUE: RequeueTasks,
    subjects.CMD_GROW: GrowJob,
    subjects.CMD_QUEUE: HoldQueue,
    subjects.CMD_DEPLOY: DeployCommand,
    subjects.CMD_FLEET: FleetCommand,
    subjects.CMD_PROJECT: ProjectCommand,
}


class FakeState:
    """One leader.

    Attributes:
        commands, queries: what has arrived.
        mute: take commands and answer nothing. pong: what it says of itself.
        scripted: what to answer to a kind of command or view.
        pages: what a view's made-up answer holds besides.
    """

    def __init__(self, bus: Bus, streams: Streams) -> None:
        self.bus = bus
        self.streams = streams
        self.jobs: dict[str, JobView] = {}
        self.tasks: dict[str, TaskView] = {}
        self.answers: dict[str, Answer] = {}
        self.keys: dict[str, str] = {}
        self.commands: list[Any] = []
        self.queries: list[Query] = []
        self.scripted: dict[str, Answer] = {}
        self.mute = False
        self.pong = Ping("fake")
        self.pages: dict[str, dict[str, Any]] = {}
        self.preview = PlanPreview("now", ((0, "w0"),))
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        self._subscriptions = [
            await self.bus.subscribe(subjects.STATE_COMMAND, self.on_command),
            await self.bus.subscribe(subjects.STATE_QUERY, self.on_query),
            await self.bus.subscribe(
                subjects.STATE_PING, lambda m: self.bus.publish(m.reply, pack(self.pong))
            ),
            await self.bus.subscribe(subjects.SCHEDULER_PLAN, self.on_plan),
            await self.bus.subscribe(subjects.DESCRIBE, self.on_describe),
        ]

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()

    def on_command(self, message: Message) -> None:
        command = unpack(message.data, COMMANDS[message.subject])
        self.commands.append(command)
        if self.mute:
            return
        if command.request_id not in self.answers:
            self.answers[command.request_id] = self.decide(command)
        self.bus.publish(message.reply, pack(self.answers[command.request_id]))

    def decide(self, command: Any) -> Answer:
        if scripted := self.scripted.get(type(command).__name__):
            return scripted
        if isinstance(command, SubmitJob):
            return self.admit(command)
        if isinstance(command, CancelJob):
            task = self.find_task(command.job)
            return (
                Answer("accepted", to_json(self.find(task.job)))
                if task
                else self.change(command.job, "killed")
            )
        if isinstance(command, AdminCommand):
            return Answer("accepted", to_json({"id": command.target, **command.arguments}))
        if isinstance(command, GrowJob):
            return Answer("accepted", to_json(self.find(command.job)))
        if isinstance(command, HoldQueue):
            return Answer("accepted", to_json({"id": "h1"}))
        if isinstance(command, RequeueTasks):
            task = self.find_task(command.target)
            return Answer(
                "accepted", to_json(self.find(task.job if task is not None else command.target))
            )
        return Answer("created", to_json(self.find(command.job)))

    def admit(self, command: SubmitJob) -> Answer:
        key = f"{command.caller.user} {command.idempotency_key}"
        if command.idempotency_key and key in self.keys:
            return Answer("replayed", to_json(self.jobs[self.keys[key]]))
        if command.spec.name in self.jobs and self.jobs[command.spec.name].state in (
            "pending",
            "running",
        ):
            if command.if_exists == "keep":
                return Answer("ok", to_json(self.jobs[command.spec.name]))
            return refusal(
                "conflict", f"{command.spec.name} is {self.jobs[command.spec.name].state}"
            )
        job = self.add(command)
        self.keys[key] = job.name
        return Answer("created", to_json(job))

    def add(self, command: SubmitJob) -> JobView:
        spec, at = command.spec, moment(command.submitted_ms)
        job = JobView(
            id=f"j{len(self.jobs) + 1}",
            name=spec.name,
            state="pending",
            user=spec.user,
            band=spec.band,
            replicas=spec.replicas,
            spec=spec,
            parent=None,
            submitted_at=at,
            root_submitted_at=at,
            started_at=None,
            finished_at=None,
            error=None,
            task_counts={"pending": spec.replicas},
        )
        self.jobs[job.name] = job
        for index in range(spec.replicas):
            self.tasks[f"{job.name}/{index}"] = task_of(job, index)
        return job

    def find(self, reference: str) -> JobView | None:
        return self.jobs.get(reference) or next(
            (job for job in self.jobs.values() if job.id == reference), None
        )

    def find_task(self, reference: str) -> TaskView | None:
        job = self.find(reference.rpartition("/")[0])
        return self.tasks.get(f"{job.name}/{reference.rpartition('/')[2]}") if job else None

    def change(self, reference: str, state: str) -> Answer:
        job = self.find(reference)
        if job is None:
            return refusal("not_found", f"there is no job {reference}")
        job.state = state
        return Answer("accepted", to_json(job))

    def on_query(self, message: Message) -> None:
        query = unpack(message.data, Query)
        self.queries.append(query)
        self.bus.publish(message.reply, pack(self.look(query)))

    def look(self, query: Query) -> Answer:
        if scripted := self.scripted.get(query.what):
            return scripted
        if query.what == "jobs":
            limit = query.arguments.get("limit", DEFAULT_LIMIT)
            return Answer("ok", to_json(Page(items=list(self.jobs.values())[:limit])))
        if query.what == "named_jobs":
            return Answer(
                "ok",
                to_json(Page(items=list(filter(None, map(self.find, query.arguments["names"]))))),
            )
        if query.what == "job":
            return found(self.find(query.arguments["job"]), query.arguments["job"])
        if query.what == "task":
            return found(self.find_task(query.arguments["task"]), query.arguments["task"])
        if query.what == "attempts" and "attempts" not in self.pages:
            number = int(query.arguments.get("cursor", "-1")) + 1
            return Answer("ok", to_json(Page(items=[attempt_of(number)])))
        return Answer(
            "ok", to_json({"what": query.what, **query.arguments, **self.pages.get(query.what, {})})
        )

    def on_plan(self, message: Message) -> None:
        self.commands.append(unpack(message.data, PlanRequest))
        self.bus.publish(message.reply, pack(self.preview))

    def on_describe(self, message: Message) -> None:
        replica = ReplicaInfo(True, 3, 41, 0, 7, {"IRIS_JOURNAL": 5 << 20})
        text = "[state]\nread_share = 0.5  # default\n"
        self.bus.publish(
            message.reply,
            pack(ServiceInfo("state", "s1", "0.1.0", "host-a", 7, 1000, text, replica)),
        )

    async def tell_job(self, name: str, state: str) -> int:
        """Move a job and tell its event; the event's sequence."""
        job = self.jobs.get(name)
        previous = job.state if job else None
        if job:
            job.state = state
        event = JobEvent(
            job=name,
            job_id=job.id if job else "",
            state=state,
            previous=previous,
            cause=None,
            at_ms=1,
            seq=1,
        )
        return await self.streams.publish(subjects.event("job", state), to_json(event))

    async def tell_task(self, name: str, state: str, attempt: int = 0) -> int:
        """Move a task and tell its event; the event's sequence."""
        if name in self.tasks:
            self.tasks[name].state = state
        event = TaskEvent(
            task=name,
            attempt=attempt,
            job=name.rpartition("/")[0],
            state=state,
            previous=None,
            cause=None,
            exit_code=None,
            worker="w0",
            at_ms=1,
            seq=1,
        )
        return await self.streams.publish(subjects.event("task", state), to_json(event))

    async def print(self, job: int, index: int, text: str, **more: Any) -> int:
        """Store one chunk of output."""
        ref = AttemptRef(job, index, more.pop("attempt", 0))
        chunk = LogChunk(
            **{"stream": "stdout", "at_ms": 1000, "offset": 0, "data": text.encode(), **more}
        )
        printed = chunk.offset + len(chunk.data)
        return await self.streams.publish(
            subjects.output("w0", job, index, printed), pack(TaskOutput(ref, (chunk,)))
        )


def refusal(code: str, detail: str) -> Answer:
    return Answer(code, to_json({"detail": detail, "errors": []}))


def found(view: msgspec.Struct | None, what: str) -> Answer:
    return (
        Answer("ok", to_json(view))
        if view is not None
        else refusal("not_found", f"there is no {what}")
    )


def task_of(job: JobView, index: int) -> TaskView:
    return TaskView(
        task=f"{job.name}/{index}",
        job=job.name,
        index=index,
        state="pending",
        pending_reason=None,
        failure_count=0,
        preemption_count=0,
        worker=None,
        attempts=[],
        id=f"{job.id}/{index}",
        job_id=job.id,
        user=job.user,
    )


def attempt_of(number: int, state: str = "running") -> AttemptView:
    return AttemptView(
        number=number,
        state=state,
        stage="RUNNING",
        cause=None,
        initiator=None,
        charged_to=None,
        worker="w0",
        exit_code=None,
        signal=None,
        error=None,
        stderr_tail=None,
        peak_rss_bytes=None,
        assigned_at=None,
        building_at=None,
        started_at=None,
        finished_at=None,
        failure_count=(0, 0),
        preemption_count=(0, 0),
        open=True,
    )
