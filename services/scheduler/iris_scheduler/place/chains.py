"""Lets tasks of a job whose attempts are short wait behind those that run: the next starts without
a round trip.

Only on workers that no task of an earlier job waits for. Every open attempt of a job is a chain,
and all get the same length, up to `WORK_MS` of expected work.
Source: docs/design/calls.md#chains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Extension
from iris_core.placement.chains import LONGEST, SEEN, SHORT_MS, WORK_MS
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.mirror.capacity import Mask
from iris_scheduler.mirror.chains import JobChains
from iris_scheduler.place.assignments import Assignments


class ChainPlacer:
    """Extends the chains of one cycle, after all placements and preemptions."""

    def __init__(self, cycle: Cycle, assignments: Assignments) -> None:
        self._cycle = cycle
        self._assignments = assignments
        self._taken: dict[str, int] = {}

    def extensions(self) -> Iterator[Extension]:
        """The tasks that wait behind open attempts from now on, in queue order."""
        cycle = self._cycle
        mirror = self._cycle.mirror
        if not any(self._may_wait(job) for job in mirror.chains if mirror.queue.pending(job)):
            return
        wanted = np.zeros(len(cycle.columns), np.bool_)
        for job in mirror.queue.jobs():
            waiting = self._assignments.waiting(job)
            given = 0
            for extension in self._of(job, waiting, wanted) if self._may_wait(job) else ():
                given += len(extension.indexes)
                yield extension
            if given < len(waiting):
                wanted |= cycle.columns.usable(mirror.kinds[job]).mask
                if wanted.all():
                    return

    def _may_wait(self, job: int) -> bool:
        """Whether tasks of a job may wait behind others now: it is not paused, within its user's
        quota, and short.
        """
        cycle = self._cycle
        chains = self._cycle.mirror.chains.get(job)
        if (
            chains is None
            or not cycle.mirror.jobs[job].chained
            or job in cycle.special
            or not self._assignments.within(job, 1)
        ):
            return False
        return chains.seen >= SEEN and chains.mean_ms < SHORT_MS

    def _of(self, job: int, waiting: Sequence[int], wanted: Mask) -> Iterator[Extension]:
        """Extensions of a job's chains to the same length; those that are not half empty yet are
        left for later.

        ``wanted``: the workers that tasks of earlier jobs wait for.
        """
        chains = self._cycle.mirror.chains[job]
        most = min(LONGEST, max(1, WORK_MS // max(1, chains.mean_ms)))
        found = sorted(self._open(job, chains, wanted))
        placed = sum(
            len(one.indexes) for one in self._assignments.given if one.job == job
        )  # chains in the next cycle
        total = len(waiting) + sum(length for length, _, _ in found) + placed
        target = min(most, -(-total // max(1, len(found) + placed)))
        at = 0
        for length, name, worker in found:
            count = (
                min(target - length, len(waiting) - at, self._room(worker))
                if length * 2 <= target
                else 0
            )
            if count > 0:
                self._taken[worker] = self._taken.get(worker, 0) + count
                yield Extension(name, worker, tuple(waiting[at : at + count]))
                at += count

    def _open(
        self, job: int, chains: JobChains, wanted: Mask
    ) -> Iterator[tuple[int, AttemptRef, str]]:
        """The length, name and worker of each chain that may be extended: what runs in it has not
        run for long.
        """
        kept = {slot for slot, _ in self._assignments.reservations.kept()} | set(
            self._assignments.nominations.slots.values()
        )
        columns = self._cycle.columns
        need = self._cycle.mirror.kinds[job].need
        room = self._assignments.room
        for name, chain in chains.open.items():
            slot = columns.slot.get(chain.worker)
            if slot is None or slot in kept or wanted[slot] or chain.stopping:
                continue
            if self._cycle.now_ms - max(chain.since_ms.values()) > SHORT_MS:
                continue
            free = room.at(slot)
            if all(free[dimension] >= amount for dimension, amount in need.held):
                # the next task gets a place of its own there as soon as one may be prepared
                continue
            yield len(chain.since_ms), name, chain.worker

    def _room(self, worker: str) -> int:
        """How many more attempts may be open on a worker."""
        host = self._cycle.mirror.hosts.host(worker)
        if host.row is None or not (host.row.chains and host.takes_work):
            return 0
        placed = self._assignments.placed_on(self._cycle.columns.slot[worker])
        return max(
            0, host.row.max_attempts - len(host.holds) - len(placed) - self._taken.get(worker, 0)
        )
