"""``python -m benchmarks.guard``: measures for a minute what noise does not move, and fails when a
limit is passed.

Ratios are of rates in turns on one cluster, or of CPU; counts are of commits, messages, bytes,
processes and system calls. The limits, each with its reason, are in `limits.toml`. What another
process on the machine can move is measured again, a few times, before it fails. Out of scope: how
    fast this machine is (`python -m benchmarks`).
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from benchmarks import account, floor, limits, strace
from benchmarks.b2_processes import CPUS, FILES, WINDOW, bundle, round_of
from benchmarks.b5_end_to_end import MEMBERS
from benchmarks.b5_end_to_end import round_of as gangs_of
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway
from benchmarks.result import median
from benchmarks.watch import Watcher

ATTEMPTS = 3
TURNS = 3
TASKS = 300
GANGS = TASKS // MEMBERS
SINGLE = 20
FLOOR = 2_000
ROUNDS = 300
ISOLATED = {"constraints": [{"key": "pod", "op": "exists"}]}
FREE = {"constraints": [{"key": "pod", "op": "not_exists"}]}
OFF = ("worker.sandbox=off", "worker.cgroups=false", "worker.run_as=worker")
TRUE: Mapping[str, Any] = {"command": ["/bin/true"]}
TOUCH: Mapping[str, Any] = {"command": [shutil.which("touch") or "/bin/touch", "file"]}
FORKS = ("fork", "vfork", "clone", "clone3")
SYNCS = ("fsync", "fdatasync")


def main() -> int:
    """Measure until every limit has held once, or a few times; 1 when one never held."""
    wanted = limits.read()
    failing, figures = set(wanted), {}
    for _ in range(ATTEMPTS):
        figures = measure()
        failing -= limits.passed(wanted, figures)
        missing = failing - figures.keys()
        if failing == missing:
            break
    for name, limit in wanted.items():
        mark = "missing" if name not in figures else "FAILED" if name in failing else "ok"
        print(f"{mark:8} {name:32} {figures.get(name, float('nan')):10.3f}  {limit}")
        if name in failing and name in figures:
            print(f"         {limit.reason}")
    return 1 if failing & figures.keys() else 0


def measure(**environment: str) -> dict[str, float]:
    """Every figure by its name, on a cluster of its own; those that need strace or a C compiler
    only with these.

    ``environment``: of the services, for tests that plant a regression.
    """
    with cluster(workers=_workers(), state=WINDOW, environment=environment) as made:
        return asyncio.run(_figures(made))


def _workers() -> list[tuple[str, ...]]:
    """One pod of isolated hosts, and as many that are not."""
    size = f"worker.cpu_millis={CPUS * 1000}"
    pod = [(f"worker.id=pod-{n}", size, "worker.attributes=pod=pod-0") for n in range(MEMBERS)]
    return [*pod, *((f"worker.id=free-{n}", size, *OFF) for n in range(MEMBERS))]


async def _figures(made: Cluster) -> dict[str, float]:
    async with Watcher(made.nats_url) as watcher:
        with closing(Gateway(made.url)) as gateway:
            await asyncio.to_thread(gateway.until_workers, 2 * MEMBERS)
            run = _Run(
                made, gateway, watcher, {**FILES, "bundle": await asyncio.to_thread(bundle, made)}
            )
            await run.turn(0)
            turns = [await run.turn(number) for number in range(1, TURNS + 1)]
            figures = {name: median([turn[name] for turn in turns]) for name in turns[0]}
            return (
                figures | await run.singles() | (await run.traced() if strace.installed() else {})
            )


class _Run:
    """The jobs of one measurement on one cluster."""

    def __init__(
        self, made: Cluster, gateway: Gateway, watcher: Watcher, files: Mapping[str, Any]
    ) -> None:
        self._made, self._gateway, self._watcher, self._files = made, gateway, watcher, files

    async def turn(self, number: int) -> dict[str, float]:
        """Ratios to /bin/true on isolated hosts, and what one of those costs."""
        before = await account.read(self._made, self._watcher)
        plain = await self._rate(f"/plain-{number}", TRUE, ISOLATED)
        after = await account.read(self._made, self._watcher)
        figures = {
            "isolated_of_free": plain / await self._rate(f"/free-{number}", TRUE, FREE),
            "touch_of_plain": await self._rate(f"/touch-{number}", TOUCH, ISOLATED) / plain,
            "files_of_plain": await self._rate(f"/files-{number}", self._files, ISOLATED) / plain,
            "gangs_of_plain": await self._gangs(f"gang-{number}") * MEMBERS / plain,
            "commits_per_task": (after.commits - before.commits) / TASKS,
            "journal_bytes_per_task": (after.journal_bytes - before.journal_bytes) / TASKS,
            "messages_per_task": (after.messages - before.messages) / TASKS,
        }
        bare = floor.spawn(FLOOR)
        if bare is not None and before.group_cpu_s is not None and after.group_cpu_s is not None:
            task_s = (after.group_cpu_s - before.group_cpu_s) / TASKS
            floor_s = bare.cpu_s / FLOOR + floor.interpreted(ROUNDS).cpu_s / ROUNDS
            figures["cpu_of_floor"] = task_s / floor_s
        return figures

    async def singles(self) -> dict[str, float]:
        """Commits of a job of one task, one after another."""
        before = await self._watcher.journal()
        for number in range(SINGLE):
            await self._job(f"/single-{number}", 1, TRUE, ISOLATED)
        after = await self._watcher.journal()
        return {"commits_per_single_job": (after[0] - before[0]) / SINGLE}

    async def traced(self) -> dict[str, float]:
        """System calls of the launchers, and syncs of the server, a task that leaves a file."""
        launchers = self._made.launchers()
        nats = [process.pid for process in self._made.processes["nats"]]
        with strace.counted(launchers) as calls:
            await self._job("/traced", TASKS, TOUCH, ISOLATED)
        with strace.counted(nats, "-f", "-e", "trace=" + ",".join(SYNCS)) as syncs:
            for number in range(SINGLE):
                await self._job(f"/synced-{number}", 1, TRUE, ISOLATED)
        return {
            "launcher_calls_per_start": sum(calls.values()) / TASKS,
            "launcher_forks_per_start": sum(calls.get(name, 0) for name in FORKS) / TASKS,
            "syncs_per_single_job": sum(syncs.values()) / SINGLE,
        }

    async def _rate(self, name: str, spec: Mapping[str, Any], where: Mapping[str, Any]) -> float:
        return await round_of(self._gateway, self._watcher, name, TASKS, {**spec, **where})

    async def _gangs(self, name: str) -> float:
        return await gangs_of(self._made.url, self._watcher, name, GANGS, TRUE)

    async def _job(
        self, name: str, tasks: int, spec: Mapping[str, Any], where: Mapping[str, Any]
    ) -> None:
        await round_of(self._gateway, self._watcher, name, tasks, {**spec, **where})


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"bench-guard: {'failed' if code else 'passed'} in {time.monotonic() - began:.0f} s")
    sys.exit(code)
