"""The interfaces of the message bus, implemented by JetStream; the tests have one in memory.

Nothing here depends on NATS. A module that needs the bus takes one of these protocols as an
argument; only a service's shell awaits them. Absent on purpose: work queues, acknowledgements by
consumers, leases.
Source: docs/ARCHITECTURE.md#storage; docs/design/nats.md#features-used,
    docs/design/nats.md#nats-py-behaviour.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import IO, Protocol

import msgspec

Headers = Mapping[str, str]


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message as a subscriber sees it.

    Attributes:
        subject: where it was published.
        data: the body, opaque to the bus.
        headers: none for most internal messages.
        reply: the subject for the answer; empty when none is expected.
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
    """The bus cannot be reached or did not answer in time. It is unknown whether the call took
    effect.
    """


class NoResponders(Unavailable):
    """Nobody subscribes to the subject of a request; the server reports this at once."""


class Fenced(Exception):
    """An append expected an earlier end of the stream: there is another writer, and this one must
    exit.
    """


class Full(Exception):
    """A stream refused a message because it is at its limit (discard new)."""


class DamagedCommit(Exception):
    """A message of the journal differs from what was written: its checksum, its position, or its
    content.

    Attributes:
        sequence: of the message in the stream. why: what is wrong with it.
    """

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"the journal is damaged at {sequence}: {why}")
        self.sequence = sequence
        self.why = why


class RecordsLost(Exception):
    """The journal is not the one that the cluster worked with: its streams were lost, or a restore
    was interrupted.
    """


class Subscription(Protocol):
    """A running subscription; after `close` no callback is made."""

    async def close(self) -> None: ...


class Bus(Protocol):
    """Core messages: not stored, at most once."""

    def publish(
        self, subject: str, data: bytes, *, reply: str = "", headers: Headers | None = None
    ) -> None:
        """Publish without an acknowledgement; lost while the server is away. Never blocks.

        Raises Unavailable only after the connection is closed for good, ValueError for a subject
        with spaces or a message that is too big.
        """
        ...

    async def flush(self) -> None:
        """Return when the server has received everything published so far."""
        ...

    async def request(
        self, subject: str, data: bytes, *, timeout: float, headers: Headers | None = None
    ) -> Message:
        """Send one request and return its answer.

        Raises NoResponders at once without a subscriber, Unavailable after ``timeout`` seconds.
        """
        ...

    async def subscribe(
        self, subject: str, callback: Callback, *, queue: str = ""
    ) -> Subscription: ...

    def new_inbox(self) -> str:
        """A new subject that only this connection subscribes to."""
        ...

    async def close(self) -> None: ...


class StoreStanding(msgspec.Struct, frozen=True):
    """What the servers say about one stream or bucket.

    Attributes:
        bytes: what it holds. limit_bytes: the most it may hold, 0: no limit.
        wanted: copies it should have, by the settings and by its declaration. declared: copies it
            is declared with.
        current: copies that hold everything and answer.
        servers: whether each server of its cluster answers, by name; empty where the server is not
            one of a cluster.
        notes: its metadata.
    """

    bytes: int = 0
    limit_bytes: int = 0
    wanted: int = 1
    declared: int = 1
    current: int = 1
    servers: Mapping[str, bool] = {}
    notes: Mapping[str, str] = {}


class ServerStorage(msgspec.Struct, frozen=True):
    """What one server has stored, has reserved for streams, and may store at most, in bytes; 0: no
    limit.
    """

    stored: int = 0
    reserved: int = 0
    limit: int = 0


class StreamPosition(msgspec.Struct, frozen=True):
    """A place in a stream, and when that stream was made: sequences of one that was made anew say
    nothing about it.
    """

    sequence: int = 0
    made: str = ""


class Streams(Protocol):
    """Stored messages."""

    async def ensure(self) -> None:
        """Declare every stream of the subjects table; idempotent; raises Unavailable."""
        ...

    async def publish(
        self, subject: str, data: bytes, *, headers: Headers | None = None, timeout: float = 5.0
    ) -> int:
        """Store one message and return its sequence. Raises Full; Unavailable: it may or may not be
        stored.
        """
        ...

    def read(self, stream: str, after: int, *subjects: str, made: str = "") -> StoredReader:
        """A gap-checked reader of everything after sequence ``after``, then of new messages.

        ``after`` 0 means from the oldest message that is kept. With ``subjects``, messages on
        others are left out, so sequences are not consecutive, and trimmed messages are skipped
        instead of raising Gap. A stream that was made anew meanwhile is a Gap for every reader:
        since ``made``, of the `position` that ``after`` was taken from; empty: since the first read.
        """
        ...

    async def last(self, stream: str, *, subject: str = "") -> Message | None:
        """The newest stored message, or None when the stream (or that subject) is empty."""
        ...

    async def next(self, stream: str, after: int, *, subject: str) -> Message | None:
        """The first stored message on ``subject`` with a sequence above ``after``. Raises
        Unavailable.

        For readers of few large messages, who read one at a time.
        """
        ...

    async def drop(self, stream: str, subject: str, *, keep: int = 0) -> None:
        """Delete every message on a subject, which may hold wildcards, but for the newest ``keep``.
        Raises Unavailable.
        """
        ...

    async def end(self, stream: str) -> int:
        """The last sequence the stream has ever used, 0 when it never held a message. Raises
        Unavailable.
        """
        ...

    async def position(self, stream: str) -> StreamPosition:
        """Its `end`, and when it was made, for whoever reads on from there later. Raises
        Unavailable.
        """
        ...

    async def trim(self, stream: str, below: int) -> None:
        """Delete every message with a sequence less than ``below``."""
        ...

    async def size(self, stream: str) -> int:
        """Bytes the stream holds. Raises Unavailable."""
        ...

    async def standing(self, stream: str) -> StoreStanding:
        """How much a stream or bucket holds, and on how many servers. Raises Unavailable."""
        ...

    async def annotate(self, stream: str, key: str, value: str) -> None:
        """Write one entry of a stream's metadata, which `standing` returns. Raises Unavailable."""
        ...

    async def storage(self) -> Mapping[str, ServerStorage]:
        """What each server has stored, by its name. Raises Unavailable, also when the accounts do
        not allow it.
        """
        ...


