"""Prints lines of output, each to its stream, also those that have not ended.

A line that another one interrupts is ended, and goes on behind its prefix. On a terminal what a
carriage return overwrites is drawn again. Out of scope: what control characters become
(`terminal`).
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import Any

from iris.cli.output.terminal import ERASE, Terminal, asked_raw, takes_bytes, write_bytes
from iris_core.views.streams import LogLineView

LineSource = tuple[str, int, int, str]


@dataclass(slots=True)
class OpenLine:
    """A line that has not ended: whose it is, what stands before it, and what is printed of it."""

    source: LineSource
    head: str
    text: str


class LinePrinter:
    """Prints lines of output from any thread.

    Args:
        prefix: begin each line with its task. timestamps: and with the time when it was written.
    """

    def __init__(self, *, prefix: bool, timestamps: bool = False) -> None:
        self._prefix = prefix
        self._timestamps = timestamps
        self._raw = asked_raw()
        self._lock = threading.Lock()
        self._open: dict[bool, OpenLine] = {}
        self._unflushed: Any = None
        self._interrupted: set[LineSource] = set()
        self._shared = sys.stdout.isatty() and sys.stderr.isatty()
        sys.stdout.flush()
        sys.stderr.flush()

    @property
    def is_open(self) -> bool:
        """Whether a line stands on the terminal that has not ended."""
        return bool(self._open) and self._shared

    def print(self, line: LogLineView, whose: str = "", *, flush: bool = True) -> None:
        """Print one line, or what is new of it.

        Args:
            whose: in place of its task, as the prefix.
            flush: show it now; else at the latest before this thread waits (`flush`). Each flush is
                a call of the system, which takes longer than a short line.
        """
        source = (whose, line.index, line.attempt, line.stream)
        with self._lock:
            stream = _stream(line)
            if self._unflushed is not stream:
                self._flush()  # both may be one file, where lines stay in their order
            found = self._open.get(self._place(line))
            if found is None or found.source != source or line.notice:
                self._begin(line, source, whose)
            else:
                self._go_on(line, found)
            self._unflushed = stream
            if flush or isinstance(stream, Terminal):
                self._flush()

    def flush(self) -> None:
        """Show what was printed."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._unflushed is not None:
            self._unflushed.flush()
            self._unflushed = None

    def interrupt(self) -> None:
        """End the line that stands on the terminal: something else is printed."""
        with self._lock:
            if self._shared:
                self._end(False)

    def _place(self, line: LogLineView) -> bool:
        """Where it is printed: stdout and stderr are one place on a terminal."""
        return line.stream == "stderr" and not self._shared

    def _begin(self, line: LogLineView, source: LineSource, whose: str) -> None:
        place = self._place(line)
        before = self._open.get(place)
        self._end(place)
        if not (line.printed or line.continued or line.notice):
            ends_other = before is not None and before.source[:-1] == source[:-1]
            if ends_other or source in self._interrupted:
                self._interrupted.discard(source)  # its end is printed already
                return
        self._interrupted.discard(source)
        stream = _stream(line)
        head = self._head(line, whose)
        before_it = (f"{line.notice}\n" if line.notice else "") + head
        self._write(stream, line, line.line, before=before_it)
        self._leave(line, source, head, line.line)

    def _go_on(self, line: LogLineView, found: OpenLine) -> None:
        stream = _stream(line)
        text = found.text + line.line
        overwrites = "\r" in line.line or (line.line and found.text.endswith("\r"))
        if overwrites and isinstance(stream, Terminal) and not self._raw:
            stream.write(ERASE)
            stream.write(found.head)
            stream.write(text)
            text = text[text.rfind("\r", 0, len(text.rstrip("\r"))) + 1 :]
            if not line.continued:
                stream.write("\n")
        else:
            self._write(stream, line, line.line)
        self._leave(line, found.source, found.head, text)

    def _write(self, stream: Any, line: LogLineView, text: str, before: str = "") -> None:
        end = "" if line.continued else "\n"
        if takes_bytes(stream, raw=self._raw):
            head = before.encode(stream.encoding, stream.errors)
            write_bytes(stream, head + line.printed + end.encode())
        else:
            stream.write(before)
            stream.write(text + end)

    def _leave(self, line: LogLineView, source: LineSource, head: str, text: str) -> None:
        """Remember a line that has not ended."""
        place = self._place(line)
        if line.continued:
            self._open[place] = OpenLine(source, head, text if "\r" in text else text[-4096:])
        else:
            self._open.pop(place, None)

    def _end(self, place: bool) -> None:
        found = self._open.pop(place, None)
        if found is None:
            return
        self._interrupted.add(found.source)
        stream = sys.stderr if found.source[-1] == "stderr" else sys.stdout
        stream.write("\n")
        stream.flush()

    def _head(self, line: LogLineView, whose: str) -> str:
        whose = whose or (f"{line.index}#{line.attempt}" if line.attempt else str(line.index))
        at = (
            f"{line.at.astimezone().isoformat(timespec='milliseconds')} "
            if self._timestamps and line.at
            else ""
        )
        return at + (f"{whose}| " if self._prefix else "")


def _stream(line: LogLineView) -> Any:
    return sys.stderr if line.stream == "stderr" else sys.stdout
