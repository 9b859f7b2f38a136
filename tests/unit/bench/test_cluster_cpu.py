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

PARENT = """import subprocess, sys
from subprocess import PIPE
words = ("podman", "iris_worker.launcher.launcher")
start = [sys.executable, "-c", "print(flush=True); input()"]
children = [subprocess.Popen([*start, word], stdin=PIPE, stdout=PIPE) for word in words]
for child in children:
    child.stdout.readline()
"""
"""It waits until each says that it runs: a process that is being started has no command line yet."""


def test_the_cpu_of_threads_that_have_ended_is_counted(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        made = Cluster(tmp_path, "", {"state": [psutil.Process(process.pid)]})
        assert made.cpu_s()["state"] > 0.2
        process.communicate(b"\n")
    assert made.cpu_s() == {"state": 0.0}


def test_only_the_launcher_of_a_worker_is_accounted_as_one(tmp_path: Path):
    program = f"{PARENT}print('done', flush=True); input(); [child.communicate(b'\\n') for child in children]"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        made = Cluster(tmp_path, "", {"worker": [psutil.Process(process.pid)]})
        assert len(made.launchers()) == 1
        process.communicate(b"\n")
