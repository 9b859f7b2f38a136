"""Views of the fleet: pools, slices, what happened to them, and what a pool would do."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import asdict, replace

from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.errors import Code, Refused
from iris_core.moments import show_duration
from iris_core.spec.pools import PoolSpec
from iris_core.states import SliceStatus
from iris_core.views.fleet import (
    FleetView,
    PoolChangeView,
    PoolObstacleView,
    PoolPlanView,
    PoolView,
    ReservationView,
    SliceCountView,
    SliceHostView,
    SliceStepView,
    SliceView,
    UnmetView,
)
from iris_core.views.jobs import Page, moment
from iris_core.views.queries import FleetSlicesQuery, PoolHistoryQuery, PoolPlanQuery, PoolsQuery
from iris_state.fleet import pools as decisions
from iris_state.fleet.admission import check_pool
from iris_state.fleet.scene import scene_of
from iris_state.fleet.slices import Scene
from iris_state.records.fleet.packing import FleetNeed, Unmet
from iris_state.records.fleet.records import Fleet, HostPool, Slice, SliceStep
from iris_state.records.fleet.sightings import ListSource
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_pool
from iris_state.views.actors import actor_view
from iris_state.views.cluster.waiting import packed_work, waiting_work
from iris_state.views.pages import behind, behind_name, cursor_of, page

S = SliceStatus
BOOTS = 3
"""No percentiles are told of fewer boots."""
CHANGES = 20
"""Changes in the view of the whole fleet."""
EXPLAINED = frozenset({"paused", "stopped", "exhausted"})
"""States of a pool whose reason is added to the words of the obstacle."""


@dataclass(slots=True)
class Look:
    """The fleet at one time; what takes longer is found out when it is asked for."""

    ledger: Ledger
    scene: Scene
    need: FleetNeed

    @classmethod
    def at(cls, ledger: Ledger) -> Look:
        return cls(ledger, scene_of(ledger), packed_work(ledger).need)


def pool_view(ledger: Ledger, pool: HostPool) -> PoolView:
    """One pool as it is now."""
    return _pool_view(Look.at(ledger), pool)


def pools(ledger: Ledger, query: PoolsQuery) -> Page:
    """Pools by name; the cursor is the last name read."""
    last = behind_name(query.cursor)
    known = ledger.fleet.pools
    look = Look.at(ledger)
    rows = ((cursor_of(name), known[name]) for name in sorted(known) if name > last)
    return page(rows, lambda pool: _pool_view(look, pool), query)


def _pool_view(look: Look, pool: HostPool) -> PoolView:
    spec = pool.spec
    now_ms = look.scene.now_ms
    own = look.ledger.fleet.of_pool(pool.name)
    counts = Counter(one.status.value for one in own if one.is_open)
    state, reason, until_ms = state_of(pool, now_ms)
    idle = [since_ms for one in own if (since_ms := look.scene.idle_since_ms(one))]
    boots = sorted(pool.growth.boots)
    reservation = spec.reservation
    fields = asdict(spec) | {
        "resources": asdict(spec.resources),
        "reservation": reservation and ReservationView(**asdict(reservation)),
    }
    return PoolView(
        **fields,
        state=state,
        reason=reason,
        since=moment(pool.since_ms),
        until=moment(until_ms),
        slices=SliceCountView(**counts),
        idle=len(idle),
        idle_since=moment(min(idle, default=0)),
        need=look.need.new.get(pool.name, 0),
        boot_p50_s=percentile(boots, 0.5),
        boot_p90_s=percentile(boots, 0.9),
        cost_per_hour=sum(one.spec.price for one in own if one.is_open and one.asked_ms),
        warnings=list(_warnings(look, pool)),
        version=pool.version,
        by=actor_view(pool.by),
        removing=pool.removing,
    )


def state_of(pool: HostPool, now_ms: int) -> tuple[str, str, int]:
    """The state of a pool, why, and until when that is so; 0: until somebody changes it."""
    growth = pool.growth
    state = pool.state
    if pool.spec.paused:
        return state, pool.reason or "by an admin", 0
    if growth.refused:
        return state, f"its provider refuses: {growth.refused}", 0
    if growth.stopped:
        return state, growth.stopped, 0
    if growth.wait_ms:
        until_ms = growth.put_off_ms if growth.put_off_ms > now_ms else 0
        return state, growth.detail or (growth.cause.value if growth.cause else ""), until_ms
    return state, "", 0


def percentile(boots_ms: list[int], share: float) -> float | None:
    """So many seconds at most has a ``share`` of the boots taken; None of fewer than `BOOTS`."""
    if len(boots_ms) < BOOTS:
        return None
    return boots_ms[min(len(boots_ms) - 1, int(len(boots_ms) * share))] / 1000


def _warnings(look: Look, pool: HostPool) -> Iterator[str]:
    sightings = look.scene.sightings
    keyed = sightings.keyed.get(pool.name)
    if keyed is not None and keyed < pool.spec.max:
        lacking = f"{pool.spec.max - keyed} of {pool.spec.max} slots have no keys"
        yield f"{lacking} yet" if sightings.keys == "made" else f"{lacking} and are not used"
    if keyed is None and sightings.keys == "given":
        yield "its slots are not counted yet: those without keys will not be used"
    program = pool.spec.options.get("program")
    known = sightings.programs
    if pool.spec.provider == "exec" and known is not None and program not in known:
        yield f"the provisioner has no program {program!r}; it has {', '.join(sorted(known)) or 'none'}"
    if error := sightings.failed_lists.get(ListSource.of(pool.spec)):
        yield f"what its provider has is not known, for its lists fail: {error}"
    overdue = sum(1 for one in look.ledger.fleet.of_pool(pool.name) if one.overdue)
    if overdue:
        yield f"{overdue} deletions take longer than they may"


# ── slices ────────────────────────────────────────────────────────────────────────────────────────


def slice_view(ledger: Ledger, one: Slice) -> SliceView:
    """One slice as it is now."""
    return _slice_view(ledger, scene_of(ledger), one)


def slices(ledger: Ledger, query: FleetSlicesQuery) -> Page:
    """Slices, newest first; the cursor is the last number read."""
    scene = scene_of(ledger)
    last = behind(query.cursor)
    found = ledger.fleet.of_pool(query.pool) if query.pool else ledger.fleet.slices.values()
    rows = ((one.number, one) for one in reversed(list(found)) if last is None or one.number < last)

    def wanted(one: Slice) -> bool:
        return one.status.value == query.status if query.status else not one.is_over

    return page(rows, lambda one: _slice_view(ledger, scene, one), query, wanted)


def _slice_view(ledger: Ledger, scene: Scene, one: Slice) -> SliceView:
    pool = ledger.fleet.pools.get(one.pool)
    return SliceView(
        id=one.id,
        name=one.name,
        pool=one.pool,
        status=one.status.value,
        since=moment(one.since_ms),
        cause=one.cause.value,
        detail=_detail(scene, one),
        hosts=list(_hosts(scene, one)),
        requested_at=moment(one.requested_ms),
        ready_at=moment(one.ready_ms),
        idle_since=moment(scene.idle_since_ms(one)),
        deadline_at=moment(one.deadline_ms),
        cost=one.cost(scene.now_ms),
        outdated=pool is not None and not one.is_over and one.spec != _spec_of_slices(pool, one),
        overdue=one.overdue,
        steps=[_step(step) for step in one.steps],
    )


def _detail(scene: Scene, one: Slice) -> str:
    """What its provider said last; of a creation that is tried again, why it failed."""
    failure = scene.sightings.failure(one) if one.status is S.REQUESTED else None
    return failure or one.detail


def _spec_of_slices(pool: HostPool, one: Slice) -> PoolSpec:
    """The pool's specification but for what says nothing about its slices."""
    return replace(
        pool.spec,
        **{name: getattr(one.spec, name) for name in _OF_THE_POOL},
    )


