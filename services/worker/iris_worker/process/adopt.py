"""Finds the attempts of the previous worker process: which still run, which ended and how.

A process matches an entry of the process store only if its start time is equal, so a process with a reused id is never
touched. Out of scope: what is done with the findings.
Source: docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iris_core.messages import AttemptRef, Ended, Stage
from iris_core.states import Cause, KernelStatus
from iris_worker.process import tree
from iris_worker.process.runner import signal_process, to_exit
from iris_worker.process.store import StoredProcess

UNKNOWN = "exit code unknown: the worker process ended while it ran"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Findings:
    """The result: entries whose process runs, and the ends of all others."""

    alive: dict[AttemptRef, StoredProcess] = field(default_factory=dict)
    ended: dict[AttemptRef, tuple[StoredProcess, Stage]] = field(default_factory=dict)


def look(entries: Mapping[AttemptRef, StoredProcess], now_ms: int) -> Findings:
    """Check every attempt of the process store. An attempt that had ended before has the end recorded there."""
    findings = Findings()
    for ref, entry in entries.items():
        if entry.over is not None:
            findings.ended[ref] = (entry, entry.over)
        elif is_same(entry):
            status = tree.zombie_status(entry.started.pid)
            if status is None:
                findings.alive[ref] = entry
            else:
                findings.ended[ref] = (entry, Stage(ref, KernelStatus.TERMINATED, now_ms, ended_by(status)))
        else:
            lost = Ended(Cause.WORKER_CRASHED, error=UNKNOWN)
            findings.ended[ref] = (entry, Stage(ref, KernelStatus.ERROR, now_ms, lost))
    return findings


def is_same(entry: StoredProcess) -> bool:
    """Whether the process with the entry's id is the one that the entry was written for."""
    ticks = tree.started_ticks(entry.started.pid)
    if not ticks:
        return False
    started_s = ticks * _TICK_S
    return entry.started.after_s - 2 * _TICK_S <= started_s <= entry.started.before_s + 2 * _TICK_S


def ended_by(status: int) -> Ended:
    """The end for a wait status."""
    exit_ = to_exit(status, 0)
    return Ended(Cause.EXITED, exit_.code, exit_.signal)


def kill_orphans(attempts: str, alive: Collection[int]) -> int:
    """Kill processes that were started below directory ``attempts`` in slots without a live attempt, and probes;
    returns how many.
    """
    found = [(pid, tree.started_ticks(pid), tree.slot_of(pid, attempts)) for pid in tree.all_pids()]
    orphans = [(pid, at) for pid, at, slot in found if slot is not None and (slot not in alive or tree.is_probe(pid))]
    return sum(signal_process(pid, at, signal.SIGKILL) for pid, at in orphans)


def boot_id() -> str:
    """The id of this boot of the host; empty where the kernel does not provide it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
