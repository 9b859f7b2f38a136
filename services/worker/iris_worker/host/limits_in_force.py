"""Which limits hold tasks on this host, and by what: attributes of the worker, a warning for
`iris doctor`. Pure.

Out of scope: setting them (`requests`, `iris_worker.launcher`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from iris_core.placement.limits import LIMIT_CPU, LIMIT_DEVICES, LIMIT_MEMORY, LIMIT_PIDS

NONE = "none"
CGROUP = "cgroup"
RLIMIT = "rlimit"
SAMPLED = "sampled"


class LimitsInForce(NamedTuple):
    """How each limit is enforced, in the order of what is lost without it."""

    memory: str
    cpu: str
    pids: str
    devices: str

    @property
    def attributes(self) -> dict[str, str]:
        return dict(zip((LIMIT_MEMORY, LIMIT_CPU, LIMIT_PIDS, LIMIT_DEVICES), self, strict=True))


def limits_in_force(
    controllers: Collection[str],
    limit_memory: str,
    pids_limit: int,
    *,
    users: bool,
    sandboxed: bool,
) -> LimitsInForce:
    """What `requests` and the launcher enforce.

    Args:
        controllers: of the control groups of attempts. limit_memory, pids_limit: of ``[worker]``.
        users: whether a task has a user of its own, whose processes can be counted.
        sandboxed: whether tasks see only the devices that they are given.
    """
    return LimitsInForce(
        memory=_memory(controllers, limit_memory),
        cpu=CGROUP if "cpu" in controllers else NONE,
        pids=NONE
        if not pids_limit
        else CGROUP
        if "pids" in controllers
        else RLIMIT
        if users
        else NONE,
        devices="sandbox" if sandboxed else NONE,
    )


def _memory(controllers: Collection[str], limit_memory: str) -> str:
    if limit_memory == "off":
        return NONE
    if "memory" in controllers:
        return CGROUP
    return RLIMIT if limit_memory == "rlimit" else SAMPLED


def warnings_of(found: LimitsInForce, groups: str) -> Iterator[tuple[str, str]]:
    """That control groups do not hold tasks to what they request, by code. ``groups``: which there
    are, or why none.
    """
    if found.memory == CGROUP and found.cpu == CGROUP:
        return
    memory = {
        CGROUP: "memory by control groups",
        RLIMIT: "memory by the address space of each process",
        SAMPLED: "memory by samples, once a second",
        NONE: "memory not at all",
    }[found.memory]
    cpu = "processors by control groups" if found.cpu == CGROUP else "processors not at all"
    pids = {
        CGROUP: "processes by control groups",
        RLIMIT: "processes by user",
        NONE: "processes not at all",
    }[found.pids]
    yield "limits_off", f"its tasks are held to {memory}, {cpu}, {pids}; control groups: {groups}"


def refusal(found: LimitsInForce, groups: str, pids_limit: int) -> str:
    """Why a worker that has to enforce limits does not start: the kernel does not hold tasks to
    memory, processors and processes. Empty when it does.

    ``groups``: as of `warnings_of`. ``pids_limit``: of ``[worker]``; 0 asks for no such limit.
    """
    enforced = (CGROUP, RLIMIT)
    lacking = [
        name
        for name, how in (("memory", found.memory), ("cpu", found.cpu), ("pids", found.pids))
        if how not in enforced and (name != "pids" or pids_limit)
    ]
    if not lacking:
        return ""
    return (
        f"[worker] require_limits: this host does not limit what tasks use of {', '.join(lacking)}; control groups: "
        f"{groups}. Delegate control groups to the worker (docs/hosts.md#limits-of-tasks), or set require_limits = "
        "false: then tasks may use more than they ask for"
    )
