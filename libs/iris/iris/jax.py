"""Lets JAX find the other members of its gang: ``import iris.jax``, then
``jax.distributed.initialize()``.

JAX takes the coordinator, the number of processes and the rank from the first cluster that it
recognises. This module adds Iris before the others, since a gang may run inside one of them: on
Kubernetes, under Slurm, on TPU VMs. Outside a gang it changes nothing. Needs ``jax``, which is not
a dependency of Iris; the class is an interface of JAX for clusters of others, though in a module
with a private name.
Source: docs/gangs.md.
"""

import os

from jax._src.clusters import ClusterEnv


class IrisGang(ClusterEnv):  # type: ignore[misc]  # without jax its type is unknown
    """A gang of Iris, by the variables of its members."""

    name = "iris"

    @classmethod
    def is_env_present(cls) -> bool:
        return "IRIS_GANG_HOSTS" in os.environ

    @classmethod
    def get_coordinator_address(cls, timeout_secs: int | None = None) -> str:
        return os.environ["JAX_COORDINATOR_ADDRESS"]

    @classmethod
    def get_process_count(cls) -> int:
        return int(os.environ["JAX_NUM_PROCESSES"])

    @classmethod
    def get_process_id(cls) -> int:
        return int(os.environ["JAX_PROCESS_ID"])


ClusterEnv._cluster_types.remove(IrisGang)
ClusterEnv._cluster_types.insert(0, IrisGang)
