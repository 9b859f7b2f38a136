"""Makes the options of a job of Iris, and the file that its tasks read, from the options of
`sbatch`. Pure.

Raises `NotHonoured`. Out of scope: which options there are (`directives`).
"""

from __future__ import annotations

import argparse
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from posixpath import join

import msgspec

from iris_core.spec.option_table import JobOptions
from iris_slurm.directives import IGNORE
from iris_slurm.files import check_pattern
from iris_slurm.values import (
    NotHonoured,
    read_begin,
    read_bytes,
    read_count,
    read_dependencies,
    read_gpus,
    read_minutes,
    read_nodes,
    read_signal,
)

PASSED_ON = ("INT", "QUIT", "HUP", "USR1", "USR2")
"""Signals that `srun` sends to its processes on other hosts."""
KILL_WAIT_S = 30
"""Slurm's default for the time between TERM and KILL."""
SCRIPT, SETTINGS = "slurm_script", "slurm_job.json"
"""The files of the bundle that a job's tasks get."""
NAME, ACCOUNT, PARTITION, COMMENT = "job-name", "project", "partition", "comment"
"""Labels of a job."""
DEFAULT_PARTITION = "iris"
"""All hosts: that of a job that names none, and what `sinfo` shows for a host that is in none."""
BANDS = {"high": "production", "normal": "interactive", "low": "batch"}
"""Of each quality of service."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the task of a job needs to know of its submission.

    Attributes:
        output, error: patterns of files; empty: the output of the task, and the file of the output.
        signal: the name of the signal of a notice; empty: none. alone: it is for the script only.
        arguments: of the script. umask: of whoever submitted it; -1: not known.
        ignore: the options that its site ignores, for what the script submits.
    """

    name: str
    chdir: str
    user: str
    output: str = ""
    error: str = ""
    append: bool = False
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int = 1
    memory_bytes: int = 0
    gpus: int = 0
    signal: str = ""
    alone: bool = False
    arguments: tuple[str, ...] = ()
    partition: str = ""
    account: str = ""
    submit_host: str = ""
    submit_dir: str = ""
    umask: int = -1
    ignore: str = ""


@dataclass(frozen=True)
class Submitter:
    """Who submits: where, when, with which environment."""

    directory: str
    user: str
    host: str
    environ: Mapping[str, str]
    now: datetime
    umask: int = -1


def settings_of(
    given: argparse.Namespace, by: Submitter, arguments: tuple[str, ...]
) -> BatchSettings:
    """Raises NotHonoured."""
    for option in ("output", "error"):
        check_pattern(f"--{option}", getattr(given, option) or "")
    if given.open_mode not in (None, "append", "truncate"):
        raise NotHonoured(f"--open-mode={given.open_mode}: append or truncate")
    nodes, per_node = shape(given)
    cpus = read_count("--cpus-per-task", given.cpus_per_task or "1")
    signal, _, alone = read_signal(given.signal) if given.signal else ("", 0, False)
    if nodes > 1 and signal and not alone and signal not in PASSED_ON:
        raise NotHonoured(
            f"--signal={given.signal} is refused with --nodes={nodes}: of signals to steps, only "
            f"{', '.join(PASSED_ON)} reach other hosts; --signal=B:… is for the script"
        )
    return BatchSettings(
        name=given.job_name or (arguments[0].rpartition("/")[2] if arguments else "wrap"),
        chdir=join(by.directory, given.chdir) if given.chdir else by.directory,
        user=by.user,
        output=given.output or ("slurm-%A_%a.out" if given.array else "slurm-%j.out"),
        error=given.error or "",
        append=given.open_mode == "append",
        nodes=nodes,
        tasks_per_node=per_node,
        cpus_per_task=cpus,
        memory_bytes=memory(given, cpus * per_node),
        gpus=gpus(given, nodes, per_node)[1],
        signal=signal,
        alone=alone,
        arguments=arguments[1:],
        partition=given.partition or "",
        account=given.account or "",
        submit_host=by.host,
        submit_dir=by.directory,
        umask=by.umask,
        ignore=by.environ.get(IGNORE, ""),
    )


