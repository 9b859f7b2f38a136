"""Formats output as plain text, JSON lines, or text/event-stream.

Pure. Out of scope: reading and filtering (`logs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from iris_core.codec import to_json
from iris_core.views.jobs import moment
from iris_core.views.streams import LogLineView
from iris_gateway.streams.log_lines import LogLine

Write = Callable[[Iterable[LogLine], int], bytes]
"""Formats lines, with the sequence to resume after (0: none yet)."""


def write_text(lines: Iterable[LogLine], _: int = 0) -> bytes:
    """One task's output as it was printed."""
    return b"".join([_noted(line) + line.data + b"\n" for line in lines])


def write_job_text(lines: Iterable[LogLine], _: int = 0) -> bytes:
    """Several tasks' output, each line prefixed with its task's index, and its attempt unless that
    is the first.
    """
    return b"".join([_noted(line) + _prefix(line) + line.data + b"\n" for line in lines])


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
        index, attempt, stream = line.source
        return LogLineView(
            task=f"{self._job}/{index}",
            index=index,
            attempt=attempt,
            stream=stream,
            at=moment(line.at_ms),
            offset=line.offset,
            line=line.text,
            dropped=line.dropped,
            notice=line.notice,
        )
