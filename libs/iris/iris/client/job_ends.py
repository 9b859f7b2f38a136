"""Tells coroutines that jobs may have ended: all waits of one client share one stream of events and
one thread, so their number is bounded by nothing that a request needs.

Out of scope: whether a job has ended; who waits reads it again each time it is told
(`client.async_base`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from iris.client.http.api import GatewayApi
from iris.client.http.event_stream import EventStream
from iris.client.http.events import read_events
from iris.client.jobs import TERMINAL, Job
from iris.client.problems import ClientError, Conflict
from iris_core.views.events import JobEvent

_ENDS = ",".join(f"job.state.{state}" for state in sorted(TERMINAL))


class JobNews:
    """What one wait is told, on its own event loop."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._error: BaseException | None = None

    async def next(self) -> None:
        """Return when the job may have ended. Raises what ended the reading of events."""
        await self._woken.wait()
        self._woken.clear()
        if self._error is not None:
            raise self._error

    def tell(self, error: BaseException | None = None) -> None:
        """Wake the wait, from any thread."""
        self._error = error
        with suppress(RuntimeError):  # its loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._woken.set)


class _Reader:
    """One stream of events, and the waits that it tells. The lock of its owner guards all of it.

    Attributes:
        is_open: whether no later end is missed. has_ended: nobody is told any more.
    """

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.waits: dict[str, set[JobNews]] = {}
        self.is_open = False
        self.has_ended = False


class JobEnds:
    """The ends of jobs, read while somebody waits for one."""

    def __init__(self, api: GatewayApi) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._reader: _Reader | None = None

    @contextmanager
    def expect(self, job: Job) -> Iterator[JobNews]:
        """News of a job: the first once no later end is missed, then each time it may have ended.

        Raises by `JobNews.next` what ends the stream: Problem, Unreachable.
        """
        news = JobNews(job)
        reader = self._join(news)
        try:
            yield news
        finally:
            self._leave(reader, news)

    def close(self) -> None:
        """End the stream; who still waits is told that the client is closed."""
        with self._lock:
            reader = self._reader
            self._reader = None
        if reader is not None:
            reader.stream.close()

    def _join(self, news: JobNews) -> _Reader:
        with self._lock:
            reader = self._reader
            if reader is None or reader.has_ended:
                reader = self._reader = _Reader(self._new_stream())
                threading.Thread(
                    target=self._read, args=(reader,), name="iris-job-ends", daemon=True
                ).start()
            reader.waits.setdefault(news.job.id, set()).add(news)
            if reader.is_open:
                news.tell()
            return reader

    def _leave(self, reader: _Reader, news: JobNews) -> None:
        with self._lock:
            waits = reader.waits[news.job.id]
            waits.discard(news)
            if not waits:
                del reader.waits[news.job.id]
            is_last = not reader.waits
            if is_last and self._reader is reader:
                self._reader = None
        if is_last:
            reader.stream.close()

    def _new_stream(self) -> EventStream:
        return self._api.stream("/v1/events", {"type": _ENDS})

    def _read(self, reader: _Reader) -> None:
        error: BaseException | None = None
        try:
            while not self._read_to_end(reader):
                with self._lock:
                    if self._reader is not reader:
                        break
                    reader.stream = self._new_stream()
            error = ClientError("the client is closed")  # or nobody waits any more
        except Exception as raised:  # noqa: BLE001 - whoever waits raises it
            error = raised
        with self._lock:
            reader.has_ended = True
            self._tell_all(reader, error)

    def _read_to_end(self, reader: _Reader) -> bool:
        """Tell what a stream says; False when its place is gone and it has to begin anew."""
        stream = reader.stream.open()
        with self._lock:
            reader.is_open = True
            self._tell_all(reader)
        try:
            for event in read_events(stream):
                if isinstance(event, JobEvent):
                    self._tell(reader, event)
        except Conflict:
            return False
        return True

    def _tell(self, reader: _Reader, event: JobEvent) -> None:
        with self._lock:
            for news in reader.waits.get(event.job_id, ()):
                news.tell()

    def _tell_all(self, reader: _Reader, error: BaseException | None = None) -> None:
        for waits in reader.waits.values():
            for news in waits:
                news.tell(error)
