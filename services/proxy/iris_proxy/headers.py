"""Header fields on their way through: what belongs to one connection is dropped, where it came from is added.

Framing (Content-Length, Transfer-Encoding) is made anew on each side and never copied.
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable

Fields = list[tuple[str, str]]

_ONE_CONNECTION = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})
_MADE_ANEW = frozenset({"content-length", "expect"})
_FORWARDED = "x-forwarded-"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def end_to_end(fields: Iterable[tuple[str, str]]) -> Fields:
    """What is not only for one connection, repeated fields and their order kept."""
    fields = list(fields)
    named = {
        token.strip().lower() for name, value in fields if name.lower() == "connection" for token in value.split(",")
    }
    named.discard("host")  # a request without it would be another one
    return [(name, _text(value)) for name, value in fields if not _is_hop(name.lower(), named)]


def _text(value: str) -> str:
    """A value whose bytes are no UTF-8 is taken for Latin-1, as the field's old standard says."""
    if value.isascii():
        return value
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def are_clean(reason: str, fields: Fields) -> bool:
    """Whether an answer's head holds no control characters, which might be read as the end of a field."""
    return not _CONTROL.search(reason) and not any(_CONTROL.search(value) for _, value in fields)


def _is_hop(name: str, named: Collection[str]) -> bool:
    return name in _ONE_CONNECTION or name in named or name.startswith("proxy-")


def to_route(
    fields: Iterable[tuple[str, str]],
    *,
    deployment: str,
    peer: str,
    scheme: str,
    host: str,
    trusted: bool,
    tokens: Collection[bytes] = (),
) -> Fields:
    """A request's fields for a route.

    Args:
        peer: who sent it. trusted: whether it is a proxy whose ``X-Forwarded-*`` is believed; else they are replaced.
        tokens: SHA-256 of Iris' own bearer tokens, which stay here.
    """
    kept: Fields = []
    before: dict[str, str] = {}
    for name, value in end_to_end(fields):
        low = name.lower()
        if low in _MADE_ANEW or (low == "authorization" and _is_own(value, tokens)):
            continue
        if low.startswith(_FORWARDED):
            before[low] = f"{before[low]}, {value}" if low in before else value
        elif low != "forwarded" or trusted:
            kept.append((name, value))
    return [*kept, *_forwarded(before if trusted else {}, f"/d/{deployment}", peer, scheme, host)]


def _forwarded(before: dict[str, str], prefix: str, peer: str, scheme: str, host: str) -> Fields:
    chain = before.pop("x-forwarded-for", "")
    return [
        ("X-Forwarded-For", f"{chain}, {peer}" if chain else peer),
        ("X-Forwarded-Proto", before.pop("x-forwarded-proto", scheme)),
        ("X-Forwarded-Host", before.pop("x-forwarded-host", host)),
        ("X-Forwarded-Prefix", before.pop("x-forwarded-prefix", "") + prefix),
        *((name.title(), value) for name, value in before.items()),
    ]


def _is_own(authorization: str, tokens: Collection[bytes]) -> bool:
    scheme, _, secret = authorization.partition(" ")
    if not tokens or scheme.lower() != "bearer":
        return False
    return hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest() in tokens


def token_digests(text: str) -> frozenset[bytes]:
    """The digests in the text of a token file, ``USER ROLE SHA256`` a line. Raises ValueError."""
    lines = [words for line in text.splitlines() if (words := line.partition("#")[0].split())]
    return frozenset(bytes.fromhex(words[-1]) for words in lines)


def cookie(header: str, name: str) -> str:
    """The value of one cookie, empty when it is not there."""
    for part in header.split(";"):
        key, equals, value = part.strip().partition("=")
        if equals and key == name:
            return value
    return ""
