"""Stores whole objects with a digest, in chunks, in the object-store layout every NATS tool reads.

A new version is stored beside the old one and replaces it by one message, so a reader sees the old
object or the new one. Out of scope: how long objects are kept. Source: docs/design/nats.md#costs,
    docs/design/nats.md#nats-py-behaviour.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import hashlib
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import IO

import msgspec

from iris_bus.connection.connection import Link
from iris_bus.connection.requests import Forbidden
from iris_bus.connection.retry import with_retries
from iris_bus.contract import Blob, Fenced, Message, Unavailable
from iris_bus.streams.api import Api
from iris_bus.streams.raw import RawStream

CHUNK_BYTES = 512 << 10
_IN_FLIGHT = 16
_ANSWER_S = 10.0
_READ_S = 30.0

Lookup = Callable[..., Awaitable[Message | None]]
"""Finds one stored message: `Api.copy` or `Api.message`."""


class _Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON document under ``$O.<bucket>.M.<name>``."""

    name: str
    bucket: str
    nuid: str
    size: int
    chunks: int
    digest: str = ""
    mtime: str = ""
    deleted: bool = False
    owners: tuple[str, ...] = ()
    since_ms: dict[str, int] = {}

    def owned(self, more: Collection[str], at_ms: int) -> _Meta:
        """With these owners too, each since this time who is none yet."""
        owners = tuple(sorted({*self.owners, *more}))
        since_ms = dict.fromkeys(sorted({*more} - {*self.owners}), at_ms)
        return msgspec.structs.replace(self, owners=owners, since_ms=self.since_ms | since_ms)


