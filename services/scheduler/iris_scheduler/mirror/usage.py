"""Resources held by the open attempts of each user and of each project, for limits. An attempt counts
until its end is known.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.projects import within
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


def _sum(several: Iterable[Held]) -> Held:
    return tuple(map(sum, zip(NOTHING, *several, strict=True)))


class Usage:
    """Sums of held resources by user, or by project."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def of(self, name: str) -> Held:
        return self._held.get(name, NOTHING)

    def total(self) -> Held:
        """Of all together."""
        return _sum(self._held.values())

    def within(self, paths: Set[str]) -> dict[str, Held]:
        """Of each of these projects with all below it; of many the cost is that of what is held."""
        parts: dict[str, list[Held]] = {path: [] for path in paths}
        for one, held in self._held.items():
            for path in within(one):
                if path in parts:
                    parts[path].append(held)
        return {path: _sum(some) for path, some in parts.items()}

    def add(self, name: str, need: Need, count: int) -> None:
        """Add ``count`` such tasks of a user or a project; negative removes them."""
        now = with_tasks(self.of(name), need, count)
        if now == NOTHING:
            self._held.pop(name, None)
        else:
            self._held[name] = now
