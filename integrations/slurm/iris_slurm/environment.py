"""The variables of Slurm in a task. Pure."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from itertools import pairwise

from iris import JobView
from iris_slurm.commands.program import CLUSTER
from iris_slurm.numbers import number_of, own_number
from iris_slurm.translate import DEFAULT_PARTITION, BatchSettings


def hosts_of(environ: Mapping[str, str]) -> list[str]:
    """The addresses of the hosts of a task's job; of a job of one host, its name."""
    return (
        environ.get("IRIS_GANG_HOSTS", "").split(",")
        if environ.get("IRIS_GANG_HOSTS")
        else [socket.gethostname()]
    )


def variables(settings: BatchSettings, job: JobView, environ: Mapping[str, str]) -> dict[str, str]:
    """Those that the script of a task has, whose own variables are ``environ``."""
    number, index = number_of(job), int(environ["IRIS_TASK_INDEX"])
    hosts, attempt = hosts_of(environ), int(environ["IRIS_ATTEMPT"])
    tasks, cpus = (
        settings.nodes * settings.tasks_per_node,
        settings.cpus_per_task * settings.tasks_per_node,
    )
    own = own_number(number, index) if job.spec.array else number
    repeated = f"(x{settings.nodes})" if settings.nodes > 1 else ""
    return {
        "SLURM_JOB_ID": str(own),
        "SLURM_JOBID": str(own),
        "SLURM_JOB_NAME": settings.name,
        "SLURM_JOB_USER": settings.user,
        "SLURM_JOB_PARTITION": settings.partition or DEFAULT_PARTITION,
        **({"SLURM_JOB_ACCOUNT": settings.account} if settings.account else {}),
        "SLURM_CLUSTER_NAME": CLUSTER,
        "SLURM_SUBMIT_DIR": settings.submit_dir,
        "SLURM_SUBMIT_HOST": settings.submit_host,
        "SLURM_JOB_NUM_NODES": str(settings.nodes),
        "SLURM_NNODES": str(settings.nodes),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_NTASKS_PER_NODE": str(settings.tasks_per_node),
        "SLURM_TASKS_PER_NODE": f"{settings.tasks_per_node}{repeated}",
        "SLURM_CPUS_PER_TASK": str(settings.cpus_per_task),
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_JOB_CPUS_PER_NODE": f"{cpus}{repeated}",
        **(
            {"SLURM_MEM_PER_NODE": str(settings.memory_bytes >> 20)}
            if settings.memory_bytes
            else {}
        ),
        **({"SLURM_GPUS_ON_NODE": str(settings.gpus)} if settings.gpus else {}),
        "SLURM_JOB_NODELIST": ",".join(hosts),
        "SLURM_NODELIST": ",".join(hosts),
        "SLURMD_NODENAME": hosts[0],
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        **({"SLURM_RESTART_COUNT": str(attempt)} if attempt else {}),
        **(_of_array(job, number, index) if job.spec.array else {}),
    }


def _of_array(job: JobView, number: int, index: int) -> dict[str, str]:
    values = [value for i in range(job.replicas) if (value := job.spec.array_index(i)) is not None]
    steps = {later - earlier for earlier, later in pairwise(values)}
    return {
        "SLURM_ARRAY_JOB_ID": str(number),
        "SLURM_ARRAY_TASK_ID": str(values[index]),
        "SLURM_ARRAY_TASK_COUNT": str(len(values)),
        "SLURM_ARRAY_TASK_MIN": str(values[0]),
        "SLURM_ARRAY_TASK_MAX": str(values[-1]),
        "SLURM_ARRAY_TASK_STEP": str(min(steps, default=1)),
    }
