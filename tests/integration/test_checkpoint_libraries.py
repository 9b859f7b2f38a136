"""Libraries that write checkpoints in jobs of Slurm do so here, as docs/howto/checkpoints.md
says.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iris import Job
from tests.house.repository import ROOT
from tests.support.cluster import Cluster, until
from tests.support.frameworks import FRAMEWORKS

pytestmark = pytest.mark.integration

LIGHTNING, TORCH = FRAMEWORKS / "lightning", "/usr/bin/python3"
DEBIAN = Path("/usr/lib/python3/dist-packages")

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
TRAINER = '''
import os
import time
from pathlib import Path

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.plugins.environments import SLURMEnvironment


class Line(LightningModule):
    def _register_sharded_tensor_state_dict_hooks_if_available(self):
        """What this needs of torch 1.13 cannot be imported by Python 3.11."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Steps(Callback):
    def on_train_start(self, trainer, module):
        self.began = trainer.global_step
        print("begins at step", self.began, flush=True)

    def on_train_batch_end(self, trainer, module, *_):
        (Path(here) / "began").touch()
        trainer.should_stop = self.began > 0
        time.sleep(0.05)


here = os.environ["STATE"]
Trainer(
    accelerator="cpu", max_steps=100_000, default_root_dir=here, callbacks=[Steps()], plugins=[SLURMEnvironment()],
    logger=False, enable_progress_bar=False, enable_model_summary=False,
).fit(Line(), torch.utils.data.DataLoader(torch.ones(100_000, 1)))
'''
"""Trains until it is stopped; in an attempt that goes on from a checkpoint, for one step."""


@pytest.fixture
def scontrol(tmp_path: Path) -> dict[str, str]:
    """The environment of a job of Slurm, with the `scontrol` of the page."""
    page = (ROOT / "docs/howto/checkpoints.md").read_text()
    [script] = re.findall(r"^```\n(#!/bin/sh\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "scontrol").write_text(script)
    (tmp_path / "scontrol").chmod(0o755)
    return {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
    }


def preempted(cluster: Cluster, began: Path, command: list[str], name: str, **options: Any) -> Job:
    """A job that a more urgent one takes all hosts from, and that goes on after that; it has
    succeeded.
    """
    training = cluster.client.run(command, name=name, band="batch", cpu=cluster.host_cpu, **options)
    until(began.exists, "it trains")
    cluster.preempt(f"{name}-urgent", began.parent)
    assert training.wait(60).state == "succeeded"
    return training


@pytest.mark.needs("submitit")
def test_submitit_keeps_a_checkpoint_when_it_is_preempted(
    cluster: Cluster, tmp_path: Path, scontrol: dict[str, str]
):
    """Its handler of the notice writes the checkpoint, requeues by `scontrol`, and ends with an
    error of its own.
    """
    (tmp_path / "training.py").write_text(TRAINING)
    env = {
        **scontrol,
        "PYTHONPATH": f"{tmp_path}:{FRAMEWORKS}",
        "SUBMITIT_EXECUTOR": "slurm",
    }
    files = (str(tmp_path / "began"), str(tmp_path / "7_submitted.pkl"))
    subprocess.run(
        [sys.executable, "-c", SUBMIT, *files], env={**os.environ, **env}, check=True, timeout=60
    )

    command = [sys.executable, "-m", "submitit.core._submit", str(tmp_path)]
    options = {"notice": "USR2@90s", "grace": "60s", "env": env}
    training = preempted(cluster, tmp_path / "began", command, "submitit", **options)

    task = training.task(0)
    first, _ = task.attempts
    assert (first.exit_code, [notice.reason for notice in first.notices]) == (255, ["preempted"])
    assert "/submitit/0 requeued" in first.stderr_tail
    assert (task.preemption_count, task.failure_count) == (1, 0)
    kind, result = pickle.loads((tmp_path / "7_0_result.pkl").read_bytes())
    assert (kind, result.startswith("went on from ")) == ("success", True)


@pytest.mark.needs("lightning")
@pytest.mark.needs("torch")
def test_lightning_goes_on_from_its_checkpoint(
    cluster: Cluster, tmp_path: Path, scontrol: dict[str, str]
):
    """Its handler of the notice writes the checkpoint and requeues by `scontrol`; it trains until
    it is stopped.
    """
    (tmp_path / "trainer.py").write_text(TRAINER)
    variables = {f"SLURM_{name}": "0" for name in ("PROCID", "LOCALID", "NODEID")}
    env = {
        **scontrol,
        **variables,
        "SLURM_NTASKS": "1",
        "PYTHONPATH": str(LIGHTNING),
        "STATE": str(tmp_path),
    }
    command = [TORCH, str(tmp_path / "trainer.py")]
    training = preempted(
        cluster, tmp_path / "began", command, "lightning", notice="USR1@90s", grace="5s", env=env
    )
    task = training.task(0)
    assert [notice.reason for notice in task.attempts[0].notices] == ["preempted"]
    assert (task.preemption_count, task.failure_count) == (1, 0)
    assert int(re.findall(r"begins at step (\d+)", "".join(map(str, training.logs())))[-1]) > 0
