"""Requests through proxies of their own: settings, discovery without NATS, reports of load, and the
end.
"""

import asyncio
import base64
import hashlib
import os
import signal
import socket

import pytest

from iris_bus.contract import Message
from iris_bus.jetstream import connect
from iris_core import codec
from iris_core.messages.proxy_state import LoadReport
from iris_core.spec.serving import DiscoveredRoute, Discovery
from iris_core.subjects import DISCOVERY_BUCKET, LOADS
from tests.support.nats import OpenServer
from tests.support.proxy import Echo, Front, Held, Route, Talk, front, refusal, saying
from tests.support.suspend import suspend

pytestmark = pytest.mark.integration


@pytest.fixture
async def proxy(connection, nats_url, tmp_path):
    async with front(connection, nats_url, tmp_path) as made:
        yield made


async def test_credentials_of_iris_do_not_reach_a_service_unless_it_asks(
    connection, nats_url, tmp_path
):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann user {hashlib.sha256(b'secret').hexdigest()}\n")
    claims = [
        base64.urlsafe_b64encode(b'{"iss": "https://id", "aud": "%b"}' % aud)
        for aud in (b"iris", b"shop")
    ]
    given = [
        b"secret",
        b"iristask_x",
        b"e30.%b.s" % claims[0],
        b"e30.%b.s" % claims[1],
        b"of-the-service",
    ]
    issuer = ("proxy.oidc_issuer=https://id", "proxy.oidc_audience=iris")
    async with front(
        connection, nats_url, tmp_path, f"proxy.token_file={tokens}", *issuer
    ) as proxy:
        passed = []
        for forwards in (False, True):
            echo = Echo()
            await proxy.publish("chat", await proxy.route(echo), forward_authorization=forwards)
            for token in given:
                await proxy.get("/d/chat/", b"Authorization: Bearer %b\r\n" % token)
            passed.append([b"Authorization" in head for head, _ in echo.requests])
    assert passed == [[False, False, False, True, True], [True] * 5]


async def test_a_proxy_that_is_told_to_stop_ends_what_is_under_way(proxy: Front):
    slow = Held(b"done")
    await proxy.publish("chat", await proxy.route(slow))
    idle = await proxy.connect()
    asking = asyncio.create_task(proxy.get("/d/chat/"))
    await slow.reached.wait()
    proxy.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        assert await idle.rest() == b""
        await idle.close()
        slow.go.set()
        assert (await asking)[1] == b"done"
        assert await asyncio.to_thread(proxy.process.wait) == 0


async def test_without_nats_the_last_set_is_served_and_changes_follow_later(own_nats, tmp_path):
    connection = await connect(own_nats.url, name="test")
    await connection.streams.ensure()
    async with front(connection, own_nats.url, tmp_path) as proxy:
        await proxy.publish("chat", await proxy.route(saying(b"old")))
        suspend(own_nats.pid)
        assert [(await proxy.get("/d/chat/"))[1] for _ in range(5)] == [b"old"] * 5
        os.kill(own_nats.pid, signal.SIGKILL)
        assert [(await proxy.get("/d/chat/"))[1] for _ in range(5)] == [b"old"] * 5
        await connection.key_value("iris-discovery").all()
        await proxy.publish("chat", await proxy.route(saying(b"new")))
        assert (await proxy.get("/d/chat/"))[1] == b"new"
    await connection.close()


async def test_a_proxy_started_without_nats_serves_the_last_set(tmp_path):
    nats, route = OpenServer(tmp_path / "nats"), Route(saying(b"hello"))
    nats.start()
    await route.start()
    connection = await connect(nats.url, name="test")
    await connection.streams.ensure()
    kept = f"proxy.discovery_file={tmp_path / 'discovery.json'}"
    async with front(connection, nats.url, tmp_path, kept) as proxy:
        await proxy.publish("chat", route)
    nats.stop()
    (tmp_path / "proxy.url").unlink()
    async with front(connection, nats.url, tmp_path, kept) as proxy:
        assert (await proxy.get("/d/chat/"))[1] == b"hello"
        assert proxy.metric(await proxy.metrics(), "iris_bus_connected") == 0
        nats.start()
        new = Discovery("new", 1, (DiscoveredRoute("r1-0", route.address),))
        await connection.key_value(DISCOVERY_BUCKET).put("new", codec.to_json(new), expected=0)
        async with asyncio.timeout(60):
            while (await proxy.get("/d/new/"))[1] != b"hello":
                await asyncio.sleep(0.02)
        assert (await proxy.get("/d/chat/"))[1] == b"hello"
        assert proxy.metric(await proxy.metrics(), "iris_bus_connected") == 1
    await route.stop()
    await connection.close()
    nats.stop()


async def test_a_proxy_started_without_nats_answers_though_the_last_set_is_empty(
    connection, tmp_path
):
    (tmp_path / "discovery.json").write_bytes(b"{}")
    kept = f"proxy.discovery_file={tmp_path / 'discovery.json'}"
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody answers there
        nowhere = f"nats://127.0.0.1:{held.getsockname()[1]}"
        async with front(connection, nowhere, tmp_path, kept, "nats.retry_for_s=0.1") as proxy:
            head, body = await proxy.get("/d/chat/")
            assert (head.split()[1], b"Retry-After: 5" in head, b"no_discovery" in body) == (
                b"503",
                True,
                True,
            )


