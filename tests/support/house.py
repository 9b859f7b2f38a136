"""One replica of the state service on an in-memory bus, and a client of it."""

from __future__ import annotations

import asyncio
from typing import Any

from iris_bus.contract import NoResponders
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Answer, Caller, CancelJob, DeployCommand, SubmitJob
from iris_core.spec.jobs import JobSpec
from iris_core.spec.serving import DeploymentSpec
from iris_state.clock import Clock
from iris_state.policy import Policy
from iris_state.replication.replica import Replica
from iris_state.service.service import StateService
from tests.support.memory import Memory, MemoryConnection

ANN = Caller("ann")
POLICY = Policy(snapshot_changes=4)


class House:
    """One replica, and somebody who wants things."""

    def __init__(self, memory: Memory, policy: Policy = POLICY, clock: Clock | None = None) -> None:
        self.memory = memory
        self.stop = asyncio.Event()
        self.wanting: MemoryConnection = memory.connect()
        self.state = StateService(
            Replica("m", policy, memory.connect(), clock or Clock()), self.stop
        )

    def lead(self) -> None:
        self.running = asyncio.create_task(self.state.run())

    async def end(self) -> None:
        self.stop.set()
        await self.running

    async def lose_the_lead(self) -> Replica:
        """Another replica takes over, who answers nobody; returns when this one has noticed."""
        while not self.state.leads:
            await asyncio.sleep(0)
        connection = self.memory.connect("other")
        other = Replica("other", self.state.replica.policy, connection, Clock())
        await other.recover()
        assert await other.take_over(connection.publisher(), other.machine.ledger.epoch)
        while self.state.leads:
            await asyncio.sleep(0)
        return other

    async def ask(self, subject: str, command: Any) -> Answer:
        """What is answered to a command that is sent as soon as somebody listens."""
        while True:
            try:
                reply = await self.wanting.bus.request(subject, codec.pack(command), timeout=30)
            except NoResponders:
                await asyncio.sleep(0)
            else:
                return codec.unpack(reply.data, Answer)

    async def submit(self, name: str, replicas: int = 1) -> Answer:
        """One submission, of which the name is the request id."""
        spec = JobSpec(name=name, command=("true",), replicas=replicas)
        return await self.ask(subjects.CMD_SUBMIT, SubmitJob(spec, ANN, name, 1))

    async def cancel(self, name: str, request: str) -> Answer:
        return await self.ask(subjects.CMD_CANCEL, CancelJob(name, ANN, request, 1))

    async def deploy(self, action: str, spec: DeploymentSpec) -> Answer:
        """One command about a deployment."""
        request = self.wanting.bus.new_inbox()
        return await self.ask(
            subjects.CMD_DEPLOY, DeployCommand(action, spec.name, ANN, request, 1, spec)
        )

    async def snapshot(self) -> str:
        """The name of the newest one, once there is one."""
        blobs = self.wanting.blobs(subjects.SNAPSHOTS_BUCKET)
        while not (names := await blobs.names()):
            await asyncio.sleep(0)
        return max(names)
