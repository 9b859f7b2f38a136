"""A plain NATS client that watches public events: the end of each job, and the contents of the
stream.
"""

from __future__ import annotations

import asyncio
import time

import msgspec
import nats
from nats.aio.msg import Msg


class Watcher:
    """Notes when and how each job ended, and counts what the event stream keeps. Use as an async
    context manager.
    """

    def __init__(self, url: str) -> None:
        self._url = url  # of tests.support.nats.OpenServer, which names the two users
        self.ended: dict[str, float] = {}
        self.states: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Watcher:
        self._client = await nats.connect(self._url)
        self._system = await nats.connect(self._url.replace("iris:iris@", "sys:sys@"))
        await self._client.subscribe("job.state.*", cb=self._note)
        await self._client.flush()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self._system.close()

    async def _note(self, message: Msg) -> None:
        state = message.subject.rpartition(".")[2]
        if state not in ("pending", "running"):
            job = msgspec.json.decode(message.data)["job"]
            self.ended[job], self.states[job] = time.perf_counter(), state
            self._changed.set()

    async def until_ended(self, jobs: set[str], within_s: float) -> float:
        """When the last of these jobs ended, on this process's clock. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while not jobs <= self.ended.keys():
                self._changed.clear()
                await self._changed.wait()
        return max(self.ended[job] for job in jobs)

    async def stored(self) -> dict[str, int]:
        """How many events of each subject the stream has kept by now."""
        request = msgspec.json.encode({"subjects_filter": ">"})
        answer = await self._client.request("$JS.API.STREAM.INFO.IRIS_EVENTS", request, timeout=10)
        subjects: dict[str, int] = msgspec.json.decode(answer.data)["state"].get("subjects") or {}
        return subjects

    async def journal(self) -> tuple[int, int]:
        """Commits ever made, and the bytes the journal keeps."""
        answer = await self._client.request("$JS.API.STREAM.INFO.IRIS_JOURNAL", b"", timeout=10)
        state = msgspec.json.decode(answer.data)["state"]
        return state["last_seq"], state["bytes"]

    async def messages(self) -> int:
        """Messages that the server has received from and sent to all its clients, what this watcher
        gets among them.
        """
        await self._client.flush()
        answer = await self._system.request("$SYS.REQ.SERVER.PING.STATSZ", b"", timeout=10)
        stats = msgspec.json.decode(answer.data)["statsz"]
        return int(stats["received"]["msgs"] + stats["sent"]["msgs"])

    async def until_stored(self, wanted: dict[str, int], within_s: float = 20.0) -> None:
        """Return when the stream keeps exactly these counts. Raises RuntimeError saying what it
        keeps instead.
        """
        deadline = time.monotonic() + within_s
        while (
            kept := {
                subject: n for subject, n in (await self.stored()).items() if subject in wanted
            }
        ) != wanted:
            if time.monotonic() > deadline or any(
                kept.get(subject, 0) > n for subject, n in wanted.items()
            ):
                raise RuntimeError(f"not every event was told once: {kept} instead of {wanted}")
            await asyncio.sleep(0.02)
