"""Whether a commit waits for the plan of its tasks, and for how long.

Source: docs/adr/0012-notify-schedulers-before-durability.md#drafts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_TASKS = 100
"""Tasks that a round may add to the queue for its commit to wait for their plan; that of more takes
longer.
"""
_UNPLANNED_S = (0.05, 1.0)
"""How long no commit waits for a plan after the first that did not come in time; doubles with each
up to the second.
"""


class PlanWait:
    """Waits for plans, as long as they come in time.

    Args:
        wait_s: how long a commit waits; 0: none does.

    Attributes:
        just_took: a plan is answered by this commit; its scheduler sends the next one later.
    """

    def __init__(self, wait_s: float, steady: Callable[[], float]) -> None:
        self._wait_s = wait_s
        self._steady = steady
        self._came = asyncio.Event()
        self._not_before_s = self._unplanned_s = 0.0
        self.just_took = False

    def note(self) -> None:
        """A plan has arrived."""
        self._came.set()

    def may_come(self, added: int) -> bool:
        """Whether a plan may come in time for so many tasks that this round has added to the
        queue.
        """
        return (
            not self.just_took
            and 0 < added <= _TASKS
            and self._wait_s > 0
            and self._steady() >= self._not_before_s
        )

    def forget(self) -> None:
        """What has arrived until now is not the plan that `wait` waits for."""
        self._came.clear()

    async def wait(self) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._came.wait()
            self._unplanned_s = 0.0
        except TimeoutError:
            shortest, longest = _UNPLANNED_S
            self._unplanned_s = min(longest, max(shortest, 2 * self._unplanned_s))
            self._not_before_s = self._steady() + self._unplanned_s
