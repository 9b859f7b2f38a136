"""Processes of the proxy: several on one address, connection limits, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import cluster_on, is_served, until
from tests.support.nats_config import row_of_free_ports
from tests.support.proxy import Front, Held, Talk, front, saying

pytestmark = pytest.mark.integration

ASK = b"GET /d/c/ HTTP/1.1\r\nHost: a\r\n\r\n"


async def ask(talk: Talk) -> tuple[bytes, bytes]:
    """One request on a connection that stays."""
    await talk.send(ASK)
    async with asyncio.timeout(60):
        head = await talk.head()
        return head, await talk.body(head)


# --- several processes


async def answered(front: Front, ports: list[int]) -> list[float]:
    """How many requests each worker has answered with 200."""
    counts = []
    for port in ports:
        front.metrics_port = port
        counts.append(
            front.metric(await front.metrics(), 'iris_proxy_requests_total{status="200"}')
        )
    return counts


async def until_all_answer(proxy: Front, ports: list[int]) -> None:
    async with asyncio.timeout(60):
        while min(await answered(proxy, ports)) < 5:
            await proxy.get("/d/c/")


async def test_workers_share_an_address_and_each_has_its_metrics(connection, nats_url, tmp_path):
    first = row_of_free_ports(3)
    ports = [first, first + 1, first + 2]
    options = ("proxy.workers=3", f"run.metrics=127.0.0.1:{first}")
    async with front(connection, nats_url, tmp_path, *options) as proxy:
        await proxy.publish("c", await proxy.route(saying(b"ok")))
        await until_all_answer(proxy, ports)
        before = sum(await answered(proxy, ports))
        for _ in range(20):
            assert (await proxy.get("/d/c/"))[1] == b"ok"
        assert sum(await answered(proxy, ports)) == before + 20


async def test_a_dead_worker_process_restarts_and_none_outlives_the_parent(
    connection, nats_url, tmp_path
):
    async with front(connection, nats_url, tmp_path, "proxy.workers=2") as proxy:
        await proxy.publish("c", await proxy.route(saying(b"ok")))
        workers = psutil.Process(proxy.process.pid).children()
        workers[0].kill()
        async with asyncio.timeout(60):
            while (
                len(
                    now := {w.pid for w in psutil.Process(proxy.process.pid).children()}
                    - {workers[0].pid}
                )
                < 2
            ):
                await asyncio.sleep(0.02)
        assert workers[1].pid in now
        proxy.process.kill()
        assert await asyncio.to_thread(proxy.process.wait, 60) == -signal.SIGKILL
        await asyncio.to_thread(
            until, lambda: not any(map(psutil.pid_exists, now)), "they have ended"
        )
        log = tmp_path / "proxy.log"
        assert "proxy-0 ended with -9" in log.read_text()


async def test_workers_end_what_is_under_way_when_the_proxy_is_told_to_stop(
    connection, nats_url, tmp_path
):
    slow = Held(b"done")
    async with front(connection, nats_url, tmp_path, "proxy.workers=2") as proxy:
        route = await proxy.route(slow)
        await proxy.publish("c", route)
        async with asyncio.timeout(60):
            known = 0
            while known < 30:  # in a row, so that each of the two knows the set
                known = 0 if b" 404 " in (await proxy.get("/d/marker1/"))[0] else known + 1
        talk = await proxy.connect()
        await talk.send(ASK)
        async with asyncio.timeout(60):
            await slow.reached.wait()
            proxy.process.send_signal(signal.SIGTERM)
            while True:
                with contextlib.suppress(ConnectionError):
                    await (await proxy.connect()).close()
                    await asyncio.sleep(0.02)
                    continue
                break
            slow.go.set()
            head = await talk.head()
            assert await talk.body(head) == b"done"
            assert await asyncio.to_thread(proxy.process.wait) == 0
        await talk.close()


def test_the_option_is_named_in_the_help_and_means_the_setting():
    command = [sys.executable, "-m", "iris.cli", "server", "proxy"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--workers N" in shown
    assert "max_connections" in shown
    config = subprocess.run(
        [*command, "--workers", "4", "--show-config"], capture_output=True, text=True, check=True
    )
    assert "workers = 4  # command line" in config.stdout


# --- limits of connections


class Slow:
    """A route that answers when it is told to, and counts the requests that wait."""

    def __init__(self) -> None:
        self.reached = asyncio.Semaphore(0)
        self.go = asyncio.Event()

    async def __call__(self, talk: Talk) -> None:
        while True:
            await talk.request()
            self.reached.release()
            await self.go.wait()
            await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def busy(proxy: Front, slow: Slow, number: int, ask: bytes = ASK) -> list[Talk]:
    """So many connections with a request under way; some of before may be counted until they are
    gone.
    """
    made: list[Talk] = []
    async with asyncio.timeout(60):
        while len(made) < number:
            talk = await proxy.connect()
            await talk.send(ask)
            answer, reached = (
                asyncio.create_task(one) for one in (talk.head(), slow.reached.acquire())
            )
            await asyncio.wait({answer, reached}, return_when=asyncio.FIRST_COMPLETED)
            if reached.done():
                made.append(talk)
            answer.cancel()
            reached.cancel()
            await asyncio.gather(answer, reached, return_exceptions=True)
            if talk not in made:
                await talk.close()
    return made


async def test_a_connection_too_many_is_answered_503_and_closed(connection, nats_url, tmp_path):
    async with front(connection, nats_url, tmp_path, "proxy.max_connections=4") as proxy:
        slow = Slow()
        await proxy.publish("c", await proxy.route(slow), user="eve")
        await proxy.publish("d", await proxy.route(saying(b"ok")), user="eve")
        await proxy.publish("e", await proxy.route(slow), user="ada")
        served = await busy(proxy, slow, 3)
        served += await busy(proxy, slow, 1, ASK.replace(b"/c/", b"/e/"))
        head, body = await proxy.get("/d/d/")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in head
        assert b"this proxy serves 4 connections ([proxy] max_connections)" in body
        slow.go.set()
        for talk in served:
            async with asyncio.timeout(60):
                assert await talk.body(await talk.head()) == b"ok"
            await talk.close()
        async with asyncio.timeout(60):
            while b" 503 " in (await proxy.get("/d/c/"))[0]:
                await asyncio.sleep(0.02)


async def test_deployments_of_one_user_leave_connections_to_those_of_others(
    connection, nats_url, tmp_path
):
    async with front(connection, nats_url, tmp_path, "proxy.max_connections=4") as proxy:
        slow = Slow()
        await proxy.publish("c", await proxy.route(slow), user="eve")
        await proxy.publish("d", await proxy.route(saying(b"ok")), user="eve")
        await proxy.publish("e", await proxy.route(saying(b"ok")), user="ada")
        served = await busy(proxy, slow, 3)
        head, body = await proxy.get("/d/d/")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"requests to deployments of its user have 3 connections of this proxy" in body
        assert (await proxy.get("/d/e/"))[1] == b"ok"
        slow.go.set()
        for talk in served:
            await talk.close()


async def test_an_idle_connection_gives_way_to_a_new_one(connection, nats_url, tmp_path):
    options = ("proxy.max_connections=2", "proxy.head_s=1000")
    async with front(connection, nats_url, tmp_path, *options) as proxy:
        await proxy.publish("c", await proxy.route(saying(b"ok")))
        silent = [await proxy.connect() for _ in range(2)]
        closed = [asyncio.create_task(talk.rest()) for talk in silent]
        async with asyncio.timeout(60):
            while not any(one.done() for one in closed):
                answered, _ = await proxy.get("/d/c/")
                await asyncio.sleep(0.02)
        assert answered.startswith(b"HTTP/1.1 200 ")
        for talk in silent:
            await talk.close()
        await asyncio.gather(*closed)


async def test_every_head_has_head_s_and_an_idle_connection_longer(connection, nats_url, tmp_path):
    async with front(connection, nats_url, tmp_path, "proxy.head_s=2") as proxy:
        await proxy.publish("c", await proxy.route(saying(b"ok")))
        idle, slow = await proxy.connect(), await proxy.connect()
        assert [(await ask(talk))[1] for talk in (idle, slow)] == [b"ok"] * 2
        await slow.send(ASK[:-4])
        async with asyncio.timeout(60):
            assert await slow.rest() == b""
        assert (await ask(idle))[1] == b"ok"  # though it has been idle for as long
        await idle.close()
        await slow.close()


def test_a_drain_longer_than_a_process_may_stop_is_refused():
    command = [sys.executable, "-m", "iris_proxy", "--set", "proxy.drain_s=30"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (
        ended.returncode,
        "[proxy] drain_s = 30: must be less than [run] drain_s" in ended.stderr,
    ) == (2, True)


# --- a cluster


SERVICE = """
import http.server, os, pathlib, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/slow":
            pathlib.Path(sys.argv[1], "reached").touch()
            while not pathlib.Path(sys.argv[1], "go").exists():
                time.sleep(0.01)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"done")
