"""The needs of all classes as one matrix, so that many are compared with a worker at once.

It decides nothing. A dimension that a class does not request fits everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from iris_scheduler.mirror.capacity import DEPTH, Mask, Matrix, Need

_NOTHING = -(1 << 62)
"""Less than any free capacity."""
_FIRST = 64


class ClassNeeds:
    """Rows of needs; a row that is given back is used again."""

    def __init__(self) -> None:
        self._rows: NDArray[np.int64] = np.zeros((_FIRST, DEPTH), np.int64)
        self._unused: list[int] = list(range(_FIRST))

    def add(self, need: Need) -> int:
        """Add a need. Returns its row."""
        if not self._unused:
            length = len(self._rows)
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._unused = list(range(length, 2 * length))
        row = self._unused.pop()
        self._rows[row] = [amount or _NOTHING for amount in need.amounts]
        return row

    def drop(self, row: int) -> None:
        """A need is not used any more."""
        self._unused.append(row)

    def fitting(self, rows: Sequence[int], free: Matrix) -> Mask:
        """For each of these rows, whether one more such task fits on any of some workers.

        ``free``: their free capacity, shape (DEPTH, workers).
        """
        needs = self._rows[np.array(rows, np.int64)]
        fits = np.zeros(len(rows), np.bool_)
        for amounts in _largest(free):
            fits |= (needs <= np.array(amounts, np.int64)).all(axis=1)
        return fits


def _largest(free: Matrix) -> list[tuple[int, ...]]:
    """Free capacities of which each has more of something than every other, largest first."""
    kept: list[tuple[int, ...]] = []
    different = {tuple(amounts) for amounts in free.T.tolist()}
    for amounts in sorted(different, key=lambda amounts: (-sum(amounts), amounts)):
        if not any(_has_all(larger, amounts) for larger in kept):
            kept.append(amounts)
    return kept


def _has_all(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether one has no less of anything than the other."""
    return all(have >= amount for have, amount in zip(one, other, strict=True))
