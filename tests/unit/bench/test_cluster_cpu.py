"""What a row says of the CPU of a service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from benchmarks.cluster import Cluster

PROGRAM = """import threading, time
def work():
    while time.thread_time() < 0.2:
        pass
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("done", flush=True)
input()
"""


def test_the_cpu_of_threads_that_have_ended_is_counted(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        made = Cluster(tmp_path, "", {"state": [psutil.Process(process.pid)]})
        assert made.cpu_s()["state"] > 0.2
        process.communicate(b"\n")
    assert made.cpu_s() == {"state": 0.0}
