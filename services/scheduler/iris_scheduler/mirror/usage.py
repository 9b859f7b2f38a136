"""Resources held by each user's open attempts, for quotas. An attempt counts until its end is
known.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.resources import RESOURCES
from iris_scheduler.mirror.capacity import Need

Held = tuple[int, ...]
"""An amount for each of `RUNNING_LIMITS`."""

NOTHING: Held = (0,) * len(RUNNING_LIMITS)
_LIMITED = tuple(RESOURCES.index(resource) for _, resource in RUNNING_LIMITS)


def share_of(need: Need) -> Held:
    """What one task counts toward its user's quota."""
    return tuple([need.amounts[dimension] for dimension in _LIMITED])


def with_tasks(held: Held, need: Need, count: int) -> Held:
    """The usage with ``count`` more such tasks; fewer when negative."""
    return tuple([amount + count * more for amount, more in zip(held, share_of(need), strict=True)])


class Usage:
    """Sums of held resources by user."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def of(self, user: str) -> Held:
        return self._held.get(user, NOTHING)

    def add(self, user: str, need: Need, count: int) -> None:
        """Add ``count`` such tasks of a user; negative removes them."""
        now = with_tasks(self.of(user), need, count)
        if now == NOTHING:
            self._held.pop(user, None)
        else:
            self._held[user] = now
