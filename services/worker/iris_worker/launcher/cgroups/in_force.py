"""Which limits of tasks a host enforces, and what is said where it does not. Pure.

Out of scope: the limits (`limits`), and what a container's runtime enforces.
"""

from __future__ import annotations

from typing import Literal

from iris_core.spec.resources import RESOURCE, ResourceRequest
from iris_worker.launcher.cgroups.files import CgroupSupport

MemoryLimit = Literal["cgroup", "rlimit", "off"]


def missing_limits(
    found: CgroupSupport, memory: MemoryLimit, *, counts_users: bool
) -> dict[str, str]:
    """Which of memory, cpu and pids this host does not limit, and why, for a person.

    Args:
        memory: `[worker] limit_memory`. counts_users: whether each task has a user of its own,
            whose processes the kernel counts.
    """
    why = found.trouble and f"no control groups ({found.trouble})"
    missing = {
        name: why or f"no controller {name} ({found})"
        for name in ("memory", "cpu", "pids")
        if name not in found.controllers
    }
    if memory == "rlimit":
        missing.pop("memory", None)
    elif memory == "off":
        missing["memory"] = "[worker] limit_memory is off"
    if counts_users:
        missing.pop("pids", None)
    return missing


def refusal(missing: dict[str, str]) -> str:
    """Why a worker that has to enforce limits does not start; empty when it enforces them."""
    if not missing:
        return ""
    listed = "; ".join(f"{name}: {why}" for name, why in missing.items())
    return (
        f"[worker] require_limits: this host does not limit what tasks use of {listed}. Delegate control groups to the "
        "worker (docs/hosts.md#limits-of-tasks), or set require_limits = false: then tasks may use more than they ask for"
    )


def unenforced(asked: ResourceRequest, missing: dict[str, str]) -> str:
    """What of a request this host does not enforce, as a sentence; empty when there is nothing."""
    found = []
    if asked.memory_bytes and "memory" in missing:
        amount = RESOURCE["memory_bytes"].unit.show(asked.memory_bytes)
        found.append(f"memory {amount} is not enforced there: {missing['memory']}")
    if asked.cpu_limit_millis and "cpu" in missing:
        amount = RESOURCE["cpu_millis"].unit.show(asked.cpu_limit_millis)
        found.append(f"cpu limit {amount} is not enforced there: {missing['cpu']}")
    return "; ".join(found)
