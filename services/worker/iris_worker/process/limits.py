"""Kernel limits of a task: inherited from this process, or set once the task runs.

Out of scope: control groups, which hold whole groups and need a host that delegates them.
Source: docs/design/reliability.md#security.
"""

from __future__ import annotations

import contextlib
import resource

from iris_core.resources import ResourceRequest

Limits = tuple[tuple[int, int], ...]
"""Resource and value, each soft and hard."""


def prepare_process(core_bytes: int) -> None:
    """For this process and every task: no larger core files than this, and as many open files as the host allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    allowed = core_bytes if hard == resource.RLIM_INFINITY else min(core_bytes, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (allowed, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def memory_limits(ask: ResourceRequest) -> Limits:
    """A task may not allocate more than it asked for, each process of it; who asked for nothing is not held to it."""
    return ((resource.RLIMIT_DATA, ask.memory_bytes),) if ask.memory_bytes else ()


def hold(pid: int, limits: Limits) -> None:
    """Set limits on a process that was just started; nothing happens when it is gone already."""
    for which, value in limits:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, which, (value, value))
