"""`iris deploy watch` keeps the file of another proxy up to date, with a real nginx under load."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from iris_core import codec
from iris_core.spec.serving import DiscoveredRoute, Discovery
from iris_core.subjects import DISCOVERY_BUCKET
from iris_service.child import end_with_parent
from tests.support.gateway import House, house, listening
from tests.support.nats_config import free_ports
from tests.support.proxy import Route, Talk, saying
from tests.support.worker import until

pytestmark = pytest.mark.integration

TEMPLATE = (
    "upstream chat {\n{% for route in routes %}  server {{ route.address }};\n{% endfor %}}\n"
)
NGINX = """
daemon off; worker_processes 1; worker_shutdown_timeout 5s; pid nginx.pid; error_log error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  include {out};
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://chat; }} }}
}}
"""


class Deployment:
    """A deployment's set in the bucket behind a listening gateway."""

    def __init__(self, made: House, url: str) -> None:
        self.url = url
        self._bucket = made.memory.connect().key_value(DISCOVERY_BUCKET)
        self._version = 0
        self._revision = 0

    async def publish(self, *addresses: str) -> None:
        self._version += 1
        routes = tuple(DiscoveredRoute(f"r1-{n}", address) for n, address in enumerate(addresses))
        value = codec.to_json(Discovery("chat", self._version, routes))
        self._revision = await self._bucket.put("chat", value, expected=self._revision)


@asynccontextmanager
async def deployment() -> AsyncIterator[Deployment]:
    async with house() as made, listening(made) as http:
        yield Deployment(made, str(http.base_url))


@contextmanager
def watching(url: str, root: Path, *options: str) -> Iterator[Path]:
    """The command as a process; the file it writes."""
    (root / "chat.template").write_text(TEMPLATE)
    out, log = root / "chat.conf", root / "watch.log"
    files = ("--template", str(root / "chat.template"), "--out", str(out))
    with log.open("wb") as said:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "iris.cli",
                "--url",
                url,
                "deploy",
                "watch",
                "chat",
                *files,
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            preexec_fn=end_with_parent(),  # noqa: PLW1509 - forks from the main thread only
        )
    try:
        yield out
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_the_file_follows_the_set_and_its_command_runs_once_a_change(tmp_path: Path):
    count = tmp_path / "count"
    async with deployment() as chat:
        await chat.publish("10.0.0.1:80")
        with watching(
            chat.url, tmp_path, "--then", f"cat {tmp_path}/chat.conf >> {count}; echo . >> {count}"
        ) as out:
            await until(lambda: text(count).endswith(".\n"))
            for n in range(2, 6):  # in quick succession: one change
                await chat.publish(*(f"10.0.0.{each}:80" for each in range(1, n + 1)))
            await until(lambda: text(count).count(".\n") == 2)
            await chat.publish(
                *(f"10.0.0.{each}:80" for each in range(1, 6))
            )  # the same bytes: no change
            await chat.publish("10.0.0.9:80")
            await until(lambda: text(count).count(".\n") == 3)
            assert text(out) == "upstream chat {\n  server 10.0.0.9:80;\n}\n"
    assert [part.count("server") for part in text(count).split(".\n")] == [1, 5, 1, 0]


async def test_a_refused_file_goes_back_and_a_failed_command_runs_again(tmp_path: Path):
    tries = tmp_path / "tries"
    check = f"! grep -q 10.0.0.6 {tmp_path}/chat.conf"
    then = f"echo . >> {tries}; test $(wc -l < {tries}) -gt 1"
    async with deployment() as chat:
        await chat.publish("10.0.0.1:80")
        with watching(chat.url, tmp_path, "--check", check, "--then", then) as out:
            await until(lambda: text(tries).count(".") == 2)
            before = text(out)
            await chat.publish("10.0.0.6:80")
            await until(lambda: "refuses" in text(tmp_path / "watch.log"))
            await until(lambda: text(out) == before)
            await chat.publish("10.0.0.7:80")
            await until(lambda: "10.0.0.7" in text(out))


@pytest.mark.needs("nginx")
async def test_nginx_loses_no_request_while_routes_come_and_go(tmp_path: Path):
    routes = [Route(saying(name)) for name in (b"a", b"b", b"c")]
    for route in routes:
        await route.start()
    [port] = free_ports(1)
    (tmp_path / "nginx.conf").write_text(NGINX.format(out=tmp_path / "chat.conf", port=port))
    nginx = [
        "nginx",
        "-p",
        f"{tmp_path}/",
        "-c",
        str(tmp_path / "nginx.conf"),
        "-g",
        f"user {user()};",
    ]
    answers: list[bytes] = []

    async def ask() -> None:
        while True:
            talk = Talk(*await asyncio.open_connection("127.0.0.1", port))
            try:
                await talk.send(b"GET / HTTP/1.1\r\nHost: chat\r\nConnection: close\r\n\r\n")
                head, _, body = (await talk.rest()).partition(b"\r\n\r\n")
            finally:
                await talk.close()
            assert head.startswith(b"HTTP/1.1 200 "), head
            answers.append(body)

    async with deployment() as chat:
        await chat.publish(*(route.address for route in routes[:2]))
        reload = f"kill -HUP $(cat {tmp_path}/nginx.pid)"
        with watching(chat.url, tmp_path, "--then", reload) as out:
            await until(out.exists)
            serving = subprocess.Popen(nginx, cwd=tmp_path, preexec_fn=end_with_parent())  # noqa: ASYNC220, PLW1509
            try:
                await until(lambda: text(tmp_path / "nginx.pid"))
                load = [asyncio.create_task(ask()) for _ in range(2)]
                for leaving, coming in ((0, 2), (1, 0), (2, 1)):
                    gone = routes[leaving]
                    there = [route for route in routes if route is not gone]
                    if coming != 2:
                        await routes[coming].start()
                    await chat.publish(*(route.address for route in there))
                    name = b"abc"[leaving : leaving + 1]
                    await until(lambda name=name: len(answers) > 100 and name not in answers[-100:])
                    await gone.stop()
                    seen = len(answers)
                    await until(lambda seen=seen: len(answers) > seen + 100)
                    assert not any(task.done() for task in load)
                for task in load:
                    task.cancel()
                await asyncio.wait(load)
            finally:
                serving.terminate()
                await asyncio.to_thread(serving.wait, 30)
    for route in routes:
        await route.stop()
    assert set(answers) == {b"a", b"b", b"c"}


def user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
