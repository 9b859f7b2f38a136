"""Gangs in the frameworks people use: real collectives of four processes, which the variables of members join."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.support.cluster import Cluster, cluster_on

pytestmark = pytest.mark.integration

FRAMEWORKS = ROOT / ".frameworks"
"""Where `.ci/run` installs JAX; torch comes with Debian's own Python."""
MEMBERS = 4

PSUM = """
import iris.jax, jax, jax.numpy as jnp
jax.distributed.initialize()
ours = jnp.ones(jax.local_device_count()) * (jax.process_index() + 1)
total = jax.pmap(lambda x: jax.lax.psum(x, "all"), "all")(ours)
print("sum", int(total[0]), "of", jax.process_count())
"""
ALL_REDUCE = """
import torch
from torch import distributed
distributed.init_process_group("gloo")
total = torch.tensor([distributed.get_rank() + 1])
distributed.all_reduce(total)
print("sum", int(total), "of", distributed.get_world_size())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on(tmp_path_factory.mktemp("frameworks") / "data", "--workers", str(MEMBERS)) as running:
        yield running


def python_with(package: str) -> tuple[str, dict[str, str]]:
    """A Python that has a package, and what its environment needs for that. Skips where there is none."""
    for python, env in ((sys.executable, {"PYTHONPATH": str(FRAMEWORKS)}), ("/usr/bin/python3", {})):
        if Path(python).exists():
            words = [python, "-c", f"import {package}"]
            if subprocess.run(words, env=env, capture_output=True, check=False).returncode == 0:
                return python, env
    pytest.skip(f"no Python here has {package}; `.ci/run` installs it")


@pytest.mark.parametrize(("package", "program"), [("jax", PSUM), ("torch", ALL_REDUCE)])
def test_four_processes_add_up_their_ranks(cluster: Cluster, package: str, program: str):
    python, env = python_with(package)
    ended = cluster.iris(
        *("run", "--name", package, "--replicas", MEMBERS, "--group-by", "os", "--cpu", 0.5, "--timeout", "2m"),
        *(word for key, value in env.items() for word in ("--env", f"{key}={value}")),
        *("--", python, "-c", program),
        timeout=150,
    )
    assert ended.code == 0, ended.out + ended.err
    assert [line for line in ended.out.splitlines() if "sum" in line] == [f"sum {1 + 2 + 3 + 4} of {MEMBERS}"] * MEMBERS
