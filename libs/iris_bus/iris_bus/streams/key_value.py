"""Buckets of small values by key, in the layout every NATS tool reads, written by compare-and-set.

A deleted key leaves a marker for watchers of the bucket; the server drops markers after an hour.
Readers do not depend on that: they read the whole set again after each reconnection.
Source: contract.py `KeyValue`; docs/design/nats.md#features-used,
    docs/design/nats.md#nats-py-behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterable, Mapping
from functools import partial

from iris_bus.connection.connection import Link
from iris_bus.connection.retry import with_retries
from iris_bus.contract import (
    Entry,
    Fenced,
    Gap,
    Headers,
    Message,
    StreamPosition,
    Unavailable,
    checked_key,
)
from iris_bus.streams.api import Api
from iris_bus.streams.raw import RawStream
from iris_bus.streams.reader import JetReader

log = logging.getLogger(__name__)

_ANSWER_S = 5.0
_RETRY_FOR_S = 10.0
_READ_S = 30.0
_RELOAD_PAUSE_S = 0.5
_OPERATION = "KV-Operation"
_DELETED = {_OPERATION: "DEL", "Nats-TTL": "1h"}


class JetKeyValue:
    """The values of one bucket."""

    def __init__(self, link: Link, api: Api, bucket: str) -> None:
        self._link = link
        self._api = api
        self._retrying = api.retrying(_RETRY_FOR_S)
        self._bucket = bucket
        self._prefix = f"$KV.{bucket}."
        self._stream = f"KV_{bucket}"
        self._unreadable_below = 0

    async def put(self, key: str, value: bytes, *, expected: int) -> int:
        """Store a value in place of revision ``expected``. Raises Fenced, Full, Unavailable,
        ValueError.

        After Unavailable the value may or may not be stored; a retry with the same revision settles
        it. A damaged value counts as none.
        """
        subject = self._prefix + checked_key(key)
        if self._unreadable_below:  # otherwise the server takes seconds to replace it
            await self._retrying.purge(self._stream, seq=self._unreadable_below)
            self._unreadable_below = 0
        try:
            return await self._store(subject, value, expected)
        except Fenced:
            present = await self._retrying.message(self._stream, last_by_subj=subject)
            if present is not None and not _deletes(present) and present.data == value:
                return present.sequence  # an earlier attempt was stored and its answer was lost
            if present is None or expected or not _deletes(present):
                raise
            return await self._store(subject, value, present.sequence)

    async def delete(self, key: str, *, expected: int) -> None:
        """Delete a key whose revision is ``expected``. Raises Fenced, Unavailable, ValueError."""
        subject = self._prefix + checked_key(key)
        try:
            await self._store(subject, b"", expected, _DELETED)
        except Fenced:
            present = await self._retrying.message(self._stream, last_by_subj=subject)
            if present is not None and not _deletes(present):
                raise

    async def all(self) -> Mapping[str, Entry]:
        """Every present value. Raises Unavailable."""
        return (await self.load())[0]

    async def load(self) -> tuple[dict[str, Entry], StreamPosition]:
        """Every present value, and the position from which to follow changes. Raises
        Unavailable.
        """
        raw = RawStream(self._link, self._api, self._stream)
        values: dict[str, Entry] = {}
        subjects: set[str] = set()
        end = 0
        try:
            async with asyncio.timeout(_READ_S):
                info = await self._retrying.info(self._stream)
                before = info.state
                # Read until the end: a value that is replaced meanwhile moves to a later sequence.
                async for message in raw.readable(0, sys.maxsize):
                    self.merge(values, [message])
                    subjects.add(message.subject)
                    end = message.sequence
                if before.messages > len(subjects):
                    for subject in await self._damaged(subjects):
                        log.error(
                            "the value of %s is damaged, no server can read it; its writer replaces it",
                            subject,
                        )
                self._unreadable_below = (
                    before.last_seq + 1 if before.messages and not subjects else 0
                )
        except TimeoutError as error:
            raise Unavailable(
                f"bucket {self._bucket} could not be read in {_READ_S:.0f} s"
            ) from error
        return values, StreamPosition(end, info.created)

    async def unreadable(self) -> list[str]:
        """The keys whose values are stored and damaged: no server can read them. Raises
        Unavailable.
        """
        raw = RawStream(self._link, self._api, self._stream)
        readable = {message.subject async for message in raw.readable(0, sys.maxsize)}
        return [subject.removeprefix(self._prefix) for subject in await self._damaged(readable)]

    async def _damaged(self, readable: set[str]) -> list[str]:
        stored = await self._retrying.subjects(self._stream, f"{self._prefix}>")
        return [
            subject
            for subject in sorted(stored - readable)
            if await self._retrying.message(self._stream, last_by_subj=subject) is None
        ]

    async def is_any(self, pattern: str) -> bool:
        """Whether there is a value whose key matches. Raises Unavailable."""
        for subject in sorted(await self._api.subjects(self._stream, self._prefix + pattern)):
            present = await self._api.message(self._stream, last_by_subj=subject)
            if present is not None and not _deletes(present):
                return True
        return False

    def merge(self, values: dict[str, Entry], messages: Iterable[Message]) -> None:
        """Apply changes to a set."""
        for message in messages:
            key = message.subject.removeprefix(self._prefix)
            if _deletes(message):
                values.pop(key, None)
            else:
                values[key] = Entry(message.data, message.sequence)

    def follow(self, after: StreamPosition) -> JetReader:
        """A reader of the changes after a position."""
        return JetReader(
            self._link,
            self._api,
            self._stream,
            after.sequence,
            dense=False,
            strict=False,
            made=after.made,
        )

    def watch(self) -> JetWatch:
        return JetWatch(self._link, self)

    async def _store(
        self, subject: str, data: bytes, expected: int, headers: Headers | None = None
    ) -> int:
        fence = {**(headers or {}), "Nats-Expected-Last-Subject-Sequence": str(expected)}
        store = partial(self._api.store, subject, data, _ANSWER_S, fence)
        return (await with_retries(store, _RETRY_FOR_S)).seq


class JetWatch:
    """The whole set of a bucket, returned again after each change; it is updated only while `next`
    is awaited.
    """

    def __init__(self, link: Link, bucket: JetKeyValue) -> None:
        self._link = link
        self._bucket = bucket
        self._values: dict[str, Entry] = {}
        self._reader: JetReader | None = None
        self._returned: Mapping[str, Entry] | None = None
        self._current = False
        self._closed = False
        self._news = asyncio.Event()
        link.on_return(self._reconnected)

    async def next(self) -> Mapping[str, Entry]:
        while not self._closed:
            self._news.clear()
            if not (self._current and self._is_read_on()):
                await self._reload()
            if self._current and self._values != self._returned:
                self._returned = dict(self._values)
                return self._returned
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._current else _RELOAD_PAUSE_S):
                    await self._news.wait()
        raise Unavailable("the watch is closed")

    async def close(self) -> None:
        self._closed = True
        self._link.forget(self._reconnected)
        await self._drop_reader()
        self._news.set()

    def _is_read_on(self) -> bool:
        """Apply the changes that have arrived; False: the whole set must be read again."""
        if self._reader is None:
            return False
        try:
            self._bucket.merge(self._values, self._reader.take())
        except Gap:
            return False
        return True

    async def _reload(self) -> None:
        """Read the whole set; it stays as it was when the server is unavailable."""
        await self._drop_reader()
        self._current = True  # a reconnection meanwhile makes it stale again
        try:
            self._values, end = await self._bucket.load()
        except Unavailable:
            self._current = False
            return
        if not self._closed:
            self._reader = self._bucket.follow(end)
            self._reader.on_arrival(self._news.set)

    async def _drop_reader(self) -> None:
        reader = self._reader
        self._reader = None
        if reader is not None:
            await reader.close()

    def _reconnected(self) -> None:
        self._current = False
        self._news.set()


def _deletes(message: Message) -> bool:
    return _OPERATION in message.headers
