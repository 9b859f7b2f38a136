"""A plain subscriber to the public events, as any program outside would be: when did each job end, and how many
events of each kind were told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import msgspec
import nats
from nats.aio.msg import Msg


class Watcher:
    """Counts events and notes the moment each job ended. Use as an async context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.counts: Counter[str] = Counter()
        self.ended: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Watcher:
        self._client = await nats.connect(self._url, pending_size=64 << 20)
        await self._client.subscribe("task.state.*", cb=self._task, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await self._client.subscribe("job.state.*", cb=self._job, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await self._client.flush()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def _task(self, message: Msg) -> None:
        self.counts[message.subject] += 1

    async def _job(self, message: Msg) -> None:
        self.counts[message.subject] += 1
        state = message.subject.rpartition(".")[2]
        if state not in ("pending", "running"):
            self.ended[msgspec.json.decode(message.data)["job"]] = time.perf_counter()
            self._changed.set()

    async def until_ended(self, jobs: set[str], within_s: float) -> float:
        """When the last of these jobs ended, on this process's clock. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while not jobs <= self.ended.keys():
                self._changed.clear()
                await self._changed.wait()
        return max(self.ended[job] for job in jobs)

    async def until_counted(self, subject: str, count: int, within_s: float) -> None:
        """Until this many events of a kind have come. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while self.counts[subject] < count:
                await asyncio.sleep(0.01)
