"""Splits log chunks into lines.

Pure. An incomplete line is held back until its end arrives, its attempt's log ends, or it reaches
the maximum length; a reader may ask for what there is of it. Out of scope: where chunks come from
(`logs`).
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
        continued: it has not ended, and the next one of its source goes on with it.
    """

    source: Source
    at_ms: int
    offset: int
    data: bytes
    dropped: int = 0
    notice: str = ""
    continued: bool = False

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
    seen_s: float | None = None
    """When a reader saw it first that asks for what has not ended."""


@dataclass(slots=True)
class Splitter:
    """The lines of several sources with interleaved chunks; duplicate output is dropped."""

    _tails: dict[Source, _Tail] = field(default_factory=dict)
    _ends: dict[Source, int] = field(default_factory=dict)
    _open: set[Source] = field(default_factory=set)
    """Sources of which the beginning of a line is given out, and not its end."""

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
            self._open.discard(source)
            start, lost = end + 1, (0, "")
        rest = data[start:]
        is_open = source in self._open and start == 0
        if (rest or lost[0] or is_open) and (chunk.final or len(rest) >= LONGEST):
            yield self._given(source, chunk.at_ms, offset + start, rest, lost, not chunk.final)
        elif rest:
            began, seen_s = (tail.since, tail.seen_s) if start == 0 else (sequence, None)
            self._tails[source] = _Tail(rest, offset + start, chunk.at_ms, began, seen_s)

    def unfinished(self, now_s: float, pause_s: float) -> Iterator[LogLine]:
        """What there is of lines that have not ended: for so long that more may take its time, or
        with a carriage return, as progress bars have it.
        """
        for source, tail in list(self._tails.items()):
            if tail.seen_s is None:
                tail.seen_s = now_s
            if b"\r" in tail.data or now_s - tail.seen_s >= pause_s:
                del self._tails[source]
                yield self._given(source, tail.at_ms, tail.offset, tail.data, (0, ""), True)

    @property
    def has_unfinished(self) -> bool:
        """Whether a line is held back that has not ended."""
        return bool(self._tails)

    def _given(
        self,
        source: Source,
        at_ms: int,
        offset: int,
        data: bytes,
        lost: tuple[int, str],
        continued: bool,
    ) -> LogLine:
        """A line without a line end."""
        (self._open.add if continued else self._open.discard)(source)
        return LogLine(source, at_ms, offset, data, *lost, continued=continued)

    def rest(self) -> Iterator[LogLine]:
        """The incomplete lines, when no more output will arrive."""
        for source in {**self._tails, **dict.fromkeys(self._open)}:
            yield from self._cut(source)

    def complete_to(self, sequence: int) -> int:
        """The last sequence up to which all lines are returned; a reader can resume after it
        without missing one.
        """
        return min((tail.since - 1 for tail in self._tails.values()), default=sequence)

    def _cut(self, source: Source) -> Iterator[LogLine]:
        tail = self._tails.pop(source, None)
        if tail is None and source in self._open:
            tail = _Tail(b"", self._ends[source])
        if tail is not None:
            yield self._given(source, tail.at_ms, tail.offset, tail.data, (0, ""), False)


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
