"""Finds children of the launcher that it did not start: what attempts and spare processes have
left, alive or zombies.

Whose one is follows from its session, and when it has left that too, from its first environment.
One that cannot be identified is ended with the last of the attempts that ran when it was first
seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from iris_core.messages.message import AttemptRef
from iris_worker.launcher.kernel import tree
from iris_worker.launcher.processes.process import KnownProcesses, Process
from iris_worker.launcher.records.records import EmptySlot
from iris_worker.launcher.starts.sandbox import Sandboxes


class Strays:
    """Those of one launcher.

    Args:
        attempts: the directory of the slots' directories. is_spare: whether a process has no
            attempt.
    """

    def __init__(
        self,
        attempts: str,
        processes: KnownProcesses,
        sandboxes: Sandboxes,
        is_spare: Callable[[int], bool],
    ) -> None:
        self._attempts = attempts
        self._processes = processes
        self._sandboxes = sandboxes
        self._is_spare = is_spare
        self._children = tree.Children(os.getpid())
        self._unowned: dict[int, set[AttemptRef]] = {}

    def is_known(self, pid: int) -> bool:
        """Whether a process is known as anything."""
        known = self._processes
        return (
            pid in known.by_pid
            or pid in known.commands
            or pid in self._sandboxes.pids
            or self._is_spare(pid)
        )

    def look_for(self, ended: list[Process]) -> None:
        """Add what is found to the strays of attempts, of which these have ended."""
        gone = {process.ref for process in ended}
        for pid in self._unknown():
            owner = self._owner(pid)
            if owner is None and self._nobodys(pid, gone):
                owner = ended[0]
            if owner is not None:
                owner.strays[pid] = tree.started_ticks(pid)

    def left_by(self, process: Process) -> bool:
        """Whether descendants of a process may live, as far as the kernel tells without control
        groups.
        """
        return (
            bool(tree.children(process.pid))
            or self._sandboxes.holds_orphans(process.slot)
            or any(self._owner(pid) in (process, None) for pid in self._unknown())
        )

    def left_in(self, request: EmptySlot) -> list[int]:
        """What spare processes have left in a slot that has no attempt, as far as it has a sandbox
        or a user.
        """
        found = [self._sandboxes.left(request.slot, empty=False)]
        if request.uid is not None:
            found += [pid for pid in self._unknown() if tree.user_of(pid) == request.uid]
        return list(filter(None, found))

    def reaped(self, pid: int) -> None:
        """A child of this process has ended, maybe one of these."""
        self._unowned.pop(pid, None)

    def _unknown(self) -> list[int]:
        """Children that this process did not start, but not clones that were not told to go."""
        found = [pid for pid in self._children.pids() if not self.is_known(pid)]
        return [pid for pid in found if not self._is_spare(tree.session_of(pid))]

    def _owner(self, pid: int) -> Process | None:
        process = self._processes.by_pid.get(tree.session_of(pid))
        if process is not None:
            return process
        slot = tree.slot_of(pid, self._attempts)
        found = self._processes.by_slot.get(slot, []) if slot is not None else []
        return found[0] if len(found) == 1 else None

    def _nobodys(self, pid: int, gone: set[AttemptRef]) -> bool:
        """Whether all processes that were alive when this unidentified process was first seen have
        ended.
        """
        running = self._processes.by_ref
        suspects = self._unowned.setdefault(pid, set(running))
        suspects &= running.keys() - gone
        return not suspects
