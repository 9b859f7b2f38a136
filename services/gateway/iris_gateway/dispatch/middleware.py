"""Handles every request before its endpoint: request id, authentication, security headers, metrics,
and a problem document for every refusal, or a page for people with a browser.

One ASGI layer outside the routes. Paths are matched percent-encoded, so that a job's name with its
slashes is one segment. Out of scope: endpoints.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from iris_core.access.actor import actor_of, described
from iris_core.codec import to_json
from iris_core.messages.gateway_state import Caller
from iris_gateway.auth.bearer import require_admin
from iris_gateway.dispatch.endpoint import Call, Endpoint
from iris_gateway.dispatch.identity import SAFE, identify
from iris_gateway.gateway import Gateway
from iris_gateway.http.position import HEADER, NOTE_HEADER, NOTE_SCOPE, SCOPE
from iris_gateway.http.problem import MEDIA_TYPE, ProblemResponse
from iris_gateway.http.protocol import ADMITTED

log = logging.getLogger(__name__)

NOBODY = Caller()
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}


RefusalPage = Callable[[Request, ProblemResponse, str], Response]


class PathRoutes:
    """All methods of one path."""

    def __init__(self, gateway: Gateway, path: str, endpoints: Mapping[str, Endpoint]) -> None:
        self._gateway = gateway
        self._path = path
        self._endpoints = endpoints
        self._allow = ", ".join(sorted({*endpoints, *(["HEAD"] if "GET" in endpoints else [])}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["iris.route"] = self._path
        body = _BodyCounter(receive)
        request = Request(scope, body.receive)
        endpoint = self._endpoint(request.method)
        scope["iris.page"] = endpoint.page
        caller = NOBODY if endpoint.public else self._admit(request, endpoint)
        scope["iris.caller"] = described(actor_of(caller)) if caller is not NOBODY else ""
        if endpoint.admin:
            require_admin(caller)
        try:
            response = await self._handled(endpoint, Call(request, self._gateway, caller))
        finally:
            if body.bytes:
                self._gateway.intake.spend(caller.user, body.bytes, self._gateway.clock())
        await response(scope, receive, send)

    async def _handled(self, endpoint: Endpoint, call: Call) -> Response:
        """The endpoint's response; a change is a span of the request's trace, or begins one."""
        if endpoint.parameters is None and endpoint.path.startswith("/v1/"):
            call.asked(msgspec.Struct)  # refuses any
        if endpoint.takes_key:
            _ = (
                call.idempotency_key
            )  # refuses an invalid one, also where nothing is stored under it
        if call.request.method in SAFE:
            return await endpoint.handler(call)
        tracer = self._gateway.tracer
        with tracer.span(f"{endpoint.method} {self._path}", tracer.context(call.request.headers)):
            return await endpoint.handler(call)

    def _admit(self, request: Request, endpoint: Endpoint) -> Caller:
        caller = identify(self._gateway, request, task=endpoint.task)
        if (admitted := request.scope.get(ADMITTED)) is not None:
            admitted()
        now_s = self._gateway.clock()
        self._gateway.pace.admit(caller.user, now_s)
        if request.method not in SAFE:
            self._gateway.intake.admit(caller.user, now_s)
        return caller

    def _endpoint(self, method: str) -> Endpoint:
        endpoint = self._endpoints.get(method)
        if endpoint is None and method == "HEAD":
            endpoint = self._endpoints.get("GET")
        if endpoint is None:
            detail = f"{method[:20]} is not allowed here; allowed: {self._allow}"
            raise ProblemResponse("method_not_allowed", detail, headers={"allow": self._allow})
        return endpoint


class ToProxy:
    """Redirects requests of deployments to the proxy, a process of its own, with the same method
    and body. They are not authenticated, neither here nor by the proxy. Source:
        docs/adr/0025-the-proxy-is-a-process-on-aiohttp.md.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["iris.route"] = "/d/{deployment}"
        if not self._gateway.proxy_url:
            raise ProblemResponse(
                "not_found",
                "this gateway has no proxy_url, so requests below /d/ cannot be redirected",
            )
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        location = self._gateway.proxy_url.encode() + scope["raw_path"] + query
        response = Response(status_code=307)
        response.raw_headers.append((b"location", location))
        await response(scope, receive, send)


