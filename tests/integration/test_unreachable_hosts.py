"""Work is moved from hosts that do not take orders, with real processes on a real NATS server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_bus.jetstream import connect
from iris_core import codec, subjects
from iris_core.messages.state_worker import HeartbeatMessage, Register, WorkerReport
from iris_core.spec.resources import Amount
from tests.support.cluster import Cluster, cluster_on, expect_worker, settings, until

pytestmark = pytest.mark.integration

NEVER = "[state]\nworker_grace_s = 1000\n"
"""A silent host is not given up while a test waits."""
QUICK = """
[state]
heartbeat_interval_s = 0.3
order_timeout_s = 0.5
order_expires_s = 1.0
[worker]
heartbeat_interval_s = 0.3
"""


def state_of(cluster: Cluster, worker: str) -> str:
    return str(cluster.client.get(f"/v1/workers/{worker}", dict)["state"])


class Impostor:
    """A host that registers and heartbeats as a worker does, and takes no order.

    Args:
        subscribed: it is subscribed to its orders and never reads one; else nobody is.
    """

    def __init__(self, cluster: Cluster, subscribed: bool) -> None:
        self._cluster = cluster
        self._subscribed = subscribed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.beats = 0
        self.orders = 0

    async def _run(self) -> None:
        key = self._cluster.credentials("worker", "impostor")
        connection = await connect(self._cluster.nats_url, name="impostor", credentials=key)
        incarnation, started_s = uuid.uuid4().hex, time.monotonic()
        if self._subscribed:
            await connection.bus.subscribe(subjects.order("impostor"), self._on_order)
        register = Register("impostor", incarnation, {}, Amount(64_000, 1 << 40, 1 << 40, 0), 1)
        report = codec.pack(
            WorkerReport("impostor", incarnation, register=register, monotonic_ms=1)
        )
        await connection.bus.request(subjects.report("impostor"), report, timeout=30)
        while not self._ended.is_set():
            self.beats += 1
            monotonic_ms = 1 + int((time.monotonic() - started_s) * 1000)
            beat = HeartbeatMessage(
                "impostor", incarnation, self.beats, self.beats, monotonic_ms=monotonic_ms
            )
            connection.bus.publish(subjects.heartbeat("impostor"), codec.pack(beat))
            await asyncio.sleep(0.1)
        await connection.close()

    def _on_order(self, message: object) -> None:
        self.orders += 1

    @contextlib.contextmanager
    def beating(self) -> Iterator[Impostor]:
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()


def test_tasks_do_not_wait_for_a_worker_that_was_stopped(tmp_path: Path):
    """One may begin there between the signal and the worker's answer: it ends with the worker, and
    runs again once.
    """
    data = tmp_path / "data"
    with cluster_on(data, "--workers", "2", *settings(data, NEVER)) as cluster:
        os.kill(cluster.pid_of_worker("worker-0"), signal.SIGTERM)
        job = cluster.submit("true", replicas=4, max_retries_preemption=1)
        assert job.wait(60).state == "succeeded"
        until(lambda: state_of(cluster, "worker-0") == "lost", "it has said that it is gone")
        assert {task.worker for task in job.tasks() if task.attempts} <= {"worker-0", "worker-1"}


@pytest.mark.parametrize("subscribed", [False, True], ids=["nobody listens", "nobody reads"])
def test_tasks_do_not_wait_for_a_host_that_takes_no_order(tmp_path: Path, subscribed: bool):
    data = tmp_path / "data"
    expect_worker(data, "impostor")
    with (
        cluster_on(data, "--workers", "1", *settings(data, QUICK)) as cluster,
        Impostor(cluster, subscribed).beating() as impostor,
    ):
        until(
            lambda: any(w["id"] == "impostor" for w in cluster.client.pages("/v1/workers", dict)),
            "it is known",
        )
        job = cluster.submit("true", replicas=12, cpu=1, max_retries_preemption=0)
        assert job.wait(60).state == "succeeded"
        assert {task.worker for task in job.tasks()} == {"worker-0"}
        assert any(len(task.attempts) > 1 for task in job.tasks())
        assert bool(impostor.orders) == subscribed
        until(lambda: state_of(cluster, "impostor") == "degraded", "orders do not reach it", 60)