_OF_THE_POOL = (
    "min",
    "max",
    "buffer",
    "priority",
    "idle_s",
    "create_rate",
    "delete_rate",
    "paused",
    "only",
)


def _hosts(scene: Scene, one: Slice) -> Iterator[SliceHostView]:
    if one.is_over:
        return
    for name, host in zip(one.hosts, scene.hosts_of(one), strict=True):
        if host is None:
            yield SliceHostView(name=name, state="missing", differs=[])
        else:
            state = "mismatch" if host.differs else host.state.value
            yield SliceHostView(name=name, state=state, differs=list(host.differs))


def _step(step: SliceStep) -> SliceStepView:
    return SliceStepView(
        at=moment(step.at_ms),
        was=step.was.value if step.was is not None else None,
        to=step.status.value,
        cause=step.cause.value,
        by=actor_view(step.by),
    )


# ── what happened ─────────────────────────────────────────────────────────────────────────────────


def history(ledger: Ledger, query: PoolHistoryQuery) -> Page:
    """The changes of the slices of a pool, newest first; the cursor is the place of the last."""
    pool = known_pool(ledger, query.pool)
    changes = _changes(ledger.fleet.of_pool(pool.name))
    start = (behind(query.cursor) or 0) if query.cursor else 0
    rows = enumerate(changes[start:], start + 1)
    return page(rows, lambda change: change, query)


