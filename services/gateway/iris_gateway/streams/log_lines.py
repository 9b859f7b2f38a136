"""Cuts log chunks at the ends of lines, into blocks of whole lines.

Pure. An incomplete line is held back until its end arrives, its attempt's log ends, or it reaches
the maximum length; a reader may ask for what there is of it. A block is the bytes as they were
printed: a chunk of short lines is hundreds of thousands of them, and an object for each would take
a hundred times the memory of the text. Out of scope: where chunks come from (`logs`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from iris_core.messages.gateway_worker import LogChunk
from iris_core.units import counted

LONGEST = 64 << 10
HELD_BYTES = 8 << 20
"""Of incomplete lines of all sources; the oldest is let out without its end when there are more."""
TAIL_BYTES = 32 << 20
"""Of the last lines of an output that are kept until they are sent."""

EXPIRED = "kept no longer"

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


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of one source that were completed at one time, or a part of one.

    Attributes:
        offset: of its first byte in the attempt's stream.
        data: the lines, each with its end; the last has one also where none was printed, unless
            the block is ``continued``: then that line has not ended, and the next block of its
            source goes on with it.
        dropped, notice: as those of its first line.
    """

    source: Source
    at_ms: int
    offset: int
    data: bytes
    dropped: int = 0
    notice: str = ""
    continued: bool = False

    @property
    def count(self) -> int:
        """How many lines, one that has not ended among them."""
        return self.data.count(b"\n") + self.continued

    def lines(self) -> Iterator[LogLine]:
        """Its lines, one at a time."""
        start = 0
        lost = (self.dropped, self.notice)
        while start < len(self.data):
            end = self.data.find(b"\n", start)
            is_open = end < 0
            text = self.data[start:] if is_open else self.data[start:end].removesuffix(b"\r")
            offset = self.offset + start
            yield LogLine(self.source, self.at_ms, offset, text, *lost, continued=is_open)
            start = len(self.data) if is_open else end + 1
            lost = (0, "")

    def pieces(self, size: int) -> Iterator[Block]:
        """The same lines in blocks of about ``size`` bytes."""
        start = 0
        lost = (self.dropped, self.notice)
        while start < len(self.data):
            end = len(self.data)
            if end - start > size:
                end = self.data.find(b"\n", start + size - 1) + 1 or end
            yield Block(
                self.source,
                self.at_ms,
                self.offset + start,
                self.data[start:end],
                *lost,
                continued=self.continued and end == len(self.data),
            )
            start = end
            lost = (0, "")

    def behind(self, lines: int) -> Block | None:
        """The block without its first ``lines``; None when it has no others."""
        start = 0
        for _ in range(lines):
            start = self.data.find(b"\n", start) + 1
            if not start or start == len(self.data):
                return None
        if not start:
            return self
        return Block(
            self.source,
            self.at_ms,
            self.offset + start,
            self.data[start:],
            continued=self.continued,
        )