def shape(given: argparse.Namespace) -> tuple[int, int]:
    """The number of hosts, and the tasks on each. Raises NotHonoured."""
    nodes = read_nodes(given.nodes) if given.nodes else 0
    per_node = (
        read_count("--ntasks-per-node", given.ntasks_per_node) if given.ntasks_per_node else 0
    )
    tasks = read_count("--ntasks", given.ntasks) if given.ntasks else 0
    if not tasks:
        return nodes or 1, per_node or 1
    nodes = nodes or (-(-tasks // per_node) if per_node else 1)
    if tasks % nodes or (per_node and tasks > nodes * per_node):
        raise NotHonoured(
            f"--ntasks={tasks}: each of {nodes} hosts has as many tasks; ask for a multiple of {nodes}"
        )
    return nodes, tasks // nodes


def memory(given: argparse.Namespace, cpus: int) -> int:
    """Of each host, in bytes; 0: what Iris gives. Raises NotHonoured."""
    if given.mem and given.mem_per_cpu:
        raise NotHonoured("--mem and --mem-per-cpu exclude each other")
    if given.mem_per_cpu:
        return read_bytes("--mem-per-cpu", given.mem_per_cpu) * cpus
    if given.mem and not read_bytes("--mem", given.mem):
        raise NotHonoured("--mem=0: a job does not get all memory of a host; say how much it needs")
    return read_bytes("--mem", given.mem) if given.mem else 0


def gpus(given: argparse.Namespace, nodes: int, per_node: int) -> tuple[str, int]:
    """Kind and number of the GPUs of each host. Raises NotHonoured."""
    names = ("gres", "gpus", "gpus_per_node", "gpus_per_task")
    asked = {name: value for name in names if (value := getattr(given, name))}
    if len(asked) > 1:
        raise NotHonoured(f"{' and '.join(_flag(name) for name in asked)}: give one of them")
    if not asked:
        return "", 0
    [(name, text)] = asked.items()
    if name == "gres":
        device, _, text = text.partition(":")
        if device != "gpu":
            raise NotHonoured(f"--gres={given.gres}: hosts have GPUs only, as gpu:4 or gpu:h100:4")
    kind, count = read_gpus(_flag(name), text or "1")
    if name == "gpus" and count % nodes:
        raise NotHonoured(f"--gpus={text}: each of {nodes} hosts has as many")
    return (
        kind.upper(),
        count * per_node
        if name == "gpus_per_task"
        else count // nodes
        if name == "gpus"
        else count,
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def job_options(given: argparse.Namespace, settings: BatchSettings, by: Submitter) -> JobOptions:
    """Raises NotHonoured."""
    options: JobOptions = {
        "name": f"{_NO_NAME.sub('-', settings.name).strip('-._')[:50] or 'job'}-{secrets.token_hex(3)}",
        "cpu": settings.cpus_per_task * settings.tasks_per_node,
        "env": environment(given.export or "ALL", by.environ),
        "labels": {name: text[:256] for name, text in labels(given, settings).items() if text},
        "constraints": constraints(given),
        "hold": given.hold is not None,
        "grace": KILL_WAIT_S,
    }
    if settings.memory_bytes:
        options["memory"] = settings.memory_bytes
    if given.tmp:
        options["disk"] = read_bytes("--tmp", given.tmp)
    kind, count = gpus(given, settings.nodes, settings.tasks_per_node)
    if count:
        options["gpu"] = f"{kind}x{count}" if kind else count
    if given.time:
        options["timeout"] = read_minutes(given.time)
    if given.signal:
        name, seconds, _ = read_signal(given.signal)
        options["notice"], options["grace"] = f"{name}@{seconds}", max(seconds, KILL_WAIT_S)
    if given.requeue == "no":
        options["max_retries_preemption"] = 0
    if is_project(settings.account):
        options["project"] = settings.account
    add_tasks(options, given, settings)
    add_gates(options, given, settings, by)
    return options


def is_project(account: str) -> bool:
    """Whether an account is the path of a project: no name of an account of Slurm has a slash."""
    return account.startswith("/")


def labels(given: argparse.Namespace, settings: BatchSettings) -> dict[str, str]:
    """The labels that say what a job of Iris has no field for."""
    comment = given.comment or ""
    return {
        NAME: settings.name,
        ACCOUNT: "" if is_project(settings.account) else settings.account,
        PARTITION: settings.partition,
        COMMENT: comment,
    }


def add_tasks(options: JobOptions, given: argparse.Namespace, settings: BatchSettings) -> None:
    """The array, or the gang. Raises NotHonoured."""
    if given.array:
        values, _, limit = given.array.partition("%")
        options["array"], options["keep_going"] = values, True
        if limit:
            options["max_parallel"] = read_count("--array", limit)
    if settings.nodes == 1:
        return
    if given.array:
        raise NotHonoured(
            "--array with --nodes above 1: a gang is no array; submit a job for each value"
        )
    options["replicas"], options["group_by"] = settings.nodes, "hostname:preferred"


def add_gates(
    options: JobOptions, given: argparse.Namespace, settings: BatchSettings, by: Submitter
) -> None:
    """What the job waits for, and its band. Raises NotHonoured."""
    if given.begin:
        options["not_before"] = read_begin(given.begin, by.now)
    if given.kill_on_invalid_dep not in (None, "yes"):
        raise NotHonoured(
            f"--kill-on-invalid-dep={given.kill_on_invalid_dep}: such a job is always killed"
        )
    if given.dependency:
        options["after"], options["each"], alone = read_dependencies(given.dependency)
        if alone:
            options["singleton"] = _NO_NAME.sub("-", settings.name)[:128]
    if given.qos:
        bands = {**BANDS, **{band: band for band in BANDS.values()}}
        if given.qos not in bands:
            raise NotHonoured(f"--qos={given.qos} is refused: use {', '.join(bands)}")
        options["band"] = bands[given.qos]  # type: ignore[typeddict-item]


def job_around(environ: Mapping[str, str]) -> str:
    """The number of the job within which something is submitted; empty: within none."""
    if "IRIS_JOB" not in environ:  # as in a shell of `salloc`
        return ""
    return environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID", "")


def constraints(given: argparse.Namespace) -> list[str]:
    """Conditions on the hosts. Raises NotHonoured."""
    found = []
    if given.partition and DEFAULT_PARTITION not in given.partition.split(","):
        found.append(f"partition in {given.partition}")
    if given.constraint:
        if re.search(r"[^\w&.:-]", given.constraint):
            raise NotHonoured(
                f"--constraint={given.constraint}: only & between attributes; use iris run --constraint"
            )
        found += given.constraint.split("&")
    hosts = {"nodelist": given.nodelist, "exclude": given.exclude}
    for option, text in hosts.items():
        if text and "[" in text:
            raise NotHonoured(
                f"--{option}={text}: write the names of hosts one by one, with commas"
            )
    if given.nodelist and "," in given.nodelist:
        raise NotHonoured(f"--nodelist={given.nodelist}: name one host")
    found += [f'hostname="{given.nodelist}"'] if given.nodelist else []
    return [*found, *(f'hostname!="{host}"' for host in (given.exclude or "").split(",") if host)]


_FOREIGN = re.compile(r"(IRIS|SLURM|SBATCH|SRUN|SALLOC)_")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def environment(export: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a job gets: all, none, or those that are named; none of another job.
    Raises NotHonoured.
    """
    words = export.split(",")
    everything = {
        name: text
        for name, text in environ.items()
        if _VARIABLE.match(name) and not _FOREIGN.match(name)
    }
    found = everything if "ALL" in words else {}
    for word in words:
        name, equals, text = word.partition("=")
        if word in ("ALL", "NONE", "NIL"):
            continue
        if not _VARIABLE.match(name) or _FOREIGN.match(name):
            raise NotHonoured(f"--export={export}: {name} is not the name of a variable of yours")
        if equals or name in environ:
            found[name] = text if equals else environ[name]
    return found
