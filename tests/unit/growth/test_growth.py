"""Memory is bounded: after many finished jobs all services hold as much as after a few."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from benchmarks.noop_worker import NoopWorker
from iris_bus.streams import window
from iris_gateway.api import ENDPOINTS
from iris_gateway.auth.bearer import Keyring
from iris_gateway.dashboard.responses import refusal
from iris_gateway.dispatch.middleware import Middleware
from iris_gateway.http import rate_limit
from iris_gateway.service import assemble
from iris_gateway.settings import GatewaySettings
from iris_scheduler.mirror import columns
from iris_scheduler.service import Scheduler
from iris_scheduler.settings import SchedulerSettings
from iris_state.clock import Clock
from iris_state.policy import Policy
from iris_state.records.indexes import stored
from iris_state.replication import unpublished
from iris_state.replication.replica import Replica
from iris_state.service.service import StateService
from iris_worker.agent.seen import SeenAttempts
from iris_worker.settings import WorkerSettings
from tests.support.census import census, grown
from tests.support.memory import Memory

KEPT = 20
"""Of each thing that is kept, of jobs, users, answers, events and tasks alike."""
JOBS = 100
POLICY = Policy(
    commit_spacing_s=0,
    keep_jobs=KEPT,
    keep_answers=KEPT,
    keep_keys_bytes=KEPT * 320,
    snapshot_after_s=0.2,
    events_settle_s=0,
    ping_interval_s=0.01,
)


class Services:
    """All of them in this process, two replicas of the state service among them, on a bus in
    memory.
    """

    def __init__(self, directory: Path) -> None:
        self.memory = Memory()
        self.stop = asyncio.Event()
        self.states = [
            StateService(Replica(name, POLICY, self._connect(), Clock()), self.stop)
            for name in ("one", "two")
        ]
        self.scheduler = Scheduler(
            self._connect().bus, SchedulerSettings(plan_spacing_s=0), self.stop
        )
        settings = WorkerSettings(
            id="w0", data=str(directory), detect=False, report_gap_s=0, heartbeat_interval_s=0.2
        )
        self.worker = NoopWorker(settings, self._connect(), "", self.stop)
        self.worker.agent._seen = SeenAttempts(KEPT)
        self.gateway = assemble(GatewaySettings(event_ring=KEPT), self._connect(), Keyring())

    def _connect(self) -> Any:
        return self.memory.connect()

    def census(self) -> Counter[str]:
        gc.collect()
        return census(
            apart=[self.memory, *self.memory.streams.values()],
            leader=self.states[0],
            follower=self.states[1],
            scheduler=self.scheduler,
            worker=self.worker,
            gateway=self.gateway,
        )

    def is_idle(self) -> bool:
        """Whether everything that was submitted is over, and everybody knows."""
        machines = [state.replica.machine for state in self.states]
        mirror = self.scheduler._mirror
        return (
            all(job.is_terminal for machine in machines for job in machine.ledger.jobs.values())
            and machines[0].sequence == machines[1].sequence
            and all(state.replica.unpublished._count <= KEPT for state in self.states)
            and mirror is not None
            and (mirror.jobs, len(self.worker.agent)) == ({}, 0)
        )


@asynccontextmanager
async def services(directory: Path) -> AsyncIterator[tuple[Services, httpx.AsyncClient]]:
    made = Services(directory)
    async with AsyncExitStack() as stack:
        running = [asyncio.create_task(made.states[0].run())]
        await until(lambda: made.states[0].leads)
        parts = (made.states[1], made.scheduler, made.worker)
        running += [asyncio.create_task(part.run()) for part in parts]
        transport = httpx.ASGITransport(cast(Any, Middleware(made.gateway, ENDPOINTS, refusal)))
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        )
        yield made, http
        await made.gateway.feed.close()
        await made.gateway.ends.close()
        made.stop.set()
        await asyncio.gather(*running)


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def run(made: Services, http: httpx.AsyncClient, numbers: range) -> None:
    """Jobs that have nothing in common: users, names, keys, labels and what they ask for are their
    own.
    """
    for number in numbers:
        body = {
            "name": f"/job-{number:04}",
            "command": ["true"],
            "env": {f"ENV_{number}": "x"},
            "labels": {f"label-{number}": "x"},
            "constraints": [{"key": f"key-{number:04}", "op": "not_exists"}],
            "resources": {"cpu_millis": number + 1},
            "timeout_s": 3600.0 + number,
        }
        headers = {"x-iris-user": f"user-{number:04}", "idempotency-key": f"key-{number:04}"}
        answer = await http.post("/v1/jobs", json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        assert (await http.get(f"/v1/jobs/%2Fjob-{number:04}", headers=headers)).status_code == 200
    await until(made.is_idle)


async def test_what_is_over_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unpublished, "KEPT", KEPT)
    monkeypatch.setattr(window, "KEPT", KEPT)
    monkeypatch.setattr(columns, "_MANY", KEPT)
    monkeypatch.setattr(stored, "LEFTOVERS", KEPT)
    monkeypatch.setattr(rate_limit, "MAX_USERS", KEPT)
    async with asyncio.timeout(200), services(tmp_path) as (made, http):
        await run(made, http, range(JOBS))
        before = made.census()
        await run(made, http, range(JOBS, 3 * JOBS))
        found = grown(before, made.census(), by=JOBS)
        assert {
            path: sizes for path, sizes in found.items() if ".usage." not in path
        } == {}  # kept for 400 days
