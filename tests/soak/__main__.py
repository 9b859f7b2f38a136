"""``python -m tests.soak --seconds 1800``: runs short jobs and maps on a real cluster and reports
what grows.

Everything that is kept for a while is kept for a short while here, so that it is full long before
the end. Crowds of watchers and uploads come and go meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil

from iris.client.problems import TryAgain, Unreachable
from tests.soak.slopes import CALLS, WARM_JOBS, Sample, after_warm_up, judge
from tests.support.cluster import Cluster, settings, start, stop, until
from tests.support.worker import launchers_of

SAMPLES = 120
_CONFIG = """
[nats]
events_bytes = 4194304
logs_bytes = 4194304
results_bytes = 4194304
artifacts_bytes = 4194304
[state]
keep_jobs = 300
keep_answers = 300
keep_keys_bytes = 100000
snapshot_after_s = 5
events_settle_s = 10
[gateway]
event_ring = 1000
[run]
metrics = "127.0.0.1:0"
"""
SIZES = tuple(25 * 4**power for power in range(CALLS))
"""Bytes of the results of a map; the largest one is an artifact."""
_MAP_PAUSE_S = 1.0
ROUNDS, SHORT_ROUNDS = "iris_round_seconds_count", 'iris_round_seconds_bucket{le="0.05"}'
"""Metrics that count the rounds of the state service, and those that computed for 50 ms at most."""
_WATCH = "GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\nauthorization: Bearer {}\r\n\r\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--rate", type=float, default=15, help="jobs a second")
    parser.add_argument(
        "--watchers", type=int, default=50, help="that come and go with each sample"
    )
    options = parser.parse_args()
    print(f"soak for {options.seconds:g} s, {options.rate:g} jobs a second", flush=True)
    with tempfile.TemporaryDirectory(prefix="iris-soak-") as directory:
        data = Path(directory) / "data"
        cluster = start(data, *settings(data, _CONFIG), "--workers", "2", "--sandbox", fresh=True)
        load, maps = Load(cluster, options.rate, Path(directory)), Maps(cluster)
        samples = []
        fill_hosts(cluster)
        load.start()
        maps.start()
        began = time.monotonic()
        for number in range(1, SAMPLES + 1):
            crowd(cluster, options.watchers)
            time.sleep(max(0.0, began + number * options.seconds / SAMPLES - time.monotonic()))
            samples.append(Sample(time.monotonic() - began, load.jobs, figures(cluster)))
        load.end()
        maps.end()
        last = cluster.client.run(["true"], name="/soak-last", cpu=0.1)
        last.wait(600)
        rounds, long = rounds_of(cluster)
        stop(cluster)
    print(f"{load.jobs} jobs, {load.jobs / options.seconds:.1f} a second")
    print(
        f"{maps.made} maps of {len(SIZES)} calls, {len(maps.wrong)} without all results {maps.wrong[:3]}"
    )
    print(f"{rounds} rounds of the state service, {long} of them computed for more than 50 ms")
    warm = after_warm_up(samples)
    if not warm:
        print(f"too short to judge: caches fill during the first third and {WARM_JOBS} jobs")
        return 1
    verdicts = judge(warm)
    print(
        f"{warm[-1].jobs - warm[0].jobs} jobs since {warm[0].at:.0f} s, when all was warm: at first, change, allowed"
    )
    for verdict in verdicts:
        print(verdict.line())
    return int(long > 0 or bool(maps.wrong) or not all(verdict.holds for verdict in verdicts))


class Load(threading.Thread):
    """Short jobs at a steady rate, some of them with code of their own."""

    def __init__(self, cluster: Cluster, rate: float, directory: Path) -> None:
        super().__init__(daemon=True)
        self.jobs = 0
        self._cluster = cluster
        self._rate = rate
        self._ended = threading.Event()
        self._code = directory / "code"
        self._code.mkdir()

    def run(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(max(0.0, began + self.jobs / self._rate - time.monotonic())):
            workdir = None
            if self.jobs % 200 == 0:
                (self._code / "number").write_text(str(self.jobs))
                workdir = self._code
            key = f"soak-{self.jobs}"
            with contextlib.suppress(TryAgain, Unreachable):  # a busy machine: the same key again
                self._cluster.client.run(
                    ["sh", "-c", "echo hello"],
                    name=f"/{key}",
                    cpu=0.1,
                    idempotency_key=key,
                    workdir=workdir,
                )
                self.jobs += 1

    def end(self) -> None:
        self._ended.set()
        self.join(60)


class Maps(threading.Thread):
    """Maps one after the other, of fresh processes and reused ones in turns.

    Attributes:
        made: how many. wrong: what came instead of all results.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.made = 0
        self.wrong: list[str] = []
        self._client = cluster.client
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_MAP_PAUSE_S):
            options = {"name": f"/soak-map-{self.made}", "cpu": 0.1, "reuse": 1 + self.made % 2 * 9}
            self.made += 1
            try:
                found = self._client.map(lambda size: b"r" * size, SIZES, **options).results(60)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is no result
                self.wrong.append(repr(error))
            else:
                sizes = tuple(map(len, found))
                self.wrong += [] if sizes == SIZES else [str(sizes)]

    def end(self) -> None:
        self._ended.set()
        self.join(120)


