"""Escapes control characters on terminals, because names, error texts and output come from other
users.

On a terminal every control character is shown as its escape, but for tab, newline and colours
(SGR) that hide nothing; a carriage return shows what would have been left of its line. A pipe or a
file gets the bytes as they are, as does a terminal where ``--raw`` asks for it, also those that are
no letters.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from iris_core.limits import TURNS

F = TypeVar("F", bound=Callable[..., Any])

ERASE = "\r\033[K"
"""Goes back to the begin of a line and deletes it."""
OWN = frozenset({"\033[2J\033[1;1H", ERASE})
"""The control sequences of the command line itself, each in a write of its own: `click.clear`,
`progress`.
"""

_RAW = "iris.raw"
_COLOUR_OR_CONTROL = re.compile(
    f"(?P<colour>\033\\[[0-9;:]*m)|(?P<control>[\0-\x08\x0b-\x1f\x7f-\x9f{TURNS}])"
)
_NOT_OF_A_LINE = re.compile(f"[\0-\x1f\x7f-\x9f\u2028\u2029{TURNS}]")
_CONCEAL = 8
_OVERWRITTEN = re.compile(r"[^\n]*\r(?=[^\r\n])|\r")


def shown(text: str) -> str:
    """``text`` with control characters escaped."""
    if text.isascii() and text.isprintable():
        return text
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text)
    colours = _Colours()

    def shown_as(found: re.Match[str]) -> str:
        if (colour := found["colour"]) and colours.hide_nothing_after(colour):
            return colour
        return _escaped(ord(found[0][0])) + found[0][1:]

    return _COLOUR_OR_CONTROL.sub(shown_as, text)


def in_one_line(text: str) -> str:
    """``text`` as part of a line that programs read: with the escape of every control character,
    line ends and colours as well.
    """
    if text.isprintable():
        return text
    return _NOT_OF_A_LINE.sub(lambda found: _escaped(ord(found[0])), text)


class _Colours:
    """The colours of letters and of what is behind them, as far as a text has chosen them; None:
    the terminal's own.
    """

    def __init__(self) -> None:
        self._letters: tuple[int, ...] | None = None
        self._behind: tuple[int, ...] | None = None

    def hide_nothing_after(self, sequence: str) -> bool:
        """Whether letters can be seen after the sequence, which counts then."""
        before = self._letters, self._behind
        numbers = [int(number or 0) for number in re.split("[;:]", sequence[2:-1])]
        concealed = self._take(numbers)
        if concealed or (self._letters is not None and self._letters == self._behind):
            self._letters, self._behind = before
            return False
        return True

    def _take(self, numbers: list[int]) -> bool:
        """Whether one of the numbers of a sequence conceals."""
        while numbers:
            number = numbers.pop(0)
            if number == _CONCEAL:
                return True
            if number == 0:
                self._letters = self._behind = None
            elif number in (38, 48):  # the rest is one colour
                chosen = tuple(numbers[1:])
                numbers = []
                self._choose(letters=number == 38, colour=chosen)
            elif number in (39, 49):
                self._choose(letters=number == 39, colour=None)
            elif 30 <= number <= 47:
                self._choose(letters=number < 40, colour=(number % 10,))
            elif 90 <= number <= 107:
                self._choose(letters=number < 100, colour=(number % 10 + 8,))
        return False

    def _choose(self, *, letters: bool, colour: tuple[int, ...] | None) -> None:
        if letters:
            self._letters = colour
        else:
            self._behind = colour


def _escaped(code: int) -> str:
    """As Python writes it."""
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class Terminal(io.TextIOWrapper):
    """A text stream that escapes control characters, unless ``--raw`` is given."""

    as_it_is = False

    def write(self, text: str) -> int:
        super().write(text if self.as_it_is or text in OWN else shown(text))
        return len(text)


@contextmanager
def guarded() -> Iterator[None]:
    """Guard stdout and stderr where they are terminals."""
    before = sys.stdout, sys.stderr
    guards = sys.stdout, sys.stderr = _guard(sys.stdout), _guard(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for guard in guards:
            if isinstance(guard, Terminal):
                guard.detach()  # otherwise closing it would close the bytes below too


def replace_letters(*streams: Any) -> None:
    """Show letters that an encoding lacks as question marks, where writing them would fail: what
    has succeeded does not end in an error because of its output.
    """
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def _guard(stream: Any) -> Any:
    """Replace a stream; it is flushed first, so that nothing is written after the guard's
    output.
    """
    if stream is None or not stream.isatty() or not hasattr(stream, "buffer"):
        return stream
    stream.flush()
    return Terminal(stream.buffer, stream.encoding, stream.errors, line_buffering=True)


def takes_bytes(stream: Any, *, raw: bool) -> bool:
    """Whether output of tasks goes to a stream as the bytes that were printed: to a file or a pipe
    in UTF-8, and wherever ``--raw`` asks for it. A terminal gets text.
    """
    if not hasattr(stream, "buffer"):
        return False
    is_utf8 = stream.encoding.lower().replace("-", "") == "utf8"
    return raw or (is_utf8 and not isinstance(stream, Terminal))


def write_bytes(stream: Any, data: bytes) -> None:
    """Write bytes to a stream that takes them, behind the text that was written and flushed."""
    stream.buffer.write(data)


def asked_raw() -> bool:
    """Whether this command has got ``--raw``."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_RAW))


def raw_option(command: F) -> F:
    """``--raw``: write every byte to a terminal unchanged."""

    def choose(ctx: click.Context, param: click.Parameter, raw: bool) -> None:
        ctx.meta[_RAW] = raw
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, Terminal):
                stream.as_it_is = raw

    return click.option(
        "--raw",
        is_flag=True,
        expose_value=False,
        callback=choose,
        help="Print the bytes as they are: escape no control characters on a terminal. The last line "
        "of a task is ended, also where the task did not.",
    )(command)
