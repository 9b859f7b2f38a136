"""A job as a caller words it, made into the body of ``POST /v1/jobs``. Shared by the CLI and the SDK.

Raises `BadAsk` for texts that cannot be understood; what is understood but not allowed is the gateway's to refuse.
Not in this room: reading options from a command line, sending. Source: interfaces.md sections 2, 3 and 5.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from typing import TypedDict

from iris_core.codec import Undecodable
from iris_core.resources import Device, ResourceAsk
from iris_core.spec import BandName, Constraint, Coscheduling, JobSpec, SuccessPolicy
from iris_gateway.client.conditions import Mode, parse_constraint
from iris_gateway.client.naming import full_name
from iris_gateway.client.problems import BadAsk
from iris_gateway.client.typed import from_builtins
from iris_gateway.client.units import parse_cpu, parse_duration, parse_gpu, parse_size

TPU_GROUP = "tpu-name"


class JobOptions(TypedDict, total=False):
    """What may be said of a job, each as in ``iris run``; whatever is left out has its default.

    Sizes are bytes or texts like ``4GiB``, times seconds or texts like ``10m``, ``cpu`` cores.
    ``parent``: a job's name; inside a task the task's own job, unless ``name`` has a leading slash.
    ``success``: a gang succeeds with all of its tasks, or with its ``leader``, which is task 0.
    ``user``: the owner; left out it is the token's, else the one who calls.
    """

    name: str | None
    parent: str | None
    user: str | None
    env: Mapping[str, str]
    replicas: int | None
    cpu: float | str | None
    memory: int | str | None
    disk: int | str | None
    gpu: str | int | None
    tpu: str | None
    constraints: Sequence[str | Constraint]
    prefer: Sequence[str | Constraint]
    group_by: str | None
    success: SuccessPolicy | None
    band: BandName
    max_retries_failure: int
    max_retries_preemption: int
    max_task_failures: int
    scheduling_timeout: float | str | None
    timeout: float | str | None
    bundle: str | None
    ports: Sequence[str]
    labels: Mapping[str, str]


_PLAIN = ("band", "max_retries_failure", "max_retries_preemption", "max_task_failures", "bundle")


def job_spec(
    command: Sequence[str], options: JobOptions, environ: Mapping[str, str] = os.environ, *, seed: str = ""
) -> JobSpec:
    """The job ``options`` describe. ``environ`` says whether this runs inside a task. Raises BadAsk.

    ``seed``: makes the name of a job that has none; the same seed and owner, the same name.
    """
    device, gang = read_device(options)
    group_by = options.get("group_by") or (TPU_GROUP if gang > 1 else None)
    replicas = options.get("replicas")
    said = {key: options[key] for key in _PLAIN if options.get(key) is not None}  # type: ignore[literal-required]
    wanted = {
        "name": full_name(
            options.get("name"), parent_of(options, environ), seed and f"{seed}\0{owner(options, environ)}"
        ),
        "command": tuple(command),
        "env": dict(options.get("env") or {}),
        "replicas": gang if replicas is None else replicas,
        "resources": read_resources(options, device),
        "constraints": read_constraints(options),
        "coscheduling": read_coscheduling(group_by, options.get("success")),
        "scheduling_timeout_s": read_time(options.get("scheduling_timeout")),
        "timeout_s": read_time(options.get("timeout")),
        "ports": tuple(options.get("ports") or ()),
        "labels": dict(options.get("labels") or {}),
        "user": owner(options, environ),
        **said,
    }
    try:
        return from_builtins(wanted, JobSpec)
    except Undecodable as error:
        raise BadAsk(str(error)) from None


def read_coscheduling(group_by: str | None, success: SuccessPolicy | None) -> Coscheduling | None:
    """How the tasks go together; None when each goes alone. Raises BadAsk."""
    if group_by:
        return Coscheduling(group_by, success or "all")
    if success:
        raise BadAsk("only a gang has a success policy: say group_by too, or ask for a slice of several hosts")
    return None


def parent_of(options: JobOptions, environ: Mapping[str, str]) -> str | None:
    """The job above: as asked for, or inside a task its own job; a whole path stands for itself."""
    if options.get("parent"):
        return options["parent"]
    inside = environ.get("IRIS_JOB")
    return inside if inside and not (options.get("name") or "").startswith("/") else None


def owner(options: JobOptions, environ: Mapping[str, str]) -> str:
    """Who the job belongs to; empty leaves it to the gateway (the token's user, or the parent's owner)."""
    if options.get("user"):
        return options["user"] or ""
    if environ.get("IRIS_TOKEN") or environ.get("IRIS_JOB"):
        return ""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def read_device(options: JobOptions) -> tuple[Device | None, int]:
    """The device of one task, and how many tasks a whole slice takes (1 unless a multi-host TPU). Raises BadAsk."""
    gpu, tpu = options.get("gpu"), options.get("tpu")
    if gpu and tpu:
        raise BadAsk("a task has gpus or a tpu, not both")
    if gpu:
        return parse_gpu(str(gpu)), 1
    return read_tpu(tpu) if tpu else (None, 1)


def read_tpu(variant: str) -> tuple[Device, int]:
    """One host's chips of a slice, and its number of hosts; the gateway refuses a variant that is not in the table."""
    from iris_core.topology import topology_of  # only who asks for a slice needs the table

    known = topology_of(variant)
    return (Device("tpu", variant, known.chips_per_vm), known.vm_count) if known else (Device("tpu", variant), 1)


def read_resources(options: JobOptions, device: Device | None) -> ResourceAsk:
    cpu, memory, disk = options.get("cpu"), options.get("memory"), options.get("disk")
    return ResourceAsk(
        cpu_millis=ResourceAsk().cpu_millis if cpu is None else parse_cpu(str(cpu)),
        memory_bytes=0 if memory is None else parse_size(str(memory)),
        disk_bytes=0 if disk is None else parse_size(str(disk)),
        device=device,
    )


def read_constraints(options: JobOptions) -> tuple[Constraint, ...]:
    """Required ones first, then preferred ones, each in the order given."""
    required = [_constraint(one, "required") for one in options.get("constraints") or ()]
    return (*required, *(_constraint(one, "preferred") for one in options.get("prefer") or ()))


def _constraint(said: str | Constraint, mode: Mode) -> Constraint:
    return said if isinstance(said, Constraint) else parse_constraint(said, mode)


def read_time(said: float | str | None) -> float | None:
    """Seconds, or None for never."""
    return None if said is None else parse_duration(str(said))
