"""Real NATS servers for tests: one per test process, emptied for each test, or one that the test
may kill.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_bus.connection.termination import end
from iris_bus.jetstream import JetStreamConnection, connect
from iris_core.access.roles import ACCOUNT
from iris_nats.nats_process import NatsProcess

OPEN = (
    "accounts { SYS: { users: [ { user: sys, password: sys } ] }, "
    f"{ACCOUNT}: {{ jetstream: enabled, users: [ {{ user: iris, password: iris }} ] }} }}\n"
    "system_account: SYS\n"
)
"""Accounts with one user who may do everything, for tests of something else than permissions."""


class OpenServer(NatsProcess):
    """A server with the accounts `OPEN`."""

    @property
    def url(self) -> str:
        return super().url.replace("//", "//iris:iris@")

    def _accounts(self) -> str:
        return OPEN

    def _sign(self, nonce: str) -> dict[str, str]:
        return {"user": "sys", "pass": "sys"}


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenServer]:
    """A server for all tests of this process; not to be killed."""
    server = OpenServer(tmp_path_factory.mktemp("nats") / "data")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def nats_url(nats_server: NatsProcess) -> str:
    """Where to connect; every stream of earlier tests is gone."""
    return await emptied(nats_server.url)


async def emptied(url: str) -> str:
    """The address, once the server there has no stream."""
    import nats

    client = await nats.connect(url)

    async def request(what: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            (await client.request(f"$JS.API.STREAM.{what}", b"", timeout=30)).data
        )
        return answer

    try:
        async with asyncio.timeout(60):
            while (there := await request("NAMES")).get("total") != 0:  # an error has no total
                for name in there.get("streams") or ():  # what one answer refuses is tried again
                    await request(f"DELETE.{name}")
    finally:
        await client.close()
    return url


@pytest.fixture
async def connection(nats_url: str) -> AsyncIterator[JetStreamConnection]:
    """Connected, with every stream of Iris declared and empty."""
    made = await connect(nats_url, name="test")
    await made.streams.ensure()
    yield made
    await made.close()


@pytest.fixture
async def own_nats(tmp_path: Path) -> AsyncIterator[NatsProcess]:
    """A server of this test's own, started again whenever it has been killed, as the supervisor
    does it.
    """
    server = OpenServer(tmp_path / "nats")
    server.start()
    keeping = asyncio.create_task(keep(server))
    yield server
    await end(keeping)
    server.stop()


async def keep(server: NatsProcess) -> None:
    while True:
        now = time.monotonic()
        server.look(now)
        if server.due is not None and server.due <= now:
            server.spawn(now)
        await asyncio.sleep(0.02)
