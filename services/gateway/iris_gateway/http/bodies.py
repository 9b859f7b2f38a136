"""Reads request bodies with limits of size, time and media type."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from iris_core.units import BYTES
from iris_gateway.http.problem import ProblemResponse

_BODY_S = 30.0
"""How long a JSON body or a form may take to arrive, in seconds."""
BODY = "iris.body"
"""The key of the request's scope under which `read_body` leaves the body."""
_DRAIN_BYTES = 32 << 20
_DRAIN_S = 5.0


def check_media_type(request: Request, wanted: str, *others: str) -> None:
    """Raises ProblemResponse unsupported_media_type unless the body's media type is ``wanted`` or
    one of the others.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in (wanted, *others):
        sent = f"not {given[:80]!r}" if given else "and must say so in Content-Type"
        raise ProblemResponse(
            "unsupported_media_type",
            f"the body must be {wanted}, {sent}",
            headers={"accept": wanted},
        )


def declared_length(request: Request) -> int:
    """The Content-Length, 0 when there is none. Raises ProblemResponse malformed."""
    text = request.headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise ProblemResponse("malformed", "Content-Length is not a number")
    return int(text)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. Raises ProblemResponse too_large, also for a chunked body without a declared
    length, and timeout.
    """
    request.scope[BODY] = body = b"".join(
        [chunk async for chunk in chunks(request, limit, _BODY_S, _BODY_S)]
    )
    return body


async def chunks(
    request: Request, limit: int, seconds: float, idle_s: float
) -> AsyncIterator[bytes]:
    """The body in chunks, at most ``limit`` bytes within ``seconds``, no pause longer than
    ``idle_s``.

    Raises ProblemResponse too_large, timeout.
    """
    if declared_length(request) > limit:
        raise await _too_large(request, limit)
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    size = 0
    more = True
    while more:
        chunk, more = await _next(request, min(deadline, clock() + idle_s))
        size += len(chunk)
        if size > limit:
            raise await _too_large(request, limit)
        if chunk:
            yield chunk


async def _next(request: Request, deadline: float) -> tuple[bytes, bool]:
    """One chunk, and whether more follow."""
    try:
        async with asyncio.timeout_at(deadline):
            message = await request.receive()
    except TimeoutError:
        raise ProblemResponse(
            "timeout", "the body did not arrive in time", headers={"connection": "close"}
        ) from None
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


async def _too_large(request: Request, limit: int) -> ProblemResponse:
    """The response 413; first reads on for a while, because many clients read the response only
    after sending everything.
    """
    waits = request.headers.get("expect", "").lower() == "100-continue"
    if not waits and declared_length(request) <= _DRAIN_BYTES:
        await _drain(request)
    detail = f"the body is longer than {BYTES.show(limit)}, the most that this gateway accepts"
    return ProblemResponse("too_large", detail, headers={"connection": "close"})


async def _drain(request: Request) -> None:
    left = _DRAIN_BYTES
    try:
        async with asyncio.timeout(_DRAIN_S):
            while left > 0:
                message = await request.receive()
                left -= len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
