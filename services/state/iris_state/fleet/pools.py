"""The decisions about pools: how many slices each has, which are given up, what is adopted.

`steps` is one round over everything; each change is applied before the next one is asked for.
Source: docs/design/fleet.md#decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from msgspec.structs import replace

from iris_core.moments import show_duration
from iris_core.placement.pools import host_name, numbered
from iris_core.spec.pools import PoolSpec
from iris_core.states import Outcome, SliceCause, SliceStatus, WorkerState
from iris_core.tables import slice as table
from iris_state.fleet import growth as g
from iris_state.fleet import slices
from iris_state.fleet.need import Limit, PoolRoom, SliceGroup, by_size, in_order, pack
from iris_state.fleet.slices import Loss, Scene
from iris_state.records.fleet.packing import FleetNeed, PendingWork
from iris_state.records.fleet.records import FIRST_NUMBER, HostPool, Slice
from iris_state.records.fleet.sightings import (
    ListedSlice,
    ListSource,
    ProviderAnswer,
    ProviderOrder,
    Seen,
)
from iris_state.records.fleet_changes import (
    FleetChange,
    OrphanDeleted,
    PoolGrowth,
    PoolRemoved,
    SliceCleared,
    SliceMoved,
    SliceRequested,
)

S = SliceStatus
C = SliceCause
OnNeed = Callable[[FleetNeed], None]
UNLIMITED = 1e15
"""More money than there is."""
FRESH_MS = 30_000
"""So long after a slice is ready, waiting work is expected to be placed there."""


class PoolCount(NamedTuple):
    """The slices of a pool.

    Attributes:
        busy: ready, with work. spare: coming, or ready and idle.
    """

    busy: int
    spare: int

    @property
    def live(self) -> int:
        return self.busy + self.spare


def steps(
    scene: Scene, work: Sequence[PendingWork], on_need: OnNeed | None = None
) -> Iterator[FleetChange]:
    """One round: slices by their handlers, then losses, orphans, and the size of each pool.

    ``on_need``: told what the work needs, before anything is made of it.
    """
    yield from _returns(scene, work)
    for one in list(scene.fleet.slices.values()):
        for change in slices.steps(scene, one):
            yield change
            if isinstance(change, SliceMoved):
                yield from _after(scene, one)
    yield from _losses(scene)
    yield from _adoptions(scene)
    yield from _withdrawals(scene)
    need = needed(scene, work)
    if on_need is not None:
        on_need(need)
    rooms = _rooms(scene)
    for name in list(rooms):
        yield from _resize(scene, rooms[name], need)
    yield from _removals(scene)


def _returns(scene: Scene, work: Sequence[PendingWork]) -> Iterator[SliceMoved]:
    """Take back slices that drain because nothing needed them, before new ones are made."""
    draining = [
        one
        for one in scene.fleet.slices.values()
        if one.status is S.DRAINING and one.cause in slices.TAKES_BACK
    ]
    if not draining:
        return
    used = pack([*_coming(scene), *_groups(draining)], [], by_size(work)).used
    for one in draining:
        is_lost = slices.loss(scene, one) is not None or _notice_of(scene, one) > 0
        if one.name in used and not is_lost and _has_place(scene, one.pool):
            yield from slices.judged(one, table.DRAIN, Outcome.FAILURE, C.DEMAND_BACK)


def _has_place(scene: Scene, name: str) -> bool:
    """Whether a pool may have one more slice that works, of those that are there."""
    pool = scene.fleet.pools.get(name)
    if pool is None or pool.removing:
        return False
    return sum(1 for one in scene.fleet.of_pool(name) if one.is_live) < pool.spec.max


def _after(scene: Scene, one: Slice) -> Iterator[PoolGrowth]:
    """What the new status of a slice means for the growth of its pool."""
    pool = scene.fleet.pools.get(one.pool)
    if pool is None:
        return
    now = pool.growth
    new = now
    if one.status is S.READY and one.cause is C.REGISTERED:
        new = g.after_boot(now)
    elif one.status is S.CREATING and one.cause is C.ACCEPTED:
        new = g.after_accepted(now)
    elif one.status is S.FAILED and one.cause in UNANSWERED and scene.sightings.ordered_ms(one):
        new = g.after_no_answer(now, one.cause, one.detail, scene.policy, scene.now_ms)
    elif one.status is S.DELETING and not one.ready_ms and one.cause in BOOT_FAILURES:
        new = g.after_failed_boot(now, one.cause, one.detail, scene.policy, scene.now_ms)
    if new != now:
        yield PoolGrowth(pool=pool.name, growth=new)


UNANSWERED = frozenset({C.NO_ANSWER, C.CREATE_FAILED})
"""Causes that tell of a provider, where it was asked."""
BOOT_FAILURES = frozenset({C.BOOT_FAILED, C.BOOT_TIMEOUT, C.GONE, C.PREEMPTED})


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


def on_answer(
    scene: Scene,
    order: ProviderOrder,
    answer: ProviderAnswer,
    detail: str = "",
    retry_after_ms: int = 0,
) -> Iterator[FleetChange]:
    """The changes that the answer of a provider to an order causes."""
    is_first = answer == "accepted" and not scene.sightings.was_answered(order)
    scene.sightings.on_answer(order, answer, detail, scene.now_ms)
    if order.call == "delete" and not order.number and is_first:
        yield OrphanDeleted(order.name.rpartition("-")[0], order.name, order.label)
    one = scene.fleet.slices.get(order.number)
    if one is None or one.label != order.label:
        return
    if order.call == "delete":
        if answer == "refused" and one.status is S.DELETING and not one.asked_ms:
            # Nobody has accepted it, and nobody can list it: there is nothing to wait for.
            yield from slices.judged(
                one, table.DELETE, Outcome.SUCCESS, C.NOT_LISTED, detail=f"never made: {detail}"
            )
            yield SliceCleared(one.number)
        elif answer != "accepted":
            yield from slices.judged(one, table.DELETE, Outcome.FAILURE, one.cause, detail=detail)
        return
    if answer == "accepted":
        yield from _moved(scene, one, Outcome.SUCCESS, C.ACCEPTED, detail)
    elif answer == "exhausted":
        yield from _moved(scene, one, Outcome.FAILURE, C.EXHAUSTED, detail)
        if one.status is S.FAILED and one.cause is C.EXHAUSTED and not one.cleared:
            yield SliceCleared(one.number)
            yield from _put_off(scene, one, detail, retry_after_ms)
    elif answer == "refused":
        yield from _moved(scene, one, Outcome.FAILURE, C.REFUSED, detail)
        pool = scene.fleet.pools.get(one.pool)
        if pool is not None and one.cause is C.REFUSED and not one.cleared:
            yield SliceCleared(one.number)
            refused = replace(pool.growth, refused=detail or "refused by the provider")
            yield PoolGrowth(pool=pool.name, growth=refused)


def _moved(
    scene: Scene, one: Slice, outcome: Outcome, cause: SliceCause, detail: str
) -> Iterator[FleetChange]:
    if one.status is not S.REQUESTED:
        return
    for change in slices.judged(
        one,
        table.REQUEST,
        outcome,
        cause,
        detail=detail,
        asked_ms=scene.now_ms if outcome is Outcome.SUCCESS else 0,
    ):
        yield change
        yield from _after(scene, one)


def _put_off(scene: Scene, one: Slice, detail: str, retry_after_ms: int) -> Iterator[PoolGrowth]:
    pool = scene.fleet.pools.get(one.pool)
    if pool is not None:
        yield PoolGrowth(
            pool=pool.name,
            growth=g.put_off(
                pool.growth,
                C.EXHAUSTED,
                detail,
                policy=scene.policy,
                now_ms=scene.now_ms,
                retry_after_ms=retry_after_ms,
            ),
        )


# ── mending ───────────────────────────────────────────────────────────────────────────────────────


def _losses(scene: Scene) -> Iterator[FleetChange]:
    """Give up ready slices that are lost; where too many are, the pool is stopped instead."""
    for pool in list(scene.fleet.pools.values()):
        ready = [one for one in scene.fleet.of_pool(pool.name) if one.status is S.READY]
        losses = [(one, loss) for one in ready if (loss := slices.loss(scene, one)) is not None]
        judged = [(one, loss) for one, loss in losses if loss.is_judged]
        for one, loss in losses:
            if not loss.is_judged:
                yield from _give_up(scene, pool, one, loss)
        if pool.growth.stopped:
            if not judged:
                yield PoolGrowth(pool=pool.name, growth=replace(pool.growth, stopped=""))
            continue
        left = g.may_lose(pool.growth, len(ready), scene.policy, scene.now_ms)
        for one, loss in judged[:left]:
            yield PoolGrowth(pool=pool.name, growth=g.after_loss(pool.growth, scene.now_ms))
            yield from _give_up(scene, pool, one, loss)
        if len(judged) > left:
            words = f"{len(judged) - left} more slices look lost: {judged[left][1].detail}"
            yield PoolGrowth(pool=pool.name, growth=replace(pool.growth, stopped=words))
    yield from on_notices(scene)


def _give_up(scene: Scene, pool: HostPool, one: Slice, loss: Loss) -> Iterator[FleetChange]:
    """Give up a ready slice. One that dies soon after its boot counts as a failed boot."""
    yield from slices.judged(one, table.CHECK, Outcome.FAILURE, loss.cause, detail=loss.detail)
    if scene.now_ms - one.ready_ms <= round(one.spec.boot_timeout_s * 1000):
        growth = g.put_off(
            pool.growth, loss.cause, loss.detail, policy=scene.policy, now_ms=scene.now_ms
        )
        yield PoolGrowth(pool=pool.name, growth=growth)


def on_notices(scene: Scene) -> Iterator[SliceMoved]:
    """Drain slices of which a host was told when it will be taken away; what has not come yet is
    withdrawn.
    """
    for one in list(scene.fleet.slices.values()):
        if one.is_live and (deadline_ms := _notice_of(scene, one)):
            yield from give_back(one, C.SPOT_NOTICE, deadline_ms=deadline_ms)


def _notice_of(scene: Scene, one: Slice) -> int:
    """When a slice is taken away, as its hosts were told; 0: none was."""
    notices = (host.notice_ms for host in scene.hosts_of(one) if host and host.notice_ms)
    return min(notices, default=0)


def give_back(
    one: Slice, cause: SliceCause, *, deadline_ms: int = 0, detail: str = ""
) -> Iterator[SliceMoved]:
    """What somebody's wish to end a slice causes: it drains, or, without hosts yet, is withdrawn.

    ``deadline_ms``: it is deleted then, whatever runs; 0: it waits for what runs.
    """
    rule = table.WITHDRAW if one.is_coming else table.GIVE_BACK
    if one.status in rule.sources:
        yield from slices.judged(
            one, rule, Outcome.SUCCESS, cause, detail=detail, deadline_ms=deadline_ms
        )


# ── orphans ─────────────────────────────────────────────────────────────────────────────────────


def _adoptions(scene: Scene) -> Iterator[SliceRequested | SliceMoved]:
    """Take over listed slices that have no record and whose hosts have registered."""
    for _, seen in list(scene.sightings.orphans(scene.fleet)):
        found = _slot_of(scene, seen.listed)
        if found is None or seen.listed.status not in ("creating", "running"):
            continue
        if seen.listed.label < FIRST_NUMBER:
            continue
        pool, slot = found
        if _was_recorded(scene, seen.listed) or slot >= pool.spec.max or pool.removing:
            continue
        holders = [one for one in scene.fleet.of_pool(pool.name) if one.slot == slot]
        holder = next((one for one in holders if one.is_open), None)
        if holder is not None:
            yield from _relabelled(scene, holder, seen.listed)
            continue
        names = (host_name(pool.name, slot, index) for index in range(pool.spec.hosts))
        hosts = [scene.hosts.get(name) for name in names]
        if any(host is not None and host.state is WorkerState.HEALTHY for host in hosts):
            yield SliceRequested(
                number=scene.fleet.next_number,
                pool=pool.name,
                slot=slot,
                cause=C.ADOPTED,
                label=seen.listed.label,
            )


def _relabelled(scene: Scene, one: Slice, listed: ListedSlice) -> Iterator[SliceMoved]:
    """A request for a slice that was there already, made before a restore, was accepted: it is
    known to its provider by the number of that time.
    """
    was_accepted = one.status in (S.CREATING, S.READY, S.DRAINING)
    if was_accepted and scene.sightings.listed(one) is None:
        yield SliceMoved(
            number=one.number,
            status=one.status,
            handler=table.BOOT.name,
            cause=C.ADOPTED,
            detail=f"its provider has it with number {listed.label}",
            asked_ms=scene.now_ms,  # unknown since when it is there: older lists say nothing of it
            label=listed.label,
        )


def _slot_of(scene: Scene, listed: ListedSlice) -> tuple[HostPool, int] | None:
    """The pool and the slot that a listed name belongs to; None for a name that no slice has had:
    it may be anything that a provider says.
    """
    place = numbered(listed.name)
    pool = scene.fleet.pools.get(place[0]) if place is not None else None
    return (pool, place[1]) if place is not None and pool is not None else None


def _was_recorded(scene: Scene, listed: ListedSlice) -> bool:
    """Whether it belongs to a slice that is over: the provider was late. Where work runs there it does
    not, for nothing is placed on such a slice: the record is of a backup that tells another story.
    """
    return any(
        one.label == listed.label
        and one.name == listed.name
        and one.is_over
        and not scene.runs(one)
        for one in scene.fleet.slices.values()
    )


def _has_waited(scene: Scene, seen: Seen) -> bool:
    """Whether an orphan has been there for so long without being adopted that it is deleted."""
    if _was_recorded(scene, seen.listed):
        return True
    timeout_ms = scene.policy.orphan_ms
    found = _slot_of(scene, seen.listed)
    if found is not None:
        timeout_ms = max(timeout_ms, round(found[0].spec.boot_timeout_s * 1000))
    return scene.now_ms - seen.first_ms > timeout_ms


# ── size ──────────────────────────────────────────────────────────────────────────────────────────


def free_slots(scene: Scene, pool: HostPool, orphans: Set[int]) -> list[int]:
    """The slots in which a slice can be made, lowest first: nothing is there and nothing may be, nor
    are there as many as ``max`` with those of slots that a larger one had.

    ``orphans``: slots of the pool in which something without a record is.
    """
    taken = {
        one.slot
        for one in scene.fleet.of_pool(pool.name)
        if one.is_open or not one.cleared or _has_hosts(scene, one)
    }
    taken |= orphans
    free = [slot for slot in range(pool.spec.max) if slot not in taken]
    return free[: max(0, pool.spec.max - len(taken))]


def _orphan_slots(scene: Scene) -> dict[str, set[int]]:
    """By pool, the slots in which something without a record is."""
    slots: dict[str, set[int]] = {}
    for _, seen in scene.sightings.orphans(scene.fleet):
        found = _slot_of(scene, seen.listed)
        if found is not None:
            slots.setdefault(found[0].name, set()).add(found[1])
    return slots


def _withdrawals(scene: Scene) -> Iterator[SliceMoved]:
    """Withdraw what was requested and is more than a ``max`` that was lowered since."""
    for pool in scene.fleet.pools.values():
        for one in _requested_over_max(scene, pool):
            yield from slices.judged(one, table.WITHDRAW, Outcome.SUCCESS, C.OVER_MAX)


def _requested_over_max(scene: Scene, pool: HostPool) -> list[Slice]:
    """What was requested of a pool and is more than its ``max``, the highest slots first."""
    live = [one for one in scene.fleet.of_pool(pool.name) if one.is_live]
    requested = [one for one in live if _is_only_requested(scene, one)]
    requested.sort(key=lambda one: -one.slot)
    return requested[: max(0, len(live) - pool.spec.max)]


def _beyond_max(scene: Scene) -> set[int]:
    """The numbers of requested slices for which there is no room beside what providers may have, of
    what pools decided whatever.
    """
    requested = [one for one in scene.fleet.slices.values() if _is_only_requested(scene, one)]
    if not requested:
        return set()
    taken = _orphan_slots(scene)
    for one in scene.fleet.slices.values():
        if (one.is_open or not one.cleared) and not _is_only_requested(scene, one):
            taken.setdefault(one.pool, set()).add(one.slot)
    beyond = set()
    for one in sorted(requested, key=lambda one: one.slot):
        pool = scene.fleet.pools.get(one.pool)
        slots = taken.setdefault(one.pool, set())
        if pool is None or (one.slot not in slots and len(slots) >= pool.spec.max):
            beyond.add(one.number)
        else:
            slots.add(one.slot)
    return beyond


def _is_only_requested(scene: Scene, one: Slice) -> bool:
    """Whether nothing says that its provider has a requested slice already."""
    return one.status is S.REQUESTED and scene.sightings.listed(one) is None


def _has_hosts(scene: Scene, one: Slice) -> bool:
    return any(host is not None and not host.is_lost for host in scene.hosts_of(one))


def count(scene: Scene, pool: HostPool, used: frozenset[str] | set[str] = frozenset()) -> PoolCount:
    """The slices of a pool. ``used``: coming ones that waiting work will use: they are busy."""
    busy = 0
    spare = 0
    for one in scene.fleet.of_pool(pool.name):
        if not one.is_live:
            continue
        if one.name in used or (one.status is S.READY and scene.has_work(one)):
            busy += 1
        else:
            spare += 1
    return PoolCount(busy=busy, spare=spare)


def needed(scene: Scene, work: Iterable[PendingWork]) -> FleetNeed:
    """What waiting work needs beyond what is coming, within the limits of each pool."""
    return pack(_coming(scene), list(_rooms(scene).values()), by_size(work))


def planned(scene: Scene, work: Sequence[PendingWork], name: str) -> tuple[int, int]:
    """How many slices a pool would make and give up now, whatever its rates."""
    need = needed(scene, work)
    pool = scene.fleet.pools[name]
    has = count(scene, pool, need.used)
    wanted = _wanted(pool, has, need.new.get(name, 0))
    if wanted > has.live:
        room = _rooms(scene)[name]
        makes = 0 if hindrance(pool, scene.now_ms) else min(wanted - has.live, room.left)
        return makes, 0
    withdrawn = len(_requested_over_max(scene, pool))
    if not _may_shrink(pool):
        return 0, withdrawn
    over = has.live - withdrawn - pool.spec.max
    idle_ms = [
        scene.now_ms - since_ms
        for one in scene.fleet.of_pool(name)
        if one.name not in need.used and (since_ms := scene.idle_since_ms(one))
    ]
    ripe = sum(1 for lasted in idle_ms if lasted >= round(pool.spec.idle_s * 1000))
    shrunk = min(has.live - withdrawn - wanted, max(ripe, min(over, len(idle_ms))))
    return 0, withdrawn + shrunk


def _coming(scene: Scene) -> list[SliceGroup]:
    """Room that waiting work will have: on slices that are expected, and on new ones without
    work.
    """
    return _groups(
        one for one in scene.fleet.slices.values() if one.is_coming or _is_fresh(scene, one)
    )


def _is_fresh(scene: Scene, one: Slice) -> bool:
    is_new = one.status is S.READY and scene.now_ms - one.ready_ms <= FRESH_MS
    return is_new and not scene.has_work(one)


def _groups(found: Iterable[Slice]) -> list[SliceGroup]:
    """Slices without work, those of one specification together."""
    groups: dict[tuple[str, int], SliceGroup] = {}
    for one in found:
        key = (one.pool, id(one.spec))
        group = groups.get(key)
        if group is None:
            hosts = (one.spec.resources.amount,) * one.spec.hosts
            group = groups[key] = SliceGroup(spec=one.spec, hosts=hosts, count=0)
        group.count += 1
        group.names.append(one.name)
    return list(groups.values())


def _rooms(scene: Scene) -> dict[str, PoolRoom]:
    """What each pool may still make whatever its rate is, in the order in which they are asked."""
    chips = _reserved_chips(scene)
    reserved: dict[str, Limit] = {}
    money = Limit(_price_left(scene), "over_price")
    orphans = _orphan_slots(scene)
    rooms = {}
    for spec in in_order({name: pool.spec for name, pool in scene.fleet.pools.items()}):
        pool = scene.fleet.pools[spec.name]
        slots = free_slots(scene, pool, orphans.get(pool.name, set()))
        limits = [(Limit(len(slots), "at_max"), 1.0)]
        if spec.reservation is not None and spec.chips_per_slice:
            name = spec.reservation.name
            left = spec.reservation.chips - chips[name]
            limit = reserved.setdefault(name, Limit(left, "reservation_used"))
            limits.append((limit, float(spec.chips_per_slice)))
        if spec.price:
            limits.append((money, spec.price))
        reason = hindrance(pool, scene.now_ms) or _unreached(scene, spec.name)
        keyed = scene.sightings.keyed.get(spec.name)
        if keyed is not None and keyed < spec.max:
            slots = [slot for slot in slots if slot < keyed]
            limits.append((Limit(len(slots), "no_keys"), 1.0))
        if reason:
            limits.append((Limit(0, reason), 1.0))
        elif pool.growth.wait_ms:
            probes = g.probes(pool.growth, _outstanding(scene, pool), scene.now_ms)
            limits.append((Limit(probes, "exhausted"), 1.0))
        rooms[spec.name] = PoolRoom(spec=spec, slots=slots, limits=limits)
    return rooms


def _unreached(scene: Scene, pool: str) -> str:
    """Why no order for a pool would be carried out, as a code of `why`; empty: one would be."""
    is_uncounted = pool in scene.sightings.uncounted
    return scene.sightings.obstacle or ("provisioner_down" if is_uncounted else "")


def _wanted(pool: HostPool, has: PoolCount, new: int) -> int:
    """How many live slices a pool wants."""
    if pool.removing:
        return 0
    spec = pool.spec
    return min(spec.max, max(spec.min, has.busy + new + spec.buffer))


def _outstanding(scene: Scene, pool: HostPool) -> int:
    """Slices that were asked for and about which the outcome is open: not answered yet, or, after
    failed boots, not ready yet.
    """
    after_boots = pool.growth.cause in g.OF_BOOTS
    return sum(
        1
        for one in scene.fleet.of_pool(pool.name)
        if one.status is S.REQUESTED or (after_boots and one.is_coming)
    )


def hindrance(pool: HostPool, now_ms: int) -> str:
    """Why a pool makes nothing at all, as a code of `why`; empty: it may."""
    if pool.spec.paused or pool.removing or pool.growth.refused:
        return "paused"
    if pool.growth.stopped:
        return "stopped"
    return "exhausted" if pool.growth.put_off_ms > now_ms else ""


def _reserved_chips(scene: Scene) -> Counter[str]:
    """The chips that the slices of all pools take of each reservation."""
    chips: Counter[str] = Counter()
    for one in scene.fleet.slices.values():
        if one.spec.reservation is not None and (one.is_open or not one.cleared):
            chips[one.spec.reservation.name] += one.spec.chips_per_slice
    return chips


def _price_left(scene: Scene) -> float:
    """What slices may still cost in an hour, all together."""
    if not scene.policy.max_price_per_hour:
        return UNLIMITED
    spent = sum(one.spec.price for one in scene.fleet.slices.values() if one.is_live)
    return max(0.0, scene.policy.max_price_per_hour - spent)


def _resize(scene: Scene, room: PoolRoom, need: FleetNeed) -> Iterator[FleetChange]:
    """Make or give back slices until the pool has as many as it wants."""
    spec = room.spec
    pool = scene.fleet.pools[spec.name]
    sped = g.sped_up(pool.growth, scene.now_ms)
    if sped != pool.growth:
        yield PoolGrowth(pool=pool.name, growth=sped)
    has = count(scene, pool, need.used)
    new = need.new.get(pool.name, 0)
    wanted = _wanted(pool, has, new)
    if wanted > has.live and not hindrance(pool, scene.now_ms):
        yield from _grow(scene, pool, room, new, wanted - has.live)
    elif wanted < has.live and _may_shrink(pool):
        yield from _shrink(scene, pool, need, has.live - wanted)


def _may_shrink(pool: HostPool) -> bool:
    """Whether a pool gives back what is idle."""
    return not pool.spec.paused and not pool.growth.stopped


def _grow(
    scene: Scene, pool: HostPool, room: PoolRoom, new: int, missing: int
) -> Iterator[SliceRequested]:
    outstanding = _outstanding(scene, pool)
    allowed = g.may_create(pool.spec, pool.growth, outstanding=outstanding, now_ms=scene.now_ms)
    making = min(missing, allowed, room.left)
    room.take(making)
    below_min = pool.spec.min - count(scene, pool).live
    for number, slot in enumerate(room.slots[:making]):
        cause = C.NEED if number < new else C.MIN if number < below_min else C.BUFFER
        yield SliceRequested(number=scene.fleet.next_number, pool=pool.name, slot=slot, cause=cause)


def _shrink(scene: Scene, pool: HostPool, need: FleetNeed, surplus: int) -> Iterator[FleetChange]:
    """Give back idle slices, longest idle first. Slices beyond ``max`` go at once, others after
    ``idle_s``.
    """
    idle = [
        (since_ms, one)
        for one in scene.fleet.of_pool(pool.name)
        if one.name not in need.used and (since_ms := scene.idle_since_ms(one))
    ]
    idle.sort(key=lambda found: (found[0], found[1].number))
    live = count(scene, pool).live
    allowed = g.may_delete(pool.spec, pool.growth, scene.now_ms)
    over = live if pool.removing else live - pool.spec.max
    for since_ms, one in idle[: min(surplus, allowed)]:
        idle_ms = scene.now_ms - since_ms
        if over > 0:
            cause = C.REMOVED if pool.removing else C.OVER_MAX
            yield from slices.judged(one, table.GIVE_BACK, Outcome.SUCCESS, cause)
            over -= 1
            continue
        yield from slices.judged(
            one,
            table.CHECK,
            Outcome.SKIPPED,
            C.IDLE,
            detail=f"nothing has run there for {show_duration(idle_ms / 1000)}",
            in_status_ms=idle_ms,
            timeout_ms=round(pool.spec.idle_s * 1000),
        )


def _removals(scene: Scene) -> Iterator[FleetChange]:
    """End what a removed pool still expects, and its record after its last slice."""
    for pool in list(scene.fleet.pools.values()):
        if not pool.removing:
            continue
        for one in scene.fleet.of_pool(pool.name):
            if one.is_coming:
                yield from slices.judged(one, table.WITHDRAW, Outcome.SUCCESS, C.REMOVED)
        if not any(_holds_pool(scene, one) for one in scene.fleet.of_pool(pool.name)):
            yield PoolRemoved(pool.name)


def _holds_pool(scene: Scene, one: Slice) -> bool:
    """Whether the record of a pool stays for a slice: it may be there, or a host of it was heard so
    lately that it is not LOST yet.
    """
    if one.is_open or not one.cleared:
        return True
    return scene.now_ms - one.ended_ms < scene.policy.list_lag_ms and _has_hosts(scene, one)


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


def orders(scene: Scene, *, terminating_timeout_ms: int) -> Iterator[ProviderOrder]:
    """Everything that providers ought to do now, whether they were asked already or not."""
    beyond = _beyond_max(scene)
    for one in scene.fleet.slices.values():
        source = ListSource.of(one.spec)
        if one.status is S.REQUESTED and one.number not in beyond:
            yield ProviderOrder("create", source, one.name, one.label, one.number)
        elif one.status is S.DELETING:
            is_overdue = scene.in_status_ms(one) > terminating_timeout_ms
            if is_overdue or not scene.runs(one):
                yield ProviderOrder("delete", source, one.name, one.label, one.number)
    for source, seen in scene.sightings.orphans(scene.fleet):
        if _has_waited(scene, seen):
            yield ProviderOrder("delete", source, seen.listed.name, seen.listed.label)


def sources(pools: Mapping[str, HostPool], live: Iterable[Slice]) -> list[ListSource]:
    """What provisioners are to list."""
    specs: list[PoolSpec] = [pool.spec for pool in pools.values()]
    specs += [one.spec for one in live if not one.cleared]
    return list(dict.fromkeys(ListSource.of(spec) for spec in specs))
