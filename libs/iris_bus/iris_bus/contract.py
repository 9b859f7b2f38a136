"""The interfaces of the message bus, implemented by JetStream and, for tests, in memory.

Nothing here depends on NATS. A module that needs the bus takes one of these protocols as an argument; only a
service's shell awaits them. Absent on purpose: work queues, acknowledgements by consumers, leases.
Source: docs/ARCHITECTURE.md#storage; docs/design/nats.md#features-used, docs/design/nats.md#nats-py-behaviour.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

Headers = Mapping[str, str]


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message as a subscriber sees it.

    Attributes:
        subject: where it was published.
        data: the body, opaque to the bus.
        headers: none for most internal messages.
        reply: where an answer is awaited; empty when nobody waits.
        sequence: position in its stream, 0 for core messages.
    """

    subject: str
    data: bytes
    headers: Headers = msgspec.field(default_factory=dict)
    reply: str = ""
    sequence: int = 0


Callback = Callable[[Message], None]
"""Called in the loop's thread for each message; must return quickly and must not raise."""


class Unavailable(Exception):
    """The bus cannot be reached, or did not answer in time; the call may or may not have had its effect."""


class NoResponders(Unavailable):
    """Nobody listens on the subject of a request: the other side is dead, known at once."""


class Fenced(Exception):
    """An append named a sequence that is no longer the end: there is another writer. This one must exit."""


class Full(Exception):
    """A stream refused a message because it is at its limit (discard new)."""


class DamagedCommit(Exception):
    """A message of the journal is not what was written there: its checksum, its place, or what it holds.

    Attributes:
        sequence: where it stands. why: what is wrong with it.
    """

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"the journal is damaged at {sequence}: {why}")
        self.sequence = sequence
        self.why = why


class Subscription(Protocol):
    """A running subscription; `close` ends it and no callback follows."""

    async def close(self) -> None: ...


class Bus(Protocol):
    """Core messages: not stored, at most once."""

    def publish(self, subject: str, data: bytes, *, reply: str = "", headers: Headers | None = None) -> None:
        """Send and forget; lost while the server is away. Never blocks.

        Raises Unavailable only after the connection is closed for good, ValueError for a subject with spaces or a
        message that is too big.
        """
        ...

    async def flush(self) -> None:
        """Return when everything published so far has reached the server."""
        ...

    async def request(self, subject: str, data: bytes, *, timeout: float, headers: Headers | None = None) -> Message:
        """One answer. Raises NoResponders at once without a subscriber, Unavailable after ``timeout`` seconds."""
        ...

    async def subscribe(self, subject: str, callback: Callback, *, queue: str = "") -> Subscription: ...

    def new_inbox(self) -> str:
        """A fresh subject only this connection listens on."""
        ...

    async def close(self) -> None: ...


class Streams(Protocol):
    """Stored messages."""

    async def ensure(self) -> None:
        """Declare every stream of the subjects table; idempotent; raises Unavailable."""
        ...

    async def publish(
        self, subject: str, data: bytes, *, message_id: str = "", headers: Headers | None = None, timeout: float = 5.0
    ) -> int:
        """Store one message and return its sequence; one ``message_id`` is stored once. Raises Full, Unavailable."""
        ...

    def read(self, stream: str, after: int, *, subject: str = "") -> Reader:
        """A gap-checked reader of everything behind sequence ``after``, then of what arrives.

        ``after`` 0 means from the oldest message that is kept. With ``subject``, sequences jump by
        themselves and trimmed messages are passed over instead of raising Gap.
        """
        ...

    async def last(self, stream: str, *, subject: str = "") -> Message | None:
        """The newest stored message, or None when the stream (or that subject) is empty."""
        ...

    async def end(self, stream: str) -> int:
        """The last sequence the stream ever held, 0 when it never held anything. Raises Unavailable."""
        ...

    async def trim(self, stream: str, below: int) -> None:
        """Forget every message with a sequence less than ``below``."""
        ...

    async def size(self, stream: str) -> int:
        """Bytes it holds. Raises Unavailable."""
        ...

    async def fill(self, stream: str) -> float:
        """How full a stream is, 0 to 1; 0 where it has no limit. Raises Unavailable."""
        ...


class Reader(Protocol):
    """Messages of one stream in order, none missing, none twice; survives reconnects by itself."""

    async def batch(self, *, limit: int = 2000, wait: float | None = None) -> Sequence[Message]:
        """What has arrived, at least one message; empty only when ``wait`` seconds passed. Raises Gap when trimmed."""
        ...

    def on_arrival(self, notify: Callable[[], None]) -> None:
        """Have ``notify`` called whenever ``take`` would return something."""
        ...

    def take(self, limit: int = 2000) -> Sequence[Message]:
        """What has arrived, without waiting; may be empty."""
        ...

    async def close(self) -> None: ...


class Gap(Exception):
    """The stream no longer holds the sequence the reader needs; start again from a snapshot."""


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """One commit of the journal; ``sequence`` is that of the last message it lies in."""

    sequence: int
    data: bytes


class CommitReader(Protocol):
    """Commits of the journal in order, as a `Reader` does messages; `take` and `batch` raise DamagedCommit too."""

    async def batch(self, *, limit: int = 2000, wait: float | None = None) -> Sequence[JournalEntry]: ...

    def on_arrival(self, notify: Callable[[], None]) -> None: ...

    def take(self, limit: int = 2000) -> Sequence[JournalEntry]: ...

    async def close(self) -> None: ...


