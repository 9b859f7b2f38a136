"""What `memory` stores: streams with their limits, readers, the journal, the publisher, blobs,
values by key.

Times are not stored, so nothing expires by age; other limits refuse and delete as the server does.
Source: contract.py, under the suite in tests/contract.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import IO, Protocol

from iris_bus.contract import (
    Blob,
    Entry,
    Fenced,
    Full,
    Gap,
    Headers,
    JournalEntry,
    Message,
    Publication,
    ServerStorage,
    StoreStanding,
    StreamPosition,
    Unavailable,
    checked_key,
)
from iris_bus.journal.commits import AssembledReader
from iris_bus.journal.framing import PART_BYTES, Assembler, split
from iris_bus.streams.window import Window
from iris_core.subjects import EVENTS, JOURNAL, JOURNAL_SUBJECT, Stream

_WILDCARD = re.compile(r"\{\{wildcard\((\d+)\)\}\}")


class Server(Protocol):
    """The parts of `memory.Memory` that the classes below use."""

    streams: dict[str, MemoryStream]
    buckets: dict[str, dict[str, tuple[bytes, str]]]
    used: dict[str, dict[str, tuple[int, int]]]
    owners: dict[str, dict[str, dict[str, int]]]
    key_values: dict[str, StoredKeys]
    notes: dict[str, dict[str, str]]
    copies: int
    older_ends: list[int]
    away: bool

    def store(
        self, subject: str, data: bytes, headers: Headers, expected: int | None = None
    ) -> int: ...

    def later(self, call: Callable[[], None]) -> None: ...


class MemoryStream:
    """One stream: its messages by sequence, its limits, its readers."""

    def __init__(self, row: Stream, later: Callable[[Callable[[], None]], None]) -> None:
        self.row = row
        self.messages: dict[int, Message] = {}
        self.last = 0
        self.first = 1
        self.bytes = 0
        self.readers: list[MemoryReader] = []
        self.made = 0
        self._later = later

    def store(
        self, subject: str, data: bytes, headers: Headers, expected: int | None = None
    ) -> int:
        """Store one message and return its sequence. Raises Full; Fenced when the end is not
        ``expected``.
        """
        if expected is not None and expected != self.last:
            raise Fenced(f"{self.row.name} ends at {self.last}, not at {expected}")
        self._make_room(len(data) + len(subject))
        self.last += 1
        self.messages[self.last] = Message(kept_as(self.row, subject), data, headers, "", self.last)
        self.bytes += len(data) + len(subject)
        self.wake()
        return self.last

    def wake(self) -> None:
        """Notify every reader."""
        for reader in self.readers:
            self._later(reader.arrived)

    def behind(self, after: int, limit: int, *subjects: str) -> list[Message]:
        """Up to ``limit`` messages with a sequence above ``after``, on any of these subjects; none:
        on all.
        """
        at = max(after + 1, self.first)
        wanted = [subject.split(".") for subject in subjects]
        present = (m for sequence in range(at, self.last + 1) if (m := self.messages.get(sequence)))
        found = (
            m
            for m in present
            if not wanted or any(matches(one, m.subject.split(".")) for one in wanted)
        )
        return list(islice(found, limit))

    def trim(self, below: int) -> None:
        for sequence in range(self.first, min(below, self.last + 1)):
            self.discard(sequence)
        self.first = max(self.first, min(below, self.last + 1))
        self.wake()

    def make_anew(self) -> None:
        self.messages.clear()
        self.last = self.bytes = 0
        self.first = 1
        self.made += 1
        self.wake()

    def _make_room(self, size: int) -> None:
        limit = self.row.max_bytes
        if limit and self.row.discard_new and self.bytes + size > limit:
            raise Full(f"{self.row.name} holds {self.bytes} of {limit} bytes")
        while limit and self.bytes + size > limit and self.messages:
            self.trim(next(iter(self.messages)) + 1)

    def discard(self, sequence: int) -> None:
        """Delete one message."""
        message = self.messages.pop(sequence, None)
        if message is not None:
            self.bytes -= len(message.data) + len(message.subject)


class MemoryReader:
    """Messages of one stream in order; see the contract."""

    def __init__(
        self,
        server: Server,
        stored: MemoryStream,
        after: int,
        *subjects: str,
        strict: bool,
        made: str = "",
    ) -> None:
        self._server = server
        self._stored = stored
        self._made = made
        self._subjects = subjects
        self._dense = not subjects
        self._position = after if strict or after else stored.first - 1
        self._notify: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        stored.readers.append(self)

    def take(self, limit: int = 2000) -> Sequence[Message]:
        if self._closed:
            raise Unavailable("the reader is closed")
        if self._server.away:
            return []
        self._made = self._made or str(self._stored.made)
        if self._made != str(self._stored.made):
            raise Gap(f"{self._stored.row.name} was made anew")
        if self._dense and self._stored.first > self._position + 1:
            raise Gap(
                f"{self._stored.row.name} begins at {self._stored.first}, {self._position + 1} is needed"
            )
        taken = self._stored.behind(self._position, limit, *self._subjects)
        if taken:
            self._position = taken[-1].sequence
        return taken

    async def batch(self, *, limit: int = 2000, wait: float | None = None) -> Sequence[Message]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while not (taken := self.take(limit)):
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
                return taken
        return []

    async def finished(self) -> bool:
        return not self._stored.behind(self._position, 1, *self._subjects)

    def on_arrival(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        if self._stored.last > self._position:
            notify()

    def arrived(self) -> None:
        """Called when a message was stored or trimmed, or the server came back."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._notify is not None and not self._closed:
            self._notify()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stored.readers.remove(self)
            self.arrived()


