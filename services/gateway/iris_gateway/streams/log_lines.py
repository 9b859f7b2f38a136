"""Splits log chunks into lines.

Pure. An incomplete line is held back until its end arrives, its attempt's log ends, or it reaches
the maximum length. Out of scope: where chunks come from (`logs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from iris_core.messages.gateway_worker import LogChunk
from iris_core.units import counted

LONGEST = 64 << 10

Source = tuple[int, int, str]
"""Task index, attempt, stream."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of output, without its line end.

    Attributes:
        offset: of its first byte in the attempt's stream; with ``source`` it identifies the line.
        dropped: bytes of the stream that were dropped just before it. notice: a message about that,
            empty when there are none.
    """

    source: Source
    at_ms: int
    offset: int
    data: bytes
    dropped: int = 0
    notice: str = ""

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(slots=True)
class _Tail:
    data: bytes = b""
    offset: int = 0
    at_ms: int = 0
    since: int = 0
    """Sequence of the chunk it began in."""


@dataclass(slots=True)
class Splitter:
    """The lines of several sources with interleaved chunks; duplicate output is dropped."""

    _tails: dict[Source, _Tail] = field(default_factory=dict)
    _ends: dict[Source, int] = field(default_factory=dict)

    def feed(self, source: Source, chunk: LogChunk, sequence: int = 0) -> Iterator[LogLine]:
        """The lines that ``chunk`` completes."""
        known = self._ends.get(source, 0)
        if chunk.offset < known:
            chunk = behind(known, chunk)
        self._ends[source] = chunk.offset + len(chunk.data)
        if chunk.dropped:
            yield from self._cut(source)
        tail = self._tails.pop(source, None) or _Tail(b"", chunk.offset, chunk.at_ms, sequence)
        data, offset, lost = tail.data + chunk.data, tail.offset, (chunk.dropped, notice_of(chunk))
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            yield LogLine(
                source, chunk.at_ms, offset + start, data[start:end].removesuffix(b"\r"), *lost
            )
            start, lost = end + 1, (0, "")
        rest = data[start:]
        if (rest or lost[0]) and (chunk.final or len(rest) >= LONGEST):
            yield LogLine(source, chunk.at_ms, offset + start, rest, *lost)
        elif rest:
            began = tail.since if start == 0 else sequence
            self._tails[source] = _Tail(rest, offset + start, chunk.at_ms, began)

    def rest(self) -> Iterator[LogLine]:
        """The incomplete lines, when no more output will arrive."""
        for source in list(self._tails):
            yield from self._cut(source)

    def complete_to(self, sequence: int) -> int:
        """The last sequence up to which all lines are returned; a reader can resume after it
        without missing one.
        """
        return min((tail.since - 1 for tail in self._tails.values()), default=sequence)

    def _cut(self, source: Source) -> Iterator[LogLine]:
        tail = self._tails.pop(source, None)
        if tail is not None:
            yield LogLine(source, tail.at_ms, tail.offset, tail.data)


def notice_of(chunk: LogChunk) -> str:
    """The message about bytes dropped before a chunk; empty when there are none."""
    if not chunk.dropped:
        return ""
    lines = f" ({counted(chunk.dropped_lines, 'line')})" if chunk.dropped_lines >= 0 else ""
    limit = f": limit {chunk.limit}" if chunk.limit else ""
    return f"[iris: {counted(chunk.dropped, 'byte')}{lines} of output dropped here{limit}]"


def behind(position: int, chunk: LogChunk) -> LogChunk:
    """The part of a chunk after ``position``; the rest is a duplicate."""
    return LogChunk(
        chunk.stream, chunk.at_ms, position, chunk.data[position - chunk.offset :], 0, chunk.final
    )
