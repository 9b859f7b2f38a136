"""The records of the fleet: pools and their slices.

Fields only, and properties that follow from them; `apply.fleet` alone writes. ListSource:
docs/design/fleet.md#records.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from iris_core.access.actor import Actor
from iris_core.placement.constraints import DEVICE_ONLY
from iris_core.placement.pools import host_name, is_for_devices_only, numbered, slice_name
from iris_core.spec.jobs import Attribute
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import Amount
from iris_core.states import SliceCause, SliceStatus
from iris_core.tables.slice import COMING, LIVE, OPEN, TERMINAL
from iris_state.records.indexes.usage_days import SlicePart, rate_of, share_of

FIRST_NUMBER = 1
"""Of a slice; a provider that lists something with a lower one has it from nobody here."""
MINUTE_MS = 60_000
LOSS_WINDOW_MS = 600_000
"""Within so long a pool gives up at most a part of its slices for failure."""
BOOTS = 50
"""Boot times that are kept of a pool."""
STEPS = 20
"""Steps that are kept of a slice: the first, and the newest."""
ENDED = 200
"""Ended slices that are kept of a pool."""


class Growth(msgspec.Struct, frozen=True, array_like=True):
    """How making slices of a pool goes; replaced as a whole by `changes.PoolGrowth`.

    Attributes:
        put_off_ms: nothing is asked for before this time, because of ``cause`` and ``detail``.
            wait_ms: the length of that delay; 0: nothing stands in the way. While it is more than
            0, slices are asked for one at a time.
        refused: what the provider refuses whatever is repeated; it creates nothing until an admin
            resumes or changes the pool.
        stopped: why nothing more is given up for failure; empty: it is.
        failed_boots, unanswered: in a row.
        speed: how many times ``create_rate``; sped_ms: when that was last doubled.
        created, deleted, lost: when slices were asked for, and given up, within the last minute,
            and given up for failure within `LOSS_WINDOW_MS`.
        boots: milliseconds from request to ready of the newest slices.
    """

    put_off_ms: int = 0
    wait_ms: int = 0
    cause: SliceCause | None = None
    detail: str = ""
    refused: str = ""
    stopped: str = ""
    failed_boots: int = 0
    unanswered: int = 0
    speed: int = 1
    sped_ms: int = 0
    created: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    boots: tuple[int, ...] = ()


UNHINDERED = Growth()


class HostPool(msgspec.Struct, array_like=True):
    """One pool.

    ``version`` grows with every change by a person, for compare-and-set. ``removing``: nothing
    grows, what is idle goes, and the record goes with the last slice. ``reason``: of its last change,
    as that person gave it. ``since_ms``: since when it is in its `state`, if that is not ok.
    """

    spec: PoolSpec
    version: int = 1
    set_ms: int = 0
    by: Actor | None = None
    removing: bool = False
    growth: Growth = UNHINDERED
    reason: str = ""
    since_ms: int = 0

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def state(self) -> str:
        """Whether something hinders its growth: ok, paused, stopped or exhausted."""
        if self.spec.paused or self.growth.refused:
            return "paused"
        if self.growth.stopped:
            return "stopped"
        return "exhausted" if self.growth.wait_ms else "ok"


class SliceStep(msgspec.Struct, frozen=True, array_like=True):
    """One change of a slice's status."""

    at_ms: int
    was: SliceStatus | None
    status: SliceStatus
    cause: SliceCause
    by: Actor | None = None


class Slice(msgspec.Struct, array_like=True):
    """What a provider makes and deletes at once.

    Attributes:
        number: never used again. label: the number that the provider keeps with it; another one
            where it was adopted after a restore.
        spec: of its pool when it was requested.
        detail: what the provider said last.
        asked_ms: when the provider accepted its creation, at the earliest.
        deadline_ms: while it drains: it is deleted then, whatever runs; 0: it waits.
        cleared: it has ended, and the provider was seen not to have it.
        overdue: its deletion takes longer than it may.
    """

    number: int
    pool: str
    slot: int
    spec: PoolSpec
    label: int
    status: SliceStatus = SliceStatus.REQUESTED
    since_ms: int = 0
    cause: SliceCause = SliceCause.NEED
    detail: str = ""
    requested_ms: int = 0
    asked_ms: int = 0
    ready_ms: int = 0
    ended_ms: int = 0
    deadline_ms: int = 0
    cleared: bool = False
    overdue: bool = False
    steps: list[SliceStep] = []

    @property
    def name(self) -> str:
        return slice_name(self.pool, self.slot)

    @property
    def id(self) -> str:
        return f"s{self.number}"

    @property
    def hosts(self) -> Iterator[str]:
        """The names of its hosts, which are the ids of their workers."""
        for index in range(self.spec.hosts):
            yield host_name(self.pool, self.slot, index)

    @property
    def is_coming(self) -> bool:
        return self.status in COMING

    @property
    def is_live(self) -> bool:
        """Whether it is capacity now or soon."""
        return self.status in LIVE

    @property
    def is_open(self) -> bool:
        """Whether the provider may have it."""
        return self.status in OPEN

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL

    def cost(self, now_ms: int) -> float:
        """What it has cost so far, in the unit of the pool's price."""
        if not self.asked_ms:
            return 0.0
        until = self.ended_ms or now_ms
        return self.spec.price * max(0, until - self.asked_ms) / 3_600_000


