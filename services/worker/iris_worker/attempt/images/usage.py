"""What containers use, by the control groups in which their runtimes put them.

A container's processes are known by the directory of their attempt in their environment, and by a
process namespace that is not this process'. Out of scope: when it is measured (containers).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import LiveUsage, TaskUsage
from iris_worker.launcher.cgroups import files
from iris_worker.launcher.kernel import tree


@dataclass(slots=True, eq=False)
class RunningContainer:
    """A container that runs.

    Attributes:
        groups: the directories of its control groups by controller; empty: not found yet.
        usage: as it was measured last; None: never.
    """

    ref: AttemptRef
    slot: int
    groups: dict[str, str] = field(default_factory=dict)
    usage: LiveUsage | None = None


def measure(attempts: str, running: Iterable[RunningContainer]) -> None:
    """Measure containers. Slow where one has started since the last call: all processes are read
    then.
    """
    containers = list(running)
    if new := {one.slot for one in containers if not one.groups}:
        found = _find(attempts, new)
        for one in containers:
            if one.slot in found:
                one.groups = one.groups or _groups_of(found[one.slot])
    for one in containers:
        one.usage = read_usage(one.ref, one.groups) or one.usage


def _find(attempts: str, slots: Collection[int]) -> dict[int, int]:
    """A process of the container of each slot, where there is one."""
    outside = {0, tree.process_namespace(os.getpid())}
    found = {}
    for pid in tree.all_pids():
        slot = tree.slot_of(pid, attempts)
        if slot in slots and slot is not None and tree.process_namespace(pid) not in outside:
            found[slot] = pid
    return found


def _groups_of(pid: int) -> dict[str, str]:
    return files.own_directories(_read("/proc/self/mountinfo"), _read(f"/proc/{pid}/cgroup"))


def read_usage(ref: AttemptRef, groups: dict[str, str]) -> LiveUsage | None:
    """What the processes of these groups use; None when they are gone."""
    version = 1 if "memory" in groups else 2
    memory = groups.get("memory") or groups.get(files.UNIFIED, "")
    now, peak = (_number(f"{memory}/{names[version]}") for names in (files.NOW, files.PEAK))
    if not memory or not now:
        return None
    table = files.flat_keyed(_read(f"{memory}/{files.STAT[version]}"))
    cache = sum(table.get(name, 0) for name in files.FILE_CACHE[version])
    if version == 1:
        cpu_ms = _number(f"{groups.get('cpuacct', '')}/cpuacct.usage") // 1_000_000
        io = (0, 0)
    else:
        cpu_ms = files.flat_keyed(_read(f"{memory}/cpu.stat")).get("usage_usec", 0) // 1000
        io = files.io_bytes(_read(f"{memory}/io.stat"))
    return LiveUsage(ref, TaskUsage(cpu_ms, *io), max(0, now - cache), max(0, peak - cache))


def _number(path: str) -> int:
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0


def _read(path: str) -> str:
    """The contents of a file; empty when it is not there."""
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""
