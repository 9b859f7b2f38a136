"""Gateway and proxy with few descriptors: idle connections of one address end nothing."""

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest

from iris_bus.jetstream import connect
from iris_service.child import end_with_parent
from iris_service.listening import RESERVED

pytestmark = pytest.mark.integration

DESCRIPTORS = 300
IDLE = 500
ROOM = DESCRIPTORS - RESERVED
"""Connections that the descriptors are enough for."""


@contextmanager
def limited(service: str, nats_url: str, where: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A service that may open few files; its log is in ``where``."""
    end = end_with_parent()

    def limit() -> None:
        end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    command = [sys.executable, "-m", f"iris_{service}", "--set", f"{service}.http=127.0.0.1:0"]
    environ = {**os.environ, "IRIS_NATS_URL": nats_url, "IRIS_PORT_FILE": str(where / "port")}
    with (where / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stderr=log, preexec_fn=limit)  # noqa: PLW1509
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def address_in(where: Path, process: subprocess.Popen[bytes]) -> str:
    async with asyncio.timeout(100):
        while not (where / "port").exists():
            assert process.poll() is None, (where / "log").read_text()
            await asyncio.sleep(0.02)
    return (where / "port").read_text()


@asynccontextmanager
async def idle(host: str, port: int) -> AsyncIterator[None]:
    """Many connections of one address that say nothing."""
    writers = []
    try:
        for _ in range(IDLE):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, port)
                writers.append(writer)
        yield
    finally:
        for writer in writers:
            writer.close()


async def answered(url: str, path: str) -> int:
    """The status of a request on a connection of its own; 0: it was broken off."""
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            return (await client.get(path)).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("service", "path", "usual", "beside"),
    [("gateway", "/healthz", 200, {429, 0}), ("proxy", "/d/none/", 404, {503, 0, 404})],
)
async def test_idle_connections_of_one_address_end_nothing(
    nats_url, tmp_path, service, path, usual, beside
):
    """Of a proxy one that has been idle for a second gives way."""
    connection = await connect(nats_url, name="test")
    await connection.streams.ensure()
    await connection.key_value("iris-discovery").put("other", b"{}", expected=0)
    await connection.close()
    with limited(service, nats_url, tmp_path) as process:
        url = await address_in(tmp_path, process)
        where = httpx.URL(url)
        assert await answered(url, path) == usual
        async with idle(where.host, where.port or 0):
            assert await answered(url, path) in beside
            assert process.poll() is None, (tmp_path / "log").read_text()
        async with asyncio.timeout(100):
            while await answered(url, path) != usual:
                assert process.poll() is None, (tmp_path / "log").read_text()
    log = (tmp_path / "log").read_text()
    room = ROOM if service == "gateway" else ROOM // 2
    assert f"{room} connections are all that the descriptors of this process are enough for" in log


@pytest.mark.timeout(300)
async def test_a_service_out_of_descriptors_goes_on(nats_url, tmp_path):
    """Whatever has taken them, such as files."""
    program = """
import asyncio, os, msgspec
from iris_service.run import Service, run_service
class Own(msgspec.Struct):
    http: str = ""
async def serve(reader, writer):
    writer.write(b"hello"); await writer.drain(); writer.close()
async def main(service):
    await asyncio.to_thread(int)  # loads what threads need
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        print("out", flush=True)
    await asyncio.to_thread(os.read, 0, 1)
    for number in taken:
        os.close(number)
    await service.stop.wait()
run_service("state", Own, main)
"""
    end = end_with_parent()

    def limit() -> None:
        end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            preexec_fn=limit,
        )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        port = int(await process.stdout.readline())
        assert await process.stdout.readline() == b"out\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(60):
            while "no connection can be accepted" not in (tmp_path / "log").read_text():
                assert process.returncode is None, (tmp_path / "log").read_text()
                await asyncio.sleep(0.02)
        process.stdin.write(b"x")
        assert await asyncio.wait_for(reader.read(), 60) == b"hello"
        writer.close()
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
