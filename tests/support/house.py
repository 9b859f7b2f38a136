"""One replica of the state service on a bus in memory, and somebody who wants things of it."""

from __future__ import annotations

import asyncio
import contextlib

from iris_bus.contract import NoResponders
from iris_bus.memory import Memory, MemoryConnection
from iris_core import codec, subjects
from iris_core.messages import Answer, Caller, CancelJob, DeployCommand, SubmitJob
from iris_core.serving import DeploymentSpec
from iris_core.spec import JobSpec
from iris_state.clock import Clock
from iris_state.policy import Policy
from iris_state.replication.replica import Replica
from iris_state.service import StateService

ANN = Caller("ann")
POLICY = Policy(snapshot_changes=4)
SAY_CANCEL = subjects.direct_subject(subjects.CMD_CANCEL)


class House:
    """One replica, and somebody who wants things."""

    def __init__(self, memory: Memory, policy: Policy = POLICY) -> None:
        self.memory = memory
        self.stop = asyncio.Event()
        self.wanting: MemoryConnection = memory.connect()
        self.state = StateService(Replica("m", policy, memory.connect(), Clock()), self.stop)

    def lead(self) -> None:
        self.running = asyncio.create_task(self.state.run())

    async def end(self) -> None:
        self.stop.set()
        await self.running

    async def store(self, name: str, *, times: int = 1, replicas: int = 1, answer_to: str = "") -> None:
        """One request, so often."""
        spec = JobSpec(name=name, command=("true",), replicas=replicas)
        command = codec.pack(SubmitJob(spec, ANN, name, 1, answer_to=answer_to))
        for _ in range(times):
            await self.wanting.streams.publish(subjects.CMD_SUBMIT, command)

    async def cancel(self, name: str, request: str) -> bytes:
        """What is answered to a cancellation that is said as soon as somebody listens."""
        command = codec.pack(CancelJob(name, ANN, request, 1, "", ""))
        while True:
            with contextlib.suppress(NoResponders):
                return (await self.wanting.bus.request(SAY_CANCEL, command, timeout=10)).data
            await asyncio.sleep(0)

    async def executed(self, name: str, replicas: int = 1) -> None:
        """Return once this submission, and everything stored before it, has been carried out."""
        answered = asyncio.Event()
        inbox = self.wanting.bus.new_inbox()
        listening = await self.wanting.bus.subscribe(inbox, lambda _: answered.set())
        await self.store(name, replicas=replicas, answer_to=inbox)
        await answered.wait()
        await listening.close()

    async def deploy(self, action: str, spec: DeploymentSpec) -> Answer:
        """What is answered to a command about a deployment."""
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        inbox = self.wanting.bus.new_inbox()
        listening = await self.wanting.bus.subscribe(inbox, lambda message: answered.set_result(message.data))
        command = DeployCommand(action, spec.name, ANN, inbox, 1, spec, answer_to=inbox)
        await self.wanting.streams.publish(subjects.CMD_DEPLOY, codec.pack(command))
        data = await answered
        await listening.close()
        return codec.unpack(data, Answer)

    async def snapshot(self) -> str:
        """The name of the newest one, once there is one."""
        blobs = self.wanting.blobs(subjects.SNAPSHOTS_BUCKET)
        while not (names := await blobs.names()):
            await asyncio.sleep(0)
        return max(names)
