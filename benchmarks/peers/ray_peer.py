"""Ray on one machine: no-op tasks per second, processes per second, and the latency of one task on an idle cluster."""

import json
import statistics
import subprocess
import sys
import time

import ray

QUICK = "--quick" in sys.argv


@ray.remote
def noop():
    return None


@ray.remote
def same(i):
    return i


@ray.remote
def true():
    return subprocess.run(["/bin/true"], check=True).returncode


@ray.remote
def started():
    return time.time()


def rate(task, count):
    began = time.perf_counter()
    ray.get([task.remote() for _ in range(count)])
    return count / (time.perf_counter() - began)


def mapped(count):
    began = time.perf_counter()
    assert ray.get([same.remote(i) for i in range(count)]) == list(range(count))
    return count / (time.perf_counter() - began)


def main():
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        rate(noop, 1000)
        rounds = 1 if QUICK else 3
        b1 = statistics.median(rate(noop, 10_000) for _ in range(rounds))
        b2 = statistics.median(rate(true, 1000 if QUICK else 5000) for _ in range(rounds))
        b12 = statistics.median(mapped(500 if QUICK else 2000) for _ in range(3))
        waits = []
        for _ in range(200):
            sent = time.time()
            waits.append((ray.get(started.remote()) - sent) * 1000)
        print(json.dumps({"B1": b1, "B2": b2, "B3": statistics.median(waits), "B12": b12}))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