class LastLines:
    """The last lines of an output, at most ``number`` and about `TAIL_BYTES`.

    Attributes:
        cut: whether fewer lines are kept than asked for, because they are long.
    """

    def __init__(self, number: int, most_bytes: int = TAIL_BYTES) -> None:
        self._number = number
        self._most_bytes = most_bytes
        self._blocks: deque[tuple[Block, int]] = deque()
        self._lines = self._bytes = 0
        self.cut = False

    @property
    def is_full(self) -> bool:
        """Whether older lines would not be kept."""
        return self._lines >= self._number or self.cut

    def clear(self) -> None:
        self.cut = False
        self._blocks.clear()
        self._lines = self._bytes = 0

    def extend(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._add(block)

    def blocks(self) -> Iterator[Block]:
        """What is kept, oldest first; it is given away one by one."""
        surplus = max(0, self._lines - self._number)
        notice = self._what_is_missing() if self.cut else ""
        while self._blocks:
            block, _ = self._blocks.popleft()
            shown = block.behind(surplus) if surplus else block
            if shown is not None:
                yield replace(shown, notice=notice) if notice else shown
            surplus = 0
            notice = ""
        self.clear()

    def _what_is_missing(self) -> str:
        asked = counted(self._number, "line")
        kept = counted(self._lines, "line")
        return f"[iris: {asked} asked for; of lines this long the last {kept} are shown]"

    def _add(self, block: Block) -> None:
        count = block.count
        self._blocks.append((block, count))
        self._lines += count
        self._bytes += len(block.data)
        while self._blocks and self._lines - self._blocks[0][1] >= self._number:
            self._drop_first()
        while self._bytes > self._most_bytes and len(self._blocks) > 1:
            self._drop_first()
            self.cut = self._lines < self._number

    def _drop_first(self) -> None:
        block, count = self._blocks.popleft()
        self._lines -= count
        self._bytes -= len(block.data)


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
    """The lines of several sources with interleaved chunks; duplicate output is dropped.

    Attributes:
        is_from_start: the first chunk of a source should be the first of its output.
        why_gone: why a chunk that should be there is not.
    """

    is_from_start: bool = True
    why_gone: str = EXPIRED
    _tails: dict[Source, _Tail] = field(default_factory=dict)
    _ends: dict[Source, int] = field(default_factory=dict)
    _open: set[Source] = field(default_factory=set)
    """Sources of which the beginning of a line is given out, and not its end."""
    _held: int = 0
    """Bytes of the tails."""

    def feed(self, source: Source, chunk: LogChunk, sequence: int = 0) -> Iterator[Block]:
        """The lines that ``chunk`` completes."""
        known = self._ends.get(source, 0 if self.is_from_start else chunk.offset - chunk.dropped)
        if chunk.offset < known:
            chunk = behind(known, chunk)
        self._ends[source] = chunk.offset + len(chunk.data)
        missing = max(0, chunk.offset - chunk.dropped - known)
        if chunk.dropped or missing:
            yield from self._cut(source)
        tail = self._pop(source) or _Tail(b"", chunk.offset, chunk.at_ms, sequence)
        data = tail.data + chunk.data
        offset = tail.offset
        lost = (missing + chunk.dropped, notice_of(chunk, missing, self.why_gone))
        end = data.rfind(b"\n") + 1
        if end:
            yield Block(source, chunk.at_ms, offset, data[:end], *lost)
            self._open.discard(source)
            lost = (0, "")
        rest = data[end:]
        is_open = source in self._open
        if (rest or lost[0] or is_open) and (chunk.final or len(rest) >= LONGEST):
            yield self._given(
                source, chunk.at_ms, offset + end, rest, lost=lost, continued=not chunk.final
            )
        elif rest:
            began, seen_s = (sequence, None) if end else (tail.since, tail.seen_s)
            self._tails[source] = _Tail(rest, offset + end, chunk.at_ms, began, seen_s=seen_s)
            self._held += len(rest)
            while self._held > HELD_BYTES:
                yield self._release(next(iter(self._tails)))

    def unfinished(self, now_s: float, pause_s: float) -> Iterator[Block]:
        """What there is of lines that have not ended: for so long that more may take its time, or
        with a carriage return, as progress bars have it.
        """
        for source, tail in list(self._tails.items()):
            if tail.seen_s is None:
                tail.seen_s = now_s
            if b"\r" in tail.data or now_s - tail.seen_s >= pause_s:
                yield self._release(source)

    @property
    def has_unfinished(self) -> bool:
        """Whether a line is held back that has not ended."""
        return bool(self._tails)

    def rest(self) -> Iterator[Block]:
        """The incomplete lines, when no more output will arrive."""
        for source in {**self._tails, **dict.fromkeys(self._open)}:
            yield from self._cut(source)

    def complete_to(self, sequence: int) -> int:
        """The last sequence up to which all lines are returned; a reader can resume after it
        without missing one.
        """
        return min((tail.since - 1 for tail in self._tails.values()), default=sequence)

    def _pop(self, source: Source) -> _Tail | None:
        tail = self._tails.pop(source, None)
        self._held -= len(tail.data) if tail is not None else 0
        return tail

    def _release(self, source: Source) -> Block:
        """What is held back of a line, which goes on."""
        tail = self._pop(source)
        assert tail is not None
        return self._given(source, tail.at_ms, tail.offset, tail.data, lost=(0, ""), continued=True)

    def _cut(self, source: Source) -> Iterator[Block]:
        """The end of a line that gets none."""
        tail = self._pop(source)
        if tail is None and source in self._open:
            tail = _Tail(b"", self._ends[source])
        if tail is not None:
            yield self._given(
                source, tail.at_ms, tail.offset, tail.data, lost=(0, ""), continued=False
            )

    def _given(
        self,
        source: Source,
        at_ms: int,
        offset: int,
        data: bytes,
        lost: tuple[int, str],
        *,
        continued: bool,
    ) -> Block:
        """A line without a line end, or a part of one."""
        (self._open.add if continued else self._open.discard)(source)
        text = data if continued else data + b"\n"
        return Block(source, at_ms, offset, text, *lost, continued=continued)


def notice_of(chunk: LogChunk, missing: int = 0, why: str = EXPIRED) -> str:
    """The message about bytes before a chunk that are not stored any more, ``missing``, and that
    were dropped by the worker; empty when there are none.
    """
    gone = f"[iris: {counted(missing, 'byte')} of output not here: {why}]" if missing else ""
    dropped = _dropped_notice(chunk) if chunk.dropped else ""
    return " ".join(notice for notice in (gone, dropped) if notice)


def _dropped_notice(chunk: LogChunk) -> str:
    lines = f" ({counted(chunk.dropped_lines, 'line')})" if chunk.dropped_lines >= 0 else ""
    limit = f": limit {chunk.limit}" if chunk.limit else ""
    return f"[iris: {counted(chunk.dropped, 'byte')}{lines} of output dropped here{limit}]"


def behind(position: int, chunk: LogChunk) -> LogChunk:
    """The part of a chunk after ``position``; the rest is a duplicate."""
    return LogChunk(
        chunk.stream,
        chunk.at_ms,
        position,
        chunk.data[position - chunk.offset :],
        dropped=0,
        final=chunk.final,
    )
