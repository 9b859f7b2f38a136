"""What each user's placed tasks hold, for quotas. Counted on every open attempt until its end is known.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from iris_scheduler.placement.capacity import CHIPS, CPU, MEMORY, Need

Held = tuple[int, int, int]
"""Millicores, bytes of memory, accelerators."""

NOTHING: Held = (0, 0, 0)


def share_of(need: Need) -> Held:
    """What one task counts against its user's quota."""
    return (need.amounts[CPU], need.amounts[MEMORY], need.amounts[CHIPS])


class Usage:
    """Sums by user."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def of(self, user: str) -> Held:
        return self._held.get(user, NOTHING)

    def add(self, user: str, need: Need, count: int) -> None:
        """A user holds ``count`` more such tasks, or fewer when negative."""
        cpu, memory, chips = self.of(user)
        more_cpu, more_memory, more_chips = share_of(need)
        now = (cpu + count * more_cpu, memory + count * more_memory, chips + count * more_chips)
        if now == NOTHING:
            self._held.pop(user, None)
        else:
            self._held[user] = now
