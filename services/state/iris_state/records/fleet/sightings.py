"""What providers have answered and listed, as far as this leader knows; nothing of it is recorded.

A leader that has just begun knows nothing: it asks again, and counts lists from its first one. Time
is an argument. Source: docs/design/fleet.md#orders-and-lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from iris_core.spec.pools import PoolSpec
from iris_core.states import SliceStatus
from iris_state.policy import FleetPolicy
from iris_state.records.fleet.records import Fleet, Slice

ProviderCall = Literal["create", "delete"]
ProviderAnswer = Literal["accepted", "exhausted", "refused", "failed"]
ListedStatus = Literal["creating", "running", "failed", "preempted", "deleting"]

FIRST_REPEAT_MS = 1_000
LONGEST_REPEAT_MS = 30_000
ENOUGH_LISTS = 2
"""So many lists in a row without a slice, and it is gone."""

S = SliceStatus


class ListSource(NamedTuple):
    """What is listed together: a provider with its options."""

    provider: str
    options: tuple[tuple[str, str | int | float | bool], ...] = ()

    @classmethod
    def of(cls, spec: PoolSpec) -> ListSource:
        return cls(spec.provider, tuple(sorted(spec.options.items())))


class ListedSlice(NamedTuple):
    """One slice as its provider lists it. ``label``: the number that it keeps with it."""

    name: str
    label: int
    status: ListedStatus = "running"
    detail: str = ""


class ProviderOrder(NamedTuple):
    """What a provisioner is asked to do; it may be sent again with the same effect.

    ``number``: of the record; 0 for what has none.
    """

    call: ProviderCall
    source: ListSource
    name: str
    label: int
    number: int = 0


@dataclass(slots=True)
class Asked:
    """One order that was sent. ``since_ms``: since when it is given without a break; 0: it is held
    back.
    """

    since_ms: int = 0
    times: int = 0
    next_ms: int = 0
    answered_ms: int = 0
    failures: int = 0
    detail: str = ""


@dataclass(slots=True)
class Seen:
    """One slice in the newest list of its source; ``first_ms``: since when lists have had it."""

    listed: ListedSlice
    first_ms: int


@dataclass(slots=True)
class Sightings:
    """What this leader has been told.

    Attributes:
        began_ms: when it began to lead; what it has not been told by then counts from there.
        seen: by source and name, as of the newest list. absent: lists in a row without a slice
            that ought to have it, by its number. asked: orders, by call, name and label.
        listed_ms: when a provider was listed last; 0: not yet. failed_lists: why the newest list
            failed, of sources whose newest one did.
        programs: those that the provisioner has; None: unknown, as while none is heard.
            keyed: how many slots of a pool have keys, from the first. uncounted: pools of which
            that was not told yet. keys: as of `ProvisionerReport`.
        obstacle: why nothing can be made at all, as a code of `why`; empty: it can.
    """

    began_ms: int = 0
    seen: dict[ListSource, dict[str, Seen]] = field(default_factory=dict)
    absent: dict[int, int] = field(default_factory=dict)
    asked: dict[tuple[ProviderCall, str, int], Asked] = field(default_factory=dict)
    listed_ms: int = 0
    failed_lists: dict[ListSource, str] = field(default_factory=dict)
    programs: frozenset[str] | None = None
    keyed: dict[str, int] = field(default_factory=dict)
    uncounted: frozenset[str] = frozenset()
    keys: str = ""
    obstacle: str = ""

    # ── lists ─────────────────────────────────────────────────────────────────────────────────────

    def on_list(
        self,
        source: ListSource,
        entries: Iterable[ListedSlice],
        *,
        began_ms: int,
        fleet: Fleet,
        policy: FleetPolicy,
    ) -> None:
        """Take a whole list. ``began_ms``: when it was asked for: what was accepted later may be
        missing in it.
        """
        before = self.seen.get(source, {})
        now: dict[str, Seen] = {}
        for entry in entries:
            known = before.get(entry.name)
            is_same = known is not None and known.listed.label == entry.label
            now[entry.name] = Seen(entry, known.first_ms if is_same and known else began_ms)
        self.seen[source] = now
        for one in fleet.slices.values():
            if one.cleared or ListSource.of(one.spec) != source:
                continue
            if self.listed(one) is not None:
                self.absent.pop(one.number, None)
            elif self._ought_to_be_listed(one, began_ms, policy):
                self.absent[one.number] = self.absent.get(one.number, 0) + 1

    def _ought_to_be_listed(self, one: Slice, began_ms: int, policy: FleetPolicy) -> bool:
        """Whether a list that began then would have a slice if the provider had it."""
        if one.status is S.DELETING:
            asked = self.asked.get(("delete", one.name, one.label))
            return asked is not None and 0 < asked.answered_ms <= began_ms
        if one.status is S.REQUESTED:
            return False
        since_ms = one.ended_ms if one.is_over else one.asked_ms
        return began_ms >= since_ms + policy.list_lag_ms

    def listed(self, one: Slice) -> ListedSlice | None:
        """A slice in the newest list; None where it is not, or another one has its name."""
        seen = self.seen.get(ListSource.of(one.spec), {}).get(one.name)
        return seen.listed if seen is not None and seen.listed.label == one.label else None

    def is_gone(self, one: Slice) -> bool:
        """Whether the provider has a slice no more, by its lists."""
        enough = 1 if one.status is S.DELETING else ENOUGH_LISTS
        return self.absent.get(one.number, 0) >= enough

    def orphans(self, fleet: Fleet) -> Iterator[tuple[ListSource, Seen]]:
        """What is listed and belongs to no open slice. A list may have slices of another pool of
        the same provider, whose options reach the same place.
        """
        own = {(one.spec.provider, one.name, one.label) for one in _open(fleet)}
        for source, seen in self.seen.items():
            for name, one in seen.items():
                if (source.provider, name, one.listed.label) not in own:
                    yield source, one

    def _forget_sources(self, fleet: Fleet) -> None:
        """Of what is not listed any more, for its pool was removed, keep orphans that are still to
        be deleted: no list will say that anything else there is gone.
        """
        listed = {ListSource.of(pool.spec) for pool in fleet.pools.values()}
        listed |= {ListSource.of(one.spec) for one in fleet.slices.values() if not one.cleared}
        if listed >= self.seen.keys():
            return
        orphans: dict[ListSource, dict[str, Seen]] = {}
        for source, seen in self.orphans(fleet):
            asked = self.asked.get(("delete", seen.listed.name, seen.listed.label))
            if asked is None or not asked.answered_ms:
                orphans.setdefault(source, {})[seen.listed.name] = seen
        for source in self.seen.keys() - listed:
            self.seen[source] = orphans.get(source, {})
            if not self.seen[source]:
                del self.seen[source]

    # ── answers ───────────────────────────────────────────────────────────────────────────────────

    def on_answer(
        self, order: ProviderOrder, answer: ProviderAnswer, detail: str, now_ms: int
    ) -> None:
        """Take the answer to an order."""
        asked = self.asked.setdefault((order.call, order.name, order.label), Asked())
        asked.detail = detail
        if answer == "failed":
            asked.failures += 1
        elif answer == "accepted" or order.call == "create":
            asked.answered_ms = asked.answered_ms or now_ms

    def was_answered(self, order: ProviderOrder) -> bool:
        """Whether an order was accepted before."""
        asked = self.asked.get((order.call, order.name, order.label))
        return asked is not None and asked.answered_ms > 0

    def failure(self, one: Slice) -> str | None:
        """What the provider said when it failed to create a slice; None: it did not say so."""
        asked = self.asked.get(("create", one.name, one.label))
        return asked.detail or "failed" if asked is not None and asked.failures else None

    def ordered_ms(self, one: Slice) -> int:
        """Since when the creation of a slice is ordered without a break; 0: it is not."""
        asked = self.asked.get(("create", one.name, one.label))
        return asked.since_ms if asked is not None else 0

    def due(self, orders: Iterable[ProviderOrder], now_ms: int) -> Iterator[ProviderOrder]:
        """The orders that are to be sent now: for the first time, or again without an answer.

        ``orders``: all that are given; any other is held back from now on.
        """
        given = {(order.call, order.name, order.label): order for order in orders}
        for key in self.asked.keys() - given.keys():
            self.asked[key].since_ms = 0
        for key, order in given.items():
            asked = self.asked.setdefault(key, Asked())
            asked.since_ms = asked.since_ms or now_ms
            if now_ms < asked.next_ms:
                continue
            if asked.answered_ms and order.call == "create":
                continue
            pause_ms = min(LONGEST_REPEAT_MS, FIRST_REPEAT_MS << min(asked.times, 10))
            asked.times += 1
            asked.next_ms = now_ms + pause_ms
            yield order

    def forget(self, fleet: Fleet) -> None:
        """Drop what is known of slices that are over and of orders that nobody needs."""
        self._forget_sources(fleet)
        numbers = {one.number for one in fleet.slices.values() if not one.cleared}
        self.absent = {number: count for number, count in self.absent.items() if number in numbers}
        known = {(one.name, one.label) for one in _open(fleet)}
        known |= {(seen.listed.name, seen.listed.label) for _, seen in self.orphans(fleet)}
        self.asked = {key: asked for key, asked in self.asked.items() if key[1:] in known}


def _open(fleet: Fleet) -> Iterator[Slice]:
    return (one for one in fleet.slices.values() if one.is_open)
