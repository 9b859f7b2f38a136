"""Draws one line at the bottom of a terminal: counts by state, output above them, bytes read, or a
wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, Self, TextIO

import click
from click.globals import resolve_color_default

from iris.cli.output.lines import LinePrinter
from iris.cli.output.tables import state_word
from iris.cli.output.terminal import ERASE
from iris_core.states import TERMINAL, display_name
from iris_core.units import show_bytes
from iris_core.views.jobs import JobView

_WIDTH = 20
_DRAW_S = 0.2
P = ParamSpec("P")
_OVER = [display_name(state) for state in TERMINAL]


class Progress:
    """Draws nothing when ``out`` is not a terminal, nor while a line of output stands there that
    has not ended.

    Attributes:
        lines: prints the output, if any is printed.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.RLock()
        self._line = ""
        self._drawn = False
        self.lines: LinePrinter | None = None
        self.on = out.isatty()
        self._plain = (
            resolve_color_default() is False
        )  # of this thread: the one that draws has no context of click

    def show(self, view: JobView) -> None:
        """Draw a job's progress."""
        line = bar(view)
        with self.above(output=True):
            self._line = click.unstyle(line) if self._plain else line

    def end(self) -> None:
        """Erase the line."""
        with self.above():
            self._line = ""

    @contextmanager
    def above(self, *, output: bool = False) -> Iterator[None]:
        """What is printed in the block stands above the line; one thread at a time. It ends a line
        of output that has not ended, unless it is ``output`` itself.
        """
        with self._lock:
            if self._drawn:
                self._out.write(ERASE)
                self._out.flush()
                self._drawn = False
            if self.lines is not None and not output:
                self.lines.interrupt()
            yield
            if self._line and self.on and not (self.lines is not None and self.lines.is_open):
                self._out.write(self._line)
                self._out.flush()
                self._drawn = True

    def printing(self, say: Callable[P, None]) -> Callable[P, None]:
        """``say``, whose output is printed above the line."""

        def said(*args: P.args, **kwargs: P.kwargs) -> None:
            with self.above():
                say(*args, **kwargs)

        return said


class _Line:
    """A line that is there while it is entered; nothing when ``out`` is not a terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out if out.isatty() else None

    def _draw(self, line: str) -> None:
        if self._out is not None:
            self._out.write(ERASE)
            self._out.write(line)
            self._out.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._draw("")


class CountedBytes(_Line):
    """A line that counts bytes."""

    def __init__(self, out: TextIO, title: str) -> None:
        super().__init__(out)
        self._title = title
        self._drawn_s = 0.0

    def show(self, read: int, size: int) -> None:
        """``results  12 of 300 MiB``."""
        now_s = time.monotonic()
        if now_s - self._drawn_s > _DRAW_S:
            self._drawn_s = now_s
            self._draw(f"{self._title}  {show_bytes(read)} of {show_bytes(size)}")


class StatusLine(_Line):
    """A line that says what is waited for."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._began_s = time.monotonic()
        self._drawn = ""

    def show(self, text: str) -> None:
        """``12 s  1 of 2 workers have registered``; drawn when it has changed."""
        line = f"{time.monotonic() - self._began_s:3.0f} s  {text}"
        if line != self._drawn:
            self._drawn = line
            self._draw(line)


def bar(view: JobView) -> str:
    """``[#####---------------] 2/8  2 succeeded, 6 running``."""
    over = sum(view.task_counts.get(state, 0) for state in _OVER)
    filled = _WIDTH * over // max(view.replicas, 1)
    counts = ", ".join(
        f"{count} {state_word(state)}" for state, count in view.task_counts.items() if count
    )
    return (
        click.style(f"[{'#' * filled}{'-' * (_WIDTH - filled)}]", dim=True)
        + f" {over}/{view.replicas}  {counts}"
    )
