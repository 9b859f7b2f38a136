"""First fit for one class: its way along the workers it may use. Room only shrinks meanwhile, so it never turns back.

Order and its reasons are in `columns`. O(workers) per class and cycle, however many tasks the class has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from iris_scheduler.capacity import Need, Room, Slots, fitting

_FIRST_STRETCH = 64
_LAST_STRETCH = 8192


class Walk:
    """Where a class has come to in one cycle."""

    def __init__(self, room: Room, need: Need, workers: Slots) -> None:
        self._room = room
        self._need = need
        self._workers = workers
        self._seen = 0
        self._stretch = _FIRST_STRETCH
        self._next: list[int] = []

    def seat(self, count: int) -> list[int]:
        """Place up to ``count`` tasks and return their workers; fewer means that no worker has room for one more."""
        room, need, near = self._room, self._need, self._next
        seats: list[int] = []
        while len(seats) < count and (near or self._look_on()):
            slot = near[-1]
            fits = min(room.holds(slot, need), count - len(seats))
            if fits > 0:
                room.take(slot, need, fits)
                seats += [slot] * fits
            else:
                near.pop()
        return seats

    def seat_beside(self, shunned: Collection[int], last: Iterable[int]) -> int | None:
        """Place one task on none of ``shunned``, which holds all of ``last``; if nowhere else, on one of ``last``."""
        ahead = self._workers[self._seen :]
        for slots in (reversed(self._next), ahead[fitting(self._room.matrix, self._need, ahead)].tolist(), last):
            for slot in slots:
                if (slots is last or slot not in shunned) and self._room.holds(slot, self._need) > 0:
                    self._room.take(slot, self._need)
                    return int(slot)
        return None

    def _look_on(self) -> bool:
        """Find more workers with room ahead. False at the end of the way."""
        while not self._next and self._seen < len(self._workers):
            ahead = self._workers[self._seen : self._seen + self._stretch]
            self._seen += len(ahead)
            self._stretch = min(self._stretch * 4, _LAST_STRETCH)
            self._next.extend(ahead[fitting(self._room.matrix, self._need, ahead)][::-1].tolist())
        return bool(self._next)
