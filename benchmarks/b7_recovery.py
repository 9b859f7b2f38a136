"""B7: time until the state service answers again with 1,000,000 tasks: after a restart, and after a
failover.

A restart is timed from the start of the process, interpreter and imports included, to the first
answered query; once with the whole journal to replay and once with a snapshot. A take-over is timed
from kill -9 of the leader.
"""

from __future__ import annotations

import asyncio
import subprocess
import time

import nats
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

from benchmarks import noop
from benchmarks.cluster import Cluster, cluster
from benchmarks.http import Gateway
from benchmarks.result import Row, median
from benchmarks.watch import Watcher
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Answer, Query

GOAL_S = 3.0
GOAL_TAKE_OVER_S = 1.5
TASKS = 1_000_000
NEVER = ("state.snapshot_changes=1000000000", "state.snapshot_after_s=1000000")
SOON = ("state.snapshot_changes=1000000000", "state.snapshot_after_s=0.1")
_RETRY_FOR_S = 300.0


def run(quick: bool = False) -> Row:
    """Seconds from the start of the process to the first answer, with a snapshot."""
    tasks = TASKS // 10 if quick else TASKS
    repeat = 3
    with cluster(
        programs=noop.PROGRAMS, workers=noop.WORKERS, state=(*noop.WINDOW, *NEVER)
    ) as made:
        found = asyncio.run(_measure(made, tasks, repeat))
        rss = made.rss_bytes()
    return Row(
        row="B7",
        what=f"a restart of the state service with {tasks:,} tasks, start to first answer",
        value=round(median(found["snapshot"]), 3),
        unit="s",
        goal=GOAL_S,
        better="less",
        rss_bytes=max(rss.values()),
        runs=[round(s, 3) for s in found["snapshot"]],
        detail={
            "without_snapshot_s": [round(s, 3) for s in found["journal"]],
            "take_over_s": [round(s, 3) for s in found["take_over"]],
            "take_over_goal_s": GOAL_TAKE_OVER_S,
            "rss_bytes": rss,
        },
    )


async def _measure(made: Cluster, tasks: int, repeat: int) -> dict[str, list[float]]:
    gateway = Gateway(made.url)
    gateway.until_workers(noop.HOSTS)
    async with Watcher(made.nats_url) as watcher:
        await noop.run_round(made, gateway, watcher, "b7", tasks=tasks)
    client = await nats.connect(made.nats_url)
    found: dict[str, list[float]] = {"journal": [], "snapshot": [], "take_over": []}
    leader = made.started[0]
    leader, took_s = await _restart(made, client, leader, NEVER)
    found["journal"].append(took_s)
    leader, _ = await _restart(made, client, leader, SOON)
    Gateway(made.url).submit(
        name="/after", command=["true"]
    )  # the first connection has been idle for long
    await _until_snapshot(client)
    for _ in range(repeat):
        leader, took_s = await _restart(made, client, leader, NEVER)
        found["snapshot"].append(took_s)
    for _ in range(repeat):
        leader, took_s = await _take_over(made, client, leader)
        found["take_over"].append(took_s)
    await client.close()
    return found


async def _restart(
    made: Cluster, client: Client, leader: subprocess.Popen[bytes], settings: tuple[str, ...]
) -> tuple[subprocess.Popen[bytes], float]:
    made.kill(leader)
    began = time.perf_counter()
    process = made.start("state", *noop.WINDOW, *settings)
    return process, await _first_answer(client) - began


async def _take_over(
    made: Cluster, client: Client, leader: subprocess.Popen[bytes]
) -> tuple[subprocess.Popen[bytes], float]:
    pings = await client.subscribe(subjects.STATE_PING)
    await client.flush()
    standby = made.start("state", *noop.WINDOW, *NEVER)
    for _ in range(3):
        await pings.next_msg(timeout=_RETRY_FOR_S)  # it follows, and asks for its leader
    await pings.unsubscribe()
    began = time.perf_counter()
    made.kill(leader)
    return standby, await _first_answer(client) - began


async def _first_answer(client: Client) -> float:
    """When a query was answered first, on this process's clock. Raises RuntimeError for another
    answer than jobs.
    """
    question = codec.pack(Query("jobs", {"limit": 1}))
    deadline = time.perf_counter() + _RETRY_FOR_S
    while time.perf_counter() < deadline:
        try:
            answer = await client.request(subjects.STATE_QUERY, question, timeout=0.5)
        except (NoRespondersError, NatsTimeout):
            await asyncio.sleep(0.005)
            continue
        moment = time.perf_counter()
        said = codec.unpack(answer.data, Answer)
        if said.status != "ok" or b'"items":[{' not in said.body:
            raise RuntimeError(f"the first answer was {said.status} {said.body[:200]!r}")
        return moment
    raise RuntimeError(f"no answer within {_RETRY_FOR_S:g} s")


async def _until_snapshot(client: Client) -> None:
    """Return when the store holds a whole snapshot."""
    deadline = time.perf_counter() + _RETRY_FOR_S
    subject = f"$O.{subjects.SNAPSHOTS_BUCKET}.M.>"
    while time.perf_counter() < deadline:
        request = await client.request(
            f"$JS.API.STREAM.INFO.OBJ_{subjects.SNAPSHOTS_BUCKET}",
            codec.to_json({"subjects_filter": subject}),
        )
        if b'"subjects":{' in request.data:
            return
        await asyncio.sleep(0.05)
    raise RuntimeError("no snapshot was kept")
