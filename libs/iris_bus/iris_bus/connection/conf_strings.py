"""Quotes strings for the configuration files of NATS servers. Pure.

They look like JSON, and are not: a backslash and ``u`` is no escape there, and a backslash and
``x`` is one byte of two hexadecimal digits. Source: the lexer of nats-server, ``conf/lex.go``.
"""

from __future__ import annotations

_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')


def quoted(text: str) -> str:
    """A text, or a path of any bytes, as a string of `nats.conf`, in ASCII."""
    return '"' + "".join(map(_escaped, text.encode(errors="surrogateescape"))) + '"'


def _escaped(byte: int) -> str:
    return chr(byte) if byte in _PLAIN else f"\\x{byte:02x}"