class Journal(Protocol):
    """The record: an append-only log with one writer at a time, fenced by its own last sequence.

    A commit that is large lies in several messages (see `framing`). One whose writer ended between two of them was
    never appended: nobody reads it, and the next writer goes on behind it.
    """

    async def replay(self, after: int) -> AsyncIterator[JournalEntry]:
        """Every commit behind ``after`` up to the end as it was when called. Raises Gap when trimmed past.

        The iteration raises DamagedCommit.
        """
        ...

    async def append(self, data: bytes, *, expected: int) -> int:
        """Store one commit if the journal still ends at ``expected``; return its sequence once it is durable.

        Raises Fenced when somebody else has written, Unavailable when, after reading the tail back, it is still
        unknown whether it was stored.
        """
        ...

    async def end(self) -> int:
        """The last sequence, 0 when empty; behind the last commit when the one after it was not finished."""
        ...

    async def tail(self, after: int) -> CommitReader:
        """Follow the journal, for a standby."""
        ...

    async def trim(self, below: int) -> None: ...


class Publication(msgspec.Struct, frozen=True, gc=False):
    """One public event on its way out: where, what, and the id (journal sequence and index) it is known by."""

    subject: str
    data: bytes
    message_id: str
    headers: Headers = msgspec.field(default_factory=dict)


class EventPublisher(Protocol):
    """Ordered, fenced publishing of events into their stream: each once, none lost, a deposed writer refused."""

    async def resume(self) -> str:
        """The id of the last event ever published, empty when none: go on behind it."""
        ...

    def publish(self, events: Sequence[Publication]) -> None:
        """Queue events; they go out in order, pipelined, and are confirmed in bulk."""
        ...

    @property
    def last_published(self) -> str:
        """The id of the last event the stream has confirmed."""
        ...

    @property
    def backlog(self) -> int:
        """Events queued or sent, and not confirmed."""
        ...

    async def drain(self, timeout: float) -> None:
        """Return when every queued event is confirmed. Raises Fenced or Unavailable."""
        ...

    async def close(self) -> None:
        """Let go of it; what is unconfirmed is published by whoever resumes."""
        ...


class Blob(msgspec.Struct, frozen=True, gc=False):
    """What is known of an object without reading it: its size, when it was last marked as in use (ms), and a number
    that changes with either.
    """

    name: str
    bytes: int
    used_ms: int
    version: int


class Blobs(Protocol):
    """Whole objects with a digest: snapshots and bundles."""

    async def put(self, name: str, data: bytes, *, at_ms: int = 0) -> None:
        """Store ``data`` under ``name``, in place of what was there. ``at_ms``: now, for `list`."""
        ...

    async def get(self, name: str) -> bytes | None:
        """The object, None when there is none. Raises ValueError when its digest does not match."""
        ...

    async def names(self) -> Sequence[str]:
        """Oldest first."""
        ...

    async def listed(self) -> Sequence[Blob]:
        """Every object, in no order."""
        ...

    async def touch(self, name: str, at_ms: int) -> bool:
        """Say that an object is in use; False when there is none."""
        ...

    async def delete(self, name: str) -> None: ...

    async def discard(self, blob: Blob) -> bool:
        """Delete what was listed, unless it was touched or put again since; whether it is gone by this."""
        ...

    async def tidy(self, rest_s: float = 3600.0) -> int:
        """Drop parts of objects that never came to be, seen by a call ``rest_s`` ago and by this; how many objects."""
        ...


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A value of a bucket; ``revision`` grows with every change of anything in the bucket."""

    value: bytes
    revision: int


_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")


def checked_key(key: str) -> str:
    """``key``, if a bucket can hold it. Raises ValueError."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"not a key: {key!r}")
    return key


class KeyValue(Protocol):
    """A bucket of small values by key, of which readers keep the whole set. Keys: letters, digits, ``-_=./``."""

    async def put(self, key: str, value: bytes, *, expected: int) -> int:
        """Store a value if the key's revision is still ``expected`` (0: there is no such key); return the new one.

        Nobody else's value is overwritten: raises Fenced. Raises Full, Unavailable, ValueError for what is no key.
        """
        ...

    async def delete(self, key: str, *, expected: int) -> None:
        """Remove the key if its revision is still ``expected``. Raises Fenced, Unavailable."""
        ...

    async def all(self) -> Mapping[str, Entry]:
        """Every present value. Raises Unavailable."""
        ...

    def watch(self) -> Watch:
        """Follow the whole set."""
        ...


class Watch(Protocol):
    """The present values of a bucket, again after each change; changes in quick succession are seen as one.

    The whole set is read again after each reconnection, and while the server is away nothing is taken from it.
    """

    async def next(self) -> Mapping[str, Entry]:
        """The whole set, complete: the first time as soon as it is known, later when it differs from the last one.

        Raises Unavailable once closed.
        """
        ...

    async def close(self) -> None: ...


class Connection(Protocol):
    """What a service's shell holds of the bus; `jetstream.connect` and `memory.Memory.connect` make one."""

    @property
    def bus(self) -> Bus: ...

    @property
    def streams(self) -> Streams: ...

    @property
    def connected(self) -> bool:
        """False while the server is away; calls raise Unavailable then."""
        ...

    def journal(self, part_bytes: int = ...) -> Journal:
        """The record; a commit of more than ``part_bytes`` is stored in parts."""
        ...

    def publisher(self) -> EventPublisher: ...

    def blobs(self, bucket: str) -> Blobs: ...

    def key_value(self, bucket: str) -> KeyValue: ...

    async def close(self) -> None:
        """Flush and end. Safe to call twice."""
        ...
