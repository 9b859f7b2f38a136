"""The environment of a task: variables of Iris, a few of the host, and those of the job. Pure.

``TRACEPARENT`` is the trace context of the submission, where OpenTelemetry's libraries look for it.
The worker's own environment is not inherited. For equal names, variables of Iris override the
job's, and the job's override the host's. Source: docs/sdk.md#variables-of-a-task,
docs/design/reliability.md#security.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Gang, TaskTemplate
from iris_core.spec.index_set import indexes_of
from iris_core.spec.projects import ROOT
from iris_core.spec.resources import AUTO, ResourceRequest

_NO_NAME = re.compile(r"[^A-Z0-9]")
PROBE_VARIABLE = "IRIS_PROBE"
"""Set for the command of a probe, which otherwise has the environment of its task. A worker that
starts kills processes that have it: they are probes of the previous worker process.
"""
EXEC_VARIABLE = "IRIS_EXEC"
"""The same for what people execute beside a task."""
BESIDE = (PROBE_VARIABLE, EXEC_VARIABLE)
THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""How many threads a library starts; without its own it reads the first, where it uses OpenMP."""
OUTPUT_VARIABLE = "IRIS_OUTPUT"
NOTICE_VARIABLE = "IRIS_NOTICE_FILE"
"""The file is there once the task is given a notice."""
OF_A_JOB = frozenset({"IRIS_JOB", "IRIS_NUM_TASKS", "IRIS_PROJECT", "HOME"})
"""Variables in which the jobs of one user differ, and that Python does not read as it starts."""
COORDINATOR_PORTS = range(20_000, 30_000)
"""Above the ports Ray takes for its workers (10002 to 19999), below the ephemeral ports of Linux. A
job's tasks must agree on one without asking each other."""


@dataclass(frozen=True, slots=True)
class Place:
    """The part of the environment that is the same for all tasks on this host.

    Attributes:
        host: PATH and LANG of the worker, and HOME where tasks are not confined.
        ca: the certificate, in PEM, of the authority of the gateway's; empty: the system knows it.
    """

    worker: str
    gateway_url: str
    host: Mapping[str, str]
    ca: str = ""