class MemoryStreams:
    """Stored messages."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def ensure(self) -> None:
        reach(self._server)

    async def publish(
        self, subject: str, data: bytes, *, headers: Headers | None = None, timeout: float = 5.0
    ) -> int:
        reach(self._server)
        return self._server.store(subject, data, headers or {})

    def read(self, stream: str, after: int, *subjects: str, made: str = "") -> MemoryReader:
        return MemoryReader(
            self._server, self._server.streams[stream], after, *subjects, strict=False, made=made
        )

    async def last(self, stream: str, *, subject: str = "") -> Message | None:
        reach(self._server)
        stored = self._server.streams[stream]
        if not subject:
            return stored.messages.get(stored.last)
        wanted = subject.split(".")
        newest = reversed(stored.messages.values())
        return next((m for m in newest if matches(wanted, m.subject.split("."))), None)

    async def next(self, stream: str, after: int, *, subject: str) -> Message | None:
        reach(self._server)
        return next(iter(self._server.streams[stream].behind(after, 1, subject)), None)

    async def drop(self, stream: str, subject: str, *, keep: int = 0) -> None:
        reach(self._server)
        stored = self._server.streams[stream]
        found = list(stored.behind(0, len(stored.messages), subject))
        for message in found[: max(0, len(found) - keep)]:
            stored.discard(message.sequence)

    async def end(self, stream: str) -> int:
        reach(self._server)
        stored = self._server.streams.get(stream)
        if stored is not None:
            return stored.last
        used = self._server.used.get(stream.removeprefix("OBJ_"), {})
        return max((version for _, version in used.values()), default=0)

    async def position(self, stream: str) -> StreamPosition:
        return StreamPosition(await self.end(stream), str(self._server.streams[stream].made))

    async def trim(self, stream: str, below: int) -> None:
        reach(self._server)
        self._server.streams[stream].trim(below)

    def make_anew(self, stream: str) -> None:
        """Empty it and begin it at 1 again, as a restore does."""
        self._server.streams[stream].make_anew()

    async def size(self, stream: str) -> int:
        reach(self._server)
        stored = self._server.streams.get(stream)
        if stored is not None:
            return stored.bytes
        objects = self._server.buckets.get(stream.removeprefix("OBJ_"), {})
        return sum(len(data) for data, _ in objects.values())

    async def standing(self, stream: str) -> StoreStanding:
        stored = self._server.streams.get(stream)
        return StoreStanding(
            await self.size(stream),
            limit_bytes=stored.row.max_bytes if stored is not None else 0,
            declared=self._server.copies,
            notes=self._server.notes.get(stream, {}),
        )

    async def annotate(self, stream: str, key: str, value: str) -> None:
        reach(self._server)
        self._server.notes.setdefault(stream, {})[key] = value

    async def storage(self) -> dict[str, ServerStorage]:
        reach(self._server)
        return {}


class MemoryJournal:
    """The record."""

    def __init__(self, server: Server, part_bytes: int = PART_BYTES) -> None:
        self._server = server
        self._part_bytes = part_bytes
        self._stored = server.streams[JOURNAL.name]

    async def append(self, data: bytes, *, expected: int) -> int:
        reach(self._server)
        for part in split(data, self._part_bytes):
            expected = self._append(part, expected)
        return expected

    def _append(self, data: bytes, expected: int) -> int:
        try:
            return self._server.store(JOURNAL_SUBJECT, data, {}, expected)
        except Fenced:
            ours = self._stored.messages.get(expected + 1)
            if ours is not None and ours.data == data:
                return expected + 1
            raise

    async def replay(self, after: int) -> AsyncIterator[JournalEntry]:
        reach(self._server)
        self._check(after)
        return self._entries(self._stored.behind(after, self._stored.last))

    async def _entries(self, messages: Sequence[Message]) -> AsyncIterator[JournalEntry]:
        assembler = Assembler()
        for message in messages:
            entry = assembler.add(message.sequence, message.data)
            if entry is not None:
                yield entry

    async def end(self) -> int:
        reach(self._server)
        older = self._server.older_ends
        return older.pop(0) if older else self._stored.last

    async def tail(self, after: int) -> AssembledReader:
        reach(self._server)
        self._check(after)
        return AssembledReader(MemoryReader(self._server, self._stored, after, strict=True))

    def _check(self, after: int) -> None:
        if self._stored.first > after + 1:
            raise Gap(f"the journal begins at {self._stored.first}, {after + 1} is needed")


class MemoryPublisher:
    """The outbox; events are stored when published, or as soon as the server is back."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stored = server.streams[EVENTS.name]
        self._window = Window(1 << 30)
        self._failure: Exception | None = None

    @property
    def last_published(self) -> str:
        return self._window.last_published

    @property
    def backlog(self) -> int:
        return self._window.backlog

    async def resume(self) -> str:
        reach(self._server)
        self._failure = None
        self._window.start(*self._last())
        return self.last_published

    def publish(self, events: Sequence[Publication]) -> None:
        if self._failure is not None:
            raise self._failure
        self._window.add(events)
        self._send()

    async def drain(self, timeout: float) -> None:
        self._send()
        if self._failure is not None:
            raise self._failure
        if self.backlog:
            raise Unavailable(f"{self.backlog} events were not confirmed in {timeout:g} s")

    async def close(self) -> None:
        self._failure = self._failure or Unavailable("the publisher is closed")

    def _send(self) -> None:
        if self._server.away or self._failure is not None or not self.backlog:
            return
        place = self._last()
        if place != (self._window.confirmed, self._window.last_published):
            try:
                self._window.go_on(*place)
            except (Fenced, Unavailable) as error:
                self._failure = error
                return
        after, events = self._window.next(self._window.size)
        for at, event in enumerate(events):
            known = {**event.headers, "Nats-Msg-Id": event.message_id}
            self._server.store(event.subject, event.data, known, after + at)
        self._window.confirm(after + len(events))

    def _last(self) -> tuple[int, str]:
        end = self._stored.last
        stored = self._stored.messages.get(end)
        if stored is not None:
            return end, stored.headers.get("Nats-Msg-Id", "")
        return end, self.last_published if end == self._window.confirmed else ""


