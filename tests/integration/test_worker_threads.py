"""Ends of tasks reach the worker although its process has other threads."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import until

pytestmark = pytest.mark.integration


def blocked(pid: int) -> list[bool]:
    """Of each thread, whether it blocks SIGCHLD. proc_pid_status(5), SigBlk."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    masks = [int(text.partition("SigBlk:")[2].split()[0], 16) for text in texts]
    return [bool(mask >> (signal.SIGCHLD - 1) & 1) for mask in masks]


def test_no_thread_takes_the_signal_of_an_ended_task_also_with_a_server_that_has_a_name(tmp_path: Path):
    given = ("--set", "nats.url=nats://localhost:1", "--set", f"worker.data={tmp_path}")
    given += ("--set", "run.otlp_endpoint=http://127.0.0.1:1")
    words = [sys.executable, "-m", "iris.cli", "server", "worker", *given]
    worker = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        threads = until(lambda: len(seen := blocked(worker.pid)) > 1 and seen, "the server's name is looked up")
        assert all(threads)
    finally:
        worker.kill()
        worker.wait()
