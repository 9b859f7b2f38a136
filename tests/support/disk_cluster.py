"""A local cluster with its NATS data, or all its data, on a test disk, and a steady load.

Out of scope: the disk (`disk`), the cluster (`cluster`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from iris import Client
from iris.client.problems import ClientError
from iris_bus.connection.connection import Credentials
from iris_bus.jetstream import connect
from iris_core import subjects
from tests.support.cluster import Cluster, until
from tests.support.suspend import suspend


@dataclass
class Acknowledged:
    """Submissions one after the other from several threads, for as long as the block lasts.

    Attributes:
        command: what each job runs.
        tried: every job that was submitted. names: those whose submission was acknowledged.
            problems: what was said instead.
    """

    cluster: Cluster
    threads: int = 2
    prefix: str = "job"
    command: Sequence[str] = ("true",)
    tried: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    problems: list[ClientError] = field(default_factory=list)
    _enough: threading.Event = field(default_factory=threading.Event)
    _running: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        for thread in range(self.threads):
            self._running.append(threading.Thread(target=self._submit, args=(thread,), daemon=True))
            self._running[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for thread in self._running:
            thread.join(30)

    def more(self, count: int) -> None:
        """Return when so many more have been acknowledged. How long that takes is the disk's
        affair.
        """
        before = len(self.names)
        for wanted in range(before + 1, before + count + 1):
            until(
                lambda wanted=wanted: len(self.names) >= wanted,
                f"submission {wanted} is acknowledged",
            )

    def _submit(self, thread: int) -> None:
        client = Client(self.cluster.url, token=self.cluster.token, timeout_s=15, retry_for_s=0)
        for number in itertools.count():
            if self._enough.is_set():
                break
            name = f"/{self.prefix}-{thread}-{number}"
            self.tried.append(name)
            try:
                client.run(self.command, name=name, cpu=0.1, idempotency_key=name)
                self.names.append(name)
            except ClientError as error:
                self.problems.append(error)
                self._enough.wait(0.05)
        client.close()


def end_at_once(cluster: Cluster) -> None:
    """Every process of a machine that loses its power; the bus first, and the one that would start
    it again stands.
    """
    stands = [*cluster.pids("supervisor"), cluster.up.pid]
    for pid in stands:
        suspend(pid)
    for pid in cluster.pids("nats"):
        os.kill(pid, signal.SIGKILL)


def bury(cluster: Cluster) -> None:
    """What `end_at_once` left standing, and whatever else there is."""
    cluster.client.close()
    # /proc does not show the words it was started with, so it is not among those that are left
    cluster.up.kill()

    def left() -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if cluster.owns(process)]

    while processes := left():
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=0.2)
    cluster.up.wait(10)


Told = dict[str, bytes]
"""Events by their ids."""


async def stored_events(nats_url: str, credentials: Credentials) -> Told:
    """Every event of the stream, in its order; none twice."""
    connection = await connect(nats_url, name="judge", credentials=credentials)
    reader = connection.streams.read(subjects.EVENTS.name, 0)
    last = await connection.streams.last(subjects.EVENTS.name)
    found: Told = {}
    try:
        while last is not None and last.headers["Nats-Msg-Id"] not in found:
            for message in await reader.batch(wait=5):
                told = message.headers["Nats-Msg-Id"]
                assert told not in found, f"event {told} stands in the stream twice"
                found[told] = message.data
    finally:
        await reader.close()
        await connection.close()
    return found


@dataclass
class Ear:
    """A plain subscriber that hears every event told, on a thread of its own, for as long as the
    block lasts.
    """

    nats_url: str
    seed: str
    heard: Told = field(default_factory=dict)
    _ready: threading.Event = field(default_factory=threading.Event)
    _enough: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join(10)

    async def _listen(self) -> None:
        import nats

        client = await nats.connect(
            self.nats_url, nkeys_seed=self.seed, allow_reconnect=False, error_cb=_ignore
        )
        for subject in subjects.EVENTS.subjects:
            await client.subscribe(subject, cb=self._hear)
        await client.flush()
        self._ready.set()
        await asyncio.to_thread(self._enough.wait)
        with contextlib.suppress(Exception):
            await client.close()

    async def _hear(self, message: Any) -> None:
        self.heard[message.headers["Nats-Msg-Id"]] = message.data


async def _ignore(error: Exception) -> None:
    """The server is killed while it is heard; that it is gone is no news."""


def on_disk(data: Path, disk: Path) -> Path:
    """A data directory of a cluster, of which only the NATS server's part lies on ``disk``."""
    data.mkdir(parents=True)
    (disk / "nats").mkdir(mode=0o700)
    (data / "nats").symlink_to(disk / "nats")
    return data
