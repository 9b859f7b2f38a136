"""A state service as a worker sees it: answers reports, receives heartbeats, sends orders, decides
nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from iris_bus.contract import Connection, Message
from iris_core import codec, subjects
from iris_core.access import task_tokens
from iris_core.access.task_tokens import SigningKey
from iris_core.messages.gateway_worker import LogChunk, TaskOutput
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import (
    Ended,
    Gang,
    HeartbeatMessage,
    Order,
    OrderTaken,
    Register,
    ReportTaken,
    Stage,
    Stop,
    TaskGrant,
    TaskTemplate,
    WorkerReport,
)
from iris_core.spec.jobs import Environment, NoticePolicy, Probe
from iris_core.spec.resources import ResourceRequest
from iris_core.states import KernelStatus

GRANT = task_tokens.grant(SigningKey("k1", b"1" * 32, 0), 1, "ann", "w0", 1)
"""With it an attempt has a token, which no gateway is asked to accept."""
RETRY_FOR_S = 60.0
"""How long a worker may say nothing of its attempts; a heartbeat says nothing of them."""


def template(
    *command: str,
    job: int = 1,
    name: str = "/t",
    env: dict[str, str] | None = None,
    replicas: int = 1,
    bundle: str | None = None,
    ports: tuple[str, ...] = (),
    timeout_ms: int | None = None,
    memory_bytes: int = 0,
    resources: ResourceRequest | None = None,
    probe: Probe | None = None,
    serves: str = "",
    settle_ms: int = 0,
    environment: Environment | None = None,
    output: str = "",
    user: str = "ann",
    grant: TaskGrant | None = None,
    preload: tuple[str, ...] = (),
    terminal: bool = False,
    notice: NoticePolicy | None = None,
) -> TaskTemplate:
    """What a job runs, with little to say."""
    ask = resources or ResourceRequest(memory_bytes=memory_bytes)
    work = TaskTemplate(
        job, name, command, env or {}, replicas, ask, user, bundle, ports, timeout_ms, probe, serves
    )
    return msgspec.structs.replace(
        work,
        settle_ms=settle_ms,
        environment=environment,
        output=output,
        grant=grant,
        preload=preload,
        terminal=terminal,
        notice=notice,
    )


class FakeState:
    """The other end of a worker's messages.

    Attributes:
        stages: every stage told, in order, repeats included.
        silent: reports are not answered, and their stages are ``ignored``; a worker that runs
            nothing and is in doubt of its orders, since it stood still for a while, is confirmed.
        drop: what the next answers say is not this worker's any more.
        retry_for_s: how long `until` waits.
    """

    def __init__(self, connection: Connection, worker: str, *, hears_all: bool = False) -> None:
        self.connection = connection
        self.worker = worker
        self._hears_all = hears_all
        """Whether it answers reports of other workers too."""
        self.stages: list[Stage] = []
        self.registered: list[Register] = []
        self.beats: list[HeartbeatMessage] = []
        self.leaving: list[str] = []
        self.why_leaving = ""
        self.silent = False
        self.ignored: list[Stage] = []
        self.known = True
        self.retry_for_s = RETRY_FOR_S
        self.drop: tuple[AttemptRef, ...] = ()
        self._printed: defaultdict[tuple[AttemptRef, str], dict[int, bytes]] = defaultdict(dict)
        self._news = asyncio.Event()
        self._progress = 0
        self._jobs = itertools.count(1)

    async def start(self) -> FakeState:
        await self.connection.bus.subscribe(subjects.REPORTS, self._on_report)
        await self.connection.bus.subscribe(subjects.heartbeat(self.worker), self._on_heartbeat)
        await self.connection.bus.subscribe(subjects.LOGS.subjects[0], self._on_log)
        return self

    def _on_report(self, message: Message) -> None:
        report = codec.unpack(message.data, WorkerReport)
        if report.worker != self.worker and not self._hears_all:
            return
        if report.leaving:
            self.leaving.append(report.leaving)
            self.why_leaving = report.why
        if report.register is not None:
            self.registered.append(report.register)
            self.known = True
        if self.silent and (report.stages or report.register is not None or report.leaving):
            self.ignored += report.stages
            self._news.set()
            return
        if self.known:
            self.stages += report.stages
        self._progress += 1
        answer = ReportTaken(self.known, self.drop)
        self.connection.bus.publish(message.reply, codec.pack(answer))
        self._news.set()

    def _on_heartbeat(self, message: Message) -> None:
        self.beats.append(codec.unpack(message.data, HeartbeatMessage))
        self._news.set()

    def _on_log(self, message: Message) -> None:
        output = codec.unpack(message.data, TaskOutput)
        for chunk in output.chunks:
            self._printed[output.ref, chunk.stream][chunk.offset] = chunk.data
        self._progress += 1
        self._news.set()

    @property
    def incarnation(self) -> str:
        return self.registered[-1].incarnation

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something this state service hears of. Raises TimeoutError, with what it has
        heard, once nothing is heard of any attempt.
        """
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(self.retry_for_s) as limit:
                progress = self._progress
                while not true():
                    if progress != self._progress:
                        progress = self._progress
                        limit.reschedule(clock() + self.retry_for_s)
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            printed = {
                (str(ref), stream): chunks for (ref, stream), chunks in self._printed.items()
            }
            raise TimeoutError(
                f"heard of {len(self.registered)} registrations, {self.stages[-5:]}, {len(self.beats)} heartbeats, "
                f"the last {self.beats[-1:]}, output {printed}"
            ) from None

    async def registration(self, number: int = 1) -> Register:
        """The ``number``-th registration."""
        await self.until(lambda: len(self.registered) >= number)
        return self.registered[number - 1]

    async def order(
        self,
        templates: Sequence[TaskTemplate] = (),
        *,
        run: Sequence[AttemptRef] = (),
        prepare: Sequence[AttemptRef] = (),
        start: Sequence[AttemptRef] = (),
        stop: Sequence[Stop] = (),
        gangs: Sequence[Gang] = (),
        register: bool = False,
        epoch: int = 1,
        expires_ms: int = 0,
        timeouts: dict[int, int] | None = None,
        timeout: float = 30.0,
        drained: Sequence[AttemptRef] = (),
    ) -> OrderTaken:
        """Give an order to the last incarnation that registered. Raises Unavailable when it does
        not answer.
        """
        order = Order(
            self.incarnation,
            epoch,
            tuple(templates),
            tuple(run),
            tuple(prepare),
            tuple(start),
            tuple(stop),
            tuple(gangs),
            register,
            expires_ms,
            timeouts=timeouts or {},
            drained=tuple(drained),
        )
        answer = await self.connection.bus.request(
            subjects.order(self.worker), codec.pack(order), timeout=timeout
        )
        return codec.unpack(answer.data, OrderTaken)

    async def tell(self, templates: Sequence[TaskTemplate] = (), **parts: Any) -> None:
        """Give an order as often as it takes, as the state service does: a worker in doubt does not
        take it.
        """
        async with asyncio.timeout(RETRY_FOR_S):
            while not (await self.order(templates, **parts)).taken:
                await asyncio.sleep(0.01)

    async def run(self, *command: str, **more: object) -> AttemptRef:
        """Order one attempt of a new job."""
        job = next(self._jobs)
        ref = AttemptRef(job, 0, 0)
        await self.tell([template(*command, job=job, **more)], run=[ref])  # type: ignore[arg-type]
        return ref

    def reported(self, ref: AttemptRef) -> list[KernelStatus]:
        """The stages of one attempt, repeats left out."""
        return list(dict.fromkeys(stage.status for stage in self.stages if stage.ref == ref))

    def notices(self, ref: AttemptRef) -> list[str]:
        """The reasons of the notices of one attempt, as it was told last."""
        told = [stage for beat in self.beats for stage in beat.attempts] + self.stages
        found = [stage.notices for stage in told if stage.ref == ref and stage.notices]
        return [notice.reason.value for notice in max(found, key=len, default=())]

    def end_of(self, ref: AttemptRef) -> Ended | None:
        registered = (stage for register in self.registered for stage in register.attempts)
        found = (
            stage.ended
            for stage in (*self.stages, *registered)
            if stage.ref == ref and stage.ended is not None
        )
        return next(found, None)

    async def ended(self, ref: AttemptRef) -> Ended:
        """How an attempt ended, once it has."""
        await self.until(lambda: self.end_of(ref) is not None)
        found = self.end_of(ref)
        assert found is not None
        return found

    async def running(self, ref: AttemptRef) -> None:
        """Return once an attempt's process runs."""
        await self.until(lambda: KernelStatus.RUNNING in self.reported(ref))

    async def printed(self, ref: AttemptRef, text: bytes, stream: str = "stdout") -> None:
        """Return once exactly this much of an attempt's output has been sent."""
        chunks = self._printed[ref, stream]
        await self.until(lambda: b"".join(data for _, data in sorted(chunks.items())) == text)

    async def line(self, ref: AttemptRef) -> str:
        """The only line that an attempt has printed, once it has been sent."""
        chunks = self._printed[ref, "stdout"]
        await self.until(lambda: b"".join(chunks.values()).endswith(b"\n"))
        [line] = b"".join(data for _, data in sorted(chunks.items())).decode().splitlines()
        return line

    async def output(self, ref: AttemptRef, stream: str = "stdout") -> bytes:
        """Everything the log stream holds of an attempt now; repeated chunks count once."""
        chunks = {chunk.offset: chunk for chunk in await self.chunks(ref) if chunk.stream == stream}
        return b"".join(chunk.data for _, chunk in sorted(chunks.items()))

    async def chunks(self, ref: AttemptRef) -> list[LogChunk]:
        """The pieces of its output as they stand in the log stream, repeated ones included."""
        streams, name = self.connection.streams, subjects.LOGS.name
        of_task = subjects.task_logs(ref.job, ref.index)
        ends = [await streams.last(name, subject=subject) for subject in of_task]
        until = max(last.sequence if last is not None else 0 for last in ends)
        found: list[LogChunk] = []
        if not until:
            return found
        reader = streams.read(name, 0, *of_task)
        try:
            while True:
                for message in await reader.batch():
                    output = codec.unpack(message.data, TaskOutput)
                    found += output.chunks if output.ref == ref else ()
                    if message.sequence >= until:
                        return found
        finally:
            await reader.close()


@pytest.fixture
async def state(connection: Connection) -> FakeState:
    """The state service of the worker ``w0``."""
    return await FakeState(connection, "w0").start()
