"""Deployments on real processes: updates across a kill of the state service, and what proxies
receive.

One host stands in for all workers: it starts what it is ordered to, and its probes pass. Placement
    is first fit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from iris_bus.contract import Message, Unavailable
from iris_bus.jetstream import JetStreamConnection
from iris_core import codec, subjects
from iris_core.messages.gateway_state import DeployCommand
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import FullSnapshot
from iris_core.messages.state_worker import (
    Ended,
    HeartbeatMessage,
    Order,
    OrderTaken,
    ProbeResult,
    Register,
    ReportTaken,
    Stage,
    WorkerReport,
)
from iris_core.spec.jobs import Probe
from iris_core.spec.resources import Amount
from iris_core.spec.serving import DeploymentSpec, RouteTemplate, UpdatePolicy
from iris_core.states import Cause, KernelStatus
from tests.support import first_fit
from tests.support.replicas import ANN, Replicas, replicas

pytestmark = pytest.mark.integration

POLL_S = 0.05
GIB = 1 << 30


class Host:
    """One worker, and who places tasks on it."""

    def __init__(self, connection: JetStreamConnection) -> None:
        self._bus = connection.bus
        self._stages: dict[AttemptRef, Stage] = {}
        self._beats = 0
        self._registered = False

    async def run(self) -> None:
        await self._bus.subscribe(subjects.order("w0"), self._on_order)
        while True:
            with contextlib.suppress(Unavailable, codec.Undecodable):
                await self._report()
                await self._place()
                self._heartbeat()
            await asyncio.sleep(POLL_S)

    def _on_order(self, message: Message) -> None:
        order = codec.unpack(message.data, Order)
        self._bus.publish(message.reply, codec.pack(OrderTaken("1", monotonic_ms=now_ms())))
        self._registered = self._registered and not order.register
        for ref in order.run:
            self._stages.setdefault(ref, Stage(ref, KernelStatus.RUNNING, now_ms()))
        for stop in order.stop:
            ended = Ended(Cause.CANCELLED, signal=15)
            self._stages[stop.ref] = Stage(stop.ref, KernelStatus.TERMINATED, now_ms(), ended)

    async def _report(self) -> None:
        stages = tuple(self._stages.values())
        register = None
        if not self._registered:
            register = Register("w0", "1", {}, Amount(64_000, 64 * GIB, GIB, 0), now_ms(), stages)
        report = WorkerReport("w0", "1", stages, register, monotonic_ms=now_ms())
        answer = await self._bus.request(subjects.report("w0"), codec.pack(report), timeout=1)
        self._registered = codec.unpack(answer.data, ReportTaken).known
        for stage in stages if self._registered else ():
            if stage.ended is not None:
                self._stages.pop(stage.ref, None)

    async def _place(self) -> None:
        answer = await self._bus.request(subjects.SNAPSHOT_FULL, b"", timeout=1)
        plan = first_fit.plan(codec.unpack(answer.data, FullSnapshot))
        if plan.placements:
            await self._bus.request(subjects.STATE_PLAN, codec.pack(plan), timeout=1)

    def _heartbeat(self) -> None:
        self._beats += 1
        live = [stage for stage in self._stages.values() if stage.ended is None]
        probes = tuple(
            ProbeResult(stage.ref, f"10.0.0.1:{30_000 + stage.ref.job}", passes=1) for stage in live
        )
        stages = tuple(self._stages.values())
        heartbeat = HeartbeatMessage(
            "w0", "1", self._beats, now_ms(), stages, monotonic_ms=now_ms(), probes=probes
        )
        self._bus.publish(subjects.heartbeat("w0"), codec.pack(heartbeat))


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@pytest.fixture
async def group(
    nats_url: str, connection: JetStreamConnection, tmp_path: Path
) -> AsyncIterator[Replicas]:
    async with replicas(nats_url, tmp_path, connection, "state.snapshot_changes=20") as made:
        yield made


@asynccontextmanager
async def host(connection: JetStreamConnection) -> AsyncIterator[None]:
    running = asyncio.create_task(Host(connection).run())
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def chat(version: str, replicas: int = 3) -> DeploymentSpec:
    return DeploymentSpec(
        name="chat",
        template=RouteTemplate(command=("serve", version), probe=Probe(start_timeout_s=30.0)),
        replicas=replicas,
        update=UpdatePolicy(min_ready_s=0.2, progress_deadline_s=60.0),
        settle_s=0.1,
    )


class Proxy:
    """What a proxy sees of the deployment: the newest set, and the fewest routes of any since it
    last had three.
    """

    def __init__(self, connection: JetStreamConnection) -> None:
        self._watch = connection.key_value(subjects.DISCOVERY_BUCKET).watch()
        self.routes: dict[str, str] = {}
        self.fewest = 99

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(60):
            while not holds(self):
                sets = await self._watch.next()
                found = json.loads(sets["chat"].value)["routes"] if "chat" in sets else []
                self.routes = {route["id"]: route["address"] for route in found}
                self.fewest = min(self.fewest, len(self.routes))

    async def close(self) -> None:
        await self._watch.close()


def of_revision(number: int) -> Any:
    return lambda proxy: (
        len(proxy.routes) == 3 and all(id_.startswith(f"r{number}-") for id_ in proxy.routes)
    )


async def deploy(group: Replicas, action: str, spec: DeploymentSpec | None = None) -> str:
    request = f"{action}-{spec.template.command[-1] if spec is not None else ''}"
    command = DeployCommand(action, "chat", ANN, request, 1, spec)
    return (await group.ask(subjects.CMD_DEPLOY, command)).status


async def test_an_update_survives_the_leader_and_keeps_every_proxy_supplied(group, connection):
    await group.start()
    await group.leader()
    await group.start()
    proxy = Proxy(connection)
    async with host(connection):
        assert await deploy(group, "create", chat("1")) == "created"
        await proxy.until(of_revision(1))
        proxy.fewest = 99
        for revision in (2, 3):
            assert await deploy(group, "update", chat(str(revision))) == "accepted"
            await proxy.until(
                lambda seen, new=f"r{revision}-": any(id_.startswith(new) for id_ in seen.routes)
            )
            leader, before = await group.leader()
            leader.kill()
            await group.until(
                lambda pong, before=before: pong.ready and pong.leader != before.leader
            )
            await group.start()
            await proxy.until(of_revision(revision))
        assert proxy.fewest >= 3
        assert len(set(proxy.routes.values())) == 3
        assert await deploy(group, "delete") == "accepted"
        await proxy.until(lambda seen: not seen.routes)
    await proxy.close()