_versions = itertools.count(1)
"""Of objects: never the same again, also when a name is deleted and stored anew."""


class MemoryBlobs:
    """Whole objects with a digest."""

    def __init__(self, server: Server, bucket: str) -> None:
        self._server = server
        self._objects = server.buckets.setdefault(bucket, {})
        self._used = server.used.setdefault(bucket, {})
        self._owners = server.owners.setdefault(bucket, {})

    async def put(
        self, name: str, data: bytes | IO[bytes], *, at_ms: int = 0, owners: Collection[str] = ()
    ) -> None:
        reach(self._server)
        if not isinstance(data, bytes):
            data.seek(0)
            data = data.read()
        self._objects.pop(name, None)
        self._objects[name] = (data, digest(data))
        self._note(name, at_ms, owners)

    def _note(self, name: str, at_ms: int, owners: Collection[str]) -> None:
        self._used[name] = (at_ms, next(_versions))
        before = self._owners.get(name, {})
        self._owners[name] = dict(sorted((dict.fromkeys(owners, at_ms) | before).items()))

    async def get(self, name: str) -> bytes | None:
        reach(self._server)
        found = self._objects.get(name)
        if found is None:
            return None
        data, expected = found
        if digest(data) != expected:
            raise ValueError(f"{name}: the digest of its {len(data)} bytes does not match")
        return data

    async def names(self) -> Sequence[str]:
        reach(self._server)
        return list(self._objects)

    async def listed(self) -> Sequence[Blob]:
        reach(self._server)
        return [
            Blob(
                name,
                len(data),
                *self._used.get(name, (0, 0)),
                tuple(self._owners.get(name, ())),
                self._owners.get(name, {}),
            )
            for name, (data, _) in self._objects.items()
        ]

    async def touch(
        self, name: str, at_ms: int, *, owner: str | None = None, add: str | None = None
    ) -> bool:
        reach(self._server)
        if name not in self._objects or owner not in (None, *self._owners.get(name, ())):
            return False
        self._note(name, at_ms, [add] if add is not None else [])
        return True

    async def delete(self, name: str) -> None:
        reach(self._server)
        self._objects.pop(name, None)
        self._used.pop(name, None)
        self._owners.pop(name, None)

    async def discard(self, blob: Blob) -> bool:
        if blob not in await self.listed():
            return False
        await self.delete(blob.name)
        return True

    async def tidy(self, rest_s: float = 3600.0) -> int:
        """Nothing to delete: an object is stored at once."""
        reach(self._server)
        return 0


