"""One attempt's two outputs: read from their files, cut into chunks, kept within its budget.

A position is final only once what is before it is stored; until then a lost chunk can be made again, and readers know
a repeated one by its offset. Not in this room: when to look, and sending (logs).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from iris_core.messages import LogChunk
from iris_worker.budget import CHUNK, Budget
from iris_worker.holes import punch

TAIL_LINES = 20
TAIL_BYTES = 4096
_ROUND = 4 * CHUNK
_PUNCH_EVERY = 16 * 1024 * 1024


@dataclass(slots=True)
class Stream:
    """One output file.

    Attributes:
        position: the next byte to tell. stored: the first byte not known to be stored. told: bytes told since then.
        dropped: bytes left out just before ``position``. closed: its final chunk is told, or it needs none.
    """

    name: str
    fd: int
    position: int = 0
    stored: int = 0
    told: int = 0
    punched: int = 0
    dropped: int = 0
    closed: bool = False

    def has_more(self) -> bool:
        return bool(os.pread(self.fd, 1, self.position))

    def chunks(self, budget: Budget, finished: bool, now_ms: int) -> Iterator[LogChunk]:
        """What there is to tell, at most `_ROUND` bytes of it, so that no task keeps others waiting."""
        taken = 0
        while taken < _ROUND and not self.closed:
            if budget.is_spent:
                self._leave_out(finished)
            data = os.pread(self.fd, CHUNK, self.position)
            final = finished and len(data) < CHUNK
            if len(data) == CHUNK:
                data = data[: data.rfind(b"\n") + 1] or data
            if not data and not (final and self.position):
                self.closed = final
                return
            yield LogChunk(self.name, now_ms, self.position, data, self.dropped, final)
            self._advance(len(data), final)
            budget.spend(len(data))
            taken += len(data)

    def _advance(self, count: int, final: bool) -> None:
        self.position += count
        self.told += count
        self.dropped = 0
        self.closed = final

    def _leave_out(self, finished: bool) -> None:
        """Over budget: skip what there is, but tell the last lines of a task that has ended."""
        size = os.fstat(self.fd).st_size
        target = size - CHUNK // 2 if finished else size
        if target > self.position:
            self.dropped += target - self.position
            self.position = target

    def confirm(self, position: int) -> bool:
        """Everything before ``position`` is stored; whether that is news."""
        if position <= self.stored:
            return False
        self.stored = position
        self.told = 0
        if self.stored - self.punched >= _PUNCH_EVERY:
            punch(self.fd, self.punched, self.stored - self.punched)
            self.punched = self.stored
        return True

    def rewind(self) -> int:
        """What was told did not arrive: tell it again. Returns how many bytes that were."""
        told, self.told = self.told, 0
        self.position = self.stored
        self.dropped = 0
        self.closed = False
        return told


def last_lines(fd: int) -> str:
    """The end of a file, for the record of a failed attempt: at most 20 lines and 4 KiB."""
    size = os.fstat(fd).st_size
    start = max(0, size - TAIL_BYTES)
    data = os.pread(fd, TAIL_BYTES, start)
    if start:
        data = data[data.find(b"\n") + 1 :] or data
    return "\n".join(data.decode(errors="replace").splitlines()[-TAIL_LINES:])
