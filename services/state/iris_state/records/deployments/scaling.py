"""Decides the number of routes by a scaling rule: from samples of the load, the time, and earlier
numbers.

An unknown load is not 0: without a sample the number stays. Pure. Source:
    docs/design/serving.md#scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from iris_core.spec.serving import ScalingPolicy

TOLERANCE = 0.1
"""A load that differs by so much from what the routes are for changes nothing."""
STEP = 4
"""So many routes may be added at once where doubling them would be fewer."""


class Sample(NamedTuple):
    """The load of a deployment at a time (ms): outstanding requests at all proxies, or the value of
    its query.
    """

    at_ms: int
    load: float


class Wanted(NamedTuple):
    """A number of routes, and when it was wanted, ms."""

    at_ms: int
    routes: int


class ScalingMemory(msgspec.Struct, frozen=True):
    """The state carried from one decision to the next; not recorded, so a new leader starts without
    it.

    Attributes:
        replicas: the previous number; -1: unknown.
        wants: numbers wanted within the last ``stabilization_s`` that no later one exceeds; the
            first is the largest.
        rises: the numbers before each rise of the last ``cooldown_s``.
        panic_until_ms: the number only rises until this time.
    """

    replicas: int = -1
    wants: tuple[Wanted, ...] = ()
    rises: tuple[Wanted, ...] = ()
    panic_until_ms: int = 0


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a deployment.

    Attributes:
        replicas: wanted so far. live: existing routes, including starting ones. ready: those that
            get requests.
        updating: an update is under way.
        asked: there was load (a request, or a query above 0) since the previous decision. busy_ms:
            of the last load.
        unknown: why the load is not known, empty when it is.
        memory: of the previous decision.
    """

    replicas: int
    live: int
    ready: int
    updating: bool = False
    asked: bool = False
    busy_ms: int = 0
    unknown: str = ""
    memory: ScalingMemory = ScalingMemory()


class ScalingDecision(msgspec.Struct, frozen=True):
    """The number of routes wanted from now on.

    Attributes:
        reason: the measurements behind a change; or what holds the number although the load wants
            another.
        load: the mean of the window; None when unknown. memory: for the next decision.
    """

    target: int
    reason: str
    memory: ScalingMemory
    load: float | None = None


def decide(
    policy: ScalingPolicy, samples: Sequence[Sample], now_ms: int, now: Situation
) -> ScalingDecision:
    """The number of routes wanted at ``now_ms``; always within the policy's bounds."""
    bounded = policy.bounded(now.replicas)
    if bounded != now.replicas:
        reason = f"{policy.minimum} to {policy.maximum} routes are allowed"
        return _scaled(now, bounded, reason, _remember(policy, now, now_ms, bounded))
    if now.replicas == 0:
        memory = _remember(policy, now, now_ms, int(now.asked))
        why = (
            "its query is above 0, or a request has come" if policy.query else "a request has come"
        )
        return _scaled(now, 1, why, memory) if now.asked else ScalingDecision(0, "", memory)
    mean = _mean(samples, now_ms - policy.window_s * 1000)
    unknown = now.unknown or ("" if mean is not None else "there is no sample of its load")
    if unknown or mean is None:
        return ScalingDecision(now.replicas, unknown, _remember(policy, now, now_ms, now.replicas))
    return _by_load(
        policy, mean, _mean(samples, now_ms - policy.panic_window_s * 1000), now_ms, now=now
    )


