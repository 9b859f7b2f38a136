"""Free capacity of workers as columns of numbers, and the demand of one task. It chooses no worker.

Dimensions are those of `RESOURCES`, and last the building window, of which every task takes one
place. It has no more places than the worker may have attempts, and none while the worker takes no
new work. A dimension that a task does not request always fits.
Source: docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from iris_core.spec import resources
from iris_core.spec.resources import RESOURCES, Amount, ResourceRequest

CHIPS = RESOURCES.index(resources.CHIPS)
WINDOW = len(RESOURCES)
DEPTH = WINDOW + 1
NOTHING = (0,) * DEPTH
SCARCEST_FIRST = tuple(sorted(range(WINDOW), key=lambda dimension: RESOURCES[dimension].scarcity))
"""The dimensions of resources."""
_LOOKED_AT = (WINDOW, *SCARCEST_FIRST)
"""The scarcest dimension is checked first."""


Matrix = NDArray[np.int64]
"""Shape (DEPTH, workers)."""

Slots = NDArray[np.int64]
"""Positions of workers in the columns."""

Mask = NDArray[np.bool_]
"""Shape (workers,)."""

SHUT = 1 << 40
"""Subtracted from a building window, it leaves no place."""


@dataclass(frozen=True)
class Need:
    """What one task needs: an amount for every dimension, and the dimensions that are requested."""

    amounts: tuple[int, ...]
    needed: tuple[tuple[int, int], ...]

    @cached_property
    def held(self) -> tuple[tuple[int, int], ...]:
        """The requested dimensions without the building window."""
        return tuple(pair for pair in self.needed if pair[0] != WINDOW)


def need_of(ask: ResourceRequest) -> Need:
    """The need of a task with this request while it is being prepared."""
    amounts = row_of(ask.amount, 1)
    return Need(amounts, tuple((d, amounts[d]) for d in _LOOKED_AT if amounts[d] > 0))


def row_of(amount: Amount, window: int) -> tuple[int, ...]:
    """An amount as a row of all dimensions, of a worker or a task."""
    return (*amount.values, window)


def fitting(room: Matrix, need: Need, slots: Slots) -> Mask:
    """For each of ``slots``, whether one more task fits there now."""
    (dimension, amount), *rest = need.needed
    fits = room[dimension].take(slots) >= amount
    for dimension, amount in rest:
        fits &= room[dimension].take(slots) >= amount
    return np.asarray(fits, np.bool_)


def with_room(room: Matrix, need: Need, slots: Slots) -> Slots:
    """Those of ``slots`` where one more task fits now: as `fitting`, faster when most are full."""
    for dimension, amount in need.needed:
        slots = slots[room[dimension].take(slots) >= amount]
        if not slots.size:
            break
    return slots


def covers(have: Sequence[int], need: Need) -> bool:
    """Whether one task fits into the amounts ``have``."""
    return all(have[dimension] >= amount for dimension, amount in need.needed)


def plus(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """The sums of two rows of amounts."""
    return [a + b for a, b in zip(one, other, strict=True)]


def minus(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """The differences of two rows of amounts."""
    return [a - b for a, b in zip(one, other, strict=True)]


class Room:
    """Free capacity of each worker in one cycle; it only shrinks while tasks are placed.

    Attributes:
        matrix: shape (DEPTH, workers), owned by this object.
        taken: slots in the order in which capacity was taken, so that caches can be updated.
    """

    __slots__ = ("_flat", "_width", "matrix", "taken")

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.taken: list[int] = []
        self._flat = matrix.reshape(-1).data
        self._width = matrix.shape[1]

    def fits(self, slot: int, need: Need) -> bool:
        """Whether one more such task fits on one worker."""
        flat = self._flat
        width = self._width
        for dimension, amount in need.needed:
            if flat[dimension * width + slot] < amount:
                break
        else:
            return True
        return False

    def fill(self, slot: int, need: Need, count: int) -> int:
        """Place up to ``count`` tasks on one worker. Returns how many fit."""
        flat = self._flat
        width = self._width
        needed = need.needed
        fits = count
        for dimension, amount in needed:
            left = flat[dimension * width + slot]
            if left < amount * fits:
                fits = left // amount
                if fits <= 0:
                    return 0
        for dimension, amount in needed:
            flat[dimension * width + slot] -= amount * fits
        self.taken.append(slot)
        return fits

    def take(self, slot: int, need: Need, count: int = 1) -> None:
        """Subtract what ``count`` tasks need from a worker."""
        flat = self._flat
        width = self._width
        for dimension, amount in need.needed:
            flat[dimension * width + slot] -= amount * count
        self.taken.append(slot)

    def at(self, slot: int) -> list[int]:
        """Free capacity of one worker, all dimensions."""
        return self._flat[slot :: self._width].tolist()

    def put(self, slot: int, amounts: Iterable[int]) -> None:
        """Set the free capacity of one worker."""
        for dimension, amount in enumerate(amounts):
            self._flat[dimension * self._width + slot] = amount
        self.taken.append(slot)

    def shut(self, slot: int) -> None:
        """Allow no further placement on one worker."""
        self._flat[WINDOW * self._width + slot] -= SHUT

    def reopen(self, slot: int) -> None:
        """Undo one `shut`."""
        self._flat[WINDOW * self._width + slot] += SHUT
