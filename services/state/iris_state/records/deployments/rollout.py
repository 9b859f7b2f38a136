"""Computes how many routes a deployment creates and ends next, from counts only: one rule scales
and updates.

Pure. Source: docs/design/serving.md#update; docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from iris_core.spec.serving import UpdatePolicy
from iris_core.states import RouteStatus
from iris_core.tables.route import LIVE, SCALE_IN_ORDER

FAILED_STARTS = 5
"""So many new routes that failed to start, and none that ever got healthy, and an update has
failed.
"""

_RANK = {status: rank for rank, status in enumerate(SCALE_IN_ORDER)}


@dataclass(frozen=True, slots=True)
class Member:
    """One route that has not ended, as the rollout sees it.

    Attributes:
        number: grows with each route of its deployment. is_new: of the revision that is wanted.
        available: healthy, ready, and that for ``min_ready_s``.
    """

    number: int
    is_new: bool
    status: RouteStatus
    available: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a rollout: ``replicas`` routes, at most ``surge`` above and ``unavailable``
    below.

    ``new``: how many of them are of the new revision for now; the others stay of the old one.
    """

    replicas: int
    surge: int
    unavailable: int
    new: int


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """The next step: how many routes of the new and of the old revision to create, and which to
    end, by number.
    """

    create: int = 0
    restore: int = 0
    end: tuple[int, ...] = ()


class RolloutProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far an update has come; stored, because moving from DEPLOYING to DEPLOYING restarts no
    clock.

    Attributes:
        at_ms: of its last progress, plus the time its clock was stopped.
        stands_ms: since when the clock is stopped; 0: it runs.
        best: the highest number of available new routes so far. old: the lowest number of live old
            routes.
        failed: new routes that failed to start. healthy: one has become healthy.
    """

    at_ms: int
    stands_ms: int = 0
    best: int = 0
    old: int = 0
    failed: int = 0
    healthy: bool = False


def target(policy: UpdatePolicy, replicas: int, new: int | None = None) -> Target:
    """The bounds of an update in routes; if rounding allows neither surge nor absence, one surge
    route is allowed.
    """
    surge = _routes(policy.max_surge, replicas, up=True)
    unavailable = min(_routes(policy.max_unavailable, replicas, up=False), replicas)
    if not surge and not unavailable:
        surge = 1
    return Target(replicas, surge, unavailable, replicas if new is None else min(new, replicas))


def _routes(value: int | str, of: int, *, up: bool) -> int:
    """A number of routes: an integer, or a percentage of ``of`` such as ``"25%"``."""
    if isinstance(value, int):
        return value
    hundredths = int(value.removesuffix("%")) * of
    return -(-hundredths // 100) if up else hundredths // 100


def plan(wanted: Target, members: Iterable[Member]) -> RolloutPlan:
    """The next step towards the target. Evaluated again after every change of a route, and as time
    passes.

    Never more routes than ``replicas + surge``, including those being terminated; it never reduces
    the available ones below ``replicas - unavailable``.
    """
    held = list(members)
    live = [member for member in held if member.status in LIVE]
    new = [member for member in live if member.is_new]
    old = [member for member in live if not member.is_new]
    room = max(0, wanted.replicas + wanted.surge - len(held))
    create = min(max(0, wanted.new - len(new)), room)
    kept = wanted.replicas - wanted.new  # so many stay of the old revision for now
    lacking = wanted.replicas - len(live) - create
    restore = max(0, min(kept - len(old), lacking, room - create))
    end = _surplus(new, len(new) - wanted.replicas) if kept == 0 else []
    end += _ended_old(wanted, new, old, kept)
    left = [member for member in live if member not in end]
    end += _surplus(
        left, len(left) - wanted.replicas - wanted.surge
    )  # fewer are wanted than before
    return RolloutPlan(create, restore, tuple(member.number for member in end))


def _ended_old(
    wanted: Target, new: Sequence[Member], old: Sequence[Member], kept: int
) -> list[Member]:
    """Old routes that may end: first those that serve no requests, then available ones that can be
    spared.
    """
    least = wanted.replicas - wanted.unavailable
    idle = [member for member in old if not member.available]
    serving = [member for member in old if member.available]
    most = len(old) - kept
    waiting = sum(not member.available for member in new)
    first = _surplus(idle, min(len(old) + len(new) - least - waiting, most))
    available = len(serving) + len(new) - waiting
    return first + _surplus(serving, min(available - least, most - len(first)))


def _surplus(members: Sequence[Member], count: int) -> list[Member]:
    """The ``count`` routes to end first: the least healthy, and within one status the youngest."""
    if count <= 0:
        return []
    ordered = sorted(members, key=lambda one: (one.available, _RANK[one.status], -one.number))
    return ordered[:count]


def is_complete(wanted: Target, members: Iterable[Member]) -> bool:
    """Whether all wanted new routes are available and no other route is live."""
    live = [member for member in members if member.status in LIVE]
    return len(live) == wanted.replicas and all(
        member.is_new and member.available for member in live
    )


def advance(
    progress: RolloutProgress, members: Sequence[Member], stands: bool, now_ms: int
) -> RolloutProgress:
    """The progress as of now: it advances at a new maximum of available new routes and at the end
    of an old one.

    ``stands``: the update is paused, or all missing routes wait for capacity; its clock is stopped.
    """
    available = sum(member.is_new and member.available for member in members)
    old = sum(not member.is_new and member.status in LIVE for member in members)
    at_ms = progress.at_ms
    stands_ms = progress.stands_ms
    if stands_ms and not stands:
        at_ms = at_ms + now_ms - stands_ms
        stands_ms = 0
    elif stands and not stands_ms:
        stands_ms = now_ms
    if available > progress.best or old < progress.old:
        at_ms = now_ms
        stands_ms = now_ms if stands else 0
    return msgspec.structs.replace(
        progress,
        at_ms=at_ms,
        stands_ms=stands_ms,
        best=max(available, progress.best),
        old=min(old, progress.old),
        healthy=progress.healthy
        or any(m.is_new and m.status is RouteStatus.HEALTHY for m in members),
    )


def failure(progress: RolloutProgress, deadline_s: float, now_ms: int) -> str:
    """Why an update has failed, in a clause; empty while it has not."""
    if progress.failed >= FAILED_STARTS and not progress.healthy:
        return f"{progress.failed} of its routes failed to start and none got healthy"
    if not progress.stands_ms and now_ms - progress.at_ms > deadline_s * 1000:
        return f"it made no progress for {deadline_s:g} s"
    return ""


def fails_at(progress: RolloutProgress, deadline_s: float) -> int | None:
    """When an update fails if it makes no progress, ms; None while its clock is stopped."""
    return None if progress.stands_ms else progress.at_ms + int(deadline_s * 1000) + 1
