"""All records in memory, and in the bucket once they are flushed.

Each value is stored by compare-and-set. A flush stores who writes first, so of two notifiers that
both write, one is refused before it has changed anything; and the position last, so what an event
has become is stored before the event counts as read. Source:
docs/design/notifications.md#one-of-several.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TypeVar

from iris_bus.contract import KeyValue
from iris_core.codec import Undecodable, pack, unpack
from iris_core.subjects import NOTIFY_POSITION, NOTIFY_WRITER
from iris_notifier.records import KINDS, NotifyRecord, StoreWriter

log = logging.getLogger(__name__)

R = TypeVar("R", bound=NotifyRecord)


class RecordStore:
    """The records of one notifier.

    Changes are made in memory; `flush` makes them durable, and whoever tells of a change awaits it.
    """

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket
        self._records: dict[type, dict[str, NotifyRecord]] = {kind: {} for kind in KINDS.values()}
        self._revisions: dict[str, int] = {}
        self._changed: dict[str, None] = {}
        self._flushing = asyncio.Lock()
        self.changes = 0
        """Grows with every change."""

    async def load(self) -> None:
        """Read what is stored. Raises Unavailable."""
        for records in self._records.values():
            records.clear()
        self._revisions.clear()
        self._changed.clear()
        for key, entry in (await self._bucket.all()).items():
            kind = KINDS.get(key.partition(".")[0])
            self._revisions[key] = entry.revision
            if kind is None:
                log.warning("a record of a later release is left alone: %s", key)
                continue
            try:
                self._records[kind][key] = unpack(entry.value, kind)
            except Undecodable as error:
                log.error("the record %s cannot be read, and is left out: %s", key, error)

    def find(self, key: str, kind: type[R]) -> R | None:
        """The record under a key, if there is one of that kind."""
        found = self._records[kind].get(key)
        return found if isinstance(found, kind) else None

    def all(self, kind: type[R]) -> Iterator[R]:
        """The records of a kind, in the order in which they were made."""
        return (one for one in list(self._records[kind].values()) if isinstance(one, kind))

    def save(self, record: NotifyRecord) -> None:
        """RecordStore a record that is new or has changed, with the next `flush`."""
        self._records[type(record)][record.key] = record
        self._changed[record.key] = None
        self.changes += 1

    def remove(self, record: NotifyRecord) -> None:
        """Delete a record, with the next `flush`."""
        if self._records[type(record)].pop(record.key, None) is not None:
            self._changed[record.key] = None
            self.changes += 1

    async def flush(self) -> None:
        """Return when every change made so far is stored. Raises Fenced when another notifier has
        changed a record, Unavailable when it is unknown what was stored.
        """
        async with self._flushing:
            if self._changed and NOTIFY_WRITER in self._records[StoreWriter]:
                self._changed = {NOTIFY_WRITER: None, **self._changed}
            while self._changed:
                key = self._next_changed()
                del self._changed[key]
                try:
                    await self._write(key)
                except BaseException:
                    self._changed[key] = None
                    raise

    def _next_changed(self) -> str:
        """The oldest change but that of the position, which waits for all others."""
        return next((key for key in self._changed if key != NOTIFY_POSITION), NOTIFY_POSITION)

    async def _write(self, key: str) -> None:
        record = self._records[KINDS[key.partition(".")[0]]].get(key)
        known = self._revisions.get(key, 0)
        if record is not None:
            self._revisions[key] = await self._bucket.put(key, pack(record), expected=known)
        elif known:
            await self._bucket.delete(key, expected=known)
            del self._revisions[key]
