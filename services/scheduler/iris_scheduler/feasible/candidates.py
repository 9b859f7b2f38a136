"""First fit for one class: iterates over the workers it may use, never back, because free capacity
only shrinks meanwhile.

Order and its reasons are in `mirror.columns`. O(workers) per class and cycle, however many tasks
the class has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import takewhile

from iris_scheduler.mirror.capacity import Need, Room, with_room
from iris_scheduler.mirror.columns import Usable

_FIRST_STRETCH = 64
_LAST_STRETCH = 2048
_FEW = 16
"""Workers taken up at a time: workers further on may be filled by other classes meanwhile."""


_SMALL = 256
"""Up to so many workers, the tasks of one job are spread over as many as are taken up at a time,
else over a quarter: each more costs a microsecond a job.
"""


class Candidates:
    """The position of one class in its iteration over workers, within one cycle.

    ``boundary``: tasks are spread over workers on one side of it at a time, those before it first.
    """

    def __init__(self, room: Room, need: Need, usable: Usable, boundary: int = 0) -> None:
        self._room = room
        self._need = need
        self._workers = usable.slots
        self._boundary = boundary
        self._over = (
            0 if usable.rank is not None else _FEW if len(usable.slots) <= _SMALL else _FEW // 4
        )
        self._seen = 0
        self._stretch = _FIRST_STRETCH
        self._ahead = usable.slots[:0]
        self._next: deque[int] = deque()

    def seat(self, count: int, *, spread: bool = False) -> list[int]:
        """Place up to ``count`` tasks and return their workers; fewer when no worker has enough
        free for one more.

        ``spread``: evenly over the next few workers, in turn, instead of one after the other,
        unless the class prefers some.
        """
        fill = self._room.fill
        need = self._need
        following = self._next
        seats: list[int] = []
        left = count
        turn = 0
        over = self._over if spread and count > 1 else 0
        while left and (following or self._look_on()):
            slot = following[0]
            wanted = left
            if over:
                turn = turn or min(len(following), over)
                wanted = -(-left // turn)
                turn -= 1
            fits = fill(slot, need, wanted)
            if not fits:  # other classes have filled it, and perhaps later ones
                following.clear()
                turn = 0
                continue
            left -= fits
            seats += [slot] * fits
            if fits < wanted:
                following.popleft()
            elif over:
                following.rotate(-1)
        return seats

    def seat_beside(self, shunned: Collection[int], last: Iterable[int]) -> int | None:
        """Place one task on a worker outside ``shunned``, which includes ``last``; if none fits, on
        one of ``last``.
        """
        ahead = with_room(self._room.matrix, self._need, self._workers[self._seen :])
        for slots in (self._ahead.tolist(), ahead.tolist(), last):
            for slot in slots:
                if (slots is last or slot not in shunned) and self._room.fits(slot, self._need):
                    self._room.take(slot, self._need)
                    return int(slot)
        return None

    def _look_on(self) -> bool:
        """Find the next few workers with free capacity. False when there are no more."""
        matrix = self._room.matrix
        if self._ahead.size:
            self._ahead = with_room(matrix, self._need, self._ahead)
        while not self._ahead.size and self._seen < self._workers.size:
            self._ahead = with_room(
                matrix, self._need, self._workers[self._seen : self._seen + self._stretch]
            )
            self._seen += self._stretch
            self._stretch = min(self._stretch * 2, _LAST_STRETCH)
        few = self._ahead[:_FEW].tolist()
        if few and few[0] < self._boundary <= few[-1]:
            few = [*takewhile(lambda slot: slot < self._boundary, few)]
        self._next.extend(few)
        return bool(few)