http.server.ThreadingHTTPServer(("", int(os.environ["IRIS_PORT_HTTP"])), Handler).serve_forever()
"""


def test_a_request_under_way_ends_before_anything_it_needs_is_stopped(tmp_path):
    def answer() -> None:
        with urllib.request.urlopen(
            f"{cluster.file['proxy_url']}/d/slow/slow", timeout=60
        ) as found:
            answers.append(found.read())

    answers: list[bytes] = []
    with cluster_on(tmp_path / "data", "--workers", "1") as cluster:
        command = [sys.executable, "-c", SERVICE, str(tmp_path)]
        cluster.client.deploy(
            command, "slow", cpu=0.1, probe_interval="0.2s", min_ready="0s"
        ).wait_ready(60)
        until(lambda: is_served(cluster, "slow"), "the proxy knows")
        asking = threading.Thread(target=answer)
        asking.start()
        until((tmp_path / "reached").exists, "it is under way")
        os.kill(cluster.pids("supervisor")[0], signal.SIGTERM)
        log = cluster.data / "log" / "proxy.log"
        until(lambda: "stopping" in log.read_text(), "the proxy is told to stop")
        Path(tmp_path / "go").touch()
        asking.join()
        assert answers == [b"done"]
        cluster.up.wait(60)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_proxy_that_does_not_reach_nats_exits_to_be_started_again(tmp_path, workers: int):
    """The units of systemd restart what does not exit with 2 or 65."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody answers there
        given = "proxy.http=127.0.0.1:0", f"proxy.workers={workers}", "nats.retry_for_s=0.1"
        environ = {key: value for key, value in os.environ.items() if not key.startswith("IRIS_")}
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "iris_proxy",
                *(word for each in given for word in ("--set", each)),
            ],
            env=environ | {"IRIS_NATS_URL": f"nats://127.0.0.1:{held.getsockname()[1]}"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1, done.stderr