class Fleet:
    """All pools and slices.

    Attributes:
        slices: by number, in the order of their requests; ended ones too, for a while.
        next_number: of the next slice.
    """

    __slots__ = ("_by_name", "_by_pool", "next_number", "pools", "slices")

    def __init__(self) -> None:
        self.pools: dict[str, HostPool] = {}
        self.slices: dict[int, Slice] = {}
        self.next_number = FIRST_NUMBER
        self._by_pool: dict[str, dict[int, Slice]] = {}
        self._by_name: dict[str, Slice] = {}

    def add(self, one: Slice) -> None:
        self.slices[one.number] = one
        self._by_pool.setdefault(one.pool, {})[one.number] = one
        self._by_name[one.name] = one
        self.next_number = max(self.next_number, one.number + 1)

    def remove(self, one: Slice) -> None:
        del self.slices[one.number]
        of_pool = self._by_pool[one.pool]
        del of_pool[one.number]
        if self._by_name.get(one.name) is one:
            del self._by_name[one.name]
        if not of_pool:
            del self._by_pool[one.pool]

    def find(self, text: str) -> Slice | None:
        """The slice of an id ``s<number>``, or the newest one of a name."""
        if text.startswith("s") and text[1:].isascii() and text[1:].isdigit():
            found = self.slices.get(int(text[1:][:18]))
            if found is not None:
                return found
        return self._by_name.get(text)

    def of_host(self, host: str) -> tuple[str, Slice | None] | None:
        """The pool in which the name of a host lies, and the newest slice of that name; None for a
        host of no pool.
        """
        if not self.pools:
            return None
        place = numbered(host)
        slot = numbered(place[0]) if place is not None else None
        if place is None or slot is None or slot[0] not in self.pools:
            return None
        name, index = place
        one = self._by_name.get(name)
        return slot[0], one if one is not None and index < one.spec.hosts else None

    def place_of(self, host: str, amount: Amount) -> SlicePart | None:
        """What an attempt on a host pays of its slice: the larger of its parts of processors and
        devices; None where the host is no slice's.
        """
        place = self.of_host(host)
        if place is None or place[1] is None:
            return None
        spec = place[1].spec
        share = share_of(amount, spec.resources.amount) / spec.hosts
        return SlicePart(place[0], rate_of(spec.price, share))

    def cordon(self, host: str) -> str:
        """Why a registered host may not be given work, whatever its state; empty: it may."""
        place = self.of_host(host)
        if place is None:
            return ""
        pool, one = place
        if one is None or one.is_over:
            return f"pool {pool} has no such slice"
        return "" if one.status is SliceStatus.READY else f"its slice is {one.status.value}"

    def attributes(self, host: str, reported: dict[str, Attribute]) -> dict[str, Attribute]:
        """The attributes by which a host is given work: what it has ``reported``, and that its pool
        is for work with devices only.
        """
        place = self.of_host(host)
        if place is None or not is_for_devices_only(self.pools[place[0]].spec):
            return reported
        return {**reported, DEVICE_ONLY: "yes"}

    def is_given_up(self, host: str) -> bool:
        """Whether a host goes, or has gone, with its slice, and nobody waits for it."""
        place = self.of_host(host)
        one = place[1] if place is not None else None
        return one is not None and (one.status is SliceStatus.DELETING or one.is_over)

    def of_pool(self, pool: str) -> list[Slice]:
        """The slices of a pool, in the order of their requests; ended ones too."""
        return list(self._by_pool.get(pool, {}).values())
