"""The gateway as its own process, on a real NATS server, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path

import httpx
import psutil
import pytest

from iris.client.client import Client
from iris.client.http.transport import HttpRequest
from iris.client.problems import Problem
from iris_bus.jetstream import JetStreamConnection, connect
from iris_nats.nats_process import NatsProcess
from tests.support import warm
from tests.support.fake_state import FakeState

pytestmark = pytest.mark.integration

SSE = {"accept": "text/event-stream"}


class Process:
    """A gateway in a process of its own; ``settings`` are ``section.key=value``."""

    def __init__(self, url: str, directory: Path, *settings: str) -> None:
        self.url = url
        self.settings = settings
        self.port_file = directory / "gateway.url"
        self.http = "127.0.0.1:0"
        self.process: warm.Fork | None = None

    async def start(self) -> str:
        self.port_file.unlink(missing_ok=True)
        environ = {**os.environ, "IRIS_NATS_URL": self.url, "IRIS_PORT_FILE": str(self.port_file)}
        words = [("--set", one) for one in (f"gateway.http={self.http}", *self.settings)]
        self.process = warm.start("iris_gateway", [*chain.from_iterable(words)], environ)
        async with asyncio.timeout(60):
            while not self.port_file.exists():
                assert self.process.poll() is None
                await asyncio.sleep(0.02)  # the file appears at one stroke; nothing tells of it
        address = self.port_file.read_text()
        self.http = address.removeprefix("http://")
        return address

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, 60)


@pytest.fixture
async def state(connection: JetStreamConnection) -> AsyncIterator[FakeState]:
    made = FakeState(connection.bus, connection.streams)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def gateway(nats_url: str, state: FakeState, tmp_path: Path) -> AsyncIterator[Process]:
    made = Process(nats_url, tmp_path)
    await made.start()
    yield made
    if made.process is not None and made.process.poll() is None:
        await made.stop()


@pytest.fixture
async def http(gateway: Process) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{gateway.http}", timeout=60) as client:
        yield client


async def submit(http: httpx.AsyncClient, name: str, **headers: str) -> httpx.Response:
    return await http.post("/v1/jobs", json={"name": name, "command": ["true"]}, headers=headers)


async def test_it_says_where_it_listens_answers_and_stops_when_asked(
    gateway: Process, http: httpx.AsyncClient
):
    async with asyncio.timeout(60):  # it says that nobody leads when the answer takes seconds
        while (answer := await http.get("/readyz")).status_code == 503:
            pass
    assert answer.text == "ready\n"
    assert (await submit(http, "/a")).status_code == 201
    assert [job["name"] for job in (await http.get("/v1/jobs")).json()["items"]] == ["/a"]
    assert await gateway.stop() == 0


async def test_a_submission_while_nobody_leads_is_answered_by_whoever_comes(
    http: httpx.AsyncClient, state: FakeState
):
    await state.stop()
    submitting = asyncio.create_task(submit(http, "/late"))
    refused = await http.get("/readyz")
    await state.start()
    assert (refused.status_code, (await submitting).status_code) == (503, 201)


async def test_submitters_do_not_notice_a_leader_that_ends_before_it_answers(
    http: httpx.AsyncClient, state: FakeState
):
    state.mute = True
    submitting = asyncio.create_task(submit(http, "/a"))
    async with asyncio.timeout(60):
        while not state.commands:
            await asyncio.sleep(0.01)
    await state.stop()
    state.mute = False
    await state.start()
    assert (await submitting).status_code == 201
    assert {command.request_id for command in state.commands} == {state.commands[0].request_id}


async def test_a_gateway_that_was_killed_takes_up_its_streams_where_they_broke(
    gateway: Process, state: FakeState
):
    seen: list[str] = []
    for number in range(3):
        await state.tell_job(f"/a{number}", "pending")
    seen += await events(gateway, "0", 3)
    await gateway.stop(signal.SIGKILL)
    for number in range(3, 6):
        await state.tell_job(f"/a{number}", "pending")
    await gateway.start()
    seen += await events(gateway, seen[-1], 3)
    assert seen == ["1", "2", "3", "4", "5", "6"]


async def events(gateway: Process, after: str, count: int) -> list[str]:
    found: list[str] = []
    async with (
        httpx.AsyncClient(base_url=f"http://{gateway.http}", timeout=60) as http,
        http.stream("GET", "/v1/events", headers={**SSE, "Last-Event-ID": after}) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                found.append(line[4:])
            if len(found) == count:
                break
    return found


async def test_output_is_followed_to_its_end(http: httpx.AsyncClient, state: FakeState):
    await submit(http, "/a")
    await state.print(1, 0, "hello\n")
    async with http.stream("GET", "/v1/jobs/%2Fa/logs?follow=true") as response:
        lines = response.aiter_lines()
        seen = [await anext(lines)]
        await state.print(1, 0, "world\n", offset=6, final=True)
        seen.append(await anext(lines))
        await state.tell_job("/a", "succeeded")
        async with asyncio.timeout(60):
            seen += [line async for line in lines]
    assert seen == ["0| hello", "0| world"]


async def test_pages_of_events_read_the_stream_in_both_directions(
    http: httpx.AsyncClient, state: FakeState
):
    for number in range(5):
        await state.tell_job(f"/a{number}", "pending")
    newest = (await http.get("/v1/events?limit=2")).json()
    oldest = (await http.get("/v1/events?limit=2&order=asc")).json()
    assert [event["id"] for event in newest["items"] + oldest["items"]] == ["5", "4", "1", "2"]


async def test_a_bundle_goes_into_the_object_store(
    http: httpx.AsyncClient, connection: JetStreamConnection
):
    from hashlib import sha256

    data = os.urandom(3 << 20)
    name = sha256(data).hexdigest()
    assert (await http.put(f"/v1/bundles/{name}", content=data)).status_code == 201
    assert await connection.blobs("iris-bundles").get(name) == data


async def test_a_body_of_ten_megabytes_is_answered_not_cut_off(
    http: httpx.AsyncClient, state: FakeState
):
    body = b'{"name":"/a","command":["true"],"env":{"A":"' + b"x" * (10 << 20) + b'"}}'
    response = await http.post(
        "/v1/jobs", content=body, headers={"content-type": "application/json"}
    )
    assert (response.status_code, response.json()["code"], state.commands) == (413, "too_large", [])


async def test_clients_are_told_that_a_bundle_is_too_large(gateway: Process):
    """The gateway answers before it has read such a body, and closes the connection."""
    with Client(f"http://{gateway.http}") as client, tempfile.TemporaryFile() as file:
        file.truncate(400 << 20)
        headers = {"Content-Type": "application/gzip", "Content-Length": str(400 << 20)}
        with pytest.raises(
            Problem, match="longer than 256MiB, the most that this gateway accepts"
        ) as refused:
            await asyncio.to_thread(
                client.transport.send,
                HttpRequest("PUT", f"/v1/bundles/{'0' * 64}", body=file, headers=headers),
            )
    assert refused.value.status == 413


async def test_a_head_without_an_end_is_refused_and_a_long_body_is_none(
    gateway: Process, state: FakeState
):
    address, _, port = gateway.http.partition(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    try:
        writer.write(
            b"POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 900000\r\n\r\n"
            + b" " * 900_000
        )
        writer.write(
            b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x-more: %b\r\n" % (b"x" * 4000) * 50
        )
        async with asyncio.timeout(60):
            assert (await reader.readline()).split()[1] in (b"400", b"415", b"422")
            with contextlib.suppress(ConnectionError):  # it may close before it has read everything
                assert b"too large" in await reader.read()
    finally:
        writer.close()


async def test_a_server_that_went_away_and_came_back_loses_no_submission(
    own_nats: NatsProcess, tmp_path: Path
):
    connection = await connect(own_nats.url, name="test")
    await connection.streams.ensure()
    state = FakeState(connection.bus, connection.streams)
    await state.start()
    gateway = Process(own_nats.url, tmp_path)
    url = await gateway.start()
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        assert (await submit(http, "/before")).status_code == 201
        os.kill(own_nats.pid, signal.SIGKILL)
        statuses = [
            (await submit(http, f"/after{number}", **{"Idempotency-Key": "k"})).status_code
            for number in (1, 1)
        ]
    await gateway.stop()
    await state.stop()
    await connection.close()
    assert set(statuses) <= {200, 201, 503}
    assert statuses[-1] in (200, 201)


WATCHERS = 900
ROOM_BYTES = 24 << 20
"""The interpreter's arenas of 1 MiB in which something still lives, 15 to 21 of a crowd's 35; no
object of it stays.
"""


def unshared_bytes(process: psutil.Process) -> int:
    """What it holds in memory, without pages of files: a forked process maps them again only as it
    uses them.
    """
    found = process.memory_info()
    return int(found.rss - found.shared)


async def test_watchers_that_have_left_leave_their_memory_and_descriptors(
    gateway: Process, state: FakeState
):
    assert gateway.process is not None
    process = psutil.Process(gateway.process.pid)
    host, _, port = gateway.http.rpartition(":")
    watch = b"GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n"

    async def crowd(size: int) -> None:
        watchers = [await asyncio.open_connection(host, int(port)) for _ in range(size)]
        for _, writer in watchers:
            writer.write(watch)
        for reader, _ in watchers:
            await reader.readuntil(b"retry: 1000")
        for number in range(100):
            await state.tell_job(f"/a{number}", "pending")
        for reader, _ in watchers:
            await reader.readuntil(b'"/a99"')
        for _, writer in watchers:
            writer.close()

    async with asyncio.timeout(240):
        await crowd(1)
        memory, descriptors = unshared_bytes(process), process.num_fds()
        for _ in range(2):
            await crowd(WATCHERS)
            while process.num_fds() > descriptors or unshared_bytes(process) > memory + ROOM_BYTES:
                await asyncio.sleep(0.1)
