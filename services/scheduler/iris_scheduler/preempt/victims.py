"""Lists possible victims, cheapest first: lowest band, fewest resources, youngest. The choice is
made elsewhere.

An attempt that is already stopping is not a victim, and one that its job protects is none until it
has run for that long; a gang is protected as long as any of its members. A gang is evicted whole
and restarts with all its members: its cost is the resources of all of them, including those that
    have finished and hold nothing any more.
Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from iris_core.messages.message import AttemptRef
from iris_core.states import PriorityBand
from iris_scheduler.mirror.capacity import DEPTH, SCARCEST_FIRST, WINDOW, Matrix, Slots
from iris_scheduler.mirror.columns import Columns
from iris_scheduler.mirror.mirror import Mirror

Cost = tuple[int, tuple[int, ...], int, AttemptRef]


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """One open attempt that may be evicted.

    Attributes:
        cost: for comparison; the resources in it are those of ``members`` attempts.
        session: its job when it is a member of a gang. members: how many attempts end with it,
            itself included.
    """

    cost: Cost
    ref: AttemptRef
    slot: int
    band: PriorityBand
    frees: tuple[int, ...]
    session: int | None
    members: int

    @property
    def since_ms(self) -> int:
        """When it was assigned; a RUNNING one's start."""
        return -self.cost[2]

    @property
    def lost(self) -> tuple[int, ...]:
        """The resources of all attempts that end with this one, the scarcest first."""
        return self.cost[1]


class Victims:
    """Every possible victim, cheapest first, also as columns.

    Attributes:
        protected: those that may not be evicted yet, and until when, ms.
        slots, bands: by position. frees: shape (DEPTH, victims). single: which of them may be
            evicted alone.
    """

    def __init__(
        self, mirror: Mirror, columns: Columns, now_ms: int, *, all_bands: bool = False
    ) -> None:
        found = sorted(_find(mirror, columns, all_bands), key=lambda victim: victim.cost)
        self.protected = _protected(mirror, found, now_ms)
        self.all = (
            [victim for victim in found if victim not in self.protected]
            if self.protected
            else found
        )
        self.slots: Slots = np.array([v.slot for v in self.all], np.int64)
        self.bands: NDArray[np.int64] = np.array([int(v.band) for v in self.all], np.int64)
        self.single = np.array([v.session is None for v in self.all], np.bool_)
        self.frees: Matrix = np.array([v.frees for v in self.all], np.int64).reshape(-1, DEPTH).T

    @cached_property
    def sessions(self) -> dict[int, list[Victim]]:
        """The victims of each gang."""
        sessions: dict[int, list[Victim]] = {}
        for victim in self.all:
            if victim.session is not None:
                sessions.setdefault(victim.session, []).append(victim)
        return sessions

    @cached_property
    def _by_slot(self) -> tuple[Slots, Slots]:
        order = np.argsort(self.slots, kind="stable")
        return order, self.slots[order]

    def on(self, slot: int) -> list[Victim]:
        """The victims on one worker, cheapest first."""
        order, slots = self._by_slot
        first, end = np.searchsorted(slots, [slot, slot + 1])
        return [self.all[at] for at in order[first:end].tolist()]

    def relief(self, band: PriorityBand, width: int) -> Matrix:
        """What the end of everything below ``band`` would free on each worker, shape (DEPTH,
        workers).
        """
        relief = np.zeros((DEPTH, width), np.int64)
        lower = self.bands > int(band)
        for dimension in range(DEPTH):
            np.add.at(relief[dimension], self.slots[lower], self.frees[dimension][lower])
        for victim in self.protected:
            if victim.band > band:
                relief[:, victim.slot] += victim.frees
        return relief


def _protected(mirror: Mirror, found: list[Victim], now_ms: int) -> dict[Victim, int]:
    """The victims that may not be evicted yet, and until when; all members of a gang alike."""
    until: dict[int | AttemptRef, int] = {}
    for victim in found:
        if protect_ms := mirror.jobs[victim.ref.job].protect_ms:
            unit = victim.ref if victim.session is None else victim.session
            until[unit] = max(until.get(unit, 0), victim.since_ms + protect_ms)
    times = (
        (victim, until.get(victim.ref if victim.session is None else victim.session, 0))
        for victim in found
    )
    return {victim: until_ms for victim, until_ms in times if until_ms > now_ms} if until else {}


def _find(mirror: Mirror, columns: Columns, all_bands: bool) -> list[Victim]:
    found = []
    for hold, need in mirror.hosts.counted():
        row = mirror.jobs[hold.ref.job]
        gang = mirror.kinds[hold.ref.job].is_gang
        band = row.band
        slot = columns.slot.get(hold.worker)
        if hold.stopping or slot is None or (band is PriorityBand.PRODUCTION and not all_bands):
            continue
        place = hold.building or mirror.hosts.host(hold.worker).is_crowded
        frees = (*need.amounts[:WINDOW], int(place))
        members = row.replicas if gang else 1
        lost = tuple([members * frees[dimension] for dimension in SCARCEST_FIRST])
        cost = (-int(band), lost, -hold.since_ms, hold.ref)
        found.append(
            Victim(
                cost,
                hold.ref,
                slot,
                band,
                frees=frees,
                session=hold.ref.job if gang else None,
                members=members,
            )
        )
    return found
