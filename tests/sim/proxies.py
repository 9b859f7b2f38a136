"""Simulated proxies: they report varying load for deployments scaled by rule, with gaps.

Everything about them is drawn from random numbers of their own: a world without such a deployment
    is as without them.
"""

from __future__ import annotations

import asyncio
import random

import msgspec

from iris_core import codec, subjects
from iris_core.messages.gateway_state import DeployCommand
from iris_core.messages.proxy_state import DeploymentLoad, LoadReport
from iris_core.spec.serving import DeploymentSpec, ScalingPolicy
from tests.sim.network import Link

SHARE = 0.7
"""In so many worlds with deployments some are scaled by rule."""
_PHASE_S = 5
_LOADS = (0, 0, 0, 1, 3, 8, 40)


def scaled(rng: random.Random, plan: list[tuple[float, object]]) -> list[tuple[float, object]]:
    """The plan with scaling rules in some of its specifications."""
    if rng.random() > SHARE:
        return plan
    return [
        (at, _with_rule(rng, one) if isinstance(one, DeployCommand) else one) for at, one in plan
    ]


def _with_rule(rng: random.Random, command: DeployCommand) -> DeployCommand:
    if command.spec is None or rng.random() < 0.2:
        return command
    window_s = rng.choice((1.0, 3.0))
    policy = ScalingPolicy(
        minimum=rng.choice((0, 0, 1, 2)),
        maximum=rng.choice((2, 4, 12)),  # a rule may go from 4 to 8 at once
        outstanding=rng.choice((1.0, 2.0)),
        window_s=window_s,
        panic_window_s=1.0,
        stabilization_s=rng.choice((3.0, 6.0)),
        cooldown_s=window_s,
    )
    spec: DeploymentSpec = msgspec.structs.replace(command.spec, scaling=policy)
    return msgspec.structs.replace(command, spec=spec)


def names(plan: list[tuple[float, object]]) -> tuple[str, ...]:
    """The deployments in a plan that are scaled by rule at some time."""
    specs = [one.spec for _, one in plan if isinstance(one, DeployCommand) and one.spec is not None]
    return tuple(sorted({spec.name for spec in specs if spec.scaling is not None}))


async def proxy(
    link: Link, name: str, deployments: tuple[str, ...], seed: int, until_s: float
) -> None:
    """Report each second, with gaps, until the storm is over; then leave."""
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        phase = int(loop.time()) // _PHASE_S
        if random.Random(f"{seed}/{name}/{phase}").random() < 0.85:
            loads = tuple(_load(seed, name, deployment, phase) for deployment in deployments)
            link.bus.publish(subjects.LOADS, codec.pack(LoadReport(name, loads)))
        await asyncio.sleep(1.0)
    link.bus.publish(subjects.LOADS, codec.pack(LoadReport(name, leaving=True)))
    await loop.create_future()


def _load(seed: int, name: str, deployment: str, phase: int) -> DeploymentLoad:
    outstanding = random.Random(f"{seed}/{name}/{deployment}/{phase}").choice(_LOADS)
    return DeploymentLoad(deployment, outstanding, outstanding)
