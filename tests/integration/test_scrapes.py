"""Scrapes of a process while its servers, reached over TLS, are away: they end nothing."""

import asyncio
import contextlib
import os
import re
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.support.certificates import make_certificate
from tests.support.nats_cluster import NatsCluster

pytestmark = [
    pytest.mark.integration,
]

PROGRAM = """
    import asyncio
    import contextlib
    import msgspec
    from iris_bus.contract import Unavailable
    from iris_service.run import Service, run_service
    from iris_service.telemetry import new_registry

    class Own(msgspec.Struct):
        retry_for_s: float = 1.0

    async def publish(connection) -> None:
        while True:
            with contextlib.suppress(Unavailable):
                connection.bus.publish("iris.test", b"x" * 2000)
            await asyncio.sleep(0.002)

    async def main(service: Service[Own]) -> None:
        connection = await service.connect()
        service.spawn(publish(connection))
        port = await service.serve_metrics(new_registry())
        print(port, flush=True)
        await service.stop.wait()
        await connection.close()

    run_service("state", Own, main)
"""


@asynccontextmanager
async def running(**environ: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A process that publishes all the time, and where it serves its metrics."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", textwrap.dedent(PROGRAM)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "IRIS_RUN_METRICS": "127.0.0.1:0", **environ},
    )
    assert process.stdout is not None
    try:
        port = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        assert port, "it ended while it started"
        yield process, f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until(client: httpx.AsyncClient, pattern: str) -> str:
    """The first page of metrics that matches; each scrape is answered."""
    async with asyncio.timeout(100):
        while True:
            page = await client.get("/metrics")
            assert page.status_code == 200
            if re.search(pattern, page.text, re.MULTILINE):
                return page.text
            await asyncio.sleep(0.01)


async def test_scrapes_during_outages_over_tls_end_nothing(tmp_path):
    cert, key = make_certificate(tmp_path)
    cluster = NatsCluster.on(tmp_path / "nats", hidden=True)
    for node in cluster.nodes:
        node.add(f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n')
        node.start()
    url = cluster.url.replace("nats://", "tls://")
    try:
        await cluster.healthy()
        async with (
            running(IRIS_NATS_URL=url, IRIS_NATS_TLS_CA=str(cert)) as (process, address),
            httpx.AsyncClient(base_url=address, timeout=30) as client,
        ):
            for _ in range(3):
                cluster.kill()
                away = await until(client, r"^iris_bus_connected 0.0$")
                assert 'certificate="NATS server"' in away  # as it was when it was connected
                for _ in range(100):
                    await until(client, "^iris_bus_connected")
                for node in cluster.nodes:
                    node.start()
                page = await until(client, r"^iris_bus_connected 1.0$")
                assert not re.findall(
                    r"^iris_collector_failures_total\S* [1-9].*", page, re.MULTILINE
                )
            assert process.returncode is None
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        cluster.kill()
