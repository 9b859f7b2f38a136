"""Shows the progress of a map on the terminal or in a notebook, with failures as they happen.

Out of scope: collecting results (`mapping`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Protocol, TextIO

_EVERY_S = 0.1
_WIDTH = 30
_FAILURES_SHOWN = 5


class CountedCalls(Protocol):
    """The calls of a map."""

    @property
    def is_open(self) -> bool: ...
    def __len__(self) -> int: ...
    def listen(self, on_done: Callable[[Any], object]) -> None: ...
    def wait_closed(self) -> None: ...


class MapProgress:
    """The line of one map: how many calls have ended and failed; ``file``: a terminal or a
    notebook's output.
    """

    def __init__(self, name: str, calls: CountedCalls, file: TextIO) -> None:
        self._name = name
        self._calls = calls
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
            if self._is_last() or now_s - self._said_s >= _EVERY_S:
                self._said_s = now_s
                self._write(f"\r\x1b[K{self.line()}" + ("\n" if self._is_last() else ""))

    def on_closed(self) -> None:
        """No further calls come."""
        with self._lock:
            if self._is_last():
                self._write(f"\r\x1b[K{self.line()}\n")

    def _is_last(self) -> bool:
        return self._done == len(self._calls) and not self._calls.is_open

    def line(self) -> str:
        """The present progress, for a person; ``+``: further calls may come."""
        count = len(self._calls)
        full = _WIDTH * self._done // max(count, 1)
        failed = f", {self._failed} failed" if self._failed else ""
        more = "+" if self._calls.is_open else ""
        return (
            f"{self._name} [{'#' * full}{'.' * (_WIDTH - full)}] {self._done}/{count}{more}{failed}"
        )

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


def show_progress(name: str, calls: CountedCalls, file: TextIO | None = None) -> None:
    """Show it until every call has ended; nothing where standard error is neither a terminal nor a
    notebook's.
    """
    file = file or sys.stderr
    if not (file.isatty() or type(file).__module__.startswith("ipykernel")):
        return
    shown = MapProgress(name, calls, file)
    if calls.is_open:

        def close() -> None:
            with suppress(Exception):  # the map tells it
                calls.wait_closed()
            shown.on_closed()

        threading.Thread(target=close, name=f"iris-map-progress {name}", daemon=True).start()
    calls.listen(shown.on_done)
