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


def true(i):
    return subprocess.run(["/bin/true"], check=True).returncode


def started(i):
    return time.time()


def rate(client, function, count, base):
    began = time.perf_counter()
    futures = client.map(function, range(base, base + count), pure=False)
    wait(futures)
    return count / (time.perf_counter() - began)


def mapped(client, count):
    began = time.perf_counter()
    assert client.gather(client.map(same, range(count), pure=False)) == list(range(count))
    return count / (time.perf_counter() - began)


def main():
    with LocalCluster(n_workers=2, threads_per_worker=4, dashboard_address=None) as cluster, Client(cluster) as client:
        rate(client, noop, 1000, 0)
        rounds = 1 if QUICK else 3
        b1 = statistics.median(rate(client, noop, 5_000 if QUICK else 10_000, n) for n in range(rounds))
        b2 = statistics.median(rate(client, true, 1000 if QUICK else 5000, n) for n in range(rounds))
        b12 = statistics.median(mapped(client, 500 if QUICK else 2000) for _ in range(3))
        waits = []
        for n in range(200):
            sent = time.time()
            waits.append((client.submit(started, n, pure=False).result() - sent) * 1000)
        print(json.dumps({"B1": b1, "B2": b2, "B3": statistics.median(waits), "B12": b12}))


if __name__ == "__main__":
    main()
