"""Formats output as plain text, JSON lines, or text/event-stream.

Pure. Out of scope: reading and filtering (`logs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from iris_core.codec import to_json
from iris_core.views.jobs import moment
from iris_core.views.streams import LogLineView
from iris_gateway.streams.log_lines import Block, LogLine, Source

Write = Callable[[Iterable[Block], int], Iterator[bytes]]
"""Formats lines in pieces of about `PIECE` bytes, at least one, which may be empty; with the
sequence to resume after (0: none yet).
"""
PIECE = 32 << 10


class PlainText:
    """Output as it was printed; of several tasks each line is ``prefixed`` with its task's index,
    and its attempt unless that is the first.

    A line that has not ended is ended where another source's follows, and goes on as a new one.
    """

    def __init__(self, *, prefixed: bool) -> None:
        self._prefixed = prefixed
        self._size = PIECE // 4 if prefixed else PIECE
        self._open: Source | None = None
        self._cut: set[Source] = set()

    def write(self, blocks: Iterable[Block], _: int = 0) -> Iterator[bytes]:
        return _gathered(
            part
            for block in blocks
            for piece in block.pieces(self._size)
            for part in self._parts(piece)
        )

    def _parts(self, block: Block) -> Iterator[bytes]:
        prefix = _prefix(block) if self._prefixed else b""
        data = block.data
        before = b""
        if self._open != block.source or block.notice:
            if self._open is not None:
                yield b"\n"
                self._cut.add(self._open)
            if block.source in self._cut:
                self._cut.discard(block.source)
                data = data if block.notice else data.removeprefix(b"\n")  # it is written already
            yield _noted(block)
            before = prefix if data else b""
        self._open = block.source if block.continued else None
        text = data.replace(b"\r\n", b"\n")
        if prefix:
            text = text[:-1].replace(b"\n", b"\n" + prefix) + text[-1:]
        yield before + text


def _prefix(block: Block) -> bytes:
    index, attempt, _ = block.source
    return b"%d#%d| " % (index, attempt) if attempt else b"%d| " % index


def _noted(block: Block) -> bytes:
    return f"{block.notice}\n".encode() if block.notice else b""


def _gathered(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts in pieces of `PIECE` bytes or a little more; the last one may be smaller."""
    piece: list[bytes] = []
    size = 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= PIECE:
            yield b"".join(piece)
            piece = []
            size = 0
    yield b"".join(piece)


class Shown:
    """Lines as `iris_core.views.streams.LogLineView`, for one job; each is made when it is sent."""

    def __init__(self, job: str) -> None:
        self._job = job

    def write_json_lines(self, blocks: Iterable[Block], _: int = 0) -> Iterator[bytes]:
        return _gathered(
            to_json(self._view(line)) + b"\n" for block in blocks for line in block.lines()
        )

    def write_frames(self, blocks: Iterable[Block], safe: int) -> Iterator[bytes]:
        """Lines as events; the last one carries the position to resume from."""
        return _gathered(self._frames(blocks, safe))

    def _frames(self, blocks: Iterable[Block], safe: int) -> Iterator[bytes]:
        last = b""
        for block in blocks:
            for line in block.lines():
                yield last
                last = b"event: log\ndata: %s\n\n" % to_json(self._view(line))
        yield b"id: %d\n" % safe + last if last and safe else last

    def _view(self, line: LogLine) -> LogLineView:
        (index, attempt, stream), text = line.source, line.text
        return LogLineView(
            task=f"{self._job}/{index}",
            index=index,
            attempt=attempt,
            stream=stream,
            at=moment(line.at_ms),
            offset=line.offset,
            line=text,
            dropped=line.dropped,
            notice=line.notice,
            continued=line.continued,
            data=line.data if "\ufffd" in text and text.encode() != line.data else b"",
        )
