"""Nominations: places reserved for tasks that wait for preempted work to stop.

On a worker with nominations, other tasks may not use what the nominated tasks will still lack once
everything that is stopping there has stopped. A nomination is invalid when its worker cannot take
the task, when the task needs a worker without attempts, or when what is free and what is being
freed there in time is not enough: then the task waits like any other. A gang's nominations are
valid together or not at all, and only while the workers of each slice are in one group: a worker
may come back with other attributes. A nominated task goes wherever it fits first; a place it does
not use is free for others from the next cycle on.
Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Sequence

from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.mirror.capacity import NOTHING, Matrix, Need, Room, covers, minus, plus

TaskKey = tuple[int, int]


class Nominations:
    """The valid nominations of one cycle.

    Attributes:
        slots: the worker of each nominated task.
    """

    def __init__(self, cycle: Cycle, free: Matrix) -> None:
        """Find the valid nominations and subtract what they need from ``free``."""
        self._cycle = cycle
        self._left: list[tuple[int, int]] = []
        self._nominated: dict[int, list[int]] = {}
        self._stopping: dict[int, list[int]] = {}
        self.slots = self._good(free) if cycle.mirror.nominations else {}
        for (job, _), slot in self.slots.items():
            self._nominated[slot] = plus(
                self._nominated.get(slot, NOTHING), cycle.mirror.kinds[job].need.amounts
            )
        for slot in self._nominated:
            self._stopping[slot] = self._cycle.coming(self._cycle.columns.names[slot])
            free[:, slot] -= self._lack(slot)

    def __contains__(self, task: TaskKey) -> bool:
        return task in self.slots

    def seat(self, room: Room, task: TaskKey, need: Need) -> int | None:
        """Assign a nominated task to its worker. None while the work there has not stopped."""
        slot = self.slots[task]
        if not self.is_free(room, task, need):
            return None
        self._release(room, slot, need, minus(self._unreserved(room, slot), need.amounts))
        del self.slots[task]
        return slot

    def leave(self, task: TaskKey) -> None:
        """A task was assigned elsewhere: drop its nomination, if any."""
        slot = self.slots.pop(task, None)
        if slot is not None:
            self._left.append((slot, task[0]))

    def give_back(self, room: Room) -> None:
        """Return the capacity of dropped nominations; nothing further is placed in this cycle."""
        for slot, job in self._left:
            self._release(
                room, slot, self._cycle.mirror.kinds[job].need, self._unreserved(room, slot)
            )
        self._left.clear()

    def is_free(self, room: Room, task: TaskKey, need: Need) -> bool:
        """Whether a nominated task could start now."""
        return covers(self._unreserved(room, self.slots[task]), need)

    def at(self, slot: int) -> Sequence[int]:
        """What the nominated tasks of a worker need, all dimensions."""
        return self._nominated.get(slot, NOTHING)

    def coming(self, slot: int, stopping: Sequence[int]) -> list[int]:
        """What will be free on a worker, besides its nominations, once all stopping attempts have
        ended.
        """
        return [max(0, amount) for amount in minus(stopping, self.at(slot))]

    def _release(self, room: Room, slot: int, need: Need, left: Sequence[int]) -> None:
        """Give a worker's capacity back that one nominated task no longer needs."""
        self._nominated[slot] = minus(self._nominated[slot], need.amounts)
        room.put(slot, minus(left, self._lack(slot)))

    def _unreserved(self, room: Room, slot: int) -> list[int]:
        return plus(room.at(slot), self._lack(slot))

    def _lack(self, slot: int) -> list[int]:
        """What the nominated tasks of a worker lack in its present free capacity."""
        return [max(0, amount) for amount in minus(self._nominated[slot], self._stopping[slot])]

    def _good(self, free: Matrix) -> dict[TaskKey, int]:
        slots = {
            task: slot
            for task in self._cycle.mirror.nominations
            if (slot := self._slot_of(task)) is not None
        }
        wanted: dict[int, list[int]] = {}
        for (job, _), slot in slots.items():
            wanted[slot] = plus(
                wanted.get(slot, NOTHING), self._cycle.mirror.kinds[job].need.amounts
            )
        bad = {slot for slot, amounts in wanted.items() if self._never_free(slot, amounts, free)}
        slots = {task: slot for task, slot in slots.items() if slot not in bad}
        broken = {
            job for job, index in self._cycle.mirror.nominations if self._is_broken_gang(job, slots)
        }
        return {task: slots[task] for task in sorted(slots) if task[0] not in broken}

    def _slot_of(self, task: TaskKey) -> int | None:
        worker = self._cycle.mirror.nominations[task]
        slot = self._cycle.columns.slot.get(worker)
        mirror = self._cycle.mirror
        if slot is None or task not in mirror.queue or not mirror.places(task[0], 1):
            return None
        if self._cycle.is_apart(*task):
            return None
        if not self._cycle.mirror.hosts.host(worker).takes_work:
            return None
        return (
            slot
            if self._cycle.columns.usable(self._cycle.mirror.kinds[task[0]]).mask[slot]
            else None
        )

    def _never_free(self, slot: int, wanted: Sequence[int], free: Matrix) -> bool:
        there = plus(free[:, slot].tolist(), self._cycle.coming(self._cycle.columns.names[slot]))
        return any(amount > have for amount, have in zip(wanted, there, strict=True) if amount)

    def _is_broken_gang(self, job: int, slots: dict[TaskKey, int]) -> bool:
        kind = self._cycle.mirror.kinds[job]
        if not kind.is_gang:
            return False
        tasks = [(job, index) for index in self._cycle.mirror.queue.pending(job)]
        groups = self._cycle.columns.groups(kind)
        codes = [int(groups.codes[slots[task]]) if task in slots else -1 for task in tasks]
        return not groups.holds_slices(codes, kind.slices)