def _changes(found: list[Slice]) -> list[PoolChangeView]:
    """All that is kept of these slices, newest first."""
    changes = [
        (step.at_ms, one.number, place, one, step)
        for one in found
        for place, step in enumerate(one.steps)
    ]
    changes.sort(key=lambda change: change[:3], reverse=True)
    return [
        PoolChangeView(
            at=moment(at_ms),
            slice=one.name,
            id=one.id,
            was=step.was.value if step.was is not None else None,
            to=step.status.value,
            cause=step.cause.value,
            detail=one.detail if step is one.steps[-1] else "",
            by=actor_view(step.by),
        )
        for at_ms, _, _, one, step in changes
    ]


def fleet(ledger: Ledger) -> FleetView:
    """All pools together."""
    look = Look.at(ledger)
    known = ledger.fleet.pools
    shown = [_pool_view(look, known[name]) for name in sorted(known)]
    counts = Counter(one.status.value for one in ledger.fleet.slices.values() if one.is_open)
    newest = list(ledger.fleet.slices.values())
    newest.sort(key=lambda one: one.since_ms)
    sightings = look.scene.sightings
    return FleetView(
        pools=shown,
        slices=SliceCountView(**counts),
        idle=sum(pool.idle for pool in shown),
        need=sum(pool.need for pool in shown),
        cost_per_hour=sum(pool.cost_per_hour for pool in shown),
        orphans=sum(1 for _ in sightings.orphans(ledger.fleet)),
        listed_at=moment(sightings.listed_ms),
        dry_run=ledger.fleet_policy.dry_run,
        unmet=[_unmet_view(look, one) for one in look.need.unmet],
        changes=_changes(newest[-CHANGES:])[:CHANGES],
    )


def _unmet_view(look: Look, unmet: Unmet) -> UnmetView:
    return UnmetView(
        example=unmet.work.example,
        tasks=unmet.tasks,
        pools=[obstacle_view(look.ledger, name, code) for name, code in unmet.pools.items()],
    )


def obstacle_view(ledger: Ledger, name: str, code: str) -> PoolObstacleView:
    """Why a pool makes nothing, in words."""
    pool = ledger.fleet.pools[name]
    _, reason, until_ms = state_of(pool, ledger.now_ms)
    words = OBSTACLES[code]
    if code == "at_max":
        words = f"{words} ({pool.spec.max})"
    elif code in EXPLAINED and reason:
        words = f"{words}: {reason}"
    if code == "exhausted" and until_ms:
        seconds = math.ceil(max(0, until_ms - ledger.now_ms) / 1000)
        words += f"; tried again in {show_duration(seconds)}"
    until = moment(until_ms) if code == "exhausted" else None
    return PoolObstacleView(pool=name, code=code, message=words, until=until)


OBSTACLES = {
    "at_max": "at its maximum",
    "paused": "paused",
    "exhausted": "no capacity",
    "reservation_used": "its reservation is used up",
    "over_price": "the cluster would pass its maximum price",
    "rate": "it makes no more slices in this minute",
    "no_keys": "no free slot has keys",
    "stopped": "stopped, for too many of its slices look lost",
    "dry_run": "the cluster decides and does nothing",
    "provisioner_down": "no provisioner answers",
}
"""What stands in the way of a pool, by its code."""


# ── what would happen ─────────────────────────────────────────────────────────────────────────────


def plan(ledger: Ledger, query: PoolPlanQuery) -> PoolPlanView:
    """What a pool of the ``spec`` would do now, whatever its rates. Raises Refused."""
    try:
        spec = codec.from_json(query.spec.encode(), PoolSpec)
    except Undecodable as error:
        raise Refused(Code.INVALID, str(error)) from None
    check_pool(ledger, spec)
    scene = scene_of(ledger)
    work = waiting_work(ledger, proposed=True)
    with_it = _beside(scene, spec)
    without = _beside(scene, replace(spec, max=0, min=0, buffer=0))
    create, delete = decisions.planned(with_it, work, spec.name)
    left = _left(decisions.needed(with_it, work))
    held = _left(decisions.needed(without, work)) - left
    return PoolPlanView(create=create, delete=delete, tasks=max(0, held), left=left)


def _left(need: FleetNeed) -> int:
    return sum(unmet.tasks for unmet in need.unmet)


def _beside(scene: Scene, spec: PoolSpec) -> Scene:
    """The fleet as it would be with this pool; nothing is changed."""
    fleet = Fleet()
    fleet.pools = {**scene.fleet.pools, spec.name: _with_spec(scene.fleet, spec)}
    for one in scene.fleet.slices.values():
        fleet.add(one)
    return dataclasses.replace(scene, fleet=fleet)


def _with_spec(fleet: Fleet, spec: PoolSpec) -> HostPool:
    """The pool with another specification, with what hinders it; one that is new has nothing."""
    known = fleet.pools.get(spec.name)
    return HostPool(spec) if known is None else replace(known, spec=spec, removing=False)
