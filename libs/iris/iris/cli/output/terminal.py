"""Escapes control characters on terminals, because names, error texts and output come from other
users.

On a terminal every control character is shown as its escape, but for tab, newline and colours
(SGR); a carriage return shows what would have been left of its line. A pipe or a file gets the
bytes as they are, as does a terminal where ``--raw`` asks for it, also those that are no letters.
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
_OVERWRITTEN = re.compile(r"[^\n]*\r(?=[^\r\n])|\r")


def shown(text: str) -> str:
    """``text`` with control characters escaped."""
    if text.isascii() and text.isprintable():
        return text
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text)
    return _COLOUR_OR_CONTROL.sub(lambda found: found["colour"] or _escaped(ord(found[0])), text)


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
        help="Print the bytes as they are: escape no control characters on a terminal.",
    )(command)
