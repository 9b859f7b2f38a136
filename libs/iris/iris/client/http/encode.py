"""Encodes what requests hold: bodies, paths, queries and header fields. The only place that does.

What a caller gives may hold letters that UTF-8 has no bytes for: a word of a command line or a
variable that is not UTF-8 reaches Python so. Such a value is refused, by its name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from iris.client.problems import InvalidOption

_COMMAND = "command"


def encode_json(value: object) -> bytes:
    """A body. Raises InvalidOption with each text in it that is not UTF-8."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise InvalidOption("\n".join(_mistakes(msgspec.to_builtins(value), ()))) from None


def encode_segment(name: str) -> str:
    """A name as one segment of a path: its slashes are percent-encoded. Raises InvalidOption."""
    return quote(_text(name, "the name"), safe="")


def encode_query(query: Mapping[str, str | int | bool | None]) -> str:
    """The members of a query that are not None; a flag is ``true`` or ``false``. Raises
    InvalidOption.
    """
    given = {
        key: str(value).lower() if isinstance(value, bool) else _text(str(value), key)
        for key, value in query.items()
        if value is not None
    }
    return urlencode(given)


def check_headers(headers: Mapping[str, str]) -> None:
    """Raises InvalidOption for a value that HTTP has no bytes for."""
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            shown = "its value is secret" if name == "Authorization" else repr(value)
            raise InvalidOption(f"{name} is not one line of ASCII letters: {shown}")


def flaw_of(text: str) -> str:
    """Why a text cannot be encoded: ``byte 0xff at 3``; empty when it can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        is_byte = 0xDC80 <= code <= 0xDCFF
        what = f"byte 0x{code - 0xDC00:02x}" if is_byte else f"a half of a letter, U+{code:04X},"
        return f"{what} at {len(text[: error.start].encode())}"
    return ""


def _text(text: str, what: str) -> str:
    """The text. Raises InvalidOption when it is not UTF-8."""
    if not text.isascii() and (flaw := flaw_of(text)):
        raise InvalidOption(f"{what} is not UTF-8 ({flaw})")
    return text


def _mistakes(value: Any, place: tuple[str | int, ...]) -> Iterator[str]:
    """A sentence for each text in plain values that is not UTF-8."""
    if isinstance(value, str) and (flaw := flaw_of(value)):
        yield f"{_named(place)} is not UTF-8 ({flaw})"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str) and (flaw := flaw_of(key)):
                yield f"a name in {_path(place)} is not UTF-8 ({flaw})"
            else:
                yield from _mistakes(item, (*place, key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _mistakes(item, (*place, number))


def _named(place: tuple[str | int, ...]) -> str:
    """What stands there: ``word 2 of the command``, ``the value of env HOME``, ``name``."""
    last = place[-1] if place else "the body"
    if isinstance(last, int):
        return f"{'word' if _COMMAND in place else 'item'} {last + 1} of {_the(place[:-1])}"
    return f"the value of {_path(place)}" if len(place) > 1 else str(last)


def _the(place: tuple[str | int, ...]) -> str:
    return f"the {_COMMAND}" if place[-1:] == (_COMMAND,) else _path(place)


def _path(place: tuple[str | int, ...]) -> str:
    """The names that lead there, without that of a deployment's template."""
    return " ".join(str(one) for one in place if one != "template") or "the body"
