"""Which limits hold tasks on a host, told as attributes and as a warning."""

from __future__ import annotations

import pytest

from iris_core.placement.limits import not_in_force
from iris_core.spec.resources import Device, ResourceRequest
from iris_worker.host.limits_in_force import limits_in_force, refusal, warnings_of

ALL = ("cpu", "memory", "pids")
NO_MEMORY = ("cpu", "pids")
NO_GROUPS = ()


@pytest.mark.parametrize(
    ("groups", "limit_memory", "pids", "users", "sandboxed", "found"),
    [
        (ALL, "cgroup", 100, False, False, ("cgroup", "cgroup", "cgroup", "none")),
        (ALL, "rlimit", 100, False, True, ("cgroup", "cgroup", "cgroup", "sandbox")),
        (ALL, "off", 0, False, False, ("none", "cgroup", "none", "none")),
        (NO_MEMORY, "cgroup", 100, False, False, ("sampled", "cgroup", "cgroup", "none")),
        (NO_MEMORY, "rlimit", 100, False, False, ("rlimit", "cgroup", "cgroup", "none")),
        (NO_GROUPS, "cgroup", 100, False, False, ("sampled", "none", "none", "none")),
        (NO_GROUPS, "cgroup", 100, True, False, ("sampled", "none", "rlimit", "none")),
        (NO_GROUPS, "off", 100, True, False, ("none", "none", "rlimit", "none")),
    ],
)
def test_a_host_tells_by_what_each_limit_is_enforced(
    groups: tuple[str, ...],
    limit_memory: str,
    pids: int,
    users: bool,
    sandboxed: bool,
    found: tuple[str, ...],
) -> None:
    limits = limits_in_force(groups, limit_memory, pids, users=users, sandboxed=sandboxed)

    names = ("limit-memory", "limit-cpu", "limit-pids", "limit-devices")
    assert limits.attributes == dict(zip(names, found, strict=True))


def test_a_host_whose_groups_limit_tasks_warns_of_nothing() -> None:
    limits = limits_in_force(ALL, "cgroup", 100, users=False, sandboxed=False)

    assert dict(warnings_of(limits, "v2 cpu memory pids")) == {}


def test_a_host_without_groups_says_what_tasks_are_held_to_and_why() -> None:
    limits = limits_in_force(NO_GROUPS, "cgroup", 100, users=False, sandboxed=False)

    assert dict(warnings_of(limits, "none: read-only")) == {
        "limits_off": "its tasks are held to memory by samples, once a second, processors not at all, "
        "processes not at all; control groups: none: read-only"
    }


@pytest.mark.parametrize(
    ("ask", "attributes", "words"),
    [
        (ResourceRequest(), {"limit-memory": "none", "limit-cpu": "none"}, []),
        (ResourceRequest(memory_bytes=1), {}, []),
        (ResourceRequest(memory_bytes=1), {"limit-memory": "cgroup"}, []),
        (ResourceRequest(memory_bytes=1), {"limit-memory": "none"}, ["memory is not limited"]),
        (
            ResourceRequest(memory_bytes=1),
            {"limit-memory": "sampled"},
            ["memory is limited by samples once a second"],
        ),
        (
            ResourceRequest(cpu_limit_millis=1),
            {"limit-cpu": "none"},
            ["use of processors is not limited"],
        ),
        (
            ResourceRequest(device=Device("gpu", "auto", 1)),
            {"limit-devices": "none"},
            ["its devices are told to it, and others are not hidden"],
        ),
        (ResourceRequest(device=Device("gpu", "auto", 1)), {"limit-devices": "sandbox"}, []),
    ],
)
def test_what_a_task_asks_for_and_its_host_does_not_enforce_is_named(
    ask: ResourceRequest, attributes: dict[str, str], words: list[str]
) -> None:
    assert list(not_in_force(ask, attributes)) == words


def test_a_worker_that_must_limit_and_cannot_is_told_why_and_what_to_do():
    groups = "/sys/fs/cgroup: Read-only file system"
    nothing = limits_in_force((), "cgroup", 4096, users=True, sandboxed=True)
    words = refusal(nothing, groups, 4096)
    assert "what tasks use of memory, cpu; control groups: /sys/fs/cgroup: Read-only" in words
    assert "docs/hosts.md#limits-of-tasks" in words
    assert "require_limits = false" in words
    every = ("cpu", "memory", "pids")
    by_groups = limits_in_force(every, "cgroup", 4096, users=False, sandboxed=False)
    assert refusal(by_groups, "v2", 4096) == ""
    by_kernel = limits_in_force(("cpu", "pids"), "rlimit", 4096, users=False, sandboxed=False)
    assert refusal(by_kernel, "v1", 4096) == ""