class JetBlobs:
    """The objects of one bucket."""

    def __init__(self, link: Link, api: Api, bucket: str) -> None:
        self._link = link
        self._api = api
        self._retrying = api.retrying(_READ_S / 2)
        self._bucket = bucket
        self._stream = f"OBJ_{bucket}"
        self._orphans: dict[str, float] = {}

    async def put(
        self, name: str, data: bytes | IO[bytes], *, at_ms: int = 0, owners: Collection[str] = ()
    ) -> None:
        """Store ``data`` under ``name`` and replace the previous object, whose owners stay. Raises
        Full, Unavailable (the old one stays).

        Of a file at most `_IN_FLIGHT` chunks are held at a time.
        """
        nuid = secrets.token_hex(11)
        content = _Content()
        chunks = _chunks(data) if isinstance(data, bytes) else _chunks_of_file(data)
        try:
            await self._store_chunks(nuid, content.counted(chunks))
        except BaseException:
            with contextlib.suppress(Unavailable):
                await self._drop_chunks(nuid)
            raise
        meta = _describe(self._bucket, name, nuid, content, at_ms=at_ms)
        before = await self._replace(meta, owners, at_ms=at_ms)
        if before is not None and not before.deleted:
            await self._drop_chunks(before.nuid)

    async def get(self, name: str) -> bytes | None:
        """The object, None when there is none.

        Any server may answer at first, also one that lags behind; then the leader of the stream is
        asked, if this user may. No consumer is created for this: it could have what is stored
        delivered to any subject. Raises ValueError when its digest does not match or a chunk is
        missing; Unavailable.
        """
        wrong: ValueError | None = None
        for lookup in (self._api.copy, self._api.message):
            try:
                found = await self._read(name, lookup)
            except ValueError as error:
                wrong = error
                continue
            except Forbidden:
                break
            if found is not None:
                return found
        if wrong is not None:
            raise wrong
        return None

    async def names(self) -> Sequence[str]:
        """Names of all objects, ordered by the time of their last `put`, oldest first."""
        found = [
            msgspec.json.decode(m.data, type=_Meta)
            for m in await self._all(f"$O.{self._bucket}.M.>")
        ]
        return [meta.name for meta in found if not meta.deleted]

    async def listed(self) -> Sequence[Blob]:
        """Every object, unordered. Raises Unavailable."""
        found = [
            (msgspec.json.decode(m.data, type=_Meta), m)
            for m in await self._all(f"$O.{self._bucket}.M.>")
        ]
        return [
            Blob(
                meta.name,
                meta.size,
                _ms(meta.mtime),
                m.sequence,
                owners=meta.owners,
                since_ms=meta.since_ms,
            )
            for meta, m in found
            if not meta.deleted
        ]

    async def touch(
        self, name: str, at_ms: int, *, owner: str | None = None, add: str | None = None
    ) -> bool:
        """Record that an object is in use; False when there is none, or it was deleted meanwhile,
        or ``owner`` is given and is none of its owners. ``add``: an owner from now on. Raises Full,
            Unavailable.
        """
        while True:
            found, meta = await self._newest(name)
            if meta is None or meta.deleted or owner not in (None, *meta.owners):
                return False
            owned = meta.owned([add] if add is not None else [], at_ms)
            with contextlib.suppress(Fenced):  # another writer has touched or deleted it
                await self._store_over(found, msgspec.structs.replace(owned, mtime=_time(at_ms)))
                return True

    async def discard(self, blob: Blob) -> bool:
        """Delete an object as it was listed, unless it was touched or stored again since. Raises
        Unavailable.
        """
        found = await self._retrying.message(
            self._stream, last_by_subj=self._meta_subject(blob.name)
        )
        if found is None or found.sequence != blob.version:
            return False
        meta = msgspec.json.decode(found.data, type=_Meta)
        await self._retrying.purge(
            self._stream, filter=self._meta_subject(blob.name), seq=blob.version + 1
        )
        left = await self._meta(blob.name)
        if left is not None and left.nuid == meta.nuid:
            return False  # touched just before
        await self._drop_chunks(meta.nuid)
        return True

    async def tidy(self, rest_s: float = 3600.0) -> int:
        """Delete chunks that belong to no object, if a call ``rest_s`` seconds ago found them too.
        Raises Unavailable.

        A process that died during `put` left them. A `put` that is in progress takes less than
        ``rest_s``.
        """
        found = await self._retrying.subjects(self._stream, f"$O.{self._bucket}.C.>")
        owned = {
            msgspec.json.decode(m.data, type=_Meta).nuid
            for m in await self._all(f"$O.{self._bucket}.M.>")
        }
        now_s = time.monotonic()
        before = self._orphans
        nuids = {subject.rpartition(".")[2] for subject in found} - owned
        self._orphans = {nuid: before.get(nuid, now_s) for nuid in nuids}
        rested = [
            nuid
            for nuid, seen_s in self._orphans.items()
            if nuid in before and now_s - seen_s >= rest_s
        ]
        for nuid in rested:
            await self._drop_chunks(nuid)
            del self._orphans[nuid]
        return len(rested)

    async def delete(self, name: str) -> None:
        """Delete an object; no error when there is none."""
        meta = await self._meta(name)
        if meta is None:
            return
        await self._retrying.purge(self._stream, filter=self._meta_subject(name))
        await self._drop_chunks(meta.nuid)

    async def _store_chunks(self, nuid: str, chunks: AsyncIterator[bytes]) -> None:
        in_flight: deque[asyncio.Task[object]] = deque()
        try:
            async for chunk in chunks:
                if len(in_flight) == _IN_FLIGHT:
                    await in_flight.popleft()
                in_flight.append(
                    asyncio.create_task(self._store(f"$O.{self._bucket}.C.{nuid}", chunk))
                )
            while in_flight:
                await in_flight.popleft()
        finally:
            for task in in_flight:
                task.cancel()

    async def _store(self, subject: str, data: bytes) -> object:
        return await with_retries(
            partial(self._api.store, subject, data, _ANSWER_S), _READ_S / 2, repeat_unknown=False
        )

    async def _replace(
        self, described: _Meta, owners: Collection[str], *, at_ms: int
    ) -> _Meta | None:
        """Store what describes an object, which has the owners of the one before it too; returns
        that one.
        """
        while True:
            found, before = await self._newest(described.name)
            owned = before if before is not None and not before.deleted else described
            meta = msgspec.structs.replace(
                described, owners=owned.owners, since_ms=owned.since_ms
            ).owned(owners, at_ms)
            try:
                await self._store_over(found, meta)
            except Fenced:  # another writer has stored, touched or deleted it
                continue
            except Unavailable:
                if await self._meta(meta.name) != meta:  # otherwise only the answer was lost
                    raise
            return before

    async def _newest(self, name: str) -> tuple[int, _Meta | None]:
        """What describes an object, and its sequence; 0 when there is nothing."""
        found = await self._retrying.message(self._stream, last_by_subj=self._meta_subject(name))
        return (
            (found.sequence, msgspec.json.decode(found.data, type=_Meta))
            if found is not None
            else (0, None)
        )

    async def _store_over(self, sequence: int, meta: _Meta) -> None:
        """Describe an object, if the message ``sequence`` still does. Raises Fenced,
        Unavailable.
        """
        headers = {"Nats-Rollup": "sub", "Nats-Expected-Last-Subject-Sequence": str(sequence)}
        await self._api.store(
            self._meta_subject(meta.name), msgspec.json.encode(meta), _ANSWER_S, headers
        )

    async def _drop_chunks(self, nuid: str) -> None:
        await self._retrying.purge(self._stream, filter=f"$O.{self._bucket}.C.{nuid}")

    async def _meta(self, name: str, lookup: Lookup | None = None) -> _Meta | None:
        asked = partial(
            lookup or self._api.message, self._stream, last_by_subj=self._meta_subject(name)
        )
        found = await with_retries(asked, _READ_S / 2)
        return msgspec.json.decode(found.data, type=_Meta) if found is not None else None

    def _meta_subject(self, name: str) -> str:
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    async def _read(self, name: str, lookup: Lookup) -> bytes | None:
        """An object as ``lookup`` finds it. Raises ValueError when it is not whole, Unavailable."""
        meta = await self._meta(name, lookup)
        while meta is not None and not meta.deleted:
            try:
                return await self._content(meta, lookup)
            except ValueError:
                newer = await self._meta(name, lookup)
                if newer == meta:
                    raise
                meta = newer  # replaced by another writer while it was read
        return None

    async def _content(self, meta: _Meta, lookup: Lookup) -> bytes:
        """The bytes that ``meta`` describes. Raises ValueError when a chunk is missing or wrong;
        Unavailable.
        """
        chunks: list[bytes] = []
        after = 0
        while len(chunks) < meta.chunks:
            asked = partial(
                lookup, self._stream, seq=after + 1, next_by_subj=f"$O.{self._bucket}.C.{meta.nuid}"
            )
            message = await with_retries(asked, _READ_S / 2)
            if message is None:
                raise ValueError(
                    f"{self._bucket}/{meta.name}: {len(chunks)} of {meta.chunks} chunks are there"
                )
            chunks.append(message.data)
            after = message.sequence
        data = b"".join(chunks)
        if _digest(data) != meta.digest:
            raise ValueError(
                f"{self._bucket}/{meta.name}: the digest of its {len(data)} bytes does not match"
            )
        return data

    async def _all(self, subject: str) -> list[Message]:
        """Every readable message on ``subject`` at the time of the call. Raises Unavailable."""
        try:
            async with asyncio.timeout(_READ_S):
                end = (await self._retrying.info(self._stream)).state.last_seq
                raw = RawStream(self._link, self._api, self._stream)
                return [message async for message in raw.readable(0, end, subject)]
        except TimeoutError as error:
            raise Unavailable(
                f"bucket {self._bucket} could not be read in {_READ_S:.0f} s"
            ) from error


