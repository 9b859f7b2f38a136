"""Reads a journal commit by commit from any source of its messages. Source: contract.py
`CommitReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iris_bus.contract import JournalEntry, Message, Reader
from iris_bus.journal.framing import Assembler


class AssembledReader:
    """The commits of a journal, assembled from a reader of its messages."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._assembler = Assembler()

    async def batch(
        self, *, limit: int = 2000, wait: float | None = None
    ) -> Sequence[JournalEntry]:
        """What has arrived, at least one commit; empty only when ``wait`` seconds passed. Raises
        Gap, DamagedCommit.
        """
        while messages := await self._reader.batch(limit=limit, wait=wait):
            if entries := self._assembled(messages):
                return entries
        return []

    def take(self, limit: int = 2000) -> Sequence[JournalEntry]:
        """What has arrived, without waiting; may be empty. Raises Gap, DamagedCommit."""
        while messages := self._reader.take(limit):
            if entries := self._assembled(messages):
                return entries
        return []

    def on_arrival(self, notify: Callable[[], None]) -> None:
        self._reader.on_arrival(notify)

    async def close(self) -> None:
        await self._reader.close()

    def _assembled(self, messages: Sequence[Message]) -> list[JournalEntry]:
        found = (self._assembler.add(message.sequence, message.data) for message in messages)
        return [entry for entry in found if entry is not None]
