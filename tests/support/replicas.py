"""Replicas of the state service as real processes, and a client of them."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from iris_bus.contract import Unavailable
from iris_bus.jetstream import JetStreamConnection
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Answer, Caller, DeployCommand, Query, SubmitJob
from iris_core.messages.processes import Ping
from iris_core.spec.jobs import JobSpec
from iris_gateway.commands import Commands
from tests.support import warm

RETRY_FOR_S = 60.0
_LOOK_S = 0.02
_REQUESTS = 3
ANN = Caller("ann", "user")


class Replica:
    """A process of the state service."""

    def __init__(self, process: warm.Fork) -> None:
        self._process = process
        self.pid = process.pid
        self.kill, self.terminate, self.send_signal = (
            process.kill,
            process.terminate,
            process.send_signal,
        )

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        while (code := self.returncode) is None:
            await asyncio.sleep(_LOOK_S)
        return code


@dataclass
class Replicas:
    """State services on one bus.

    Args:
        set: settings every one of them is started with, ``section.key=value``.
    """

    nats_url: str
    logs: Path
    connection: JetStreamConnection
    set: tuple[str, ...] = ()
    running: list[Replica] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def start(self, *more: str) -> Replica:
        """One more replica."""
        given = [word for each in (*self.set, *more) for word in ("--set", each)]
        environ = {**os.environ, "IRIS_NATS_URL": self.nats_url}
        with (self.logs / f"state-{next(self._numbers)}.log").open("wb") as log:
            self.running.append(
                Replica(warm.start("iris_state", given, environ, log.fileno(), log.fileno()))
            )
        return self.running[-1]

    def log(self) -> str:
        """What all of them have said so far."""
        return "".join(path.read_text() for path in sorted(self.logs.glob("state-*.log")))

    async def stop(self) -> None:
        for process in self.running:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self.running:
            await process.wait()

    async def leader(self) -> tuple[Replica, Ping]:
        """The process that leads now, and what it says of itself."""
        pong = await self.until(lambda pong: pong.ready)
        pid = int(pong.leader.partition("-")[0])
        return next(p for p in self.running if p.pid == pid), pong

    async def until(self, holds: Callable[[Ping], bool]) -> Ping:
        """Ask until the leader's answer is as wanted."""
        async with asyncio.timeout(RETRY_FOR_S):
            while True:
                pong = await self.ping()
                if pong is not None and holds(pong):
                    return pong
                await asyncio.sleep(_LOOK_S)

    async def followed(self) -> None:
        """Return once a standby asks for its leader, again and again."""
        request = asyncio.Semaphore(0)
        listening = await self.connection.bus.subscribe(
            subjects.STATE_PING, lambda _: request.release()
        )
        try:
            async with asyncio.timeout(RETRY_FOR_S):
                for _ in range(_REQUESTS):
                    await request.acquire()
        finally:
            await listening.close()

    async def ping(self) -> Ping | None:
        try:
            answer = await self.connection.bus.request(subjects.STATE_PING, b"", timeout=0.3)
        except Unavailable:
            return None
        return codec.unpack(answer.data, Ping)

    async def submit(
        self, name: str, *, replicas: int = 1, key: str = "", request: str = ""
    ) -> Answer:
        """Have a job admitted."""
        spec = JobSpec(name=name, command=("true",), replicas=replicas)
        request = request or name
        return await self.ask(subjects.CMD_SUBMIT, SubmitJob(spec, ANN, request, 1, key))

    async def ask(self, subject: str, command: SubmitJob | DeployCommand) -> Answer:
        """Have a command carried out, as the gateway does."""
        gateway = Commands(self.connection.bus, new_id=str, now_ms=int, retry_for_s=RETRY_FOR_S)
        return await gateway.send(subject, codec.pack(command))

    async def names(self) -> set[str]:
        """The names of all jobs, as the leader tells them."""
        found: set[str] = set()
        cursor: str | None = None
        while True:
            arguments = {"limit": 500, **({"cursor": cursor} if cursor else {})}
            question = codec.pack(Query("jobs", arguments, ANN))
            answer = codec.unpack(
                (
                    await self.connection.bus.request(subjects.STATE_QUERY, question, timeout=30)
                ).data,
                Answer,
            )
            page = codec.from_json(answer.body, dict)
            found |= {item["name"] for item in page["items"]}
            cursor = page.get("next_cursor")
            if not cursor:
                return found

    async def events(self) -> list[str]:
        """The ids of every event told, in the order of the stream."""
        reader = self.connection.streams.read(subjects.EVENTS.name, 0)
        last = await self.connection.streams.last(subjects.EVENTS.name)
        found: list[str] = []
        try:
            while last is not None and (not found or found[-1] != last.headers["Nats-Msg-Id"]):
                found += [m.headers["Nats-Msg-Id"] for m in await reader.batch(wait=5)]
        finally:
            await reader.close()
        return found


@asynccontextmanager
async def replicas(
    nats_url: str, logs: Path, connection: JetStreamConnection, *given: str
) -> AsyncIterator[Replicas]:
    """Room for replicas; whatever still runs at the end is killed."""
    made = Replicas(nats_url, logs, connection, given)
    try:
        yield made
    finally:
        await made.stop()


def since(began: float) -> float:
    return time.monotonic() - began
