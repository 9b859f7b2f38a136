"""dramatiq with Redis: a bare queue without results; a counter in Redis shows when all tasks are
done.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

QUICK = "--quick" in sys.argv
URL = os.environ["PEER_REDIS_URL"]
counter = redis.Redis.from_url(URL)
dramatiq.set_broker(RedisBroker(url=URL, middleware=[]))


@dramatiq.actor
def noop():
    counter.incr("done")


@dramatiq.actor
def true():
    subprocess.run(["/bin/true"], check=True)
    counter.incr("done")


def rate(actor, count):
    counter.set("done", 0)
    began = time.perf_counter()
    for _ in range(count):
        actor.send()
    while int(counter.get("done")) < count:
        time.sleep(0.002)
    return count / (time.perf_counter() - began)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    worker = subprocess.Popen(
        [sys.executable, "-m", "dramatiq", "dramatiq_peer", "-p", "2", "-t", "8"],
        cwd=here,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        rate(noop, 100)
        rounds = 1 if QUICK else 3
        b1 = statistics.median(rate(noop, 5_000 if QUICK else 10_000) for _ in range(rounds))
        b2 = statistics.median(rate(true, 1000 if QUICK else 5000) for _ in range(rounds))
        print(json.dumps({"B1": b1, "B2": b2}))
    finally:
        worker.terminate()
        worker.wait(30)


if __name__ == "__main__":
    main()
