"""Dask distributed on one machine, workers as processes."""

import json
import statistics
import subprocess
import sys
import time

from distributed import Client, LocalCluster, wait

QUICK = "--quick" in sys.argv


def noop(i):
    return None


def same(i):
    return i


def with_numpy(i):
    import numpy

    return float(numpy.arange(i + 1).sum())


def true(i):
    return subprocess.run(["/bin/true"], check=True).returncode


def started(i):
    return time.time()


def rate(client, function, count, base):
    began = time.perf_counter()
    futures = client.map(function, range(base, base + count), pure=False)
    wait(futures)
    return count / (time.perf_counter() - began)


def mapped(client, items, function=same):
    began = time.perf_counter()
    assert len(client.gather(client.map(function, items, pure=False))) == len(items)
    return len(items) / (time.perf_counter() - began)


def of_functions(client):
    """Figures of B12."""
    calls, large = (500, 5_000) if QUICK else (2_000, 20_000)
    mapped(client, range(calls), with_numpy)
    return {
        "B12": statistics.median(mapped(client, range(calls)) for _ in range(3)),
        "B12_with_numpy_calls_per_s": mapped(client, range(calls), with_numpy),
        "B12_one_call_ms": statistics.median(1000 / mapped(client, [n]) for n in range(30)),
        "B12_kilobytes_calls_per_s": mapped(client, [b"x" * 1024] * large),
    }


def main():
    with (
        LocalCluster(n_workers=2, threads_per_worker=4, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        rate(client, noop, 1000, 0)
        rounds = 1 if QUICK else 3
        b1 = statistics.median(
            rate(client, noop, 5_000 if QUICK else 10_000, n) for n in range(rounds)
        )
        b2 = statistics.median(
            rate(client, true, 1000 if QUICK else 5000, n) for n in range(rounds)
        )
        waits = []
        for n in range(200):
            sent = time.time()
            waits.append((client.submit(started, n, pure=False).result() - sent) * 1000)
        print(
            json.dumps({"B1": b1, "B2": b2, "B3": statistics.median(waits), **of_functions(client)})
        )


if __name__ == "__main__":
    main()
