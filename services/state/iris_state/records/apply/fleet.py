"""Writes the changes of pools and slices. No decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from iris_core.states import SliceCause, SliceStatus
from iris_state.records.apply.usage import account_slice
from iris_state.records.facts import PoolFact, SliceFact
from iris_state.records.fleet.records import (
    BOOTS,
    ENDED,
    MINUTE_MS,
    STEPS,
    Fleet,
    Growth,
    HostPool,
    Slice,
    SliceStep,
)
from iris_state.records.fleet_changes import (
    FLEET_KINDS,
    FleetChange,
    OrphanDeleted,
    PoolGrowth,
    PoolRemoved,
    PoolSet,
    SliceCleared,
    SliceMoved,
    SliceRequested,
)
from iris_state.records.ledger import Ledger

S = SliceStatus


def pool_set(fleet: Fleet, change: PoolSet, now_ms: int) -> None:
    known = fleet.pools.get(change.spec.name)
    if known is None:
        new = HostPool(
            spec=change.spec,
            set_ms=now_ms,
            by=change.by,
            removing=change.removing,
            reason=change.reason,
        )
        fleet.pools[change.spec.name] = new
        _note_state(new, "", now_ms)
        return
    was = known.state
    known.spec = change.spec
    known.version += 1
    known.set_ms = now_ms
    known.by = change.by
    known.removing = change.removing
    known.reason = change.reason
    # What a person has changed is tried again; rates and boot times go on.
    known.growth = Growth(
        created=known.growth.created,
        deleted=known.growth.deleted,
        lost=known.growth.lost,
        boots=known.growth.boots,
    )
    _note_state(known, was, now_ms)


def _note_state(pool: HostPool, was: str, now_ms: int) -> None:
    """Keep since when a pool is not ok."""
    if pool.state != was:
        pool.since_ms = 0 if pool.state == "ok" else now_ms


def pool_removed(fleet: Fleet, change: PoolRemoved) -> None:
    del fleet.pools[change.pool]
    for one in fleet.of_pool(change.pool):
        fleet.remove(one)


def pool_growth(fleet: Fleet, change: PoolGrowth, now_ms: int) -> None:
    pool = fleet.pools[change.pool]
    was = pool.state
    pool.growth = change.growth
    _note_state(pool, was, now_ms)


def slice_requested(fleet: Fleet, change: SliceRequested, now_ms: int) -> None:
    pool = fleet.pools[change.pool]
    is_there = change.label > 0
    new = Slice(
        number=change.number,
        pool=change.pool,
        slot=change.slot,
        spec=pool.spec,
        label=change.label or change.number,
        status=S.CREATING if is_there else S.REQUESTED,
        since_ms=now_ms,
        cause=change.cause,
        requested_ms=now_ms,
        asked_ms=now_ms if is_there else 0,
    )
    new.steps = [SliceStep(at_ms=now_ms, was=None, status=new.status, cause=change.cause)]
    fleet.add(new)
    if not is_there:
        growth = pool.growth
        pool.growth = replace(growth, created=(*_within(growth.created, now_ms, MINUTE_MS), now_ms))


def slice_moved(fleet: Fleet, change: SliceMoved, now_ms: int) -> None:
    one = fleet.slices[change.number]
    was = one.status
    one.detail = change.detail or one.detail
    one.asked_ms = change.asked_ms or one.asked_ms
    one.overdue = change.overdue
    one.label = change.label or one.label
    if change.status is was:
        return
    one.status = change.status
    one.since_ms = now_ms
    one.cause = change.cause
    one.deadline_ms = change.deadline_ms
    step = SliceStep(at_ms=now_ms, was=was, status=one.status, cause=change.cause, by=change.by)
    one.steps = [*one.steps[:1], *one.steps[1:][-(STEPS - 2) :], step]
    if one.status is S.READY:
        one.ready_ms = now_ms
    if one.is_over:
        one.ended_ms = now_ms
        _forget_oldest(fleet, one.pool)
    pool = fleet.pools.get(one.pool)
    if pool is not None:
        pool.growth = _grown(pool.growth, one, was, now_ms)


def slice_cleared(fleet: Fleet, change: SliceCleared) -> None:
    fleet.slices[change.number].cleared = True


def _grown(growth: Growth, one: Slice, was: SliceStatus, now_ms: int) -> Growth:
    """The counters of a pool after a slice of it has changed its status."""
    if one.status is S.READY and was is S.CREATING:
        boots = (*growth.boots, now_ms - one.requested_ms)[-BOOTS:]
        return replace(growth, boots=boots)
    if one.status in (S.DRAINING, S.DELETING) and was in (S.READY, S.CREATING):
        deleted = _within(growth.deleted, now_ms, MINUTE_MS)
        return replace(growth, deleted=(*deleted, now_ms))
    return growth


def _within(times: tuple[int, ...], now_ms: int, window_ms: int) -> tuple[int, ...]:
    return tuple(at for at in times if at > now_ms - window_ms)


def _forget_oldest(fleet: Fleet, pool: str) -> None:
    """Keep the newest `ENDED` slices that have ended; what may still be there is kept."""
    over = [one for one in fleet.of_pool(pool) if one.is_over and one.cleared]
    for one in over[: max(0, len(over) - ENDED)]:
        fleet.remove(one)


def apply_change(fleet: Fleet, change: FleetChange, now_ms: int) -> None:
    """Write one change."""
    match change:
        case PoolSet():
            pool_set(fleet, change, now_ms)
        case PoolRemoved():
            pool_removed(fleet, change)
        case PoolGrowth():
            pool_growth(fleet, change, now_ms)
        case SliceRequested():
            slice_requested(fleet, change, now_ms)
        case SliceMoved():
            slice_moved(fleet, change, now_ms)
        case SliceCleared():
            slice_cleared(fleet, change)
        case OrphanDeleted():
            pass  # it had no record


def _write(ledger: Ledger, change: FleetChange, at_ms: int) -> None:
    fleet = ledger.fleet
    if isinstance(change, SliceMoved | SliceRequested):
        known = fleet.slices.get(change.number)
        was = known.status if known is not None else None
        was_over = known is not None and known.is_over
        if (
            known is not None
            and isinstance(change, SliceMoved)
            and change.label
            and change.asked_ms
        ):
            account_slice(ledger, known, until_ms=at_ms)  # another one has its place
        apply_change(fleet, change, at_ms)
        if known is not None and known.is_over and not was_over:
            account_slice(ledger, known, until_ms=known.ended_ms)
        ledger.facts += _slice_facts(fleet, change, was, at_ms)
        if isinstance(change, SliceRequested) and change.cause is SliceCause.ADOPTED:
            one = fleet.slices[change.number]
            ledger.facts.append(_orphan_fact(one.pool, one.name, one.label, change.cause, at_ms))
    elif isinstance(change, OrphanDeleted):
        ledger.facts.append(
            _orphan_fact(change.pool, change.slice, change.label, SliceCause.ORPHAN, at_ms)
        )
    elif isinstance(change, PoolSet | PoolRemoved | PoolGrowth):
        if not isinstance(change, PoolGrowth):
            ledger.packed = None
        ledger.facts += _pool_facts(fleet, change, at_ms)
        apply_change(fleet, change, at_ms)
    else:
        apply_change(fleet, change, at_ms)


def _orphan_fact(pool: str, name: str, label: int, cause: SliceCause, at_ms: int) -> PoolFact:
    """What has become of something that a provider listed without a record."""
    word = "adopted" if cause is SliceCause.ADOPTED else "deleted"
    detail = f"{name}, which its provider has with number {label}"
    return PoolFact(pool, word, cause.value, detail, at_ms=at_ms, kind="orphan")


def _slice_facts(
    fleet: Fleet, change: SliceMoved | SliceRequested, was: SliceStatus | None, at_ms: int
) -> Iterator[SliceFact]:
    """That a slice has entered a status, if it has."""
    one = fleet.slices.get(change.number)
    if one is None or one.status is was:
        return
    yield SliceFact(
        name=one.name,
        id=one.id,
        pool=one.pool,
        state=one.status.value,
        previous=was.value if was is not None else None,
        cause=one.cause.value,
        detail=one.detail,
        hosts=tuple(one.hosts),
        at_ms=at_ms,
        by=change.by if isinstance(change, SliceMoved) else None,
    )


def _pool_facts(
    fleet: Fleet, change: PoolSet | PoolRemoved | PoolGrowth, at_ms: int
) -> Iterator[PoolFact]:
    """What the change of a pool means for whoever watches it; called before it is applied."""
    if isinstance(change, PoolRemoved):
        yield PoolFact(change.pool, "removed", None, "", at_ms=at_ms)
    elif isinstance(change, PoolGrowth):
        found = _word_of_growth(fleet.pools[change.pool].growth, change.growth)
        if found is not None:
            word, cause, detail = found
            yield PoolFact(change.pool, word, cause, detail, at_ms=at_ms, by=change.by)
    else:
        known = fleet.pools.get(change.spec.name)
        word = "set" if known is None else _word_of_set(known, change)
        yield PoolFact(change.spec.name, word, None, change.reason, at_ms=at_ms, by=change.by)


def _word_of_set(known: HostPool, change: PoolSet) -> str:
    if change.spec == replace(known.spec, paused=change.spec.paused):
        if change.spec.paused:
            return "paused"
        if change.removing == known.removing:
            return "resumed"
    return "set"


def _word_of_growth(was: Growth, now: Growth) -> tuple[str, str | None, str] | None:
    """The word for what has changed, its cause and what its provider said; None: nothing that
    matters.
    """
    if now.refused and not was.refused:
        return "paused", "refused", now.refused
    if now.stopped and not was.stopped:
        return "stopped", None, now.stopped
    if now.put_off_ms > was.put_off_ms:
        return "exhausted", now.cause.value if now.cause is not None else None, now.detail
    if (was.stopped and not now.stopped) or (was.wait_ms and not now.wait_ms):
        return "recovered", None, ""
    return None


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = dict.fromkeys(FLEET_KINDS, _write)
"""By kind of change: (ledger, change, time in ms)."""
