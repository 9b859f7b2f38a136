"""B10: requests a second through the proxy, 16 connections, beside nginx, the least proxy on
aiohttp, and Ray Serve's.

All of them but Ray Serve's stand before the same nginx that answers 1 KiB; each proxy has one
process. `watched` is a second nginx, whose upstream is the file that `iris deploy watch` writes.
The proxies run on one processor, the load and the answers on the others, and each is measured in
turn. CPU per request is the operating system's own accounting, and the figure that neighbours on
the machine disturb least. While the load runs at our proxy, a job is read through the gateway, 50
times a second.
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
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

from benchmarks.cluster import HOME, Cluster, cluster
from benchmarks.http import TOKEN, Gateway
from benchmarks.http_load import Load
from benchmarks.peer_runs import HOME as PEERS
from benchmarks.result import Row, median
from iris_bus.jetstream import connect
from iris_core import codec
from iris_core.spec.serving import DiscoveredRoute, Discovery
from iris_core.subjects import DISCOVERY_BUCKET
from iris_service.child import end_with_parent

GOAL = 6000.0
GOAL_ADDED_P50_MS = 2.5
GOAL_TIMES_RAY_SERVE = 8.0
GOAL_WATCHED = 0.95
GOAL_API_P99_MS = 50.0
CONNECTIONS = 16
READY_S = 20.0
_READ_EVERY_S = 0.02

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
    reads_ms: list[float] = field(default_factory=list)

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
        raise RuntimeError(
            "nginx is not on PATH; it answers the requests, and is what the proxy is measured against"
        )
    seconds, repeat = (1.0, 3) if quick else (5.0, 7)
    with contextlib.ExitStack() as started:
        directory = Path(started.enter_context(tempfile.TemporaryDirectory()))
        iris = started.enter_context(cluster())
        Gateway(iris.url).submit(name="/read", command=["true"])
        served = dict(_start(started, directory, iris))
        found = {name: Measured() for name in served}
        for _ in range(repeat):
            for name, (process, port, path) in served.items():
                reads = (
                    _Reads(iris.url, found[name].reads_ms)
                    if name == "iris"
                    else contextlib.nullcontext()
                )
                with reads:
                    _measure(found[name], process, f"127.0.0.1:{port}", path, seconds=seconds)
    ours, direct, watched, bare = (
        found["iris"],
        found.pop("direct"),
        found.pop("watched"),
        found.pop("bare"),
    )
    rates = {name: round(median(one.rates), 1) for name, one in found.items()}
    times_ray_serve = (
        {"times_ray_serve": round(rates["iris"] / rates["ray-serve"], 1)}
        if "ray-serve" in rates
        else {}
    )
    return Row(
        row="B10",
        what=f"requests a second through the proxy, {CONNECTIONS} connections, 1 KiB answers",
        value=rates["iris"],
        unit="/s",
        goal=GOAL,
        peers={name: rate for name, rate in rates.items() if name != "iris"},
        ratio=round(rates["iris"] / rates["aiohttp"], 2),
        of_floor={"a bare handler of aiohttp": round(rates["iris"] / median(bare.rates), 2)},
        rss_bytes=ours.rss_bytes,
        runs=ours.rates,
        detail={
            "ratio_is_to": "aiohttp",
            "cpu_us_per_request": {
                name: round(median(one.cpu_us), 1) for name, one in found.items()
            },
            "added_p50_ms": {
                name: round(one.p50_ms - direct.p50_ms, 2) for name, one in found.items()
            },
            "added_p50_goal_ms": GOAL_ADDED_P50_MS,
            "added_p99_ms": {
                name: round(one.p99_ms - direct.p99_ms, 2) for name, one in found.items()
            },
            "direct_requests_per_s": round(median(direct.rates), 1),
            "watched_nginx_to_nginx": round(median(watched.rates) / rates["nginx"], 3),
            "watched_goal": GOAL_WATCHED,
            "api_p99_ms": round(sorted(ours.reads_ms)[len(ours.reads_ms) * 99 // 100], 1),
            "api_p99_goal_ms": GOAL_API_P99_MS,
            **times_ray_serve,
            "times_ray_serve_goal": GOAL_TIMES_RAY_SERVE,
        },
    )


class _Reads:
    """Reads a job through the gateway for as long as the block lasts, into ``took_ms``."""

    def __init__(self, url: str, took_ms: list[float]) -> None:
        self._gateway = Gateway(url)
        self._took_ms = took_ms
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._enough.wait(_READ_EVERY_S):
            began = time.perf_counter()
            self._gateway.job("/read")
            self._took_ms.append(1000 * (time.perf_counter() - began))


def _start(
    started: contextlib.ExitStack, directory: Path, iris: Cluster
) -> Iterator[tuple[str, tuple[psutil.Process, int, str]]]:
    """Name, process, port and path of everything that is measured."""
    route, floor, nginx, aiohttp, watched, port = (_free_port() for _ in range(6))
    body = "x" * 1024
    answering = _nginx(directory, route, "", f"return 200 {body};")
    yield "direct", (_process(started, answering, directory, route, proxy=False), route, "/")
    bare = [sys.executable, "-m", "benchmarks.floor.handlers", "aiohttp", str(floor)]
    yield "bare", (_process(started, bare, directory, floor), floor, "/")
    passing = _nginx(
        directory, nginx, f"upstream route {{ server 127.0.0.1:{route}; keepalive 64; }}", _PASSING
    )
    yield "nginx", (_process(started, passing, directory, nginx), nginx, "/")
    asyncio.run(_discover(iris.nats_url, route))
    written = _watch(started, directory, iris.url, watched)
    including = _nginx(directory, watched, f"include {written};", _PASSING)
    yield "watched", (_process(started, including, directory, watched), watched, "/")
    least = [
        sys.executable,
        str(HOME / "benchmarks" / "peers" / "aiohttp_proxy.py"),
        str(aiohttp),
        str(route),
    ]
    yield "aiohttp", (_process(started, least, directory, aiohttp), aiohttp, "/")
    settings = (
        f"nats.url={iris.nats_url}",
        f"proxy.http=127.0.0.1:{port}",
        "run.log_level=warning",
    )
    ours = [
        sys.executable,
        "-m",
        "iris_proxy",
        *(word for each in settings for word in ("--set", each)),
    ]
    yield "iris", (_process(started, ours, directory, port), port, "/d/bench/")
    yield from _ray_serve(started, directory)


def _watch(started: contextlib.ExitStack, directory: Path, url: str, port: int) -> Path:
    """The file that `iris deploy watch` writes and goes on writing; nginx is told of each
    change.
    """
    template, out = directory / "upstream.template", directory / "upstream.conf"
    servers = "{% for route in routes %}server {{ route.address }}; {% endfor %}"
    template.write_text(f"upstream route {{ {servers} keepalive 64; }}")
    command = [
        sys.executable,
        "-m",
        "iris.cli",
        "--url",
        url,
        "deploy",
        "watch",
        "bench",
        "--template",
        str(template),
    ]
    command += [
        "--out",
        str(out),
        "--then",
        f"! test -e nginx-{port}.pid || kill -HUP $(cat nginx-{port}.pid)",
    ]
    with (directory / "watch.log").open("wb") as log:
        watching = subprocess.Popen(
            command,
            cwd=directory,
            stdout=log,
            stderr=log,
            env={**os.environ, "IRIS_TOKEN": TOKEN},
            preexec_fn=end_with_parent(),  # noqa: PLW1509 - forks from the main thread only
        )
    started.callback(watching.wait)
    started.callback(watching.terminate)
    deadline = time.monotonic() + READY_S
    while not out.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"nothing is written: {(directory / 'watch.log').read_text()[-2000:]}"
            )
        time.sleep(0.05)
    return out


def _ray_serve(
    started: contextlib.ExitStack, directory: Path
) -> Iterator[tuple[str, tuple[psutil.Process, int, str]]]:
    """Ray Serve's own proxy, before a replica of its own, where it is installed (`make
    bench-peers`).
    """
    python = PEERS / "ray" / "bin" / "python"
    if not (PEERS / "ray" / "bin" / "serve").exists():
        return
    port = _free_port()
    command = [str(python), str(HOME / "benchmarks" / "peers" / "ray_serve_peer.py"), str(port)]
    with (directory / "ray.log").open("wb") as log:
        peer = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
            preexec_fn=end_with_parent(),  # noqa: PLW1509 - forks from the main thread only
        )
    started.callback(peer.communicate)  # which ends its input, and so the peer
    assert peer.stdout is not None
    while (said := peer.stdout.readline().strip()) != b"ready":
        if not said and peer.poll() is not None:
            raise RuntimeError(
                f"Ray Serve does not start: {(directory / 'ray.log').read_text()[-2000:]}"
            )
    family = psutil.Process(peer.pid).children(recursive=True)
    [proxy] = [one for one in family if "ray::ProxyActor" in " ".join(one.cmdline())]
    processors = sorted(os.sched_getaffinity(0))
    for one in family:
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            one.cpu_affinity(processors[:1] if one == proxy else processors[1:] or processors)
    yield "ray-serve", (proxy, port, "/")


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
    started: contextlib.ExitStack,
    command: list[str],
    directory: Path,
    port: int,
    *,
    proxy: bool = True,
) -> psutil.Process:
    """A process that listens; proxies have the first processor for themselves where there are
    several.
    """
    with (directory / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=end_with_parent())  # noqa: PLW1509
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
    raise RuntimeError(
        f"{command[:3]} does not listen: {(directory / f'{port}.log').read_text()[-2000:]}"
    )


def _measure(
    measured: Measured, process: psutil.Process, address: str, path: str, seconds: float
) -> None:
    before = _cpu_s(process)
    generator = [
        sys.executable,
        "-m",
        "benchmarks.http_load",
        address,
        path,
        str(CONNECTIONS),
        str(seconds),
    ]
    processors = sorted(os.sched_getaffinity(0))

    def beside() -> None:
        os.sched_setaffinity(0, processors[1:] or processors)

    said = subprocess.run(
        generator, cwd=HOME, check=True, capture_output=True, preexec_fn=beside
    ).stdout
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