class Middleware:
    """The outermost ASGI application."""

    def __init__(
        self, gateway: Gateway, endpoints: Sequence[Endpoint], refusal_page: RefusalPage
    ) -> None:
        """``refusal_page``: draws a refusal for a browser."""
        self._gateway = gateway
        self._refusal_page = refusal_page
        doors: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            doors.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        routed = {path: PathRoutes(gateway, path, methods) for path, methods in doors.items()}
        self._fixed = {path: methods for path, methods in routed.items() if "{" not in path}
        routes = [
            Route(path, methods) for path, methods in routed.items() if path not in self._fixed
        ]
        routes.append(Route("/d/{target:path}", ToProxy(gateway)))
        self._router = Router(routes, redirect_slashes=False, default=_nothing_here)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router.lifespan(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self._gateway
        began = gateway.clock()
        scope["path"] = scope["raw_path"].decode("latin-1")
        reply = _Reply(send, scope, _request_id(scope) or gateway.new_id())
        try:
            await self._fixed.get(scope["path"], self._router)(scope, receive, reply.send)
        except ProblemResponse as problem:
            await self._refuse(problem, scope, receive, reply)
        except ClientDisconnect:
            reply.status = reply.status or 499
        except (
            asyncio.CancelledError
        ):  # this gateway is stopping, and its time for requests under way is over
            await self._refuse(
                ProblemResponse("unavailable", "this gateway is stopping"), scope, receive, reply
            )
            raise
        except Exception:
            log.exception(
                "request %s: %s %s failed", reply.request_id, scope["method"], scope["path"]
            )
            await self._refuse(
                ProblemResponse("internal", "see the gateway's log"), scope, receive, reply
            )
        finally:
            route = scope.get("iris.route", "none")
            gateway.metrics.answered(
                route, _known_method(scope), reply.status, gateway.clock() - began
            )

    async def _refuse(
        self, problem: ProblemResponse, scope: Scope, receive: Receive, reply: _Reply
    ) -> None:
        who = scope.get("iris.caller") or "nobody"
        log.info(
            "%s %s of %s %s: %s %s",
            scope["method"],
            scope["path"][:200],
            who,
            "cut off" if reply.status else "refused",
            problem.code,
            problem.detail,
        )
        if reply.status:
            raise problem  # the response has begun: only the connection can be closed
        self._gateway.metrics.refused.labels(problem.code).inc()
        request = Request(scope)
        if scope.get("iris.page") or (
            request.method in SAFE and "text/html" in request.headers.get("accept", "")
        ):
            response = self._refusal_page(request, problem, reply.request_id)
        else:
            body = to_json(problem.document(reply.request_id))
            response = Response(body, problem.kind.status, problem.headers, MEDIA_TYPE)
        await response(scope, receive, reply.send)


class _BodyCounter:
    """Counts the received bytes of one request."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.bytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self.bytes += len(message.get("body", b""))
        return message


class _Reply:
    """Sends one response: adds the common headers and records the status."""

    def __init__(self, send: Send, scope: Scope, request_id: str) -> None:
        self._send = send
        self._scope = scope
        self.request_id = request_id
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"]
            given = {name for name, _ in headers}
            headers.extend(item for item in _HEADERS.items() if item[0] not in given)
            headers.append((b"x-request-id", self.request_id.encode()))
            if position := self._scope.get(SCOPE):
                headers.append((HEADER.encode(), str(position).encode()))
            if note := self._scope.get(NOTE_SCOPE):
                headers.append((NOTE_HEADER.encode(), note.encode("ascii", "replace")))
        await self._send(message)


def _request_id(scope: Scope) -> str:
    """The caller's own ``X-Request-Id`` when it is valid, else a new id."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            return text if _REQUEST_ID.match(text) else ""
    return ""


def _known_method(scope: Scope) -> str:
    method: str = scope["method"]
    return (
        method
        if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
        else "other"
    )


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    raise ProblemResponse(
        "not_found",
        f"there is nothing at {scope['path'][:200]}; /v1/openapi.json lists what there is",
    )