def threads(owners: Mapping[str, str], asked: ResourceRequest) -> dict[str, str]:
    """How many threads libraries start, which otherwise start one for each processor of the host:
    one for each that the task has, or as many as its owner says for OpenMP.
    """
    processors = max(1, asked.cpu_millis // 1000, asked.cpu_limit_millis // 1000)
    return dict.fromkeys(THREADS, owners.get(THREADS[0], str(processors)))


def common(place: Place, template: TaskTemplate) -> dict[str, str]:
    """The environment common to all tasks of one job; cached per job."""
    owners = {name: value for name, value in template.env.items() if name not in BESIDE}
    device = template.resources.device
    return {
        **place.host,
        **threads(owners, template.resources),
        **owners,
        "IRIS_JOB": template.name,
        "IRIS_PROJECT": template.project or ROOT,
        "IRIS_NUM_TASKS": str(template.replicas),
        "IRIS_WORKER_ID": place.worker,
        "IRIS_GATEWAY_URL": place.gateway_url,
        **({"IRIS_CA": place.ca} if place.ca else {}),
        **(
            {"IRIS_DEVICE_VARIANT": device.variants[0]}
            if device is not None and device.variants != (AUTO,)
            else {}
        ),
    }


def values(template: TaskTemplate, index: int, line: str) -> dict[str, str]:
    """The value of one task of an array, or its line of the job's file."""
    if template.each_line:
        return {"IRIS_ARRAY_VALUE": line}
    if not template.array:
        return {}
    return {"IRIS_ARRAY_INDEX": str(indexes_of(template.array, 0)[index])}


def personal(workdir: str, user: str) -> dict[str, str]:
    """What a confined task has in place of the worker's home; its job may set others."""
    return {"HOME": workdir, **({"USER": user, "LOGNAME": user} if user else {})}


def own(
    shared: Mapping[str, str],
    ref: AttemptRef,
    workdir: str,
    error_file: str,
    ports: Mapping[str, int],
) -> dict[str, str]:
    """The environment of one attempt on top of `common`'s."""
    env = {
        **shared,
        "IRIS_TASK": f"{shared['IRIS_JOB']}/{ref.index}",
        "IRIS_TASK_INDEX": str(ref.index),
        "IRIS_ATTEMPT": str(ref.attempt),
        "IRIS_WORKDIR": workdir,
        "IRIS_ERROR_FILE": error_file,
    }
    for name, port in ports.items():
        env[port_variable(name)] = str(port)
    return env


def token_variables(shared: Mapping[str, str], token: str, file: str) -> dict[str, str]:
    """The attempt's own token and the file that holds the present one, unless its job brings a
    token.
    """
    if "IRIS_TOKEN" in shared or "IRIS_TOKEN_FILE" in shared:
        return {}
    return {"IRIS_TOKEN": token, "IRIS_TOKEN_FILE": file}


def virtual(path: str, venv: str) -> dict[str, str]:
    """The variables of an active virtual environment. ``path``: the search path without it."""
    return {"VIRTUAL_ENV": venv, "PATH": f"{venv}/bin:{path}"}


def of_build(
    host: Mapping[str, str],
    home: Mapping[str, str],
    variables: Mapping[str, str],
    workdir: str,
    venv: str,
) -> dict[str, str]:
    """The environment of a build. There is no cache of packages: one that all jobs share could be
    poisoned.

    Args:
        home: as `personal` has it, for a confined build.
    """
    return {
        **host,
        **home,
        "PIP_NO_CACHE_DIR": "1",
        "UV_NO_CACHE": "1",
        "UV_COMPILE_BYTECODE": "1",
        **variables,
        **virtual(host["PATH"], venv),
        "UV_PROJECT_ENVIRONMENT": venv,
        "IRIS_WORKDIR": workdir,
    }


def gang_words(gang: Gang, index: int, host_file: str) -> dict[str, str]:
    """The variables by which gang members find each other: hosts by task index, and the first one's
    address for Iris, JAX, torch, MPI and libtpu. A member counts as one process; a launcher such as
    ``torchrun`` sets its own variables for the processes it starts. libtpu counts within a slice,
    and finds the other slices by variables of its own.
    """
    hosts = ",".join(gang.hosts)
    size = str(len(gang.hosts))
    rank = str(index)
    head = gang.hosts[0]
    port = str(coordinator_port(gang))
    in_slice = len(gang.hosts) // gang.slices
    number, place = divmod(index, in_slice)
    return {
        "IRIS_GANG_HOSTS": hosts,
        "IRIS_HOSTFILE": host_file,
        "IRIS_COORDINATOR_ADDRESS": f"{head}:{port}",
        "JAX_COORDINATOR_ADDRESS": f"{head}:{port}",
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
        "MASTER_ADDR": head,
        "MASTER_PORT": port,
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": rank,
        "TPU_WORKER_ID": str(place),
        "TPU_WORKER_HOSTNAMES": ",".join(gang.hosts[number * in_slice : (number + 1) * in_slice]),
        **(slice_words(gang, number) if gang.slices > 1 else {}),
    }


def slice_words(gang: Gang, number: int) -> dict[str, str]:
    """The variables by which libtpu joins slices; ``number``: of the slice. Its port is not the one
    of JAX.
    """
    port = str(megascale_port(gang))
    return {
        "MEGASCALE_NUM_SLICES": str(gang.slices),
        "MEGASCALE_SLICE_ID": str(number),
        "MEGASCALE_COORDINATOR_ADDRESS": f"{gang.hosts[0]}:{port}",
        "MEGASCALE_PORT": port,
    }


def host_lines(gang: Gang, resources: ResourceRequest) -> str:
    """A gang's hosts as Open MPI and DeepSpeed read them: a line for each member, with a slot for
    each accelerator.
    """
    slots = resources.device.count if resources.device else 1
    return "".join(f"{host} slots={slots}\n" for host in gang.hosts)


def coordinator_port(gang: Gang) -> int:
    """Spread over the range, so that gangs that share a host seldom meet; every attempt has
    another.
    """
    return COORDINATOR_PORTS[(gang.job * 7919 + gang.attempt * 4099) % len(COORDINATOR_PORTS)]


def megascale_port(gang: Gang) -> int:
    """Half the range away from `coordinator_port`, for both are used on the first host."""
    half = len(COORDINATOR_PORTS) // 2
    return COORDINATOR_PORTS[
        (coordinator_port(gang) - COORDINATOR_PORTS.start + half) % len(COORDINATOR_PORTS)
    ]


def gang_ports(gang: Gang) -> tuple[int, ...]:
    """The ports on which the first member listens."""
    own = coordinator_port(gang)
    return (own, megascale_port(gang)) if gang.slices > 1 else (own,)


def port_variable(name: str) -> str:
    """``http`` becomes ``IRIS_PORT_HTTP``."""
    return f"IRIS_PORT_{_NO_NAME.sub('_', name.upper())}"
