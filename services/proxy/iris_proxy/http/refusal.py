"""The proxy's own error responses: a status, a code for programs, and a message for people, as JSON
or as a page.

Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import msgspec

from iris_core.codec import to_json


class RefusalType(NamedTuple):
    """One row of the table; ``retry_after_s`` 0: the answer names no time. ``title`` is for people
    with a browser.
    """

    status: int
    title: str
    meaning: str
    remedy: str
    retry_after_s: int = 0


REFUSAL_TYPES: Mapping[str, RefusalType] = {
    "starting": RefusalType(
        503,
        "It is starting",
        "No route has passed its probe yet, also of a deployment that was scaled to none and did not start in time.",
        "Send the request again; iris deploy why NAME shows what the routes wait for.",
        retry_after_s=5,
    ),
    "no_healthy_route": RefusalType(
        503,
        "It cannot answer now",
        "No route passes its probe.",
        "iris deploy why NAME shows the result of each route's last probe.",
        retry_after_s=5,
    ),
    "no_discovery": RefusalType(
        503,
        "It is not known yet",
        "The proxy has not reached NATS since it was started, and has stored no deployment of this name.",
        "Look at the NATS servers, and at the log of the proxy; the deployment may be a new one.",
        retry_after_s=5,
    ),
    "draining": RefusalType(
        503,
        "It is being deleted",
        "The deployment is being deleted.",
        "Send requests to another deployment.",
        retry_after_s=5,
    ),
    "overloaded": RefusalType(
        503,
        "It has too much to do",
        "Every route has max_outstanding requests and none became free within queue_s, or the proxy has "
        "max_connections, or three quarters of these have requests to deployments of the same user.",
        "Add replicas, or raise the limit that the detail names.",
        retry_after_s=1,
    ),
    "bad_gateway": RefusalType(
        502,
        "It did not answer",
        "The route refused the connection, closed it without an answer, or sent invalid HTTP. A request that it may "
        "have begun is not sent to another route.",
        "Read iris deploy logs NAME; a service must keep idle connections for longer than 60 s. Where requests may be "
        "repeated, set retry to idempotent.",
    ),
    "gateway_timeout": RefusalType(
        504,
        "It took too long",
        "The route did not answer within the deployment's times.",
        "Look at the service, or raise the time that the detail names.",
    ),
    "not_found": RefusalType(
        404,
        "There is nothing here",
        "There is no deployment of that name.",
        "Compare it with iris deploy list; the path is /d/NAME/.",
    ),
    "bad_request": RefusalType(
        400,
        "The request cannot be read",
        "The request is not valid HTTP or could be read in two ways, its body does not match its framing, or its "
        "method is CONNECT.",
        "Send one Host field, at most one Authorization field, and either Content-Length or the transfer coding "
        "chunked.",
    ),
    "body_timeout": RefusalType(
        408, "The upload was too slow", "The body paused for too long.", "Send the request again."
    ),
    "body_too_large": RefusalType(
        413,
        "The upload is too large",
        "The body is longer than the deployment accepts.",
        "Send less, or raise the deployment's limit.",
    ),
    "head_too_large": RefusalType(
        431,
        "The request is too long",
        "The head of the request is too long.",
        "Send fewer or shorter header fields.",
    ),
}
"""By code. Source: docs/design/serving.md#proxy-rules."""


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">{again}
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }}
main {{ max-width: 36rem; margin: 12vh auto; padding: 0 1rem }}
a {{ display: inline-block; padding: 0.4rem 0.8rem; color: inherit; border: 1px solid; border-radius: 6px }}
</style></head>
<body><main><h1>{title}</h1><p>{detail}.</p><p><a href="">Try again</a> {soon}</p>
<p><small>{code}: {meaning} For who runs it: {remedy}</small></p></main></body></html>
"""


class RefusalBody(msgspec.Struct, frozen=True):
    """The body: `code` is the reason, e.g. ``no_healthy_route``."""

    status: int
    code: str
    detail: str


class ProxyRefusal(Exception):
    """The proxy answers a request itself; ``code`` is a key of `REFUSAL_TYPES`. ``closes``: it also
    closes the connection.
    """

    def __init__(self, code: str, detail: str, *, closes: bool = False) -> None:
        super().__init__(detail)
        self.code = code
        self.kind = REFUSAL_TYPES[code]
        self.closes = closes

    @property
    def status(self) -> int:
        return self.kind.status

    def headers(self, media_type: str = "application/json") -> list[tuple[str, str]]:
        """The header fields, with the mark that distinguishes it from an answer of the service."""
        marked = [
            ("Iris-Proxy", "1"),
            ("Content-Type", media_type),
            ("Cache-Control", "no-store"),
            ("Server", "iris"),
        ]
        return (
            [*marked, ("Retry-After", str(self.kind.retry_after_s))]
            if self.kind.retry_after_s
            else marked
        )

    def body(self) -> bytes:
        return to_json(RefusalBody(self.status, self.code, str(self)))

    def page(self) -> bytes:
        """The body for a person with a browser; where a retry may succeed, the page tries again by
        itself.
        """
        seconds = self.kind.retry_after_s
        again = f'<meta http-equiv="refresh" content="{seconds}">' if seconds else ""
        soon = f"This page tries again every {seconds} s." if seconds else ""
        texts = (self.kind.title, str(self), self.kind.meaning, self.kind.remedy, soon)
        title, detail, meaning, remedy, soon = map(escape, texts)
        words = {
            "title": title,
            "detail": detail,
            "meaning": meaning,
            "remedy": remedy,
            "soon": soon,
        }
        return PAGE.format(again=again, code=self.code, **words).encode()


def without_route(deployment: str, reason: str) -> ProxyRefusal:
    """The 503 for a deployment without a usable route; ``reason`` may be one of a newer state
    service.
    """
    known = reason if reason in REFUSAL_TYPES else "no_healthy_route"
    return ProxyRefusal(known, f"{deployment} has no route that can answer now")


def check_head(
    method: str,
    target: str,
    hosts: int,
    codings: Sequence[str],
    *,
    tokens: int,
    http_1_1: bool,
    head_bytes: int,
    most_bytes: int,
) -> None:
    """Raises ProxyRefusal for a request that must not be forwarded.

    Args:
        hosts, tokens: how many fields Host and Authorization it has. codings: its Transfer-Encoding
            fields.
    """
    if head_bytes > most_bytes:
        raise ProxyRefusal(
            "head_too_large", f"a head may have {most_bytes} bytes, not {head_bytes}", closes=True
        )
    if method == "CONNECT":
        raise bad_request(
            "CONNECT is refused: this proxy opens no tunnels, it forwards requests below /d/<name>/"
        )
    if hosts != 1:
        raise bad_request(f"a request needs one Host field, this one has {hosts}")
    if tokens > 1:
        raise bad_request(f"a request may have one Authorization field, this one has {tokens}")
    if codings and ([coding.strip().lower() for coding in codings] != ["chunked"] or not http_1_1):
        raise bad_request("the only transfer coding is chunked, and only in HTTP/1.1")
    if not target.startswith("/"):
        raise bad_request("the request's target must begin with /")


def bad_request(detail: str) -> ProxyRefusal:
    """The 400 after which the connection is closed."""
    return ProxyRefusal("bad_request", detail, closes=True)


def with_slash(method: str, target: str) -> str:
    """Where a browser that asks for ``/d/<name>`` finds the page, relative to that: with a slash at
    its end, without which the links of the page would lead elsewhere. Empty for other requests.
    """
    path, question, query = target.partition("?")
    prefix, _, name = path[1:].partition("/")
    if method not in ("GET", "HEAD") or prefix != "d" or not name or "/" in name:
        return ""
    return f"./{name}/{question}{query}"


def split_target(target: str) -> tuple[str, str]:
    """The deployment of ``/d/<name>/...`` and the target for its route, as they were sent. Raises
    ProxyRefusal.
    """
    path, question, query = target.partition("?")
    prefix, _, rest = path[1:].partition("/")
    name, _, inner = rest.partition("/")
    if prefix != "d" or not name:
        raise ProxyRefusal("not_found", "deployments answer under /d/<name>/")
    return name, f"/{inner}{question}{query}"
