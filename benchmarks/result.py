"""The result of one benchmark, in one shape, so that every row prints and compares the same way."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Literal

import msgspec


class Row(msgspec.Struct, kw_only=True):
    """One row of the table.

    Attributes:
        value: in the goal's own terms; the median of ``runs``.
        better: whether more or less is better.
        ratio: how many times better than the best peer; None when no peer was measured in this run.
        of_floor: a figure of this row divided by that of a floor program in this run, by the
            program.
        rss_bytes: the largest resident size of any of our processes.
        detail: whatever explains the figure (CPU seconds per service, sizes, percentiles).
    """

    row: str
    value: float
    unit: str
    goal: float
    peers: dict[str, float] = {}
    ratio: float | None = None
    of_floor: dict[str, float] = {}
    rss_bytes: int = 0
    what: str
    better: Literal["more", "less"] = "more"
    runs: list[float] = []
    detail: dict[str, Any] = {}

    def against(self, peers: dict[str, float], others: dict[str, dict[str, float]]) -> Row:
        """The same row beside what the peers did in this run. ``others``: further figures of
        theirs, for the detail.
        """
        if not peers:
            return self
        best = max(peers.values()) if self.better == "more" else min(peers.values())
        ratio = self.value / best if self.better == "more" else best / self.value
        detail = self.detail | ({"peers": others} if others else {})
        return msgspec.structs.replace(self, peers=peers, ratio=round(ratio, 2), detail=detail)

    @property
    def reached(self) -> bool:
        return self.value >= self.goal if self.better == "more" else self.value <= self.goal


def median(runs: Sequence[float]) -> float:
    return float(statistics.median(runs))
