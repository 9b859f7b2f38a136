"""HyperQueue through its own Python package: a server and a worker on this machine, real processes
only.

Its client asks once a second whether a job has ended; so a last task, which depends on all others,
writes down when it ran. A single task's latency cannot be read that way and is left out. Nothing is
kept of what tasks print.
"""

import json
import os
import statistics
import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

QUICK = "--quick" in sys.argv
NOTE = "import sys, time; open(sys.argv[1], 'w').write(str(time.time()))"
QUIET = {"stdout": None, "stderr": None}


def rate(client, count, directory):
    moment = os.path.join(directory, "moment")
    job = Job(default_workdir=directory)
    tasks = [job.program(["/bin/true"], **QUIET) for _ in range(count)]
    job.program([sys.executable, "-S", "-c", NOTE, moment], deps=tasks, **QUIET)
    began = time.time()
    client.wait_for_jobs([client.submit(job)])
    with open(moment, encoding="utf-8") as written:
        return count / (float(written.read()) - began)


def main():
    with tempfile.TemporaryDirectory() as directory, LocalCluster(directory) as cluster:
        cluster.start_worker(WorkerConfig(cores=8))
        client = cluster.client()
        rate(client, 100, directory)
        rounds, count = (1, 2000) if QUICK else (3, 5000)
        b2 = statistics.median(rate(client, count, directory) for _ in range(rounds))
        print(json.dumps({"B2": b2}))


if __name__ == "__main__":
    main()
