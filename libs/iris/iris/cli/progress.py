"""Draws a line of counts by state at the bottom of a terminal; other output is printed above it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from iris.cli.tables import state_word
from iris_core.views import JobView

_ERASE = "\r\x1b[K"
_WIDTH = 20
_OVER = ("succeeded", "failed", "killed", "worker_failed", "unschedulable", "preempted")


class Progress:
    """Draws nothing when ``out`` is not a terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.RLock()
        self._line = ""
        self.on = out.isatty()

    def show(self, view: JobView) -> None:
        """Draw a job's progress."""
        with self.above():
            self._line = bar(view)

    def end(self) -> None:
        """Erase the line."""
        with self.above():
            self._line = ""

    @contextmanager
    def above(self) -> Iterator[None]:
        """Output in the block is printed above the line; one thread at a time."""
        with self._lock:
            if self._line:
                self._out.write(_ERASE)
                self._out.flush()
            yield
            if self._line and self.on:
                self._out.write(self._line)
                self._out.flush()


def bar(view: JobView) -> str:
    """``[#####---------------] 2/8  2 succeeded, 6 running``."""
    over = sum(view.task_counts.get(state, 0) for state in _OVER)
    filled = _WIDTH * over // max(view.replicas, 1)
    counts = ", ".join(f"{count} {state_word(state)}" for state, count in view.task_counts.items() if count)
    return click.style(f"[{'#' * filled}{'-' * (_WIDTH - filled)}]", dim=True) + f" {over}/{view.replicas}  {counts}"