class _Content:
    """What is known of an object's content once its chunks have passed."""

    def __init__(self) -> None:
        self.size = 0
        self.chunks = 0
        self._sha = hashlib.sha256()

    @property
    def digest(self) -> str:
        return _shown_digest(self._sha.digest())

    async def counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            self.size += len(chunk)
            self.chunks += 1
            self._sha.update(chunk)
            yield chunk


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(data), CHUNK_BYTES):
        yield bytes(view[start : start + CHUNK_BYTES])


async def _chunks_of_file(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Its content from the beginning; the disk is waited for in a thread."""
    file.seek(0)
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk


def _describe(bucket: str, name: str, nuid: str, content: _Content, at_ms: int) -> _Meta:
    return _Meta(
        name=name,
        bucket=bucket,
        nuid=nuid,
        size=content.size,
        chunks=content.chunks,
        digest=content.digest,
        mtime=_time(at_ms or time.time_ns() // 1_000_000),
    )


def _time(at_ms: int) -> str:
    """The current time in RFC 3339 with nanoseconds, as NATS' own tools write it."""
    return (
        datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
        .isoformat()
        .replace("+00:00", "Z")
    )


def _ms(mtime: str) -> int:
    """Unix time in ms; 0 for a text that cannot be parsed."""
    try:
        return round(datetime.datetime.fromisoformat(mtime).timestamp() * 1000)
    except ValueError:
        return 0


def _digest(data: bytes) -> str:
    return _shown_digest(hashlib.sha256(data).digest())


def _shown_digest(sha256: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(sha256).decode()