def fill_hosts(cluster: Cluster) -> None:
    """Each worker keeps the files of 64 ended attempts open for the next ones: have it reach that
    before it counts.
    """
    cluster.client.run(["sleep", "20"], name="/soak-wave", replicas=160, cpu=0.1).wait(600)


def crowd(cluster: Cluster, size: int) -> None:
    """Watchers that come, hear one thing, and go; the gateway has noticed when this returns."""
    place = urlsplit(cluster.url)
    with ExitStack() as watchers:
        made = [
            watchers.enter_context(socket.create_connection((place.hostname, place.port), 30))
            for _ in range(size)
        ]
        for watcher in made:
            watcher.sendall(_WATCH.format(cluster.token).encode())
        for watcher in made:
            watcher.recv(1 << 12)
    until(
        lambda: b"\niris_http_watchers 0.0\n" in exposition(cluster),
        "every watcher's place is free",
        60,
    )


def exposition(cluster: Cluster) -> bytes:
    return read(f"{cluster.url}/metrics")


def rounds_of(cluster: Cluster) -> tuple[int, int]:
    """How many rounds the state service has made, and how many of them were long."""
    [url] = cluster.file["metrics"]["state"]
    text = read(url).decode()
    made, short = (
        int(float(text.partition(f"\n{name} ")[2].split()[0])) for name in (ROUNDS, SHORT_ROUNDS)
    )
    return made, made - short


def read(url: str) -> bytes:
    with urlopen(url, timeout=30) as answer:
        text: bytes = answer.read()
        return text


def figures(cluster: Cluster) -> dict[str, float]:
    """What every process and store takes now."""
    found: dict[str, float] = {}
    for service, pids in {**cluster.file["pids"], "launcher": launchers(cluster)}.items():
        for number, pid in enumerate(pids):
            process = psutil.Process(pid)
            name = f"{service}-{number}"
            found[f"{name} memory"] = process.memory_info().rss
            found[f"{name} descriptors"] = process.num_fds()
            found[f"{name} threads"] = process.num_threads()
    found["client memory"] = psutil.Process().memory_info().rss
    for words, directory in (("nats", "nats"), ("workers", "workers"), ("logs", "log")):
        found[f"disk of {words}"] = disk(cluster.data / directory)
    found["disk of process stores"] = sum(
        path.stat().st_size for path in cluster.data.glob("workers/*/processes")
    )
    found["disk of workers"] -= found["disk of process stores"]
    return found


def launchers(cluster: Cluster) -> list[int]:
    """The processes that start tasks, in the order of their workers."""
    return [
        pid
        for number in range(2)
        for pid in launchers_of(cluster.data / "workers" / f"worker-{number}")
    ]


def disk(directory: Path) -> float:
    """Bytes of all files below a directory, some of which vanish meanwhile."""
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total


if __name__ == "__main__":
    sys.exit(main())
