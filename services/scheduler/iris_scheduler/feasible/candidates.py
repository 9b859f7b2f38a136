"""First fit for one class: iterates over the workers it may use, never back, because free capacity only shrinks
meanwhile.

Order and its reasons are in `placement.columns`. O(workers) per class and cycle, however many tasks the class has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import takewhile

from iris_scheduler.mirror.capacity import Need, Room, Slots, with_room

_FIRST_STRETCH = 64
_LAST_STRETCH = 2048
_FEW = 16
"""Workers taken up at a time: workers further on may be filled by other classes meanwhile."""


_SMALL = 256
"""Up to so many workers, the tasks of one job are spread over as many as are taken up at a time, else over a quarter:
each more costs a microsecond a job.
"""


class Candidates:
    """The position of one class in its iteration over workers, within one cycle.

    ``boundary``: tasks are spread over workers on one side of it at a time, those before it first.
    """

    def __init__(self, room: Room, need: Need, workers: Slots, boundary: int = 0) -> None:
        self._room = room
        self._need = need
        self._workers = workers
        self._boundary = boundary
        self._over = _FEW if len(workers) <= _SMALL else _FEW // 4
        self._seen = 0
        self._stretch = _FIRST_STRETCH
        self._ahead = workers[:0]
        self._next: list[int] = []

    def seat(self, count: int, *, spread: bool = False) -> list[int]:
        """Place up to ``count`` tasks and return their workers; fewer when no worker has enough free for one more.

        ``spread``: evenly over the next few workers, in turn, instead of one after the other.
        """
        fill, need = self._room.fill, self._need
        seats: list[int] = []
        turn = 0
        while len(seats) < count and (self._next or self._look_on()):
            slot = self._next[-1]
            wanted = count - len(seats)
            if spread:
                turn = turn or min(len(self._next), self._over)
                wanted = -(-wanted // turn)
                turn -= 1
            fits = fill(slot, need, wanted)
            if not fits:  # other classes have filled it, and perhaps later ones
                self._next.clear()
                turn = 0
            elif fits < wanted:
                self._next.pop()
            elif spread:
                self._next.insert(0, self._next.pop())
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
        few = self._ahead[:_FEW]
        self._next = few[::-1].tolist()
        if self._next and self._next[-1] < self._boundary <= self._next[0]:
            self._next = [*takewhile(lambda slot: slot < self._boundary, reversed(self._next))][::-1]
        return bool(self._next)
