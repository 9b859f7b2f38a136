"""Celery with Redis: a bare queue, which keeps no records and places nothing."""

import json
import os
import statistics
import subprocess
import sys
import time

from celery import Celery

QUICK = "--quick" in sys.argv
URL = os.environ["PEER_REDIS_URL"]
app = Celery("celery_peer", broker=URL, backend=URL)
app.conf.update(worker_prefetch_multiplier=64, worker_hijack_root_logger=False, result_expires=600)


@app.task(name="noop")
def noop():
    return None


@app.task(name="true")
def true():
    return subprocess.run(["/bin/true"], check=True).returncode


@app.task(name="started")
def started():
    return time.time()


def rate(task, count):
    began = time.perf_counter()
    results = [task.delay() for _ in range(count)]
    for result in results:
        result.get(timeout=300)
    return count / (time.perf_counter() - began)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "celery_peer",
            "worker",
            "-c",
            "4",
            "-l",
            "ERROR",
            "--without-gossip",
        ],
        cwd=here,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        noop.delay().get(timeout=60)
        rounds = 1 if QUICK else 3
        b1 = statistics.median(rate(noop, 3000 if QUICK else 10_000) for _ in range(rounds))
        b2 = statistics.median(rate(true, 1000 if QUICK else 5000) for _ in range(rounds))
        waits = []
        for _ in range(200):
            sent = time.time()
            waits.append((started.delay().get(timeout=60) - sent) * 1000)
        print(json.dumps({"B1": b1, "B2": b2, "B3": statistics.median(waits)}))
    finally:
        worker.terminate()
        worker.wait(30)


if __name__ == "__main__":
    main()