@pytest.mark.parametrize("damaged", [b"", b'{"chat"'])
async def test_a_damaged_file_of_the_last_set_is_not_used(
    connection, nats_url, tmp_path, damaged: bytes
):
    (tmp_path / "discovery.json").write_bytes(damaged)
    async with front(
        connection, nats_url, tmp_path, f"proxy.discovery_file={tmp_path / 'discovery.json'}"
    ) as proxy:
        await proxy.publish("chat", await proxy.route(saying(b"new")))
        assert (await proxy.get("/d/chat/"))[1] == b"new"


class Loads:
    """What is reported of the load of one deployment, by process of a proxy."""

    def __init__(self, deployment: str) -> None:
        self.deployment = deployment
        self.outstanding: dict[str, int] = {}
        self.arrived = 0
        self.left: list[str] = []
        self._news = asyncio.Event()

    def hear(self, message: Message) -> None:
        report = codec.unpack(message.data, LoadReport)
        for load in report.loads:
            assert load.deployment == self.deployment
            self.outstanding[report.proxy] = load.outstanding
            self.arrived += load.arrived
        if report.leaving:
            self.outstanding.pop(report.proxy)
            self.left.append(report.proxy)
        self._news.set()

    async def come_to(self, *outstanding: int) -> None:
        """Wait until the processes report so many requests."""
        async with asyncio.timeout(60):
            while sorted(self.outstanding.values()) != sorted(outstanding):
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def loads(connection):
    heard = Loads("chat")
    subscription = await connection.bus.subscribe(LOADS, heard.hear)
    await connection.bus.flush()
    yield heard
    await subscription.close()


async def test_what_is_under_way_is_reported_for_what_is_scaled_by_rule(proxy: Front, loads: Loads):
    finish = asyncio.Event()

    async def slow(talk: Talk) -> None:
        await talk.head()
        await finish.wait()
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    await proxy.publish("other", await proxy.route(saying(b"no rule")))
    await proxy.publish("chat", await proxy.route(slow), minimum=1)
    await loads.come_to(0)
    asking = [asyncio.create_task(proxy.get("/d/chat/")) for _ in range(3)]
    await loads.come_to(3)
    finish.set()
    assert {(await each)[1] for each in asking} == {b"ok"}
    await loads.come_to(0)
    assert loads.arrived == 3


async def test_a_websocket_is_one_request_for_as_long_as_it_lasts(proxy: Front, loads: Loads):
    async def echo(talk: Talk) -> None:
        await talk.head()
        await talk.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        await talk.rest()

    await proxy.publish("chat", await proxy.route(echo), minimum=1)
    talk = await proxy.connect()
    await talk.send(
        b"GET /d/chat/ HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    )
    assert b" 101 " in await talk.head()
    await loads.come_to(1)
    await talk.close()
    await loads.come_to(0)


async def test_each_process_reports_for_itself_and_says_when_it_leaves(
    proxy: Front, loads: Loads, connection, nats_url, tmp_path
):
    await proxy.publish("chat", await proxy.route(saying(b"ok")), minimum=1)
    await loads.come_to(0)
    (tmp_path / "second").mkdir()
    async with front(connection, nats_url, tmp_path / "second"):
        await loads.come_to(0, 0)
    await loads.come_to(0)
    assert len(loads.left) == 1


async def test_a_request_wakes_a_deployment_and_its_body_waits_unread(proxy: Front, loads: Loads):
    echo = Echo()
    route = await proxy.route(echo)
    await proxy.publish("chat", reason="no_healthy_route", minimum=0)
    talk = await proxy.connect()
    await talk.send(
        b"POST /d/chat/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    )
    await loads.come_to(1)
    await proxy.publish("chat", route, minimum=0)
    assert await talk.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
    await talk.send(b"hello")
    head, body = await talk.request()
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"hello")
    await talk.close()


async def test_a_client_that_leaves_before_the_first_route_is_not_counted(
    proxy: Front, loads: Loads
):
    await proxy.publish("chat", reason="no_healthy_route", minimum=0)
    talk = await proxy.connect()
    await talk.send(b"GET /d/chat/ HTTP/1.1\r\nHost: a\r\n\r\n")
    await loads.come_to(1)
    await talk.close()
    await loads.come_to(0)


async def test_without_a_first_route_in_time_it_is_starting(connection, nats_url, tmp_path):
    async with front(connection, nats_url, tmp_path, "proxy.wake_s=0.1") as proxy:
        await proxy.publish("chat", reason="no_healthy_route", minimum=0)
        head, body = await proxy.get("/d/chat/")
        assert (b" 503 " in head, b"Retry-After: 5" in head, refusal(body)["code"]) == (
            True,
            True,
            "starting",
        )
