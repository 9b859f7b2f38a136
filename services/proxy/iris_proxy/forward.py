"""Forwards one request: checks it, acquires a route, sends it, and streams the answer back.

When a client disconnects, the handler is cancelled and the route's connection closed at once.
An answer that breaks off breaks off for the client too; it never looks complete.
Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from functools import partial

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from iris_core.spec.serving import ProxyPolicy
from iris_proxy.http.credentials import OwnTokens
from iris_proxy.http.headers import Fields, cookie, to_route
from iris_proxy.http.refusal import ProxyRefusal
from iris_proxy.http.reply import Reply, inform
from iris_proxy.routes.balancer import Balancer
from iris_proxy.routes.choice import RouteLoad
from iris_proxy.routes.retry import Failure, Retry, RetryBudget, SentRequest, where_to_retry
from iris_proxy.upstream.pool import Pool
from iris_proxy.upstream.tunnel import tunnel
from iris_proxy.upstream.upstream import NoAnswer, RouteAnswer

log = logging.getLogger(__name__)

AFFINITY_COOKIE = "iris_route"
_BEGUN = "it may have begun the request, so no other route gets it"
_USUALLY_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class Upload:
    """A request's body on its way to a route; nothing of it is read before a route is connected.

    Attributes:
        begun: whether reading it has begun.
    """

    def __init__(self, request: web.BaseRequest, policy: ProxyPolicy) -> None:
        self._request = request
        self._policy = policy
        self.begun = False

    def check_length(self) -> None:
        """Raises ProxyRefusal when its Content-Length is over the limit."""
        if (self._request.content_length or 0) > self._policy.body_bytes:
            raise self._too_long()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The parts of the body. Raises ProxyRefusal when it is too long, too slow, or does not
        match its framing.
        """
        self.begun = True
        request = self._request
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        left = self._policy.body_bytes
        while chunk := await self._read():
            left -= len(chunk)
            if left < 0:
                raise self._too_long()
            yield chunk

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout(self._policy.idle_s):
                return await self._request.content.readany()
        except TimeoutError:
            idle = f"nothing of the body came for {self._policy.idle_s:g} s"
            raise ProxyRefusal("body_timeout", idle, closes=True) from None
        except (web.RequestPayloadError, HttpProcessingError) as error:
            raise ProxyRefusal(
                "bad_request", f"the body cannot be read: {error}", closes=True
            ) from error

    def _too_long(self) -> ProxyRefusal:
        most = f"a request to this deployment may have {self._policy.body_bytes} bytes"
        return ProxyRefusal("body_too_large", most, closes=True)


