"""Formats output as plain text, JSON lines, or text/event-stream.

Pure. Out of scope: reading and filtering (`logs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from iris_core.codec import to_json
from iris_core.views.jobs import moment
from iris_core.views.streams import LogLineView
from iris_gateway.streams.log_lines import LogLine, Source

Write = Callable[[Iterable[LogLine], int], bytes]
"""Formats lines, with the sequence to resume after (0: none yet)."""


class PlainText:
    """Output as it was printed; of several tasks each line is ``prefixed`` with its task's index,
    and its attempt unless that is the first.

    A line that has not ended is ended where another source's follows, and goes on as a new one.
    """

    def __init__(self, *, prefixed: bool) -> None:
        self._prefixed = prefixed
        self._open: Source | None = None
        self._cut: set[Source] = set()

    def write(self, lines: Iterable[LogLine], _: int = 0) -> bytes:
        return b"".join(map(self._text, lines))

    def _text(self, line: LogLine) -> bytes:
        goes_on = self._open == line.source and not line.notice
        before = b""
        if not goes_on:
            before = b"\n" if self._open is not None else b""
            if self._open is not None:
                self._cut.add(self._open)
            self._open = None
            if line.source in self._cut:
                self._cut.discard(line.source)
                if not (line.data or line.continued or line.notice):
                    return before  # its end is written already
            before += _noted(line) + (_prefix(line) if self._prefixed else b"")
        self._open = line.source if line.continued else None
        return before + line.data + (b"" if line.continued else b"\n")


def _prefix(line: LogLine) -> bytes:
    index, attempt, _ = line.source
    return b"%d#%d| " % (index, attempt) if attempt else b"%d| " % index


def _noted(line: LogLine) -> bytes:
    return f"{line.notice}\n".encode() if line.notice else b""


class Shown:
    """Lines as `iris_core.views.jobs.LogLineView`, for one job."""

    def __init__(self, job: str) -> None:
        self._job = job

    def write_json_lines(self, lines: Iterable[LogLine], _: int = 0) -> bytes:
        return b"".join([to_json(self._view(line)) + b"\n" for line in lines])

    def write_frames(self, lines: Iterable[LogLine], safe: int) -> bytes:
        """Lines as events; the last one carries the position to resume from."""
        frames = [b"event: log\ndata: %s\n\n" % to_json(self._view(line)) for line in lines]
        if frames and safe:
            frames[-1] = b"id: %d\n" % safe + frames[-1]
        return b"".join(frames)

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
