"""Reads the two output files of one attempt in chunks, within its quota.

The file is the buffer: unsent output stays there, stored output is freed, and output beyond the
quota is freed unsent, so an attempt holds at most its quota on disk, however long the log stream is
unreachable. See also: `logs` schedules reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from iris_core.messages.gateway_worker import LogChunk
from iris_worker.attempt.output.holes import first_hole, punch
from iris_worker.attempt.output.quota import CHUNK, LogQuota

TAIL_LINES = 20
TAIL_BYTES = 4096
_ROUND = 4 * CHUNK
_MARK = 64
_PUNCH_EVERY = 16 * 1024 * 1024
_LAST_BYTES = CHUNK // 2
_PIECE = 1024 * 1024
_COUNTED_PIECES = 32
_BLOCK = 4096
_MOST = 1 << 53
"""Bytes of a file, and of what was dropped of one, that are counted: a sparse file may have as many
as it likes.
"""


@dataclass(slots=True)
class OutputStream:
    """One output file; positions are bytes of all its output.

    Attributes:
        position: the next byte to send. stored: the first byte not known to be stored.
        kept: output before it is within the quota. cut: output from ``kept`` to it is dropped; 0:
            none.
        lines: line ends in the dropped range; -1 when they were not counted.
        base: the position of the file's first byte; 0 unless the task truncated the file, as ``echo
            > /dev/stdout`` does.
        mark: the last bytes before ``position``, as far as they are known.
        punched: up to where the file's blocks are freed. closed: its final chunk is made, or none
            is needed.
    """

    name: str
    fd: int
    position: int = 0
    stored: int = 0
    kept: int = 0
    cut: int = 0
    lines: int = 0
    base: int = 0
    mark: bytes = b""
    punched: int = 0
    closed: bool = False

    @classmethod
    def resumed(cls, name: str, fd: int, position: int) -> OutputStream:
        """The file that an earlier worker process read up to ``position``; a hole after it is
        dropped output.
        """
        hole, data = first_hole(fd, position)
        lost = (hole, min(data, _MOST), -1) if data > hole else (position, 0, 0)
        return cls(name, fd, position, position, *lost)

    @property
    def end(self) -> int:
        return self.base + min(os.fstat(self.fd).st_size, _MOST)

    @property
    def dropped(self) -> int:
        return self.cut - self.kept if self.cut > self.kept else 0

    def has_more(self) -> bool:
        return self.end > self.position

    def accept(self, budget: LogQuota) -> int:
        """Count new output toward the quota, and drop the excess except for its last lines.

        Returns how many bytes were dropped.
        """
        self._follow_file()
        before = self.dropped
        end = self.end
        if not self.dropped:
            self.kept += budget.accept(max(0, end - self.kept))
        if not budget.ever:
            self._drop(end - _LAST_BYTES)
        return self.dropped - before

    def _drop(self, target: int) -> None:
        """Free output over the quota before ``target``, and count its lines unless that takes too
        long.

        Only whole blocks are freed: the next worker process treats everything from ``kept`` to the
        data after the hole as dropped, and must not find zeros there.
        """
        start = max(self.kept, self.cut)
        if target <= start:
            return
        pieces = range(start, target, _PIECE)
        if len(pieces) > _COUNTED_PIECES:
            self.lines = -1
        if self.lines >= 0:
            for at in pieces:
                self.lines += os.pread(self.fd, min(_PIECE, target - at), at - self.base).count(
                    b"\n"
                )
        self.cut = target
        first = max(-(-(self.kept - self.base) // _BLOCK), (start - self.base) // _BLOCK)
        punch(self.fd, first * _BLOCK, ((target - self.base) // _BLOCK - first) * _BLOCK)

    def chunks(self, budget: LogQuota, finished: bool, now_ms: int) -> Iterator[LogChunk]:
        """The output to send, at most `_ROUND` bytes, so that no task delays others."""
        taken = 0
        while taken < _ROUND and not self.closed and (finished or not budget.must_wait):
            gap = self.dropped if finished and self.position == self.kept else 0
            if gap:
                self.position = self.cut
                self.mark = b""
            data = self._read(finished and self.position >= self.cut)
            final = (
                finished
                and len(data) < CHUNK
                and self.position + len(data) >= max(self.cut, self.end)
            )
            if len(data) == CHUNK:
                data = data[: data.rfind(b"\n") + 1] or data
            if not final and not self.dropped:
                data = data[: _whole_letters(data)]
            if not data and not (final and self.position):
                self.closed = final
                return
            lines, limit = (self.lines, budget.words) if gap else (-1, "")
            yield LogChunk(
                self.name,
                now_ms,
                self.position,
                data,
                dropped=gap,
                final=final,
                dropped_lines=lines,
                limit=limit,
            )
            self.position += len(data)
            self.mark = (self.mark + data)[-_MARK:]
            self.closed = final
            budget.now -= len(data)
            taken += len(data)

    def _read(self, whole: bool) -> bytes:
        """The next output in the file, within the quota unless ``whole``."""
        room = min(CHUNK, (self.end if whole else self.kept) - self.position)
        return os.pread(self.fd, room, self.position - self.base) if room > 0 else b""

    def _follow_file(self) -> None:
        """Continue at the start of the file when the task has truncated it; unsent output is lost.

        Truncation is detected by the last bytes that were sent, which no longer precede the next
        ones.
        """
        at = self.position - self.base
        back = len(self.mark)
        if self.position > self.kept or at <= 0:
            return  # only the last lines remain, or nothing of this file was sent
        if os.pread(self.fd, back, at - back) != self.mark or os.fstat(self.fd).st_size < at:
            gone = min(self.dropped, _MOST)
            self.kept = self.position
            self.mark = b""
            self.base = self.punched = self.cut = self.kept + gone

    def confirm(self, position: int) -> bool:
        """Everything before ``position`` is stored; returns whether the position has moved."""
        if position <= self.stored:
            return False
        self.stored = position
        end = self.stored - _MARK
        if end - self.punched >= _PUNCH_EVERY:
            punch(self.fd, self.punched - self.base, end - self.punched)
            self.punched = end
        return True


def _whole_letters(data: bytes) -> int:
    """How many bytes of it end with a whole letter, where they are UTF-8: readers get the pieces of
    a line as text.
    """
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte < 0x80:
            break
        if 0xC2 <= byte <= 0xF4:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < length else len(data)
    return len(data)


def last_lines(fd: int) -> str:
    """The end of a file, for the record of a failed attempt: at most 20 lines and 4 KiB."""
    size = os.fstat(fd).st_size
    start = max(0, size - TAIL_BYTES)
    data = os.pread(fd, TAIL_BYTES, start)
    if start:
        data = data[data.find(b"\n") + 1 :] or data
    return "\n".join(data.decode(errors="replace").splitlines()[-TAIL_LINES:])
