"""Finds the processes of the previous launcher: which still run, and how the others ended as far as
that is known.

A process matches an entry of the process store only if its start time is equal, so a process with a
reused id is never touched. Out of scope: what is done with the findings.
Source: docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection

from iris_worker.launcher.kernel import tree
from iris_worker.launcher.kernel.signals import signal_process
from iris_worker.launcher.processes.exits import to_exit
from iris_worker.launcher.records.process_table import StoredProcess
from iris_worker.launcher.records.records import Exit

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def exit_of(entry: StoredProcess, result: str = "") -> Exit | None:
    """How an attempt's first process ended; None while it runs.

    ``result``: the file of a call's result. One that has ended well without has sent it to the
    launcher that is gone.
    """
    if not is_same(entry):
        return Exit(known=False)
    status = tree.zombie_status(entry.started.pid)
    if status == 0 and entry.started.call and not os.path.lexists(result):
        return Exit(known=False)
    return None if status is None else to_exit(status, 0)


def is_same(entry: StoredProcess) -> bool:
    """Whether the process with the entry's id is the one that the entry was written for."""
    ticks = tree.started_ticks(entry.started.pid)
    if not ticks:
        return False
    started_s = ticks * _TICK_S
    return entry.started.after_s - 2 * _TICK_S <= started_s <= entry.started.before_s + 2 * _TICK_S


def kill_orphans(attempts: str, alive: Collection[int]) -> int:
    """Kill processes that were started below directory ``attempts`` in slots without a live
    attempt, and commands beside one; returns how many.
    """
    found = [(pid, tree.started_ticks(pid), tree.slot_of(pid, attempts)) for pid in tree.all_pids()]
    orphans = [
        (pid, at)
        for pid, at, slot in found
        if slot is not None and (slot not in alive or tree.is_beside(pid))
    ]
    return sum(signal_process(pid, at, signal.SIGKILL) for pid, at in orphans)