class StoredKeys:
    """One bucket of values by key, and its watches."""

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self.values: dict[str, Entry] = {}
        self.revision = 0
        self.watches: list[MemoryWatch] = []
        self._later = later

    def change(self, key: str, value: bytes | None, expected: int) -> int:
        """Store a value (None deletes) if the key's revision is ``expected``. Raises Fenced."""
        present = self.values.get(key)
        if (present.revision if present is not None else 0) != expected:
            raise Fenced(f"{key} is at {present.revision if present else 0}, not at {expected}")
        self.revision += 1
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = Entry(value, self.revision)
        self.wake()
        return self.revision

    def wake(self) -> None:
        """Notify every watch."""
        for watch in self.watches:
            self._later(watch.changed.set)


class MemoryKeyValue:
    """Small values by key."""

    def __init__(self, server: Server, bucket: str) -> None:
        self._server = server
        self._stored = server.key_values.setdefault(bucket, StoredKeys(server.later))

    async def put(self, key: str, value: bytes, *, expected: int) -> int:
        reach(self._server)
        present = self._stored.values.get(checked_key(key))
        if present is not None and present.value == value and present.revision > expected:
            return present.revision
        return self._stored.change(key, value, expected)

    async def delete(self, key: str, *, expected: int) -> None:
        reach(self._server)
        if checked_key(key) in self._stored.values:
            self._stored.change(key, None, expected)

    async def all(self) -> Mapping[str, Entry]:
        reach(self._server)
        return dict(self._stored.values)

    def watch(self) -> MemoryWatch:
        return MemoryWatch(self._server, self._stored)


class MemoryWatch:
    """The whole set of a bucket, again after each change."""

    def __init__(self, server: Server, stored: StoredKeys) -> None:
        self._server = server
        self._stored = stored
        self._returned: Mapping[str, Entry] | None = None
        self._closed = False
        self.changed = asyncio.Event()
        stored.watches.append(self)

    async def next(self) -> Mapping[str, Entry]:
        while not self._closed:
            self.changed.clear()
            if not self._server.away and self._stored.values != self._returned:
                self._returned = dict(self._stored.values)
                return self._returned
            await self.changed.wait()
        raise Unavailable("the watch is closed")

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stored.watches.remove(self)
            self.changed.set()


def reach(server: Server) -> None:
    """Raises Unavailable while the server is away."""
    if server.away:
        raise Unavailable("the server is away")


def kept_as(row: Stream, subject: str) -> str:
    """The subject under which a stream keeps what is published on ``subject``."""
    if not row.kept_as:
        return subject
    pairs = zip(row.subjects[0].split("."), subject.split("."), strict=True)
    matched = [token for pattern, token in pairs if pattern == "*"]
    return _WILDCARD.sub(lambda found: matched[int(found[1]) - 1], row.kept_as)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def matches(pattern: Sequence[str], tokens: Sequence[str]) -> bool:
    """Whether a subject's tokens fit a pattern with ``*`` for one token and ``>`` for one or more
    at the end.
    """
    for at, part in enumerate(pattern):
        if part == ">":
            return len(tokens) > at
        if at >= len(tokens) or part not in ("*", tokens[at]):
            return False
    return len(pattern) == len(tokens)
