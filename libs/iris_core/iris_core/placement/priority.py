"""The sort key of the queue of pending tasks.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from iris_core.spec.projects import MAX_DEPTH
from iris_core.states import PriorityBand

STEP_BITS = 4
"""Bits of one step of fair share in the key."""
LEAST_STEP = -(1 << STEP_BITS - 1)
MOST_STEP = -LEAST_STEP - 1
STEPS_BITS = STEP_BITS * (MAX_DEPTH + 1)
"""Bits of the steps of a job: of the projects on its way, and of its user."""


class PriorityKey(NamedTuple):
    """Ascending: band, deepest job first, who has had least of a fair share first, oldest tree
    first, oldest submission first, admission, task index.

    ``steps``: see `packed_steps`; 0 of all while there is no fair share. Times in ms. ``sequence``
    is the order of admission, so no two tasks share a key.
    """

    band: PriorityBand
    negative_depth: int
    steps: int
    root_submitted_ms: int
    submitted_ms: int
    sequence: int
    task_index: int


def priority_key(
    band: PriorityBand,
    depth: int,
    root_submitted_ms: int,
    submitted_ms: int,
    sequence: int,
    index: int = 0,
    steps: int = 0,
) -> PriorityKey:
    """The key of one task. With index 0 it is also the key of the whole job, whose tasks are
    adjacent.
    """
    return PriorityKey(
        band, -depth, steps, root_submitted_ms, submitted_ms, sequence=sequence, task_index=index
    )


def packed_steps(steps: Iterable[int]) -> int:
    """The steps of fair share on the way from the root to a user as one number: the outermost
    decides first. Where one way is shorter, the rest counts as just.
    """
    packed = 0
    bits = STEPS_BITS
    for step in steps:
        bits -= STEP_BITS
        packed |= (step - LEAST_STEP) << bits
    while bits:
        bits -= STEP_BITS
        packed |= -LEAST_STEP << bits
    return packed