class Reader(Protocol):
    """Messages of one stream in order, without gaps or duplicates; continues after reconnects."""

    async def batch(self, *, limit: int = 2000, wait: float | None = None) -> Sequence[Message]:
        """The available messages, at least one; empty only after ``wait`` seconds. Raises Gap when
        trimmed.
        """
        ...

    def on_arrival(self, notify: Callable[[], None]) -> None:
        """Call ``notify`` whenever ``take`` would return something."""
        ...

    def take(self, limit: int = 2000) -> Sequence[Message]:
        """The available messages, without waiting; may be empty."""
        ...

    async def close(self) -> None: ...


class StoredReader(Reader, Protocol):
    """``finished``: whether all has been taken that the server had when it was last heard; one that
    lags has less.
    """

    async def finished(self) -> bool: ...


class Gap(Exception):
    """The stream no longer holds the next sequence of the reader, which must start again from a
    snapshot.
    """


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """One commit of the journal; ``sequence`` is that of its last message."""

    sequence: int
    data: bytes


class CommitReader(Protocol):
    """Commits of the journal in order, as a `Reader` does messages; `take` and `batch` raise
    DamagedCommit too.
    """

    async def batch(
        self, *, limit: int = 2000, wait: float | None = None
    ) -> Sequence[JournalEntry]: ...

    def on_arrival(self, notify: Callable[[], None]) -> None: ...

    def take(self, limit: int = 2000) -> Sequence[JournalEntry]: ...

    async def close(self) -> None: ...


class Journal(Protocol):
    """The journal: an append-only log with one writer at a time, fenced by its last sequence.

    A large commit is stored in several messages (see `framing`). If its writer ended between two of
    them, the commit was never appended: readers skip it, and the next writer appends after it.
    """

    async def replay(self, after: int) -> AsyncIterator[JournalEntry]:
        """Every commit after ``after`` up to the end at the time of the call. Raises Gap when
        trimmed past.

        The iteration raises DamagedCommit.
        """
        ...

    async def append(self, data: bytes, *, expected: int) -> int:
        """Store one commit if the journal still ends at ``expected``; return its sequence once it
        is durable.

        Raises Fenced when another writer has appended, Unavailable when, after reading the tail
        back, it is still unknown whether it was stored.
        """
        ...

    async def end(self) -> int:
        """The last sequence, 0 when empty; with an unfinished commit at the end, the sequence
        before it.
        """
        ...

    async def tail(self, after: int) -> CommitReader:
        """Follow the journal, for a standby."""
        ...


class Publication(msgspec.Struct, frozen=True, gc=False):
    """One public event to publish: subject, body, and its id (journal sequence and index)."""

    subject: str
    data: bytes
    message_id: str
    headers: Headers = msgspec.field(default_factory=dict)


