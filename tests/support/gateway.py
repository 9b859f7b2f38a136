"""A whole gateway on a bus, called over HTTP: httpx on the ASGI application or on a socket."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from iris_gateway.api import ENDPOINTS
from iris_gateway.auth.bearer import Keyring
from iris_gateway.dashboard.pages import PAGES
from iris_gateway.dashboard.responses import refusal
from iris_gateway.dispatch.middleware import Middleware
from iris_gateway.gateway import Gateway
from iris_gateway.service import HttpServer, assemble
from iris_gateway.settings import GatewaySettings
from iris_service.listening import listen
from tests.support.fake_state import FakeState
from tests.support.memory import Memory


@dataclass
class House:
    """A gateway, the fake state service behind it, and a client in front."""

    gateway: Gateway
    state: FakeState
    http: httpx.AsyncClient
    memory: Memory

    async def submit(self, name: str, **fields: Any) -> httpx.Response:
        return await self.http.post("/v1/jobs", json={"name": name, "command": ["true"], **fields})


@asynccontextmanager
async def listening(house: House, **said: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The same gateway behind a real socket, for what streams."""
    settings = GatewaySettings(**said)
    server, socket = HttpServer(house.gateway, settings), listen("gateway", "127.0.0.1", 0)
    serving = asyncio.create_task(server.serve([socket]))
    await server.ready.wait()
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            yield http
    finally:
        await house.gateway.feed.close()
        await house.gateway.ends.close()
        house.gateway.discovered.close()
        house.gateway.live.close()
        server.should_exit = True
        await serving


@asynccontextmanager
async def house(keyring: Keyring | None = None, **settings: Any) -> AsyncIterator[House]:
    """Everything over the in-memory bus."""
    memory = Memory()
    connection, others = memory.connect("gateway"), memory.connect("state")
    state = FakeState(others.bus, others.streams)
    await state.start()
    gateway = assemble(GatewaySettings(**settings), connection, keyring or Keyring())  # type: ignore[arg-type]
    numbers = itertools.count(1)
    gateway.new_id = lambda: f"id{next(numbers)}"
    await gateway.feed.wake()
    await gateway.ends.wake()
    followed = [
        one for one in (gateway.discovered, gateway.task_tokens, gateway.issuer) if one is not None
    ]
    following = [asyncio.create_task(one.follow()) for one in followed]
    transport = httpx.ASGITransport(
        Middleware(gateway, (*ENDPOINTS, *PAGES), refusal), raise_app_exceptions=False
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        try:
            yield House(gateway, state, http, memory)
        finally:
            for task in following:
                task.cancel()
            await gateway.feed.close()
            await gateway.ends.close()
            await state.stop()
