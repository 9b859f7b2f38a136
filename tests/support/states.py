"""Replicas of the state service in this process, on an in-memory bus, and a client that reads and
writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from iris_bus.contract import NoResponders
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Answer, Caller, Query, SubmitJob
from iris_core.spec.jobs import JobSpec
from iris_state.clock import Clock
from iris_state.policy import Policy
from iris_state.replication.replica import Replica
from iris_state.service.service import StateService
from tests.support.memory import Memory, MemoryConnection

ANN = Caller("ann")
POLICY = Policy(commit_spacing_s=0)


class House:
    """Replicas of the state service in one process, and somebody who writes and reads."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.asking: MemoryConnection = self.memory.connect()
        self.stop = asyncio.Event()
        self.running: list[asyncio.Task[None]] = []

    def start(self, name: str) -> StateService:
        state = StateService(Replica(name, POLICY, self.memory.connect(), Clock()), self.stop)
        self.running.append(asyncio.create_task(state.run()))
        return state

    async def request(self, subject: str, message: object, kind: Any = Answer) -> Any:
        """Asked again while nobody listens."""
        while True:
            try:
                return codec.unpack(
                    (await self.asking.bus.request(subject, codec.pack(message), timeout=30)).data,
                    kind,
                )
            except NoResponders:
                await asyncio.sleep(0)

    async def submit(self, spec: JobSpec) -> Answer:
        command = SubmitJob(spec, ANN, spec.name, 1)
        said: Answer = await self.request(subjects.CMD_SUBMIT, command)
        return said

    async def ask(self, subject: str, what: str, at_least: int = 0, **arguments: object) -> Answer:
        answer: Answer = await self.request(subject, Query(what, arguments, ANN, at_least))
        return answer


@asynccontextmanager
async def house() -> AsyncIterator[House]:
    made = House()
    async with asyncio.timeout(240):
        yield made
        made.stop.set()
        await asyncio.gather(*made.running)
