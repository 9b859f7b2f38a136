"""Gangs in the frameworks people use: real collectives of four processes, which the variables of
members join.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster_on
from tests.support.frameworks import FRAMEWORKS

pytestmark = pytest.mark.integration

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


PYTHON_WITH: dict[str, tuple[str, dict[str, str]]] = {
    "jax": (sys.executable, {"PYTHONPATH": str(FRAMEWORKS)}),
    "torch": ("/usr/bin/python3", {}),
}
"""Package → a Python that has it, and what its environment needs for that."""


SLICES = """
import os, iris.jax, jax, jax.numpy as jnp
from jax._src.clusters.cloud_tpu_cluster import GkeTpuCluster as libtpu
assert libtpu.get_process_id() == int(os.environ["JAX_PROCESS_ID"])
assert libtpu.get_process_count() == int(os.environ["JAX_NUM_PROCESSES"])
jax.distributed.initialize()
size = jax.process_count() // int(os.environ["MEGASCALE_NUM_SLICES"])
slices = [list(range(at, at + size)) for at in range(0, jax.process_count(), size)]
ours = jnp.ones(1) * (jax.process_index() + 1)
inside = jax.pmap(lambda x: jax.lax.psum(x, "all", axis_index_groups=slices), "all")(ours)
over_all = jax.pmap(lambda x: jax.lax.psum(x, "all"), "all")(ours)
print("sum", int(inside[0]), int(over_all[0]), "slice", os.environ["MEGASCALE_SLICE_ID"], os.environ["TPU_WORKER_ID"])
"""


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two slices of two hosts, which are simulated: four hosts that gangs without a TPU use as
    well.
    """
    with cluster_on(
        tmp_path_factory.mktemp("slices") / "data", "--workers", "0", "--tpu", "v4-16x2"
    ) as running:
        yield running


@pytest.mark.parametrize(
    ("package", "program"),
    [
        pytest.param("jax", PSUM, marks=[pytest.mark.soak, pytest.mark.needs("jax")]),
        pytest.param("torch", ALL_REDUCE, marks=pytest.mark.needs("torch")),
    ],
)
def test_four_processes_add_up_their_ranks(pods: Cluster, package: str, program: str):
    """With jax for `make soak`: in `make test` its processes add up over both slices."""
    python, env = PYTHON_WITH[package]
    env = {**env, "JAX_PLATFORMS": "cpu"}
    ended = pods.iris(
        *(
            "run",
            "--name",
            package,
            "--replicas",
            MEMBERS,
            "--group-by",
            "os",
            "--cpu",
            0.5,
            "--timeout",
            "2m",
        ),
        *(word for key, value in env.items() for word in ("--env", f"{key}={value}")),
        *("--", python, "-c", program),
        timeout=150,
    )
    assert ended.code == 0, ended.out + ended.err
    assert [line for line in ended.out.splitlines() if "sum" in line] == [
        f"sum {1 + 2 + 3 + 4} of {MEMBERS}"
    ] * MEMBERS


@pytest.mark.needs("jax")
def test_processes_add_up_inside_their_slice_and_over_both_slices(pods: Cluster):
    python, env = PYTHON_WITH["jax"]
    env = {**env, "JAX_PLATFORMS": "cpu"}
    ended = pods.iris(
        *(
            "run",
            "--name",
            "slices",
            "--tpu",
            "v4-16",
            "--slices",
            2,
            "--cpu",
            0.5,
            "--timeout",
            "2m",
        ),
        *(word for key, value in env.items() for word in ("--env", f"{key}={value}")),
        *("--", python, "-c", SLICES),
        timeout=150,
    )
    assert ended.code == 0, ended.out + ended.err
    said = sorted(
        line.partition("sum")[2].strip() for line in ended.out.splitlines() if "sum" in line
    )
    assert said == ["3 10 slice 0 0", "3 10 slice 0 1", "7 10 slice 1 0", "7 10 slice 1 1"]
    attributes = {worker.id: worker.attributes.get("tpu-name") for worker in pods.client.workers()}
    groups = [attributes[task.attempts[-1].worker] for task in pods.client.job("slices").tasks()]
    assert groups[0] == groups[1] != groups[2] == groups[3]
