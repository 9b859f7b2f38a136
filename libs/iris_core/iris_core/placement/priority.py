"""The sort key of the queue of pending tasks.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from typing import NamedTuple

from iris_core.states import PriorityBand


class PriorityKey(NamedTuple):
    """Ascending: band, deepest job first, oldest tree first, oldest submission first, admission,
    task index.

    Times in ms. ``sequence`` is the order of admission, so no two tasks share a key.
    """

    band: PriorityBand
    negative_depth: int
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
) -> PriorityKey:
    """The key of one task. With index 0 it is also the key of the whole job, whose tasks are
    adjacent.
    """
    return PriorityKey(
        band, -depth, root_submitted_ms, submitted_ms, sequence=sequence, task_index=index
    )
