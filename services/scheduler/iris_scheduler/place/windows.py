"""The full building windows of one cycle, and what each user may still begin to prepare there.

While they are open for a user, the free capacity of these workers has the user's places instead of
none. Who is placed is out of scope.
Source: docs/adr/0147-a-full-building-window-keeps-a-share-for-each-user.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from iris_core.placement.window import WINDOWS, share_of
from iris_scheduler.cycle.cycle import Cycle
from iris_scheduler.mirror.capacity import SHUT, WINDOW, Matrix, Slots
from iris_scheduler.place.assignments import Assignments

PlaceCounts = NDArray[np.int64]


class FullWindows:
    """The workers whose building window is full once everyone has been placed.

    Attributes:
        slots: these workers, with those that are reserved. Whatever is counted for each of them has
            their order.
    """

    def __init__(self, cycle: Cycle, assignments: Assignments) -> None:
        self._cycle = cycle
        self._assignments = assignments
        self._room = assignments.room
        self._row = assignments.room.matrix[WINDOW]
        kept = [slot for slot, _ in assignments.reservations.kept()]
        left = self._row.copy()
        left[kept] += SHUT
        self.slots: Slots = np.flatnonzero((left <= 0) & (left > -SHUT // 2))
        self._left: PlaceCounts = left[self.slots]
        self._counts: PreparingUsers | None = None
        self._user: str | None = None
        self._more: PlaceCounts = np.zeros(0, np.int64)
        self._opened_at = 0

    def __bool__(self) -> bool:
        """Whether there may be a place for somebody in a window that others fill."""
        return len(self.slots) > 0 and len(self._cycle.mirror.users) > 1

    def widest(self) -> Matrix:
        """What is free on these workers, shape (DEPTH, workers), with a place in each window."""
        matrix: Matrix = self._room.matrix[:, self.slots]
        matrix[WINDOW] = 1
        return matrix

    def open_for(self, user: str) -> bool:
        """Open them for a user, until `close` or for another one. Returns whether the user may
        begin to prepare tasks on some.
        """
        if user != self._user:
            self.close()
            if self._counts is None:
                self._counts = PreparingUsers(
                    self._cycle, self._assignments, self.slots.tolist(), self._left.tolist()
                )
            places = self._counts.places(user)
            self._user = user
            self._more = np.where(places > 0, places - self._left, 0)
            self._row[self.slots] += self._more
            self._opened_at = len(self._room.taken)
        return bool(self._more.any())

    def close(self) -> None:
        """Close them, and count what has been placed there."""
        if self._user is None or self._counts is None:
            return
        self._row[self.slots] -= self._more
        for slot in set(self._room.taken[self._opened_at :]):
            at = int(np.searchsorted(self.slots, slot))
            if at < len(self.slots) and self.slots[at] == slot:
                left = int(self._row[slot])
                left += SHUT if left < -SHUT // 2 else 0
                self._counts.add(self._user, at, int(self._left[at]) - left)
                self._left[at] = left
        self._user = None


class PreparingUsers:
    """How many tasks of each user prepare on some workers, and how many more may begin to."""

    def __init__(
        self, cycle: Cycle, assignments: Assignments, slots: list[int], left: list[int]
    ) -> None:
        """``left``: of each building window what is left, less than 0 by what is nominated."""
        self._own: dict[str, dict[int, int]] = {}
        self._windows: list[int] = []
        self._users: list[int] = []
        room = []
        for at, (slot, places) in enumerate(zip(slots, left, strict=True)):
            host = cycle.mirror.hosts.host(cycle.columns.names[slot])
            assert host.row is not None
            placed = assignments.placed_on(slot)
            by_user: dict[str, int] = {}
            for job, count in host.preparing.items():
                user = cycle.mirror.jobs[job].user
                by_user[user] = by_user.get(user, 0) + count
            for job in placed:
                user = cycle.mirror.jobs[job].user
                by_user[user] = by_user.get(user, 0) + 1
            for user, count in by_user.items():
                self._own.setdefault(user, {})[at] = count
            window = host.row.max_building
            attempts = host.row.max_attempts - len(host.holds)
            nominated = min(window - host.used[WINDOW], attempts) - len(placed) - places
            preparing = host.used[WINDOW] + len(placed) + nominated
            room.append(
                min(WINDOWS * window - preparing, attempts - len(placed) - nominated),
            )
            self._windows.append(window)
            self._users.append(len(by_user))
        pairs = list(zip(self._windows, self._users, strict=True))
        self._room: PlaceCounts = np.array(room, np.int64)
        self._share: PlaceCounts = np.array([share_of(w, max(1, n)) for w, n in pairs], np.int64)
        self._share_of_one_more: PlaceCounts = np.array(
            [share_of(w, n + 1) for w, n in pairs], np.int64
        )

    def places(self, user: str) -> PlaceCounts:
        """How many more tasks of a user may begin to prepare on each, as of `places_beyond`; none
        where it is not above 0.
        """
        places = np.minimum(self._share_of_one_more, self._room)
        own = self._own.get(user)
        if own:
            at = np.fromiter(own.keys(), np.int64, len(own))
            has = np.fromiter(own.values(), np.int64, len(own))
            places[at] = np.minimum(self._share[at] - has, self._room[at])
        return places

    def add(self, user: str, at: int, count: int) -> None:
        """So many more tasks of a user prepare on one of them."""
        own = self._own.setdefault(user, {})
        if at not in own:
            self._users[at] += 1
            window = self._windows[at]
            self._share[at] = share_of(window, self._users[at])
            self._share_of_one_more[at] = share_of(window, self._users[at] + 1)
        own[at] = own.get(at, 0) + count
        self._room[at] -= count
