"""Kernel limits of a task: inherited from this process, or set by its process before it becomes its
program.

See also: `cgroup` limits all processes of an attempt together, where the host lets it.
Source: docs/design/reliability.md#security.
"""

from __future__ import annotations

import contextlib
import resource

from iris_core.spec.resources import ResourceRequest
from iris_worker.launcher.cgroups.files import Cgroup

Limits = tuple[tuple[int, int], ...]
"""Resource and value, each soft and hard."""


def prepare_process(core_bytes: int) -> None:
    """Set limits of this process, which tasks inherit: core file size, and the host's maximum of
    open files.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    allowed = core_bytes if hard == resource.RLIM_INFINITY else min(core_bytes, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (allowed, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def memory_limits(ask: ResourceRequest) -> Limits:
    """Limit each process of a task to the memory that the task requested; without a request there
    is no limit.

    What a process has reserved counts, not what it uses, which stops programs with many threads.
    """
    return ((resource.RLIMIT_DATA, ask.memory_bytes),) if ask.memory_bytes else ()


def sampled_limit(ask: ResourceRequest) -> int:
    """How many bytes all processes of a task may hold by samples; 0 is no limit."""
    return ask.memory_bytes


def process_limits(pids: int) -> Limits:
    """Limit the processes and threads of a task whose user nobody else is; 0 is no limit."""
    return ((resource.RLIMIT_NPROC, pids),) if pids else ()


def group_limits(ask: ResourceRequest, pids: int, *, memory: bool) -> Cgroup:
    """Limit the control group of a task to what the task requested; ``memory`` False: but its
    memory.
    """
    return Cgroup(ask.memory_bytes if memory else 0, ask.cpu_millis, ask.cpu_limit_millis, pids)


def hold(limits: Limits) -> None:
    """Set limits on this process; those that are lower already stay."""
    for which, value in limits:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (value, value))
