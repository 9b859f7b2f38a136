"""Room that users share: one of them has at most a part of it, and who has least of it is next.

Out of scope: what the room is for, and how large it is. Source: docs/security.md#what-users-share.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator


class FairTurns:
    """Places, each of which is used for a while.

    Args:
        places: in use at a time. of_user: of one user; 0: half of them, at least one.

    Attributes:
        of_user: as given, or as it follows from ``places``.
    """

    def __init__(self, places: int, of_user: int = 0) -> None:
        self.of_user = of_user or max(1, places // 2)
        self._free = places
        self._held = Counter[str]()
        self._lines: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, user: str, size: int = 1) -> AsyncIterator[None]:
        """Wait until a user may use so many places, and use them."""
        size = min(size, self.of_user)
        await self._enter(user, size)
        try:
            yield
        finally:
            self._leave(user, size)

    def has_all(self, user: str, size: int = 1) -> bool:
        """Whether a user has as much as one may, so that only the own ones make room for more."""
        return self._held[user] + min(size, self.of_user) > self.of_user

    def would_wait(self, user: str, size: int = 1) -> bool:
        """Whether a user who asked now would wait."""
        size = min(size, self.of_user)
        return bool(self._lines.get(user)) or size > self._free or self.has_all(user, size)

    async def _enter(self, user: str, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(user, deque()).append((size, turn))
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(user, size, turn)
            else:
                self._leave(user, size)
            raise

    def _leave(self, user: str, size: int) -> None:
        self._free += size
        self._held[user] -= size
        if not self._held[user]:
            del self._held[user]
        self._give()

    def _forget(self, user: str, size: int, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(user, deque())
        with contextlib.suppress(ValueError):
            line.remove((size, turn))
        if not line:
            self._lines.pop(user, None)
        self._give()

    def _give(self) -> None:
        """Give what is free; nobody who needs less overtakes who is next and needs more."""
        while self._lines:
            may = [one for one, line in self._lines.items() if not self.has_all(one, line[0][0])]
            if not may:
                return
            user = min(may, key=lambda one: self._held[one])
            line = self._lines[user]
            size, turn = line[0]
            if size > self._free:
                return
            line.popleft()
            del self._lines[user]
            if line:
                self._lines[user] = line  # after others who have as much
            if turn.done():
                continue  # its caller has been cancelled
            self._free -= size
            self._held[user] += size
            turn.set_result(None)
