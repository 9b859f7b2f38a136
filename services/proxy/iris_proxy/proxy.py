"""The proxy: the routes of each deployment, and the handler of all requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from iris_bus.contract import Entry
from iris_core import codec
from iris_core.messages.proxy_state import DeploymentLoad, DeploymentRequests
from iris_core.spec.serving import Discovery
from iris_proxy.forward import Exchange
from iris_proxy.http.credentials import OwnTokens
from iris_proxy.http.refusal import ProxyRefusal, check_head, split_target, with_slash
from iris_proxy.metrics import CLIENT_LEFT, ProxyMetrics
from iris_proxy.routes.balancer import Balancer
from iris_proxy.routes.choice import RouteLoad
from iris_proxy.routes.probing import EjectedRoutes
from iris_proxy.routes.retry import RetryBudget
from iris_proxy.routes.room import RequestRoom
from iris_proxy.settings import ProxySettings
from iris_proxy.upstream.pool import Pool
from iris_service.listening import is_within

log = logging.getLogger(__name__)


class Proxy:
    """All deployments with their routes.

    Args:
        clock: seconds that only grow.

    Attributes:
        credentials: tokens that are not forwarded, unless a deployment asks for them.
        current: whether the discovery has been read from the bus; until then it is that of an
            earlier process.
        woken: set when a request waits for the first route of a deployment without routes.
    """

    def __init__(self, settings: ProxySettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._networks = settings.networks()
        self._balancers: dict[str, Balancer] = {}
        self._seen: Mapping[str, Entry] = {}
        self._pool = Pool(settings.idle_s)
        self._budget = RetryBudget()
        self._room = RequestRoom(settings.max_connections)
        self._ejected = EjectedRoutes(self._is_current)
        self.credentials = OwnTokens(issuer=settings.oidc_issuer, audience=settings.oidc_audience)
        self.current = False
        self.woken = asyncio.Event()
        self.metrics = ProxyMetrics()

    def update(self, values: Mapping[str, Entry]) -> None:
        """Apply the whole discovery; an unreadable value leaves its deployment as it is."""
        for name in self._balancers.keys() - values.keys():
            self._balancers.pop(name).update(Discovery(name, 0))
        for name, entry in values.items():
            if self._seen.get(name) == entry:
                continue
            try:
                self._take_up(name, codec.from_json(entry.value, Discovery))
            except codec.Undecodable as error:
                log.error("the routes of %s cannot be read: %s", name, error)
        self._seen = values
        self._pool.keep(
            {route.address for balancer in self._balancers.values() for route in balancer.routes}
        )

    def _take_up(self, name: str, discovery: Discovery) -> None:
        if name in self._balancers:
            self._balancers[name].update(discovery)
        else:
            settings = self._settings
            self._balancers[name] = Balancer(
                discovery, settings.queue_requests, settings.wake_s, self.woken.set
            )

    def _is_current(self, route: RouteLoad) -> bool:
        return any(route in balancer.routes for balancer in self._balancers.values())

    def loads(self) -> tuple[DeploymentLoad, ...]:
        """The load of every deployment with a scaling rule since the last call."""
        return tuple(balancer.load() for balancer in self._balancers.values() if balancer.is_scaled)

    def requests(self) -> tuple[DeploymentRequests, ...]:
        """The requests since the last call to each deployment that got any."""
        found = (balancer.requests() for balancer in self._balancers.values())
        return tuple(one for one in found if one is not None)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        began_s = self._clock()
        status = CLIENT_LEFT
        try:
            response = await self._answer(request)
            status = response.status
            return response
        finally:
            self.metrics.answered(status, self._clock() - began_s)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        balancer: Balancer | None = None
        try:
            target = request.raw_path
            headers = request.headers
            check_head(
                request.method,
                target,
                len(headers.getall("Host", ())),
                headers.getall("Transfer-Encoding", ()),
                tokens=len(headers.getall("Authorization", ())),
                http_1_1=request.version >= HttpVersion11,
                head_bytes=len(target)
                + sum(len(name) + len(value) + 4 for name, value in headers.items()),
                most_bytes=self._settings.head_bytes,
            )
            name, inner = split_target(target)
            balancer = self._balancers.get(name)
            if balancer is None:
                raise self._unknown(name)
            if (place := with_slash(request.method, target)) and "Upgrade" not in headers:
                return moved(request, place)
            user = balancer.user
            self._room.enter(user)
            try:
                return await self._exchange(request, name, inner, balancer)
            finally:
                self._room.leave(user)
        except ProxyRefusal as refusal:
            if balancer is not None:
                balancer.answered(refusal.status, None)
            return refused(request, refusal)

    async def _exchange(
        self, request: web.BaseRequest, name: str, inner: str, balancer: Balancer
    ) -> web.StreamResponse:
        """Forward a request to a route of its deployment. Raises ProxyRefusal."""
        exchange = Exchange(
            request,
            name,
            inner,
            balancer,
            pool=self._pool,
            credentials=self.credentials,
            trusted=is_within(request.remote, self._networks),
            on_ejected=self._ejected.eject,
        )
        response = await exchange.run(self._budget, self.metrics.retried)
        balancer.answered(response.status, exchange.waited_s)
        return response

    def _unknown(self, name: str) -> ProxyRefusal:
        if self.current:
            return ProxyRefusal("not_found", f"there is no deployment {name!r}")
        return ProxyRefusal(
            "no_discovery", f"{name!r} is not among the deployments that this proxy has stored"
        )

    def close(self) -> None:
        self._ejected.close()
        self._pool.close()


def moved(request: web.BaseRequest, place: str) -> web.Response:
    """The response for a page that is elsewhere."""
    marked = {"Iris-Proxy": "1", "Location": place, "Cache-Control": "no-store", "Server": "iris"}
    response = web.Response(status=308, headers=marked)
    if request.body_exists:
        response.force_close()
    return response


def refused(request: web.BaseRequest, refusal: ProxyRefusal) -> web.Response:
    """The response for a refusal: a page for somebody who opened the address in a browser, else
    JSON.
    """
    if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
        body = refusal.page()
        headers = refusal.headers("text/html; charset=utf-8")
    else:
        body = refusal.body()
        headers = refusal.headers()
    response = web.Response(status=refusal.status, body=body, headers=CIMultiDict(headers))
    if refusal.closes or request.body_exists:
        response.force_close()
    return response
