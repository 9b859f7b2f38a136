"""Ray on one machine: no-op tasks per second, processes per second, and the latency of one task on
an idle cluster.
"""

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


@ray.remote
def with_numpy(i):
    import numpy

    return float(numpy.arange(i + 1).sum())


@ray.remote(max_calls=1)
def alone(i):
    return i


def rate(task, count):
    began = time.perf_counter()
    ray.get([task.remote() for _ in range(count)])
    return count / (time.perf_counter() - began)


def mapped(items, task=same):
    began = time.perf_counter()
    assert len(ray.get([task.remote(item) for item in items])) == len(items)
    return len(items) / (time.perf_counter() - began)


def of_functions():
    """Figures of B12."""
    calls, large = (500, 5_000) if QUICK else (2_000, 20_000)
    mapped(range(calls), with_numpy)
    return {
        "B12": statistics.median(mapped(range(calls)) for _ in range(3)),
        "B12_with_numpy_calls_per_s": mapped(range(calls), with_numpy),
        "B12_a_process_each_calls_per_s": mapped(range(20), alone),
        "B12_one_call_ms": statistics.median(1000 / mapped([n]) for n in range(30)),
        "B12_kilobytes_calls_per_s": mapped([b"x" * 1024] * large),
    }


def main():
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        rate(noop, 1000)
        rounds = 1 if QUICK else 3
        b1 = statistics.median(rate(noop, 10_000) for _ in range(rounds))
        b2 = statistics.median(rate(true, 1000 if QUICK else 5000) for _ in range(rounds))
        waits = []
        for _ in range(200):
            sent = time.time()
            waits.append((ray.get(started.remote()) - sent) * 1000)
        print(json.dumps({"B1": b1, "B2": b2, "B3": statistics.median(waits), **of_functions()}))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
