"""Libraries that write checkpoints in jobs of Slurm do so here, as docs/howto/checkpoints.md says."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.support.cluster import Cluster, until
from tests.support.frameworks import FRAMEWORKS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not (FRAMEWORKS / "submitit").is_dir(), reason="no submitit here; `.ci/run` installs it"),
]

TRAINING = """
import time
from pathlib import Path

from submitit.helpers import DelayedSubmission


class Training:
    def __init__(self, began):
        self.began, self.steps = began, 0

    def __call__(self):
        if self.steps:
            return f"went on from {self.steps}"
        while True:
            time.sleep(0.05)
            self.steps += 1
            Path(self.began).touch()

    def checkpoint(self):
        return DelayedSubmission(self)
"""
SUBMIT = """
import sys

from submitit.core.utils import DelayedSubmission
from training import Training

call = DelayedSubmission(Training(sys.argv[1]))
call.set_timeout(60, 3)
call.dump(sys.argv[2])
"""


def test_submitit_keeps_a_checkpoint_when_it_is_preempted(cluster: Cluster, tmp_path: Path):
    """Its handler of the notice writes the checkpoint, requeues by `scontrol`, and ends with an error of its own."""
    [scontrol] = re.findall(
        r"^```\n(#!/bin/sh\n.*?)^```$", (ROOT / "docs/howto/checkpoints.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "scontrol").write_text(scontrol)
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "training.py").write_text(TRAINING)
    env = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path}:{FRAMEWORKS}",
        "SUBMITIT_EXECUTOR": "slurm",
        "SLURM_JOB_ID": "7",
    }
    files = (str(tmp_path / "began"), str(tmp_path / "7_submitted.pkl"))
    subprocess.run([sys.executable, "-c", SUBMIT, *files], env={**os.environ, **env}, check=True, timeout=60)

    hosts = list(cluster.client.workers())
    cpu = min(host.total["cpu_millis"] for host in hosts) / 1000
    command = [sys.executable, "-m", "submitit.core._submit", str(tmp_path)]
    options = {"band": "batch", "notice": "USR2@90s", "grace": "60s", "cpu": cpu, "env": env}
    training = cluster.client.run(command, name="submitit", **options)
    until((tmp_path / "began").exists, "it trains")
    urgent = cluster.client.run(["true"], name="submitit-urgent", band="production", cpu=cpu, replicas=len(hosts))

    assert urgent.wait(60).state == "succeeded"
    assert training.wait(60).state == "succeeded"
    task = training.task(0)
    first, _ = task.attempts
    assert (first.exit_code, [notice.reason for notice in first.notices]) == (255, ["preempted"])
    assert "/submitit/0 requeued" in first.stderr_tail
    assert (task.preemption_count, task.failure_count) == (1, 0)
    kind, result = pickle.loads((tmp_path / "7_0_result.pkl").read_bytes())
    assert (kind, result.startswith("went on from ")) == ("success", True)
