"""The proxy's own error responses: a status, a code for programs, and a message for people, as JSON.

Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from iris_core.codec import to_json

_RETRY_AFTER_S = {"starting": 5, "no_healthy_route": 5, "draining": 5, "overloaded": 1}
_MARKED = (
    ("Iris-Proxy", "1"),
    ("Content-Type", "application/json"),
    ("Cache-Control", "no-store"),
    ("Server", "iris"),
)


class RefusalBody(msgspec.Struct, frozen=True):
    """The body: `code` is the reason, e.g. ``no_healthy_route``."""

    status: int
    code: str
    detail: str


class ProxyRefusal(Exception):
    """The proxy answers a request itself; ``closes``: it also closes the connection."""

    def __init__(self, status: int, code: str, detail: str, *, closes: bool = False) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.closes = closes

    def headers(self) -> list[tuple[str, str]]:
        """The header fields, with the mark that distinguishes it from an answer of the service."""
        marked = [
            ("Iris-Proxy", "1"),
            ("Content-Type", "application/json"),
            ("Cache-Control", "no-store"),
            ("Server", "iris"),
        ]
        return [*marked, ("Retry-After", str(_RETRY_AFTER_S[self.code]))] if self.code in _RETRY_AFTER_S else marked

    def body(self) -> bytes:
        return to_json(RefusalBody(self.status, self.code, str(self)))


def without_route(deployment: str, reason: str) -> ProxyRefusal:
    """The 503 for a deployment without a usable route."""
    return ProxyRefusal(503, reason or "no_healthy_route", f"{deployment} has no route that can answer now")


def check_head(
    target: str, hosts: int, codings: Sequence[str], *, http_1_1: bool, head_bytes: int, most_bytes: int
) -> None:
    """Raises ProxyRefusal for a request that must not be forwarded.

    Args:
        hosts: how many Host fields it has. codings: its Transfer-Encoding fields.
    """
    if head_bytes > most_bytes:
        raise ProxyRefusal(431, "head_too_large", f"a head may have {most_bytes} bytes, not {head_bytes}", closes=True)
    if hosts != 1:
        raise _bad_request(f"a request needs one Host field, this one has {hosts}")
    if codings and ([coding.strip().lower() for coding in codings] != ["chunked"] or not http_1_1):
        raise _bad_request("the only transfer coding is chunked, and only in HTTP/1.1")
    if not target.startswith("/"):
        raise _bad_request("the request's target must begin with /")


def _bad_request(detail: str) -> ProxyRefusal:
    return ProxyRefusal(400, "bad_request", detail, closes=True)


def split_target(target: str) -> tuple[str, str]:
    """The deployment of ``/d/<name>/...`` and the target for its route, as they were sent. Raises ProxyRefusal."""
    path, question, query = target.partition("?")
    prefix, _, rest = path[1:].partition("/")
    name, _, inner = rest.partition("/")
    if prefix != "d" or not name:
        raise ProxyRefusal(404, "not_found", "deployments answer under /d/<name>/")
    return name, f"/{inner}{question}{query}"