class Exchange:
    """One request and its answer.

    Args:
        credentials: tokens that are not forwarded unless the deployment asks for them. trusted:
            whether the client is a trusted proxy. on_ejected: told of a route that is ejected.

    Attributes:
        waited_s: until the head of the route's answer; None without one.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        deployment: str,
        target: str,
        balancer: Balancer,
        pool: Pool,
        *,
        credentials: OwnTokens,
        trusted: bool,
        on_ejected: Callable[[RouteLoad], None],
    ) -> None:
        self._request = request
        self._target = target
        self._balancer = balancer
        self._policy = balancer.policy
        self._pool = pool
        self._on_ejected = on_ejected
        self._upload = Upload(request, self._policy) if request.body_exists else None
        self._upgrade = _wants_websocket(request)
        self._deployment = deployment
        self._new_cookie = ""
        self._reply: Reply | None = None
        self._retries = 0
        self._begun = False
        self._since_s = asyncio.get_running_loop().time()
        self.waited_s: float | None = None
        self._fields = to_route(
            request.headers.items(),
            deployment=deployment,
            peer=request.remote or "",
            scheme="https" if request.secure else "http",
            host=request.headers.get("Host", ""),
            trusted=trusted,
            withheld=_nothing if self._policy.forward_authorization else credentials.accepts,
        )
        length = (
            request.content_length
            if self._upload is not None
            else _length_of_nothing(request.method)
        )
        self._chunked = self._upload is not None and length is None
        if length is not None:
            self._fields.append(("Content-Length", str(length)))
        if self._upgrade:
            self._fields += [("Connection", "Upgrade"), ("Upgrade", "websocket")]

    async def run(self, budget: RetryBudget, on_retry: Callable[[], None]) -> web.StreamResponse:
        """Send the request, retry where allowed, and forward the answer. Raises ProxyRefusal
        without an answer.
        """
        if self._upload is not None:
            self._upload.check_length()
        total_s = self._policy.total_s
        if total_s is None:
            return await self._attempts(budget, on_retry)
        try:
            async with asyncio.timeout(total_s):
                return await self._attempts(budget, on_retry)
        except TimeoutError:
            if self._reply is None:
                raise ProxyRefusal(
                    "gateway_timeout", f"there was no answer within {total_s:g} s"
                ) from None
            self._cut_off()
            return self._reply

    async def _attempts(
        self, budget: RetryBudget, on_retry: Callable[[], None]
    ) -> web.StreamResponse:
        budget.request()
        key = self._key()
        tried = list[RouteLoad]()
        fresh = False
        route = await self._balancer.acquire(key)
        while True:
            try:
                return await self._on_route(route, fresh)
            except NoAnswer as error:
                where = self._where_to_retry(error.failure, budget)
                refused = self._refused(error)
                if where is Retry.NOWHERE:
                    raise refused from error
            self._retries += 1
            on_retry()
            fresh = where is Retry.SAME_ROUTE
            if fresh:
                self._balancer.take_again(route)
                continue
            tried.append(route)
            try:
                route = await self._balancer.acquire(key, tried)
            except ProxyRefusal:
                raise refused from None  # there is no other route to try

    async def _on_route(self, route: RouteLoad, fresh: bool) -> web.StreamResponse:
        """One attempt on a route, released at its end. Raises NoAnswer."""
        try:
            answer = await self._ask(route, fresh)
            try:
                return await self._hand_on(answer)
            finally:
                answer.close()
        finally:
            self._balancer.release(route)

    async def _ask(self, route: RouteLoad, fresh: bool) -> RouteAnswer:
        request = self._request
        try:
            answer = await self._pool.upstream(route.address).request(
                request.method,
                self._target,
                self._fields,
                self._upload.chunks() if self._upload is not None else None,
                self._policy,
                chunked=self._chunked,
                fresh=fresh,
                informational=partial(inform, request),
            )
        except NoAnswer as error:
            if error.failure is Failure.NOT_CONNECTED:
                self._on_ejected(route)
            raise
        route.ejected = False
        return answer

    async def _hand_on(self, answer: RouteAnswer) -> web.StreamResponse:
        switched = answer.head.code == 101
        if switched and not self._upgrade:
            raise ProxyRefusal("bad_gateway", "the route switched protocols unasked")
        early = (
            self._upload is not None and not self._request.content.at_eof()
        )  # what still comes of it is nobody's
        reply = Reply(self._request, answer.head, closes=early)
        try:
            await reply.begin(self._cookie())
        except ValueError:
            detail = "the route's answer has control characters in its head"
            raise ProxyRefusal("bad_gateway", detail, closes=early) from None
        self._reply, self.waited_s = reply, asyncio.get_running_loop().time() - self._since_s
        try:
            if switched:
                await tunnel(self._request, answer.connection, self._policy.idle_s)
            else:
                await reply.copy(answer.content, self._policy.idle_s)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            log.debug("response interrupted: %r", error)
            self._cut_off()
        return reply

    def _cut_off(self) -> None:
        """Abort the client's connection, so that a partial answer does not look complete."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def _cookie(self) -> Fields:
        """The Set-Cookie that binds a client without the cookie to its route."""
        if not self._new_cookie:
            return []
        scope = f"Path=/d/{self._deployment}; HttpOnly; SameSite=Lax"
        return [("Set-Cookie", f"{AFFINITY_COOKIE}={self._new_cookie}; {scope}")]

    def _where_to_retry(self, failure: Failure, budget: RetryBudget) -> Retry:
        """Where the request is sent again; a refused connection costs the routes nothing and the
        budget neither.
        """
        upload = self._upload
        sent = SentRequest(
            self._request.method,
            has_body=upload is not None,
            body_read=upload is not None and upload.begun,
            idempotent=self._policy.retry == "idempotent",
            retries=self._retries,
            begun=self._begun,
        )
        where = where_to_retry(failure, sent)
        if failure is Failure.NOT_CONNECTED:
            return where
        self._begun = True
        return where if where is Retry.NOWHERE or budget.take() else Retry.NOWHERE

    def _refused(self, error: NoAnswer) -> ProxyRefusal:
        """The answer for a request without one, with the reason why no other route gets it."""
        begun = (
            f"{error}; {_BEGUN}" if self._begun and self._policy.retry == "never" else str(error)
        )
        return ProxyRefusal("gateway_timeout" if error.status == 504 else "bad_gateway", begun)

    def _key(self) -> str:
        """The affinity key of this request, empty for any route. A client without the cookie gets
        one.
        """
        source, _, name = self._policy.affinity.partition(":")
        if source == "header":
            return self._request.headers.get(name, "")
        if source != "cookie":
            return ""
        known = cookie(self._request.headers.get("Cookie", ""), AFFINITY_COOKIE)
        if not known:
            self._new_cookie = secrets.token_urlsafe(12)
        return known or self._new_cookie


def _wants_websocket(request: web.BaseRequest) -> bool:
    if request.method != "GET" or request.headers.get("Upgrade", "").lower() != "websocket":
        return False
    return "upgrade" in request.headers.get("Connection", "").lower()


def _length_of_nothing(method: str) -> int | None:
    """Content-Length 0 where a server would otherwise wait for a body."""
    return None if method in _USUALLY_WITHOUT_BODY else 0


def _nothing(_: str) -> bool:
    """Withhold no field Authorization."""
    return False
