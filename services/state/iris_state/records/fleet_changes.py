"""The entries of the journal about pools and slices. Types only; see `changes`."""

from __future__ import annotations

import msgspec

from iris_core.access.actor import Actor
from iris_core.spec.pools import PoolSpec
from iris_core.states import SchedulingResult, SliceCause, SliceStatus
from iris_state.records.fleet.records import Growth


class PoolSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=70):
    """A pool exists with this specification; what hindered its growth is forgotten.

    ``removing``, ``reason``: as of `HostPool`.
    """

    spec: PoolSpec
    removing: bool = False
    by: Actor | None = None
    reason: str = ""


class PoolRemoved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=71):
    """A pool is gone, and the ended slices of it."""

    pool: str


class PoolGrowth(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=72):
    """How making slices of a pool goes, as a whole."""

    pool: str
    growth: Growth
    by: Actor | None = None


class SliceRequested(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=73):
    """A slice is to be made: REQUESTED, of the pool's present specification.

    ``label``: it was there before its record, with this number; it is CREATING at once.
    """

    number: int
    pool: str
    slot: int
    cause: SliceCause
    label: int = 0


class SliceMoved(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=74):
    """A judgement about a slice, and its target status or the unchanged one.

    ``label``: the number that its provider keeps with it, where that is another one; 0: as before.
    """

    number: int
    status: SliceStatus
    handler: str
    cause: SliceCause
    result: SchedulingResult = SchedulingResult.SUCCESS
    detail: str = ""
    deadline_ms: int = 0
    asked_ms: int = 0
    overdue: bool = False
    by: Actor | None = None
    label: int = 0


class SliceCleared(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=75):
    """The provider was seen not to have an ended slice: its slot is free."""

    number: int


class OrphanDeleted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=76):
    """A provider has accepted to delete what it listed without a record; no record changes.

    ``slice``: the name that it was listed with. ``label``: its number there.
    """

    pool: str
    slice: str
    label: int


FleetChange = (
    PoolSet | PoolRemoved | PoolGrowth | SliceRequested | SliceMoved | SliceCleared | OrphanDeleted
)

FLEET_KINDS = (
    PoolSet,
    PoolRemoved,
    PoolGrowth,
    SliceRequested,
    SliceMoved,
    SliceCleared,
    OrphanDeleted,
)
"""The kinds of changes of pools and slices."""
