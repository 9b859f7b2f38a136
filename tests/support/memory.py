"""The bus contract in memory, for tests: one `Memory` is the server, each `connect` a process's
connection to it.

Deterministic: no threads, no tasks, no clock of its own. Callbacks run in publishing order, never
inside `publish`: with a running event loop in its next iteration, without one when `deliver` is
called. `away` makes the server unreachable and reachable again. Out of scope: what is stored
    (`memory_store`); faults of a network.
Source: contract.py, under the suite in tests/contract.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from iris_bus.contract import Callback, Full, Headers, Message, NoResponders, Unavailable
from iris_bus.journal.framing import PART_BYTES
from iris_core import subjects
from iris_core.limits import MESSAGE_BYTES
from iris_core.subjects import Stream, fits_line
from tests.support.memory_store import (
    MemoryBlobs,
    MemoryJournal,
    MemoryKeyValue,
    MemoryPublisher,
    MemoryStream,
    MemoryStreams,
    StoredKeys,
    matches,
)


@dataclass(eq=False)
class _Listener:
    pattern: tuple[str, ...]
    callback: Callback
    queue: str
    owner: MemoryBus
    served: int = 0
    open: bool = True

    def hear(self, message: Message) -> None:
        if self.open:
            self.callback(message)

    async def close(self) -> None:
        if self.open:
            self.open = False
            self.owner.memory.listeners.remove(self)


class Memory:
    """The bus of one process.

    Args:
        table: the streams it can keep.
        max_payload: bytes of the largest message.

    Attributes:
        copies: of each stream.
        older_ends: where the journal ended before, which it answers first, as a server does that
            was suspended and has not heard yet that another leads the stream.
    """

    def __init__(
        self, table: Sequence[Stream] = subjects.STREAMS, max_payload: int = MESSAGE_BYTES
    ) -> None:
        self.max_payload = max_payload
        self.streams = {row.name: MemoryStream(row, self.later) for row in table}
        self.buckets: dict[str, dict[str, tuple[bytes, str]]] = {}
        self.used: dict[str, dict[str, tuple[int, int]]] = {}
        self.owners: dict[str, dict[str, dict[str, int]]] = {}
        self.key_values: dict[str, StoredKeys] = {}
        self.notes: dict[str, dict[str, str]] = {}
        self.copies = 1
        self.older_ends: list[int] = []
        self.listeners: list[_Listener] = []
        self._away = False
        self._due: deque[Callable[[], None]] = deque()
        self._inboxes = 0
        self._scheduled = False

    @property
    def away(self) -> bool:
        """Whether the server cannot be reached."""
        return self._away

    @away.setter
    def away(self, away: bool) -> None:
        self._away = away
        for stored in self.streams.values():
            stored.wake()
        for bucket in self.key_values.values():
            bucket.wake()

    def connect(self, name: str = "memory") -> MemoryConnection:
        """A connection for one process; ``name`` appears in its inboxes."""
        return MemoryConnection(self, name)

    def later(self, call: Callable[[], None]) -> None:
        """Make ``call`` after the calls that are already queued."""
        self._due.append(call)
        if self._scheduled:
            return
        with contextlib.suppress(RuntimeError):  # without a running loop, the test calls `deliver`
            asyncio.get_running_loop().call_soon(self.deliver)
            self._scheduled = True

    def deliver(self) -> None:
        """Make every queued call, and those they queue."""
        self._scheduled = False
        while self._due:
            self._due.popleft()()

    def inbox(self, name: str) -> str:
        """A new subject, numbered so that runs are reproducible."""
        self._inboxes += 1
        return f"_INBOX.{name}.{self._inboxes}"

    def route(self, message: Message) -> bool:
        """Store the message if a stream captures its subject, pass it to subscribers; whether
        anybody took it.
        """
        if self.away:
            return False
        self.check_size(message.data)
        stored = self.stream_of(message.subject)
        if stored is not None:
            with contextlib.suppress(Full):
                stored.store(message.subject, message.data, message.headers)
        return self._announce(message) or stored is not None

    def store(
        self, subject: str, data: bytes, headers: Headers, expected: int | None = None
    ) -> int:
        """Store one message and acknowledge it. Raises Full, Fenced, NoResponders, ValueError."""
        self.check_size(data)
        stored = self.stream_of(subject)
        if stored is None:
            raise NoResponders(f"no stream takes {subject}")
        sequence = stored.store(subject, data, headers, expected)
        self._announce(Message(subject, data, headers))
        return sequence

    def check_size(self, data: bytes) -> None:
        """Raises ValueError for a message larger than the server accepts."""
        if len(data) > self.max_payload:
            raise ValueError(f"{len(data)} bytes are more than one message may hold")

    def _announce(self, message: Message) -> bool:
        tokens = message.subject.split(".")
        groups: dict[str, list[_Listener]] = {}
        for listener in self.listeners:
            if matches(listener.pattern, tokens):
                groups.setdefault(listener.queue or f"*{id(listener)}", []).append(listener)
        for members in groups.values():
            chosen = min(members, key=lambda listener: listener.served)
            chosen.served += 1
            self.later(partial(chosen.hear, message))
        return bool(groups)

    def stream_of(self, subject: str) -> MemoryStream | None:
        """The stream that captures ``subject``."""
        tokens = subject.split(".")
        for stored in self.streams.values():
            if any(matches(pattern.split("."), tokens) for pattern in stored.row.subjects):
                return stored
        return None


class MemoryBus:
    """Core messages of one connection."""

    def __init__(self, memory: Memory, name: str) -> None:
        self.memory = memory
        self._name = name
        self._closed = False

    def publish(
        self, subject: str, data: bytes, *, reply: str = "", headers: Headers | None = None
    ) -> None:
        self._check()
        _check_subject(subject)
        self.memory.route(Message(subject, data, headers or {}, reply))

    async def flush(self) -> None:
        self._check()
        if self.memory.away:
            raise Unavailable("the server is away")
        self.memory.deliver()

    async def request(
        self, subject: str, data: bytes, *, timeout: float, headers: Headers | None = None
    ) -> Message:
        self._check()
        if self.memory.away:
            raise Unavailable("the server is away")
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        inbox = self.new_inbox()
        listening = await self.subscribe(
            inbox, lambda message: None if answer.done() else answer.set_result(message)
        )
        try:
            if not self.memory.route(Message(subject, data, headers or {}, inbox)):
                raise NoResponders(f"nobody answers on {subject}")
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError as error:
            raise Unavailable(f"no answer on {subject} within {timeout:g} s") from error
        finally:
            await listening.close()

    async def subscribe(self, subject: str, callback: Callback, *, queue: str = "") -> _Listener:
        self._check()
        listener = _Listener(tuple(subject.split(".")), callback, queue, self)
        self.memory.listeners.append(listener)
        return listener

    def new_inbox(self) -> str:
        return self.memory.inbox(self._name)

    async def close(self) -> None:
        self._closed = True
        for listener in [each for each in self.memory.listeners if each.owner is self]:
            await listener.close()

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("the connection is closed")


def _check_subject(subject: str) -> None:
    if not fits_line(subject):
        raise ValueError(f"not a subject: {subject[:200]!r}")


class MemoryConnection:
    """What a service's shell holds of the bus."""

    reconnects = 0

    def __init__(self, memory: Memory, name: str) -> None:
        self._memory = memory
        self.bus = MemoryBus(memory, name)
        self.streams = MemoryStreams(memory)

    @property
    def connected(self) -> bool:
        return not self._memory.away

    def journal(self, part_bytes: int = PART_BYTES) -> MemoryJournal:
        return MemoryJournal(self._memory, part_bytes)

    def publisher(self) -> MemoryPublisher:
        return MemoryPublisher(self._memory)

    def blobs(self, bucket: str) -> MemoryBlobs:
        return MemoryBlobs(self._memory, bucket)

    def key_value(self, bucket: str) -> MemoryKeyValue:
        return MemoryKeyValue(self._memory, bucket)

    async def close(self) -> None:
        await self.bus.close()
