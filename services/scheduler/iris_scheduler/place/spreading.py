"""Spreads what can replace each other over workers, then over racks and slices, within one cycle.

A worker that does not tell its rack or slice has one of its own. Source:
    docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from iris_core.placement.constraints import TPU_NAME
from iris_scheduler.mirror.columns import Columns

DOMAINS = ("rack", TPU_NAME)
"""Attributes of workers that fail together, the larger group first."""


class Spreading:
    """Where the routes of one deployment are."""

    def __init__(self, columns: Columns, workers: Iterable[str]) -> None:
        self._columns = columns
        self._placed: Counter[Hashable] = Counter()
        for worker in workers:
            slot = columns.slot.get(worker)
            if slot is not None:
                self.add(slot)

    def add(self, slot: int) -> None:
        """One more is on a worker."""
        self._placed.update(self._places(slot))

    def best(self, slots: Iterable[int]) -> int | None:
        """The first of the workers with the fewest on it, then in its rack and slice; None of
        none.
        """
        found: int | None = None
        fewest: tuple[int, ...] = ()
        for slot in slots:
            here = tuple(self._placed[place] for place in self._places(slot))
            if not any(here):
                return slot
            if found is None or here < fewest:
                found = slot
                fewest = here
        return found

    def _places(self, slot: int) -> list[Hashable]:
        """A worker, its rack and its slice, each as a key."""
        attributes = self._columns.attributes[slot]
        return [slot, *((domain, attributes.get(domain, (slot,))) for domain in DOMAINS)]
