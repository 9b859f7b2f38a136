"""First fit for one class: iterates over the workers it may use, never back, because free capacity only shrinks
meanwhile.

Order and its reasons are in `placement.columns`. O(workers) per class and cycle, however many tasks the class has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from iris_scheduler.placement.capacity import Need, Room, Slots, with_room

_FIRST_STRETCH = 64
_LAST_STRETCH = 2048
_FEW = 16
"""Workers taken up at a time: workers further on may be filled by other classes meanwhile."""


class Candidates:
    """The position of one class in its iteration over workers, within one cycle."""

    def __init__(self, room: Room, need: Need, workers: Slots) -> None:
        self._room = room
        self._need = need
        self._workers = workers
        self._seen = 0
        self._stretch = _FIRST_STRETCH
        self._ahead = workers[:0]
        self._next: list[int] = []

    def seat(self, count: int) -> list[int]:
        """Place up to ``count`` tasks and return their workers; fewer when no worker has enough free for one more."""
        fill, need = self._room.fill, self._need
        seats: list[int] = []
        while len(seats) < count and (self._next or self._look_on()):
            slot = self._next[-1]
            wanted = count - len(seats)
            fits = fill(slot, need, wanted)
            if not fits:  # other classes have filled it, and perhaps later ones
                self._next.clear()
            elif fits < wanted:
                self._next.pop()
            seats += [slot] * fits
        return seats

    def seat_beside(self, shunned: Collection[int], last: Iterable[int]) -> int | None:
        """Place one task on a worker outside ``shunned``, which includes ``last``; if none fits, on one of ``last``."""
        ahead = with_room(self._room.matrix, self._need, self._workers[self._seen :])
        for slots in (self._ahead.tolist(), ahead.tolist(), last):
            for slot in slots:
                if (slots is last or slot not in shunned) and self._room.holds(slot, self._need) > 0:
                    self._room.take(slot, self._need)
                    return int(slot)
        return None

    def _look_on(self) -> bool:
        """Find the next few workers with free capacity. False when there are no more."""
        matrix = self._room.matrix
        if len(self._ahead):
            self._ahead = with_room(matrix, self._need, self._ahead)
        while not len(self._ahead) and self._seen < len(self._workers):
            self._ahead = with_room(matrix, self._need, self._workers[self._seen : self._seen + self._stretch])
            self._seen += self._stretch
            self._stretch = min(self._stretch * 2, _LAST_STRETCH)
        self._next = self._ahead[:_FEW][::-1].tolist()
        return bool(self._next)
