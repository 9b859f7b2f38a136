"""Connections to one route: a pool of its own, kept while the route is in the set or answers something.

aiohttp's client does more than a proxy wants, and two things less. Switched off: cookies, redirects, decompression,
fields of its own, sending again by itself (it would repeat PUT and DELETE). Added: a pooled connection on which bytes
came unasked is closed and not used, and it is known whether a connection was reused.
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from iris_core.serving import ProxyPolicy
from iris_proxy.headers import Fields
from iris_proxy.retry import Failure

if TYPE_CHECKING:
    from aiohttp.client import ClientTimeout
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

LINE_BYTES = 16 << 10
FIELDS = 200
_OWN_FIELDS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")

_reused: ContextVar[bool] = ContextVar("reused")


class NoAnswer(Exception):
    """An attempt ended without an answer."""

    def __init__(self, failure: Failure, status: int, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.status = status


class Upstream:
    """One route's connections.

    Args:
        address: ``host:port``.
        idle_s: how long an idle connection is kept.
    """

    def __init__(self, address: str, idle_s: float) -> None:
        host, _, port = address.rpartition(":")
        self._origin = (host.strip("[]"), int(port))
        self._pooled = _session(_Connector(limit=0, keepalive_timeout=idle_s))
        self._fresh: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        target: str,
        fields: Fields,
        body: AsyncIterator[bytes] | None,
        policy: ProxyPolicy,
        *,
        fresh: bool,
    ) -> aiohttp.ClientResponse:
        """The head of the answer. Raises NoAnswer. ``fresh``: on a connection made for it."""
        host, port = self._origin
        url = URL.build(scheme="http", host=host, port=port, path=target, encoded=True)
        _reused.set(False)
        try:
            return await self._session(fresh).request(
                method,
                url,
                headers=CIMultiDict(fields),
                data=body,
                allow_redirects=False,
                timeout=timeouts(policy.connect_s, policy.first_byte_s, policy.total_s),
            )
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise NoAnswer(Failure.NOT_CONNECTED, 502, f"the route refused the connection: {error}") from error
        except TimeoutError as error:
            raise NoAnswer(Failure.BROKEN, 504, "the route did not answer in time") from error
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            failure = Failure.REUSED_CLOSED if _reused.get() and not _has_begun(error) else Failure.BROKEN
            raise NoAnswer(failure, 502, "the route closed the connection without an answer") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise NoAnswer(Failure.BROKEN, 502, f"the route's answer cannot be read: {error}") from error

    async def close(self) -> None:
        await self._pooled.close()
        if self._fresh is not None:
            await self._fresh.close()

    def _session(self, fresh: bool) -> aiohttp.ClientSession:
        if not fresh:
            return self._pooled
        if self._fresh is None:
            self._fresh = _session(_Connector(limit=0, force_close=True))
        return self._fresh


class _Connector(aiohttp.TCPConnector):
    """Connections of which it is known whether they were used before."""

    def __init__(self, **options: float | bool) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                _reused.set(protocol in self._used)
                self._used.add(protocol)
                return connection
            connection.close()  # bytes came unasked: they would be taken for the answer


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_OWN_FIELDS,
        auto_decompress=False,
        max_line_size=LINE_BYTES,
        max_field_size=LINE_BYTES,
        max_headers=FIELDS,
    )
    session._retry_connection = False
    return session


@lru_cache(maxsize=1024)
def timeouts(connect_s: float, first_byte_s: float, total_s: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=connect_s, sock_read=first_byte_s)


def _has_begun(error: Exception) -> bool:
    """Whether part of an answer had come: aiohttp then gives what it has read of it in place of a text."""
    return isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)


def without_read_timeout(answer: aiohttp.ClientResponse) -> aiohttp.StreamReader:
    """The body of an answer, whose first byte has come: from now on whoever reads it counts the time."""
    connection = answer.connection
    if connection is not None and connection.protocol is not None:
        connection.protocol.read_timeout = None
        connection.protocol.start_timeout()
    return answer.content
