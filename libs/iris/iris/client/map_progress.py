"""Shows the progress of a map on the terminal or in a notebook, with failures as they happen.

Out of scope: collecting results (`mapping`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TextIO

_EVERY_S = 0.1
_WIDTH = 30
_FAILURES_SHOWN = 5


class MapProgress:
    """The line of one map: how many calls have ended and failed; ``file``: a terminal or a notebook's output."""

    def __init__(self, name: str, count: int, file: TextIO) -> None:
        self._name, self._count = name, count
        self._file = file
        self._lock = threading.Lock()
        self._done = self._failed = 0
        self._said_s = 0.0

    def on_done(self, future: Future[Any]) -> None:
        """A call has ended."""
        with self._lock:
            self._done += 1
            error = CancelledError("cancelled") if future.cancelled() else future.exception()
            if error is not None:
                self._failed += 1
                if self._failed <= _FAILURES_SHOWN:
                    self._write(f"\r\x1b[K{future.task}: {type(error).__name__}: {error}\n")  # type: ignore[attr-defined]
            now_s = time.monotonic()
            if self._done == self._count or now_s - self._said_s >= _EVERY_S:
                self._said_s = now_s
                self._write(f"\r\x1b[K{self.line()}" + ("\n" if self._done == self._count else ""))

    def line(self) -> str:
        """The present progress, for a person."""
        full = _WIDTH * self._done // self._count
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._name} [{'#' * full}{'.' * (_WIDTH - full)}] {self._done}/{self._count}{failed}"

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


def show_progress(name: str, futures: Sequence[Future[Any]], file: TextIO | None = None) -> None:
    """Show it until every call has ended; nothing where standard error is neither a terminal nor a notebook's."""
    file = file or sys.stderr
    if not (file.isatty() or type(file).__module__.startswith("ipykernel")):
        return
    shown = MapProgress(name, len(futures), file)
    for future in futures:
        future.add_done_callback(shown.on_done)