def _by_load(
    policy: ScalingPolicy, mean: float, sudden: float | None, now_ms: int, now: Situation
) -> ScalingDecision:
    """Scale up by the larger mean of both windows, down to the largest number wanted within the
    stabilization.
    """
    live = min(now.live, now.replicas)
    stable = want(mean, policy.target, live)
    panic = want(sudden or 0.0, policy.target, live)
    wanted = policy.bounded(max(stable, panic, 1))
    memory = _remember(policy, now, now_ms, wanted)
    if panic >= max(1, 2 * now.ready):
        memory = msgspec.structs.replace(
            memory, panic_until_ms=now_ms + int(policy.window_s * 1000)
        )
    load, window_s = (
        (mean, policy.window_s) if stable >= panic else (sudden or 0.0, policy.panic_window_s)
    )
    unit = "by its query" if policy.query else "outstanding"
    measured = f"{load:.3g} {unit}, target {policy.target:g} a route, over {window_s:g} s"
    if wanted > now.replicas:
        target = max(now.replicas, min(wanted, _highest(now, memory)))
        if target > now.replicas:
            return _scaled(now, target, measured, memory, load=mean)
        held = (
            f"{wanted} wanted, and {policy.cooldown_s:g} s have to pass between steps: {measured}"
        )
        return ScalingDecision(now.replicas, held, memory, mean)
    lowest = policy.bounded(memory.wants[0].routes)
    held = _held(policy, wanted, lowest, now_ms, now=now, memory=memory)
    if held:
        return ScalingDecision(now.replicas, f"{held}: {measured}", memory, mean)
    if lowest < now.replicas:
        reason = f"{measured}, and no more were wanted for {policy.stabilization_s:g} s"
        return _scaled(now, lowest, reason, memory, load=mean)
    if _is_idle(policy, now_ms, now):
        what = "load" if policy.query else "request"
        return _scaled(now, 0, f"no {what} for {policy.stabilization_s:g} s", memory, load=mean)
    over = max(stable, panic) > policy.maximum
    return ScalingDecision(
        now.replicas, f"at most {policy.maximum} are allowed: {measured}" * over, memory, mean
    )


def want(load: float, target: float, routes: int) -> int:
    """The number of routes for a load; the present number if the load is close to its target."""
    if routes and abs(load / (target * routes) - 1) <= TOLERANCE:
        return routes
    return math.ceil(load / target - 1e-9)


def _held(
    policy: ScalingPolicy,
    wanted: int,
    lowest: int,
    now_ms: int,
    now: Situation,
    memory: ScalingMemory,
) -> str:
    """Why routes are kept that the load does not need, or the last one is; empty without a
    reason.
    """
    if wanted >= now.replicas and not _is_idle(policy, now_ms, now):
        return ""
    if now.updating:
        return f"{wanted} wanted, and none goes during an update"
    if now_ms < memory.panic_until_ms:
        return f"{wanted} wanted, and none goes so soon after a sudden rise"
    if lowest >= now.replicas > wanted:
        return f"{wanted} wanted, and {lowest} were within {policy.stabilization_s:g} s"
    return ""


def _is_idle(policy: ScalingPolicy, now_ms: int, now: Situation) -> bool:
    """Whether the last ready route has had no request for the stabilization time."""
    return (
        policy.minimum == 0
        and now.replicas == 1
        and now.ready > 0
        and not now.asked
        and now_ms - now.busy_ms >= policy.stabilization_s * 1000
    )


def _highest(now: Situation, memory: ScalingMemory) -> int:
    """The largest number allowed now, from the lowest number within ``cooldown_s`` and the present
    routes.
    """
    least = min((rise.routes for rise in memory.rises), default=now.replicas)
    least = min(least, now.live)
    return max(2 * least, least + STEP)


def _scaled(
    now: Situation, target: int, why: str, memory: ScalingMemory, load: float | None = None
) -> ScalingDecision:
    return ScalingDecision(target, f"scaled {now.replicas} -> {target}: {why}", memory, load)


def _remember(policy: ScalingPolicy, now: Situation, now_ms: int, wanted: int) -> ScalingMemory:
    """The memory with another wanted number, without expired entries."""
    before = now.memory
    wants = before.wants
    rises = before.rises
    if before.replicas < 0:
        wants = (Wanted(now_ms, now.replicas),)  # what is there was wanted: nobody knows by what
    elif now.replicas > before.replicas:
        rises = (*rises, Wanted(now_ms, before.replicas))
    oldest_ms = now_ms - policy.stabilization_s * 1000
    kept = tuple(one for one in wants if one.at_ms > oldest_ms and one.routes > wanted)
    recent = tuple(one for one in rises if one.at_ms > now_ms - policy.cooldown_s * 1000)
    return ScalingMemory(
        now.replicas, (*kept, Wanted(now_ms, wanted)), recent, before.panic_until_ms
    )


def _mean(samples: Sequence[Sample], since_ms: float) -> float | None:
    """The mean of the samples since then; the newest sample if none is that recent; None without
    samples.
    """
    loads = [one.load for one in samples if one.at_ms > since_ms]
    if not loads:
        return samples[-1].load if samples else None
    return sum(loads) / len(loads)
