"""What hinders and speeds up the growth of one pool: refusals, failed boots, rates, losses. Pure.

Source: docs/design/fleet.md#growing-and-shrinking.
"""

from __future__ import annotations

from msgspec.structs import replace

from iris_core.moments import show_duration
from iris_core.spec.pools import MAX_SLICES, PoolSpec
from iris_core.states import SliceCause
from iris_state.policy import FleetPolicy
from iris_state.records.fleet.records import LOSS_WINDOW_MS, MINUTE_MS, Growth

FAILED_BOOTS = 3
UNANSWERED = 3
"""So many in a row, and the pool is put off as after a refusal for capacity."""
FASTEST = 8
"""The rate of creation grows to so many times ``create_rate`` while nothing is refused."""
LONGEST_ASKED_MS = 86_400_000
"""So long at most a pool waits because its provider asks for it."""

C = SliceCause
OF_BOOTS = frozenset(
    {C.BOOT_FAILED, C.BOOT_TIMEOUT, C.GONE, C.PREEMPTED, C.HOST_LOST, C.HOST_DEGRADED}
)
"""Causes of a delay that an accepted creation does not end, only a slice that is ready."""


def put_off(
    growth: Growth,
    cause: SliceCause,
    detail: str,
    *,
    policy: FleetPolicy,
    now_ms: int,
    retry_after_ms: int = 0,
) -> Growth:
    """After a refusal for capacity or quota, or what counts like one: twice the last delay, or as
    long as its provider asks for, where that is longer.
    """
    asked_ms = min(retry_after_ms, LONGEST_ASKED_MS)
    if retry_after_ms > asked_ms:
        asked, held = show_duration(retry_after_ms / 1000), show_duration(asked_ms / 1000)
        detail = f"{detail} (asks for {asked}, is asked again after {held})"
    wait_ms = min(policy.exhausted_longest_ms, growth.wait_ms * 2) or policy.exhausted_first_ms
    if growth.put_off_ms > now_ms:
        # Slices that were asked for together are refused together: that is one refusal.
        if growth.put_off_ms >= now_ms + asked_ms:
            return growth
        wait_ms = 0
    wait_ms = max(wait_ms, asked_ms)
    return replace(
        growth,
        put_off_ms=now_ms + wait_ms,
        wait_ms=wait_ms,
        cause=cause,
        detail=detail,
        speed=1,
        sped_ms=now_ms,
    )


def after_failed_boot(
    growth: Growth, cause: SliceCause, detail: str, policy: FleetPolicy, now_ms: int
) -> Growth:
    growth = replace(growth, failed_boots=growth.failed_boots + 1)
    return _put_off_when(
        growth.failed_boots >= FAILED_BOOTS, growth, cause, detail, policy=policy, now_ms=now_ms
    )


def after_no_answer(
    growth: Growth, cause: SliceCause, detail: str, policy: FleetPolicy, now_ms: int
) -> Growth:
    growth = replace(growth, unanswered=growth.unanswered + 1)
    return _put_off_when(
        growth.unanswered >= UNANSWERED, growth, cause, detail, policy=policy, now_ms=now_ms
    )


def _put_off_when(
    too_many: bool,
    growth: Growth,
    cause: SliceCause,
    detail: str,
    *,
    policy: FleetPolicy,
    now_ms: int,
) -> Growth:
    """Put the pool off when too many have failed in a row, or when the one failed that was tried
    after a delay.
    """
    if not too_many and not growth.wait_ms:
        return growth
    return put_off(growth, cause, detail, policy=policy, now_ms=now_ms)


def after_accepted(growth: Growth) -> Growth:
    if growth.cause in OF_BOOTS:
        return replace(growth, unanswered=0)
    return _unhindered(replace(growth, unanswered=0))


def after_boot(growth: Growth) -> Growth:
    return _unhindered(replace(growth, failed_boots=0, unanswered=0))


def _unhindered(growth: Growth) -> Growth:
    return replace(growth, put_off_ms=0, wait_ms=0, cause=None, detail="")


def sped_up(growth: Growth, now_ms: int) -> Growth:
    """Twice the rate after each minute in which slices were made and none was refused; the usual
    one after a minute without any.
    """
    since_ms = now_ms - growth.sped_ms
    if since_ms < MINUTE_MS or growth.wait_ms:
        return growth
    if not any(at > now_ms - MINUTE_MS for at in growth.created):
        return growth if growth.speed == 1 else replace(growth, speed=1)
    is_first_minute = since_ms > 2 * MINUTE_MS
    speed = growth.speed if is_first_minute else min(FASTEST, growth.speed * 2)
    return replace(growth, speed=speed, sped_ms=now_ms)


def probes(growth: Growth, outstanding: int, now_ms: int) -> int:
    """How many slices are worth asking for after refusals: none during the delay, one after it."""
    if growth.put_off_ms > now_ms:
        return 0
    return max(0, 1 - outstanding) if growth.wait_ms else MAX_SLICES


def may_create(spec: PoolSpec, growth: Growth, *, outstanding: int, now_ms: int) -> int:
    """How many slices may be asked for now. ``outstanding``: that have been and are not answered,
    or, after failed boots, not ready.
    """
    recent = sum(1 for at in growth.created if at > now_ms - MINUTE_MS)
    allowed = max(0, spec.create_rate * growth.speed - recent)
    return min(allowed, probes(growth, outstanding, now_ms))


def may_delete(spec: PoolSpec, growth: Growth, now_ms: int) -> int:
    """How many idle slices may be given up now."""
    recent = sum(1 for at in growth.deleted if at > now_ms - MINUTE_MS)
    return max(0, spec.delete_rate - recent)


def may_lose(growth: Growth, ready: int, policy: FleetPolicy, now_ms: int) -> int:
    """How many more slices may be given up for failure. ``ready``: those of the pool."""
    recent = sum(1 for at in growth.lost if at > now_ms - LOSS_WINDOW_MS)
    return max(0, max(1, int((ready + recent) * policy.delete_fraction)) - recent)


def after_loss(growth: Growth, now_ms: int) -> Growth:
    lost = tuple(at for at in growth.lost if at > now_ms - LOSS_WINDOW_MS)
    return replace(growth, lost=(*lost, now_ms))
