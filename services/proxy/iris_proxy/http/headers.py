"""Rewrites header fields: drops those of one connection, adds where the request came from.

Framing (Content-Length, Transfer-Encoding) is created on each side and never copied.
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from iris_core.spec.serving import SECURE_TOKEN_COOKIE, TOKEN_COOKIE

Fields = list[tuple[str, str]]

_CONNECTION = "connection"
_HOP = "hop"
_MADE_ANEW = "made"
_AUTHORIZATION = "own"
_COOKIE = "cookie"
_FORWARDED = "f"
_X_FORWARDED = "x"
MARK = "iris-proxy"
"""The field that only the proxy's own answers have."""
_OWN_COOKIES = frozenset({TOKEN_COOKIE, SECURE_TOKEN_COOKIE})
_KINDS = {
    "connection": _CONNECTION,
    **dict.fromkeys(("keep-alive", "te", "trailer", "transfer-encoding", "upgrade"), _HOP),
    **dict.fromkeys(("content-length", "expect"), _MADE_ANEW),
    "authorization": _AUTHORIZATION,
    "cookie": _COOKIE,
    "forwarded": _FORWARDED,
}
_NEVER_NAMED = frozenset({"host", "close", "keep-alive", "upgrade", ""})
"""What Connection may say and names no field that is still there; a request without its Host would
be another one.
"""


@lru_cache(maxsize=4096)
def _kind(name: str) -> str:
    """The handling of a field, empty for none; cached by name.

    Where names of fields become variables, as in WSGI, ``X_Forwarded_For`` is taken for
    ``X-Forwarded-For``.
    """
    low = name.lower()
    if "_" in low and _kind(low.replace("_", "-")):
        return _HOP
    if low.startswith("proxy-"):
        return _HOP
    return _X_FORWARDED if low.startswith("x-forwarded-") else _KINDS.get(low, "")


def end_to_end(fields: Iterable[tuple[str, str]]) -> Fields:
    """The end-to-end fields; keeps repeated fields and their order."""
    kept: Fields = []
    named: set[str] = set()
    for field in fields:
        kind = _kind(field[0])
        if kind == _CONNECTION:
            named.update(token.strip().lower() for token in field[1].split(","))
        elif kind != _HOP:
            kept.append(field if field[1].isascii() else (field[0], _text(field[1])))
    named -= _NEVER_NAMED
    return [field for field in kept if field[0].lower() not in named] if named else kept


def _text(value: str) -> str:
    """A value as text: UTF-8, else Latin-1 as in the older HTTP standard."""
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def to_route(
    fields: Iterable[tuple[str, str]],
    *,
    deployment: str,
    peer: str,
    scheme: str,
    host: str,
    trusted: bool,
    withheld: Callable[[str], bool] = lambda _: False,
) -> Fields:
    """A request's fields for a route.

    Args:
        peer: the client's address. trusted: it is a proxy whose ``X-Forwarded-*`` is kept; else
            they are replaced.
        withheld: whether the value of a field Authorization is not forwarded; the dashboard's
            cookie never is.
    """
    kept: Fields = []
    before: dict[str, str] = {}
    for field in end_to_end(fields):
        kind = _kind(field[0])
        if not kind:
            kept.append(field)
        elif kind == _X_FORWARDED:
            low = field[0].lower()
            before[low] = f"{before[low]}, {field[1]}" if low in before else field[1]
        elif kind == _COOKIE:
            kept += _without_token(field)
        elif (kind == _FORWARDED and trusted) or (
            kind == _AUTHORIZATION and not withheld(field[1])
        ):
            kept.append(field)
    return [
        *kept,
        *_forwarded(before if trusted else {}, f"/d/{deployment}", peer, scheme, host=host),
    ]


def _without_token(field: tuple[str, str]) -> Fields:
    """A Cookie field without the dashboard's token; nothing when it held no other cookie."""
    if TOKEN_COOKIE not in field[1]:
        return [field]
    pairs = [
        pair for pair in field[1].split(";") if pair.partition("=")[0].strip() not in _OWN_COOKIES
    ]
    return [(field[0], ";".join(pairs).strip())] if pairs else []


def to_client(fields: Iterable[tuple[str, str]]) -> Fields:
    """An answer's fields for the client: its end-to-end fields, without cookies that sign in to the
    dashboard and the mark of the proxy's own answers.
    """
    return [field for field in end_to_end(fields) if not _is_ours(field[0].lower(), field[1])]


def _is_ours(low: str, value: str) -> bool:
    """Whether a service may not send a field."""
    return low == MARK or (low == "set-cookie" and _sets_token(value))


def _sets_token(value: str) -> bool:
    """Whether a Set-Cookie sets the dashboard's cookie; browsers send ``=NAME=value``, a cookie
    without a name, as ``NAME=value``.
    """
    return value.lstrip("= \t").partition(";")[0].partition("=")[0].strip() in _OWN_COOKIES


def _forwarded(before: dict[str, str], prefix: str, peer: str, scheme: str, host: str) -> Fields:
    chain = before.pop("x-forwarded-for", "")
    return [
        ("X-Forwarded-For", f"{chain}, {peer}" if chain else peer),
        ("X-Forwarded-Proto", before.pop("x-forwarded-proto", scheme)),
        ("X-Forwarded-Host", before.pop("x-forwarded-host", host)),
        ("X-Forwarded-Prefix", before.pop("x-forwarded-prefix", "") + prefix),
        *((name.title(), value) for name, value in before.items()),
    ]


def cookie(header: str, name: str) -> str:
    """The value of one cookie; empty when missing."""
    for part in header.split(";"):
        key, equals, value = part.strip().partition("=")
        if equals and key == name:
            return value
    return ""
