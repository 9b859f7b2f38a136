"""Constant load on a deployment through the proxy: many connections, most kept alive, some request
bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.support.proxy import Talk

CONNECTIONS = 16
_BETWEEN_S = 0.02
_LINE = b"\r\n"
_ANSWER_S = 60.0
_BODY = b'{"x": [0.9, 0.8]}' + b" " * 8000


@dataclass
class Load:
    """What came of it.

    Attributes:
        answered: requests that were answered 200. failures: all others, as sentences.
    """

    answered: int = 0
    failures: list[str] = field(default_factory=list)


@contextlib.contextmanager
def load_on(proxy_url: str, name: str) -> Iterator[Load]:
    """Ask for as long as the block lasts; every request that was begun is ended."""
    load, enough = Load(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_all(proxy_url, name, load, enough)))
    thread.start()
    try:
        yield load
    finally:
        enough.set()
        thread.join()


async def _all(proxy_url: str, name: str, load: Load, enough: threading.Event) -> None:
    address = urlsplit(proxy_url)
    at = (address.hostname or "", address.port or 0)
    await asyncio.gather(
        *(_connection(at, name, number, load, enough) for number in range(CONNECTIONS))
    )


async def _connection(
    at: tuple[str, int], name: str, number: int, load: Load, enough: threading.Event
) -> None:
    """One connection; every fourth of them is a new one for each request."""
    talk: Talk | None = None
    for count in itertools.count(number):
        if enough.is_set():
            break
        method, request = _request(name, count, close=number % 4 == 3)
        try:
            async with asyncio.timeout(_ANSWER_S):
                talk = talk or Talk(*await asyncio.open_connection(*at))
                await talk.send(request)
                head = await talk.head()
                body = await talk.body(head)
        except (OSError, EOFError) as error:
            head, body = b"", repr(error).encode()
        if head.startswith(b"HTTP/1.1 200 "):
            load.answered += 1
        else:
            load.failures.append(f"{method}: {head.split(_LINE)[0] + body!r}")
        if talk is not None and (not head or b"connection: close" in head.lower()):
            await talk.close()
            talk = None
        await asyncio.sleep(_BETWEEN_S)
    if talk is not None:
        await talk.close()


def _request(name: str, count: int, *, close: bool) -> tuple[str, bytes]:
    """Every third has a body."""
    fields = b"Host: load\r\n" + (b"Connection: close\r\n" if close else b"")
    if count % 3 == 0:
        length = b"Content-Length: %d\r\n\r\n" % len(_BODY)
        return "POST", b"POST /d/%b/predict HTTP/1.1\r\n%b%b%b" % (
            name.encode(),
            fields,
            length,
            _BODY,
        )
    return "GET", b"GET /d/%b/ HTTP/1.1\r\n%b\r\n" % (name.encode(), fields)
