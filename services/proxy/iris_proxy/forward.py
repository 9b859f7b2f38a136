"""One request through the proxy: checked, given a route, sent, its answer handed on as it comes.

A client that leaves takes its request with it: the handler is cancelled and the route's connection closed at once.
An answer that breaks off is cut off here too, never ended as if it were whole.
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from iris_core.serving import ProxyPolicy
from iris_proxy.balancer import Balancer
from iris_proxy.choice import RouteLoad
from iris_proxy.headers import Fields, are_clean, cookie, end_to_end, to_route
from iris_proxy.pool import Pool
from iris_proxy.refusal import ProxyRefusal
from iris_proxy.retry import Failure, RetryBudget, may_retry
from iris_proxy.tunnel import tunnel
from iris_proxy.upstream import NoAnswer, Upstream, without_read_timeout

log = logging.getLogger(__name__)

AFFINITY_COOKIE = "iris_route"


class Upload:
    """A request's body on its way to a route; None of it is read before a route is connected.

    Attributes:
        begun: whether any of it was asked for. refusal: why it was not sent to its end.
    """

    def __init__(self, request: web.BaseRequest, policy: ProxyPolicy) -> None:
        self._request = request
        self._policy = policy
        self.begun = False
        self.refusal: ProxyRefusal | None = None

    def check_length(self) -> None:
        """Raises ProxyRefusal when it says itself that it is too long."""
        if (self._request.content_length or 0) > self._policy.body_bytes:
            raise self._too_long()

    async def chunks(self) -> AsyncIterator[bytes]:
        self.begun = True
        request = self._request
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        left = self._policy.body_bytes
        while chunk := await self._read():
            left -= len(chunk)
            if left < 0:
                raise self._refuse(self._too_long())
            yield chunk

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout(self._policy.idle_s):
                return await self._request.content.readany()
        except TimeoutError:
            idle = f"nothing of the body came for {self._policy.idle_s:g} s"
            raise self._refuse(ProxyRefusal(408, "body_timeout", idle, closes=True)) from None

    def _too_long(self) -> ProxyRefusal:
        most = f"a request to this deployment may have {self._policy.body_bytes} bytes"
        return ProxyRefusal(413, "body_too_large", most, closes=True)

    def _refuse(self, refusal: ProxyRefusal) -> ProxyRefusal:
        self.refusal = refusal
        return refusal


class Exchange:
    """One request and its answer.

    Args:
        tokens: digests of bearer tokens that stay here. trusted: networks of proxies that are believed.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        deployment: str,
        target: str,
        balancer: Balancer,
        pool: Pool,
        *,
        tokens: frozenset[bytes],
        trusted: bool,
        clock: Callable[[], float],
    ) -> None:
        self._request = request
        self._target = target
        self._balancer = balancer
        self._policy = balancer.policy
        self._pool = pool
        self._clock = clock
        self._upload = Upload(request, self._policy) if request.body_exists else None
        self._upgrade = _wants_websocket(request)
        self._deployment = deployment
        self._new_cookie = ""
        self._fields = to_route(
            request.headers.items(),
            deployment=deployment,
            peer=request.remote or "",
            scheme="https" if request.secure else "http",
            host=request.headers.get("Host", ""),
            trusted=trusted,
            tokens=tokens,
        )
        if self._upload is not None and request.content_length is not None:
            self._fields.append(("Content-Length", str(request.content_length)))
        if self._upgrade:
            self._fields += [("Connection", "Upgrade"), ("Upgrade", "websocket")]

    async def run(self, budget: RetryBudget, on_retry: Callable[[], None]) -> web.StreamResponse:
        """Send it, again where that is allowed, and hand on the answer. Raises ProxyRefusal when there is none."""
        if self._upload is not None:
            self._upload.check_length()
        budget.request()
        key, tried, retries, fresh = self._key(), list[RouteLoad](), 0, False
        route = await self._balancer.acquire(key)
        while True:
            try:
                return await self._on_route(route, fresh)
            except NoAnswer as error:
                if self._upload is not None and self._upload.refusal is not None:
                    raise self._upload.refusal from error
                if not self._may_retry(error.failure, retries, fresh, budget):
                    raise _refused(error) from error
                fresh = error.failure is Failure.REUSED_CLOSED
                if not fresh:
                    tried.append(route)
                refused = _refused(error)
            try:
                route = await self._balancer.acquire(key, tried)
            except ProxyRefusal:
                raise refused from None  # there is no other route to try
            retries += 1
            on_retry()

    async def _on_route(self, route: RouteLoad, fresh: bool) -> web.StreamResponse:
        """One attempt; the route is released when it has ended. Raises NoAnswer."""
        try:
            with self._pool.use(route) as upstream:
                answer = await self._ask(upstream, route, fresh)
                try:
                    return await self._hand_on(answer)
                finally:
                    answer.close()
        finally:
            self._balancer.release(route)

    async def _ask(self, upstream: Upstream, route: RouteLoad, fresh: bool) -> aiohttp.ClientResponse:
        body = self._upload.chunks() if self._upload is not None else None
        method = self._request.method
        try:
            answer = await upstream.request(method, self._target, self._fields, body, self._policy, fresh=fresh)
        except NoAnswer as error:
            if error.failure is Failure.NOT_CONNECTED:
                route.failed(self._clock())
            raise
        route.connected()
        return answer

    async def _hand_on(self, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        switched = answer.status == 101
        if switched and not self._upgrade:
            raise ProxyRefusal(502, "bad_gateway", "the route switched protocols unasked")
        fields = end_to_end(answer.headers.items())
        if not are_clean(answer.reason or "", fields):
            raise ProxyRefusal(502, "bad_gateway", "the route's answer has control characters in its head")
        if self._new_cookie:
            scope = f"Path=/d/{self._deployment}; HttpOnly; SameSite=Lax"
            fields.append(("Set-Cookie", f"{AFFINITY_COOKIE}={self._new_cookie}; {scope}"))
        if switched:
            fields += [("Connection", "Upgrade"), ("Upgrade", "websocket")]
        reply = _RouteReply(answer, fields)
        if self._upload is not None and not self._request.content.at_eof():
            reply.force_close()  # it answered early: what still comes of the body is nobody's
        try:
            await reply.prepare(self._request)
            if switched:
                reply.force_close()
                await tunnel(self._request, reply, answer, self._policy.idle_s)
            else:
                await self._copy(answer, reply)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            log.debug("an answer broke off: %r", error)
            if self._request.transport is not None:
                self._request.transport.abort()
        return reply

    async def _copy(self, answer: aiohttp.ClientResponse, reply: web.StreamResponse) -> None:
        """The body as it comes. Raises TimeoutError when the route sends, or the client takes, nothing for long."""
        idle_s = self._policy.idle_s
        async with asyncio.timeout(idle_s) as timer:
            async for chunk in without_read_timeout(answer).iter_any():
                timer.reschedule(asyncio.get_running_loop().time() + idle_s)
                await reply.write(chunk)
            await reply.write_eof()

    def _may_retry(self, failure: Failure, retries: int, fresh: bool, budget: RetryBudget) -> bool:
        upload = self._upload
        allowed = may_retry(
            failure,
            self._request.method,
            retries=retries,
            has_body=upload is not None,
            body_read=upload is not None and upload.begun,
            fresh=fresh,
        )
        return allowed and budget.take()

    def _key(self) -> str:
        """What this request's route is chosen by, empty for any. A client without the cookie is given one."""
        source, _, name = self._policy.affinity.partition(":")
        if source == "header":
            return self._request.headers.get(name, "")
        if source != "cookie":
            return ""
        known = cookie(self._request.headers.get("Cookie", ""), AFFINITY_COOKIE)
        if not known:
            self._new_cookie = secrets.token_urlsafe(12)
        return known or self._new_cookie


class _RouteReply(web.StreamResponse):
    """The answer's head; sent with the first bytes of the body where those are there already."""

    def __init__(self, answer: aiohttp.ClientResponse, fields: Fields) -> None:
        headers = CIMultiDict(fields)
        headers.setdefault("Server", "iris")  # else aiohttp's version
        super().__init__(status=answer.status, reason=answer.reason or "", headers=headers)
        self._send_headers_immediately = answer.status == 101 or not answer.content.is_eof()


def _wants_websocket(request: web.BaseRequest) -> bool:
    connection = request.headers.get("Connection", "").lower()
    upgrade = request.headers.get("Upgrade", "").lower()
    return request.method == "GET" and upgrade == "websocket" and "upgrade" in connection


def _refused(error: NoAnswer) -> ProxyRefusal:
    return ProxyRefusal(error.status, "gateway_timeout" if error.status == 504 else "bad_gateway", str(error))
