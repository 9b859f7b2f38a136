"""The fleet's part of a round: decisions about pools and slices when they are due, the orders that
follow, and what provisioners report.

Nothing is done, and no timer is set, in a cluster without pools and slices. Pure; the orders are
sent after the commit that they follow from. Source: docs/design/fleet.md#decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast, get_args

from msgspec.structs import asdict

from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.messages.state_provisioner import (
    FleetOrders,
    ListAnswer,
    ListOrder,
    OrderAnswer,
    OrderedHost,
    ProvisionerReport,
    SliceOrder,
)
from iris_core.placement.pools import host_attributes
from iris_state.effects.kinds import FleetOrdersTo
from iris_state.fleet import pools
from iris_state.fleet.hosts import forgotten, forgotten_with_pool
from iris_state.fleet.scene import scene_of
from iris_state.fleet.slices import Scene
from iris_state.records.changes import Change
from iris_state.records.fleet.packing import FleetNeed, PackedWork, PendingWork
from iris_state.records.fleet.records import Fleet
from iris_state.records.fleet.sightings import (
    ListedSlice,
    ListedStatus,
    ListSource,
    ProviderAnswer,
    ProviderOrder,
    Sightings,
)
from iris_state.records.fleet_changes import PoolRemoved, SliceCleared, SliceRequested
from iris_state.records.ledger import Ledger
from iris_state.views.cluster.waiting import waiting_work

SOON_MS = 200
"""So long after something that matters has changed the fleet is looked at, at the earliest."""
MANNED_MS = 10_000
"""A provisioner that was not heard for so long is taken for gone."""
ORDERS_AT_ONCE = 50
LIST_AGAIN_MS = 2_000
"""So long after a deletion providers are asked for their lists again."""
_LONGEST_REPORTED_S = 1e9
"""What asks to wait for longer, also without end, asks for this."""
_ANSWERS = get_args(ProviderAnswer)
_STATUSES = get_args(ListedStatus)


class FleetRounds:
    """The fleet of one machine.

    Args:
        terminating_timeout_ms: how long the order to delete a slice waits for what is told to stop
            there.
    """

    def __init__(self, ledger: Ledger, terminating_timeout_ms: int) -> None:
        self._ledger = ledger
        self._terminating_timeout_ms = terminating_timeout_ms
        self._due_ms = 0
        self._lists_due_ms = 0
        self._heard_ms: dict[str, int] = {}
        self._active = ""

    def begin(self, now_ms: int) -> None:
        """This machine leads: nothing was answered or listed yet."""
        self._ledger.sightings = Sightings(began_ms=now_ms)
        self._ledger.packed = None

    @property
    def exists(self) -> bool:
        """Whether there is anything to decide about."""
        fleet = self._ledger.fleet
        return bool(fleet.pools) or any(
            not one.cleared or not one.is_over for one in fleet.slices.values()
        )

    def next_due(self) -> int | None:
        """When the fleet is looked at next; None: it is empty."""
        return self._due_ms if self.exists else None

    def look_soon(self) -> None:
        """Something that matters has changed."""
        if self._ledger.fleet.pools:
            self._due_ms = min(self._due_ms, self._ledger.now_ms + SOON_MS)

    def decisions(self) -> Iterator[Change]:
        """One round of decisions; each change is applied before the next one is asked for."""
        policy = self._ledger.fleet_policy
        now_ms = self._ledger.now_ms
        self._due_ms = now_ms + policy.interval_ms
        sightings = self._ledger.sightings
        self._choose(now_ms)
        if policy.dry_run:
            sightings.obstacle = ""  # what it would do is told, as with a provisioner
            self._pack(waiting_work(self._ledger))
            return
        sightings.obstacle = "" if self._active else "provisioner_down"
        sightings.uncounted = frozenset(self._ledger.fleet.pools) - sightings.keyed.keys()
        yield from forgotten(self._ledger, list(self._ledger.workers))
        work = waiting_work(self._ledger)
        needs: list[FleetNeed] = []
        is_made = False
        for change in pools.steps(scene_of(self._ledger), work, needs.append):
            if isinstance(change, PoolRemoved):
                yield from forgotten_with_pool(self._ledger, change.pool)
            yield change
            if isinstance(change, SliceCleared):
                hosts = self._ledger.fleet.slices[change.number].hosts
                yield from forgotten(self._ledger, list(hosts))
            is_made |= isinstance(change, SliceRequested)
        self._pack(work, None if is_made else needs[-1])
        sightings.forget(self._ledger.fleet)

    def _pack(self, work: list[PendingWork], need: FleetNeed | None = None) -> None:
        """Keep what waiting work needs after this round, for reads and metrics."""
        found = pools.needed(scene_of(self._ledger), work) if need is None else need
        self._ledger.packed = PackedWork(work, found)

    def on_notice(self) -> Iterator[Change]:
        """Slices of which a host has told when it is taken away are given up in the commit that
        records it, so that what runs there ends as preempted.
        """
        if self.exists and not self._ledger.fleet_policy.dry_run:
            yield from pools.on_notices(scene_of(self._ledger))

    def orders(self) -> Iterator[FleetOrdersTo]:
        """What the provisioner is to do now; nothing while there is none."""
        ledger = self._ledger
        if not self._active or ledger.fleet_policy.dry_run:
            return
        scene = scene_of(ledger)
        wanted = pools.orders(scene, terminating_timeout_ms=self._terminating_timeout_ms)
        due = list(ledger.sightings.due(wanted, ledger.now_ms))
        lists = list(self._lists())
        slots = {
            pool.name: (pool.spec.max, pool.spec.hosts) for pool in ledger.fleet.pools.values()
        }
        for first in range(0, max(1, len(due)), ORDERS_AT_ONCE):
            part = due[first : first + ORDERS_AT_ONCE]
            yield FleetOrdersTo(
                FleetOrders(
                    epoch=ledger.epoch,
                    provisioner=self._active,
                    orders=tuple(_order(ledger.fleet, one) for one in part),
                    lists=() if first else tuple(lists),
                    slots=slots,
                )
            )

    def _lists(self) -> Iterator[ListOrder]:
        now_ms = self._ledger.now_ms
        if now_ms < self._lists_due_ms:
            return
        self._lists_due_ms = now_ms + self._ledger.fleet_policy.list_interval_ms
        fleet = self._ledger.fleet
        for source in pools.sources(fleet.pools, fleet.slices.values()):
            yield ListOrder(source.provider, dict(source.options), now_ms)

    # ── provisioners ──────────────────────────────────────────────────────────────────────────────

    def _choose(self, now_ms: int) -> None:
        """One provisioner is given orders, as long as it is heard; another one stands by."""
        self._heard_ms = {
            name: heard_ms
            for name, heard_ms in self._heard_ms.items()
            if now_ms - heard_ms <= MANNED_MS
        }
        if self._active not in self._heard_ms:
            self._active = max(self._heard_ms, key=self._heard_ms.__getitem__, default="")
            self._lists_due_ms = 0
        if not self._active:
            self._ledger.sightings.programs = None

    def on_report(self, data: bytes) -> Iterator[Change]:
        """What a provisioner tells. What has come of an earlier leader's orders is not taken: the
        next list shows it, and the orders are given again.
        """
        try:
            report = codec.unpack(data, ProvisionerReport)
        except Undecodable:
            return
        now_ms = self._ledger.now_ms
        is_new = report.provisioner not in self._heard_ms
        self._heard_ms[report.provisioner] = now_ms
        if is_new:
            self.look_soon()
        if self._active and report.provisioner != self._active:
            return
        sightings = self._ledger.sightings
        sightings.programs = frozenset(report.programs)
        sightings.keys = report.keys
        if sightings.keyed != report.keyed:
            sightings.keyed = dict(report.keyed)
            self.look_soon()
        if report.epoch != self._ledger.epoch:
            return
        if report.answers or report.lists:
            self.look_soon()
        if any(answer.call == "delete" for answer in report.answers):
            self._lists_due_ms = min(self._lists_due_ms, now_ms + LIST_AGAIN_MS)
        for answer in report.answers:
            yield from self._answered(scene_of(self._ledger), answer)
        for one in report.lists:
            self._listed(one)

    def _answered(self, scene: Scene, one: OrderAnswer) -> Iterator[Change]:
        if one.answer not in _ANSWERS or one.call not in ("create", "delete"):
            return
        order = ProviderOrder(
            call=one.call,  # type: ignore[arg-type]
            source=ListSource(""),
            name=one.slice,
            label=one.label,
            number=one.number,
        )
        yield from pools.on_answer(
            scene,
            order,
            cast(ProviderAnswer, one.answer),
            one.detail,
            retry_after_ms=round(min(max(0.0, one.retry_after_s), _LONGEST_REPORTED_S) * 1000),
        )

    def _listed(self, one: ListAnswer) -> None:
        """A list that failed says nothing of what there is."""
        source = ListSource(one.provider, tuple(sorted(one.options.items())))
        sightings = self._ledger.sightings
        if one.error:
            sightings.failed_lists[source] = one.error
            return
        sightings.failed_lists.pop(source, None)
        sightings.listed_ms = self._ledger.now_ms
        sightings.on_list(
            source,
            _entries(one),
            began_ms=one.asked_ms,
            fleet=self._ledger.fleet,
            policy=self._ledger.fleet_policy,
        )


def _entries(one: ListAnswer) -> Iterable[ListedSlice]:
    """What is listed; another word than those of a slice counts as running."""
    for found in one.slices:
        status: Any = found.status if found.status in _STATUSES else "running"
        yield ListedSlice(found.name, found.label, status, found.detail)


def _order(fleet: Fleet, order: ProviderOrder) -> SliceOrder:
    """An order as it is sent."""
    pool = order.name.rpartition("-")[0]
    one = fleet.slices.get(order.number)
    common = SliceOrder(
        call=order.call,
        provider=order.source.provider,
        options=dict(order.source.options),
        pool=pool,
        slice=order.name,
        label=order.label,
        number=order.number,
    )
    if order.call == "delete" or one is None:
        return common
    spec = one.spec
    fields = {name: getattr(common, name) for name in common.__struct_fields__} | {
        "hosts": tuple(
            OrderedHost(name, host_attributes(spec, one.slot, index))
            for index, name in enumerate(one.hosts)
        ),
        "resources": asdict(spec.resources),
        "attributes": dict(spec.attributes),
        "capacity": spec.capacity,
        "boot_timeout_s": spec.boot_timeout_s,
    }
    return SliceOrder(**fields)
