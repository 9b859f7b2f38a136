"""``make chaos SECONDS=60``: what it does to the cluster, and what the cluster has made of it, in figures."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iris_bus.jetstream import connect
from iris_core import codec, subjects
from iris_core.views import TaskEvent
from iris_gateway.client.problems import ClientError
from tests.chaos.killer import Killer
from tests.chaos.load import Load
from tests.support.cluster import Cluster, settings, start, stop

_SETTLE_S = 180.0
_CONFIG = "[cluster]\nrestart_workers = true\n[state]\nworker_grace_s = 8\nbeat_interval_s = 2\n[worker]\nbeat_s = 2\n"
_SHAPE = ("--replicas", "state=2", "--workers", "2", "--tpu", "v5litepod-16x2")
_ENDED = {"succeeded", "failed", "killed", "worker_failed", "unschedulable", "preempted"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"chaos for {options.seconds:g} s, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="iris-chaos-") as directory:
        return _play(Path(directory), options.seconds, random.Random(options.seed))


def _play(where: Path, seconds: float, dice: random.Random) -> int:
    data = where / "data"
    cluster = start(data, *settings(data, _CONFIG), *_SHAPE)
    load = Load(cluster.client, where / "runs", dice)
    probes = iter(range(1_000_000))
    killer = Killer(cluster, random.Random(dice.random()), lambda: _probe(cluster, next(probes)))
    with _thread(load), _thread(killer):
        time.sleep(seconds)
    wrong = _wait_for_all(cluster, load)
    wrong += asyncio.run(_recount(cluster))
    wrong += _runs(where / "runs")
    held = [w.id for w in cluster.client.workers() if w.tasks]
    wrong += [f"{worker} still holds something" for worker in held]
    stop(cluster)
    _print(load, killer, wrong)
    return int(bool(wrong))


@contextmanager
def _thread(what: Load | Killer) -> Iterator[None]:
    thread = threading.Thread(target=what.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        what.enough.set()
        thread.join(60)


def _probe(cluster: Cluster, number: int) -> None:
    """Return when a submission is acknowledged."""
    while True:
        try:
            cluster.client.run(["true"], name=f"/probe-{number}", cpu=0.1, idempotency_key=f"probe-{number}")
            return
        except ClientError:
            time.sleep(0.01)


def _wait_for_all(cluster: Cluster, load: Load) -> list[str]:
    """How the promised jobs have ended; sentences about those that are lost, stuck or wrong."""
    deadline = time.monotonic() + _SETTLE_S
    wrong: list[str] = []
    for promise in load.promises:
        while True:
            try:
                job = cluster.client.job(promise.id).view
            except ClientError as error:
                if time.monotonic() > deadline:
                    wrong.append(f"lost: {promise.name}: {error}")
                    break
                time.sleep(0.2)
                continue
            if job.state in _ENDED:
                if job.state not in promise.ends:
                    wrong.append(f"wrong: {promise.name} has {job.state}, not {sorted(promise.ends)}: {job.error}")
                break
            if time.monotonic() > deadline:
                wrong.append(f"stuck: {promise.name} is {job.state}")
                break
            time.sleep(0.1)
    return wrong


async def _recount(cluster: Cluster) -> list[str]:
    """Every event once, in order, and each task a chain of states that ends in one that is an end."""
    connection = await connect(cluster.file["nats_url"], name="chaos")
    reader = connection.streams.read(subjects.EVENTS.name, 0)
    last = await connection.streams.last(subjects.EVENTS.name)
    ids: list[tuple[int, ...]] = []
    tasks: dict[str, list[TaskEvent]] = defaultdict(list)
    while last is not None and (not ids or reader_is_behind(ids, last.headers["Nats-Msg-Id"])):
        for message in await reader.batch(wait=5):
            ids.append(tuple(map(int, message.headers["Nats-Msg-Id"].split("."))))
            if message.subject.startswith("task."):
                event = codec.from_json(message.data, TaskEvent)
                tasks[event.task].append(event)
    await reader.close()
    await connection.close()
    wrong = [] if ids == sorted(set(ids)) else [f"doubled or shuffled: {len(ids)} events, {len(set(ids))} different"]
    for name, events in tasks.items():
        before = None
        for event in events:
            if event.previous != before:
                wrong.append(f"event lost or shuffled: {name} went from {event.previous}, it was {before}")
            before = event.state
        if before not in _ENDED:
            wrong.append(f"{name} has been {before} to the last event")
    print(f"events: {len(ids)} told, of {len(tasks)} tasks")
    return wrong


def reader_is_behind(ids: list[tuple[int, ...]], last: str) -> bool:
    return ids[-1] < tuple(map(int, last.split(".")))


def _runs(path: Path) -> list[str]:
    """No attempt was run twice, by what the tasks themselves have written."""
    begun = Counter(tuple(line.split()[:2]) for line in path.read_text().splitlines() if " begins " in line)
    twice = [f"doubled: attempt {attempt} of {task} ran {n} times" for (task, attempt), n in begun.items() if n > 1]
    again = sum(n - 1 for n in Counter(task for task, _ in begun).values())
    print(f"runs: {sum(begun.values())} of {len(begun)} attempts, {again} were second attempts (P2 allows them)")
    return twice


def _print(load: Load, killer: Killer, wrong: list[str]) -> None:
    kinds = Counter(promise.kind for promise in load.promises)
    print("faults: " + ", ".join(f"{name} {n}" for name, n in sorted(killer.faults.items())))
    print("jobs: " + ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items())) + f"; {load.refused} asked again")
    if killer.recoveries:
        times = sorted(killer.recoveries)
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        print(f"recovery: p50 {statistics.median(times):.2f} s, p99 {p99:.2f} s, of {len(times)} faults")
    counts = Counter(sentence.split(":")[0].split()[0] for sentence in wrong)
    print(f"lost {counts['lost']}, doubled {counts['doubled']}, wrong {counts['wrong']}, stuck {counts['stuck']}")
    for sentence in wrong:
        print(f"  {sentence}")


if __name__ == "__main__":
    sys.exit(main())
