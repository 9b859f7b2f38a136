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
_MARK = 64
_PUNCH_EVERY = 16 * 1024 * 1024


@dataclass(slots=True)
class Stream:
    """One output file, in bytes of what was printed in all.

    Attributes:
        base: where the file begins in that; 0 unless somebody emptied the file, as ``echo > /dev/stdout`` does.
        mark: the last bytes before ``position``, as far as they are known.
        position: the next byte to tell. stored: the first byte not known to be stored. told: bytes told since then.
        gap: bytes left out just before ``stored``. closed: its final chunk is told, or it needs none.
    """

    name: str
    fd: int
    position: int = 0
    stored: int = 0
    told: int = 0
    base: int = 0
    mark: bytes = b""
    punched: int = 0
    gap: int = 0
    closed: bool = False

    def has_more(self) -> bool:
        return bool(os.pread(self.fd, 1, self.position - self.base))

    def chunks(self, budget: Budget, finished: bool, now_ms: int) -> Iterator[LogChunk]:
        """What there is to tell, at most `_ROUND` bytes of it, so that no task keeps others waiting."""
        taken = 0
        while taken < _ROUND and not self.closed:
            if budget.is_spent:
                if self.told:
                    return  # until that is stored
                self._leave_out()
                if not finished:
                    return
            data = self._read()
            final = finished and len(data) < CHUNK
            if len(data) == CHUNK:
                data = data[: data.rfind(b"\n") + 1] or data
            if not data and not (final and self.position):
                self.closed = final
                return
            gap = self.gap if self.position == self.stored else 0
            yield LogChunk(self.name, now_ms, self.position, data, gap, final)
            self._advance(data, final)
            budget.spend(len(data))
            taken += len(data)

    def _read(self) -> bytes:
        """What follows in the file; from its front again when the task has emptied it since the last look.

        That is known by the last bytes that were told: they do not stand before what follows any more.
        """
        at, back = self.position - self.base, len(self.mark)
        data = os.pread(self.fd, CHUNK + back, at - back)
        if data.startswith(self.mark) and (len(data) > back or not at or os.fstat(self.fd).st_size >= at):
            return data[back:]
        self.base = self.punched = self.position
        self.mark = b""
        return os.pread(self.fd, CHUNK, 0)

    def _advance(self, data: bytes, final: bool) -> None:
        self.position += len(data)
        self.told += len(data)
        self.mark = (self.mark + data)[-_MARK:]
        self.closed = final

    def _leave_out(self) -> None:
        """Over budget: skip all but the last lines, which are told when there is budget again, or at the end."""
        target = self.base + os.fstat(self.fd).st_size - CHUNK // 2
        if target > self.position:
            self.gap += target - self.position
            self.position = self.stored = target
            self.mark = b""
            self._give_back()

    def confirm(self, position: int) -> bool:
        """Everything before ``position`` is stored; whether that is news."""
        self.told = 0
        if position <= self.stored:
            return False
        self.stored = position
        self.gap = 0
        self._give_back()
        return True

    def rewind(self) -> int:
        """What was told did not arrive: tell it again. Returns how many bytes that were."""
        told, self.told = self.told, 0
        self.position = max(self.stored, self.base)
        self.mark = b""
        self.closed = False
        return told

    def _give_back(self) -> None:
        """Free the disk space of what nobody reads any more."""
        end = self.stored - _MARK
        if end - self.punched >= _PUNCH_EVERY:
            punch(self.fd, self.punched - self.base, end - self.punched)
            self.punched = end


def last_lines(fd: int) -> str:
    """The end of a file, for the record of a failed attempt: at most 20 lines and 4 KiB."""
    size = os.fstat(fd).st_size
    start = max(0, size - TAIL_BYTES)
    data = os.pread(fd, TAIL_BYTES, start)
    if start:
        data = data[data.find(b"\n") + 1 :] or data
    return "\n".join(data.decode(errors="replace").splitlines()[-TAIL_LINES:])
