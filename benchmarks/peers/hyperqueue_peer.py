"""HyperQueue through its own Python package: a server and a worker on this machine, real processes only.

Its client asks once a second whether a job has ended, so a single task's latency cannot be read from here.
"""

import json
import statistics
import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

QUICK = "--quick" in sys.argv


def rate(client, count):
    job = Job()
    for _ in range(count):
        job.program(["/bin/true"])
    began = time.perf_counter()
    client.wait_for_jobs([client.submit(job)])
    return count / (time.perf_counter() - began)


def main():
    with tempfile.TemporaryDirectory() as directory, LocalCluster(directory) as cluster:
        cluster.start_worker(WorkerConfig(cores=8))
        client = cluster.client()
        rate(client, 100)
        rounds = 1 if QUICK else 3
        b2 = statistics.median(rate(client, 5000) for _ in range(rounds))
        print(json.dumps({"B2": b2}))


main()
