"""B10: requests a second through the proxy, 16 connections, beside nginx and the least proxy on aiohttp, in turn.

All of them stand before the same nginx that answers 1 KiB; each proxy has one process. The proxies run on one
processor, the load and nginx's answers on the others. CPU per request is the operating system's own accounting, and
the figure that neighbours on the machine disturb least.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from benchmarks.cluster import HOME
from benchmarks.http_load import Load
from benchmarks.result import Row, median
from iris_bus.child import end_with_parent
from iris_bus.jetstream import connect
from iris_bus.nats_process import NatsProcess
from iris_core import codec
from iris_core.serving import DiscoveredRoute, Discovery
from iris_core.subjects import DISCOVERY_BUCKET

GOAL = 6000.0
GOAL_ADDED_P50_MS = 2.5
CONNECTIONS = 16
READY_S = 20.0

_NGINX = """
daemon off; worker_processes 1; pid nginx-{port}.pid; error_log error-{port}.log; user {user};
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 100000000;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  {upstream}
  server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }}
}}
"""
_PASSING = 'proxy_pass http://route; proxy_http_version 1.1; proxy_set_header Connection "";'


@dataclass
class Measured:
    """What one of them did, round by round."""

    loads: list[Load] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    rss_bytes: int = 0

    @property
    def rates(self) -> list[float]:
        return [round(load.rate, 1) for load in self.loads]

    @property
    def p50_ms(self) -> float:
        return median([load.p50_ms for load in self.loads])

    @property
    def p99_ms(self) -> float:
        return median([load.p99_ms for load in self.loads])


def run(quick: bool = False) -> Row:
    """Requests a second of the proxy. Raises RuntimeError without nginx."""
    if shutil.which("nginx") is None:
        raise RuntimeError("nginx is not on PATH; it answers the requests, and is what the proxy is measured against")
    seconds, repeat = (1.0, 3) if quick else (5.0, 7)
    with contextlib.ExitStack() as started:
        directory = Path(started.enter_context(tempfile.TemporaryDirectory()))
        served = dict(_start(started, directory))
        found = {name: Measured() for name in served}
        for _ in range(repeat):
            for name, (process, port, path) in served.items():
                _measure(found[name], process, f"127.0.0.1:{port}", path, seconds)
    ours, direct = found["iris"], found.pop("direct")
    return Row(
        row="B10",
        what=f"requests a second through the proxy, {CONNECTIONS} connections, 1 KiB answers",
        value=round(median(ours.rates), 1),
        unit="/s",
        goal=GOAL,
        peers={name: round(median(one.rates), 1) for name, one in found.items() if name != "iris"},
        ratio=round(median(ours.rates) / median(found["aiohttp"].rates), 2),
        rss_bytes=ours.rss_bytes,
        runs=ours.rates,
        detail={
            "ratio_is_to": "aiohttp",
            "cpu_us_per_request": {name: round(median(one.cpu_us), 1) for name, one in found.items()},
            "added_p50_ms": {name: round(one.p50_ms - direct.p50_ms, 2) for name, one in found.items()},
            "added_p50_goal_ms": GOAL_ADDED_P50_MS,
            "added_p99_ms": {name: round(one.p99_ms - direct.p99_ms, 2) for name, one in found.items()},
            "direct_requests_per_s": round(median(direct.rates), 1),
        },
    )


def _start(started: contextlib.ExitStack, directory: Path) -> Iterator[tuple[str, tuple[psutil.Process, int, str]]]:
    """Name, process, port and path of everything that is measured."""
    route, nginx, aiohttp = _free_port(), _free_port(), _free_port()
    body = "x" * 1024
    answering = _nginx(directory, route, "", f"return 200 {body};")
    yield "direct", (_process(started, answering, directory, route, proxy=False), route, "/")
    passing = _nginx(directory, nginx, f"upstream route {{ server 127.0.0.1:{route}; keepalive 64; }}", _PASSING)
    yield "nginx", (_process(started, passing, directory, nginx), nginx, "/")
    least = [sys.executable, str(HOME / "benchmarks" / "peers" / "aiohttp_proxy.py"), str(aiohttp), str(route)]
    yield "aiohttp", (_process(started, least, directory, aiohttp), aiohttp, "/")
    nats = NatsProcess(directory / "nats")
    nats.start()
    started.callback(nats.stop)
    asyncio.run(_discover(nats.url, route))
    port = _free_port()
    settings = (f"nats.url={nats.url}", f"proxy.http=127.0.0.1:{port}", "run.log_level=warning")
    ours = [sys.executable, "-m", "iris_proxy", *(word for each in settings for word in ("--set", each))]
    yield "iris", (_process(started, ours, directory, port), port, "/d/bench/")


async def _discover(nats_url: str, route: int) -> None:
    connection = await connect(nats_url, name="bench")
    await connection.streams.ensure()
    value = codec.to_json(Discovery("bench", 1, (DiscoveredRoute("r1-0", f"127.0.0.1:{route}"),)))
    await connection.key_value(DISCOVERY_BUCKET).put("bench", value, expected=0)
    await connection.close()


def _nginx(directory: Path, port: int, upstream: str, location: str) -> list[str]:
    user = psutil.Process().username()
    config = directory / f"nginx-{port}.conf"
    config.write_text(_NGINX.format(port=port, user=user, upstream=upstream, location=location))
    return ["nginx", "-p", f"{directory}/", "-c", str(config)]


def _process(
    started: contextlib.ExitStack, command: list[str], directory: Path, port: int, *, proxy: bool = True
) -> psutil.Process:
    """A process that listens; proxies have the first processor for themselves where there are several."""
    with (directory / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=end_with_parent)  # noqa: PLW1509
    started.callback(process.wait)
    started.callback(process.terminate)
    processors = sorted(os.sched_getaffinity(0))
    own = processors[:1] if proxy else processors[1:]
    os.sched_setaffinity(process.pid, own or processors)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return psutil.Process(process.pid)
        time.sleep(0.05)
    raise RuntimeError(f"{command[:3]} does not listen: {(directory / f'{port}.log').read_text()[-2000:]}")


def _measure(measured: Measured, process: psutil.Process, address: str, path: str, seconds: float) -> None:
    before = _cpu_s(process)
    generator = [sys.executable, "-m", "benchmarks.http_load", address, path, str(CONNECTIONS), str(seconds)]
    processors = sorted(os.sched_getaffinity(0))

    def beside() -> None:
        os.sched_setaffinity(0, processors[1:] or processors)

    said = subprocess.run(generator, cwd=HOME, check=True, capture_output=True, preexec_fn=beside).stdout
    load = msgspec.json.decode(said, type=Load)
    measured.loads.append(load)
    measured.cpu_us.append(1e6 * (_cpu_s(process) - before) / load.requests)
    rss = sum(one.memory_info().rss for one in _family(process))
    measured.rss_bytes = max(measured.rss_bytes, rss)


def _cpu_s(process: psutil.Process) -> float:
    return sum(times.user + times.system for times in (one.cpu_times() for one in _family(process)))


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
