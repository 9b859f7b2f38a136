"""The programs in examples/ do what their texts state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.suspend import suspend

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_does_real_work_and_leaves_nothing(tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "/wordcount succeeded" in done.stdout
    assert "merge  succeeded" in done.stdout
    assert "self" in done.stdout
    assert "pi = 3.14159265" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_plain_subscriber_sees_a_task_come_to_its_end(cluster: Cluster):
    watcher = subprocess.Popen(
        [sys.executable, EXAMPLES / "watch_events.py"],
        env=cluster.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with watcher:
        assert watcher.stdout is not None
        assert watcher.stderr is not None
        watcher.stderr.readline()
        cluster.submit("true", name="seen").wait(60)
        lines = (line for line in watcher.stdout if "/seen/0" in line)
        steps = [next(lines).split(maxsplit=2)[2].strip() for _ in range(5)]
        watcher.terminate()

    assert steps == [
        "- -> pending",
        "pending -> assigned",
        "assigned -> building",
        "building -> running",
        "running -> succeeded",
    ]


def test_the_subscriber_says_how_to_use_it_without_a_cluster():
    asked = subprocess.run(
        [sys.executable, EXAMPLES / "watch_events.py", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (asked.returncode, asked.stdout.split()[:2], asked.stderr) == (
        0,
        ["usage:", "watch_events.py"],
        "",
    )


@pytest.mark.parametrize(("task", "code"), [("0", 1), ("1", 0)], ids=["head", "other"])
def test_a_head_where_ray_could_not_start_does_not_end_with_success(tmp_path, task, code):
    ray = tmp_path / "ray"
    ray.write_text("#!/bin/sh\n# symmetric-run when `ray start` has failed\nexit 0\n")
    ray.chmod(0o755)
    told = {
        "IRIS_TASK_INDEX": task,
        "IRIS_WORKDIR": str(tmp_path),
        "IRIS_COORDINATOR_ADDRESS": "h:1",
        "IRIS_NUM_TASKS": "2",
    }
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **told}
    node = ["sh", EXAMPLES / "ray" / "node.sh", "true"]
    assert subprocess.run(node, env=environ, timeout=60, check=False).returncode == code


def test_a_plain_client_repeats_its_submission_until_it_is_answered(cluster: Cluster):
    [state] = cluster.pids("state")
    gateway = cluster.credentials("gateway").nkey_seed
    suspend(state)
    try:
        submitting = subprocess.Popen(
            [sys.executable, EXAMPLES / "submit.py", cluster.nats_url, gateway, "/plain", "true"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert submitting.stdout is not None
        assert submitting.stderr is not None
        assert submitting.stderr.readline() == "the state service does not answer; trying again\n"
    finally:
        os.kill(state, signal.SIGCONT)
    with submitting:
        assert submitting.stdout.readline().startswith('created {"id":"j')
    assert cluster.client.job("/plain").wait(60).state == "succeeded"
