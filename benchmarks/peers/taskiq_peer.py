"""taskiq on JetStream (taskiq-nats): a bare queue without results; a NATS counter shows when all
tasks are done.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time

import nats
import uvloop
from taskiq_nats import PullBasedJetStreamBroker

QUICK = "--quick" in sys.argv
URL = os.environ["PEER_NATS_URL"]
AT_ONCE = 500
broker = PullBasedJetStreamBroker(URL, queue="taskiq", pull_consume_batch=AT_ONCE)
_client = None


async def done():
    global _client
    if _client is None:
        _client = await nats.connect(URL)
    await _client.publish("taskiq_done", b"")


@broker.task(task_name="noop")
async def noop():
    await done()


async def rate(client, counts, count):
    counts[0] = 0
    began = time.perf_counter()
    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*(noop.kiq() for _ in range(min(AT_ONCE, count - start))))
    while counts[0] < count:
        await asyncio.sleep(0.002)
    return count / (time.perf_counter() - began)


async def main():
    here = os.path.dirname(os.path.abspath(__file__))
    await broker.startup()
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "taskiq",
            "worker",
            "taskiq_peer:broker",
            "--workers",
            "1",
            "--max-async-tasks",
            "500",
        ],
        cwd=here,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = await nats.connect(URL)
    counts = [0]

    async def count(_):
        counts[0] += 1

    try:
        await client.subscribe("taskiq_done", cb=count)
        await rate(client, counts, 100)
        rounds = 1 if QUICK else 3
        b1 = statistics.median(
            [await rate(client, counts, 5_000 if QUICK else 10_000) for _ in range(rounds)]
        )
        print(json.dumps({"B1": b1}))
    finally:
        worker.terminate()
        worker.wait(30)
        await client.close()
        await broker.shutdown()


if __name__ == "__main__":
    uvloop.run(main())
