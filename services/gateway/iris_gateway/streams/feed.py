"""Sends public events to many watchers: one reader of the stream, a ring buffer, and a position per
watcher.

Without watchers nothing is read, so an idle gateway costs the cluster nothing per event. Who watches
a job is woken by events of its root job only, and passes over all others. A watcher that falls
behind the ring is disconnected and resumes after the last sequence it received; events older than
the ring are read from the stream, if it is not read for some subjects only. So no event is lost, and
no watcher delays another. Out of scope: how events are written to a connection (`sse`). Source:
docs/performance.md B9.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from iris_bus.contract import Gap, Message, Reader, Streams, Unavailable
from iris_core.subjects import EVENTS
from iris_gateway.http.position import Position, position_from
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.event import EventRecord, Filter, read_event
from iris_gateway.streams.readers import Turns, close_soon, reading

RING = 20_000
RING_BYTES = 16 << 20
"""Of the bodies of the newest events; in memory they take about three times as much."""
PIECE = 128
"""Events that a watcher is given at once at most: one that does not read holds no more of them."""
_ROUND_S = 0.0001
_LONGEST_ROUND_S = 0.1
_RETRY_S = 0.5
_REST_S = 10.0
_sequence = attrgetter("sequence")


class Lagging(Exception):
    """A watcher was so slow that the ring no longer holds its next event."""


class NewEvents(NamedTuple):
    """Everything up to ``position`` was checked; these events match, at most `PIECE`."""

    position: int
    events: list[EventRecord]


class _Waiter:
    """A watcher that has read everything so far, or will look again by itself.

    Attributes:
        arrival: there is something to read or to do.
        first: the sequence of the first event that may be for it, of those that came since it last
            looked; 0: there is none, and all of them may be passed over.
    """

    __slots__ = ("arrival", "first")

    def __init__(self) -> None:
        self.arrival = asyncio.Event()
        self.first = 0

    def wake(self, first: int = 0) -> None:
        self.first = self.first or first
        self.arrival.set()

    def look(self) -> None:
        """It looks now at whatever came."""
        self.first = 0
        self.arrival.clear()


class Feed:
    """New events for watchers.

    Args:
        subjects: of the events that it reads; of all when there are none.
        ring: how many of the newest events are kept for watchers; ring_bytes: of their bodies.
        tick_s: silence after which watchers get an empty batch, so that they can send a keep-alive.
        rest_s: how long it keeps reading without watchers.

    Attributes:
        turns: given to other requests between the events of a long answer.
    """

    def __init__(
        self,
        streams: Streams,
        position: Position | None = None,
        *subjects: str,
        ring: int = RING,
        ring_bytes: int = RING_BYTES,
        turns: Turns | None = None,
        tick_s: float = 5.0,
        rest_s: float = _REST_S,
    ) -> None:
        self.streams = streams
        self._position = position or Position()
        self._subjects = subjects
        self._size = ring
        self._most_bytes = ring_bytes
        self._bytes = 0
        self.turns = turns or Turns()
        self._tick_s = tick_s
        self._rest_s = rest_s
        self._woken_at = 0.0
        self._waking = asyncio.Lock()
        self._ring: list[EventRecord] = []
        self._after = 0
        self._made = ""
        self._waiters: dict[str, set[_Waiter]] = {}
        self._everybody_s = -math.inf
        self._known_before = 0
        self._reader: Reader | None = None
        self._task: asyncio.Task[None] | None = None
        self.closed = False

    @property
    def newest(self) -> int:
        """The sequence of the last event read; that of the stream's last one after `wake`."""
        return self._ring[-1].sequence if self._ring else self._after

    @property
    def oldest(self) -> int:
        """The sequence after which all events are kept here."""
        return self._after

    @property
    def reading(self) -> bool:
        """Whether the stream is being read."""
        return self._task is not None and not self._task.done()

    async def wake(self) -> None:
        """Start reading from the present end of the stream, unless it is being read already. Raises
        ProblemResponse unavailable.
        """
        self._woken_at = asyncio.get_running_loop().time()
        async with self._waking:
            if self.reading:
                return
            self._clear_ring()
            await self._take_position()
            self._reader = self._new_reader()
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End all watchers."""
        self.closed = True
        self._wake_waiters()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._reader is not None:
            await self._reader.close()

    async def _take_position(self) -> None:
        """Stand at the end of the stream that is there; reads are as new as its last event from now
        on. Raises ProblemResponse unavailable.
        """
        try:
            end = await self.streams.position(EVENTS.name)
            message = await self.streams.last(EVENTS.name)
        except Unavailable:
            raise _unavailable() from None
        self._after = end.sequence
        self._made = end.made
        if message is not None:
            self._position.note(journal_position(message))

    def _new_reader(self) -> Reader:
        """A reader of what is behind that position."""
        return self.streams.read(EVENTS.name, self._after, *self._subjects, made=self._made)

    async def watch(self, wanted: Filter, after: int) -> AsyncGenerator[NewEvents, None]:
        """Matching events after ``after``, in order; empty batches at intervals.

        Raises ProblemResponse gone when events after ``after`` are deleted, before anything is
        yielded; unavailable, Lagging, which a feed of some subjects also raises for a position from
        before it read.
        """
        await self.wake()
        position = after
        waiter = _Waiter()
        root = _root(wanted.within)
        self._waiters.setdefault(root, set()).add(
            waiter
        )  # before older events are read, which may take longer than a feed without any rests
        try:
            async for piece in self._older(position):
                position = piece[-1].sequence
                yield NewEvents(position, wanted.of(piece))
                await self.turns.give()
            while not self.closed:
                waiter.look()
                batch = self._since(position)
                position = batch[-1].sequence if batch else position
                has_all = position >= self.newest
                yield NewEvents(position, wanted.of(batch))
                if has_all:
                    await waiter.arrival.wait()
                    passed = waiter.first - 1 if waiter.first else self.newest
                    position = max(position, passed)
                else:
                    await self.turns.give()
        finally:
            self._waiters[root].discard(waiter)
            if not self._waiters[root]:
                del self._waiters[root]

    def _since(self, position: int) -> Sequence[EventRecord]:
        if position < self._after or self.newest < position <= self._known_before:
            raise Lagging
        if position >= self.newest:
            return ()
        start = bisect_right(self._ring, position, key=_sequence)
        return self._ring[start : start + PIECE]

    async def _older(self, position: int) -> AsyncIterator[list[EventRecord]]:
        """The events before the ring's first one, at most `PIECE` at a time."""
        if position >= self._after:
            return
        if self._subjects:
            raise Lagging
        with reading(self.streams, EVENTS.name, position, made=self._made) as reader:
            while position < self._after:
                batch = await _batch(reader)
                if batch:
                    position = batch[-1].sequence
                    yield batch

    async def _run(self) -> None:
        while True:
            try:
                await self._read()
                return
            except Unavailable:
                await asyncio.sleep(_RETRY_S)
            except Gap:
                await self._restart()

    async def _read(self) -> None:
        """Read until there has been no watcher for a while."""
        assert self._reader is not None
        while not self._may_rest():
            messages = await self._reader.batch(wait=self._tick_s)
            woken = self._wake_for(self._take(messages))
            now_s = asyncio.get_running_loop().time()
            if not messages or now_s - self._everybody_s >= self._tick_s:
                self._everybody_s = now_s
                woken = self._wake_waiters()
            await asyncio.sleep(min(woken * _ROUND_S, _LONGEST_ROUND_S))
        self._after = self.newest
        self._clear_ring()
        close_soon(
            self._reader
        )  # not waited for: whoever came meanwhile would be taken for one who is being read for

    def _may_rest(self) -> bool:
        return (
            not self._waiters and asyncio.get_running_loop().time() - self._woken_at > self._rest_s
        )

    async def _restart(self) -> None:
        """Continue after a gap: watchers before it are disconnected and resume from the stream, as
        are those behind the end of a stream that was made anew.
        """
        assert self._reader is not None
        await self._reader.close()
        before = self.newest
        self._clear_ring()
        with contextlib.suppress(ProblemResponse):
            await self._take_position()
            self._known_before = before if self._after < before else 0
        self._reader = self._new_reader()
        self._wake_waiters(first=1)

    def _take(self, messages: Sequence[Message]) -> Sequence[EventRecord]:
        ring = self._ring
        for message in messages[-1:]:
            self._position.note(journal_position(message))
        events = list(map(read_event, messages))
        ring.extend(events)
        self._bytes += sum(len(event.body) for event in events)
        if len(ring) > 2 * self._size:
            self._drop_oldest(len(ring) - self._size)
        while self._bytes > self._most_bytes:
            self._drop_oldest(max(len(ring) // 2, 1))
        return events

    def _drop_oldest(self, count: int) -> None:
        """Forget the oldest events of the ring."""
        gone = self._ring[:count]
        self._after = gone[-1].sequence
        self._bytes -= sum(len(event.body) for event in gone)
        del self._ring[:count]

    def _clear_ring(self) -> None:
        self._ring.clear()
        self._bytes = 0

    def _wake_for(self, events: Sequence[EventRecord]) -> int:
        """Wake those who watch everything and those who watch a job below one of the roots; returns
        how many.
        """
        first: dict[str, int] = {}
        for event in events:
            first.setdefault("", event.sequence)
            first.setdefault(_root(event.job), event.sequence)
        woken = 0
        for root, sequence in first.items():
            waiters = self._waiters.get(root, ())
            woken += len(waiters)
            for waiter in waiters:
                waiter.wake(sequence)
        return woken

    def _wake_waiters(self, first: int = 0) -> int:
        """Wake everybody; returns how many. ``first``: as of a waiter."""
        everybody = list(chain.from_iterable(self._waiters.values()))
        for waiter in everybody:
            waiter.wake(first)
        return len(everybody)


def _root(job: str) -> str:
    """The name of the root of a job; empty for no job."""
    end = job.find("/", 1)
    return job if end < 0 else job[:end]


def journal_position(message: Message) -> int:
    """The journal sequence of an event's commit, by the event's id; 0 for an event without one."""
    return position_from(message.headers.get("Nats-Msg-Id", "").partition(".")[0])


async def _batch(reader: Reader) -> list[EventRecord]:
    try:
        return [read_event(message) for message in await reader.batch(limit=PIECE, wait=5.0)]
    except Gap:
        raise ProblemResponse(
            "gone", "these events have expired; start again without a position"
        ) from None
    except Unavailable:
        raise _unavailable() from None


def _unavailable() -> ProblemResponse:
    return ProblemResponse("unavailable", "the events cannot be read")