class EventPublisher(Protocol):
    """Publishes events in order into their stream, each exactly once; a deposed writer is
    fenced.
    """

    async def resume(self) -> str:
        """The id of the last event in the stream, empty when none; publishing continues after
        it.
        """
        ...

    def publish(self, events: Sequence[Publication]) -> None:
        """Queue events; they are sent in order, pipelined, and confirmed in bulk."""
        ...

    @property
    def last_published(self) -> str:
        """The id of the last event the stream has confirmed."""
        ...

    @property
    def backlog(self) -> int:
        """How many events are queued or sent and not confirmed."""
        ...

    async def drain(self, timeout: float) -> None:
        """Return when every queued event is confirmed. Raises Fenced or Unavailable."""
        ...

    async def close(self) -> None:
        """End publishing; the next writer that resumes publishes what is not confirmed."""
        ...


DESCRIBED_BYTES = 600
"""What an object takes in its store besides its bytes: 590 with one owner, as measured."""


class Blob(msgspec.Struct, frozen=True, gc=False):
    """Metadata of an object: its size in bytes, when it was last marked as in use (ms), a revision
    that changes with any of it, who has stored it, and since when each of them has it (ms).
    """

    name: str
    bytes: int
    used_ms: int
    version: int
    owners: tuple[str, ...] = ()
    since_ms: Mapping[str, int] = {}

    @property
    def held(self) -> int:
        """What it takes in its store, with what describes it: thousands of tiny ones are not
        nothing.
        """
        return self.bytes + DESCRIBED_BYTES

    @property
    def part(self) -> int:
        """Of that, the bytes that count for each of its owners."""
        return self.held // max(1, len(self.owners))

    def part_since(self, owner: str, at_ms: int) -> int:
        """The same for an owner who has it since that time or later; 0 for another."""
        return self.part if self.since_ms.get(owner, 0) >= at_ms else 0


class Blobs(Protocol):
    """Whole objects with a digest: snapshots and bundles."""

    async def put(
        self, name: str, data: bytes | IO[bytes], *, at_ms: int = 0, owners: Collection[str] = ()
    ) -> None:
        """Store ``data`` under ``name`` and replace the previous object, whose owners stay. A file
        is read from its beginning, a chunk at a time. ``at_ms``: the time now, as `listed` returns
        it and since when it has these owners. ``owners``: who has stored it.
        """
        ...

    async def get(self, name: str) -> bytes | None:
        """The object, None when there is none. Raises ValueError when its digest does not match."""
        ...

    async def names(self) -> Sequence[str]:
        """Names of all objects, oldest first."""
        ...

    async def listed(self) -> Sequence[Blob]:
        """Every object, unordered."""
        ...

    async def touch(
        self, name: str, at_ms: int, *, owner: str | None = None, add: str | None = None
    ) -> bool:
        """Record that an object is in use; False when there is none, or ``owner`` is given and is
        none of its owners. ``add``: an owner from now on.
        """
        ...

    async def delete(self, name: str) -> None: ...

    async def discard(self, blob: Blob) -> bool:
        """Delete an object as it was listed, unless it was touched or stored again since; whether
        this call deleted it.
        """
        ...

    async def tidy(self, rest_s: float = 3600.0) -> int:
        """Delete parts of unfinished objects that a call ``rest_s`` seconds ago found too; returns
        how many objects.
        """
        ...


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One value of a bucket; ``revision`` grows with every change in the bucket."""

    value: bytes
    revision: int


_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")


def checked_key(key: str) -> str:
    """``key``, if it is a valid key of a bucket. Raises ValueError."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"not a key: {key!r}")
    return key


class KeyValue(Protocol):
    """A bucket of small values by key; readers watch the whole set. Keys: letters, digits,
    ``-_=./``.
    """

    async def put(self, key: str, value: bytes, *, expected: int) -> int:
        """Store a value if the key's revision is still ``expected`` (0: the key does not exist);
        returns the new revision.

        Raises Fenced when another writer changed the key; Full, Unavailable; ValueError for an
        invalid key.
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
    """The current values of a bucket, returned again after each change; changes in quick succession
    are merged.

    The whole set is read again after each reconnection. While the server is away `next` returns
    nothing.
    """

    async def next(self) -> Mapping[str, Entry]:
        """The whole set: the first time as soon as it is loaded, later when it differs from the
        last one.

        Raises Unavailable once closed.
        """
        ...

    async def close(self) -> None: ...


class Connection(Protocol):
    """A process's connection to the bus; `jetstream.connect` makes one."""

    @property
    def bus(self) -> Bus: ...

    @property
    def streams(self) -> Streams: ...

    @property
    def connected(self) -> bool:
        """False while the server is away; calls raise Unavailable then."""
        ...

    def journal(self, part_bytes: int = ...) -> Journal:
        """The journal; a commit of more than ``part_bytes`` is stored in parts."""
        ...

    def publisher(self) -> EventPublisher: ...

    def blobs(self, bucket: str) -> Blobs: ...

    def key_value(self, bucket: str) -> KeyValue: ...

    async def close(self) -> None:
        """Flush and end. Safe to call twice."""
        ...
