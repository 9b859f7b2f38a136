"""Plays random worlds: pools, faults and work that follow from a seed."""

from __future__ import annotations

import random
from typing import NamedTuple

from iris_core.spec.resources import Device
from tests.sim.fleet.cloud import CloudFaults
from tests.sim.fleet.world import FleetWorld, cpu_pool, tpu_pool
from tests.sim.violation import Violation

SECONDS = 1_500
RUNS_MS = (5_000, 60_000, 300_000, 1_500_000)
"""How long work runs; the longest outlasts the wait for a host of an orphan."""
_DOWN_AT_MS = 1_000_300_000


class FleetOutcome(NamedTuple):
    """``wrong``: what was found; empty: nothing."""

    seed: int
    wrong: str
    created: int
    done: int


def world_of(seed: int) -> FleetWorld:
    rng = random.Random(seed * 7919)
    faults = CloudFaults(
        stockout_share=rng.choice((0.0, 0.2, 0.5)),
        refused_chance=0.0,
        boot_ms=rng.choice(((20_000, 60_000), (60_000, 400_000))),
        boot_fails=rng.choice((0.0, 0.1, 0.4)),
        preempted=rng.choice((0.0, 0.3)),
        notice=rng.choice((0.0, 0.5)),
        host_dies=rng.choice((0.0, 0.001)),
        answer_lost=rng.choice((0.0, 0.3)),
        answer_twice=rng.choice((0.0, 0.3)),
        create_fails=rng.choice((0.0, 0.2)),
        lag_ms=rng.choice((0, 60_000)),
        delete_fails=rng.choice((0.0, 0.3)),
        down=rng.choice(((), ((_DOWN_AT_MS, _DOWN_AT_MS + 600_000),))),
    )
    specs = [
        cpu_pool("cpu", min=rng.choice((0, 1)), buffer=rng.choice((0, 1)), priority=1),
        cpu_pool("cpu-spot", max=4, price=1.0, delete_rate=1),
        tpu_pool("v5e", chips=rng.choice((0, 48)), max=3),
        tpu_pool("v5e-two", chips=0, max=2, priority=200),
    ]
    return FleetWorld(
        seed,
        specs,
        faults,
        leaders=rng.choice((0.0, 0.01)),
        restores=rng.choice((0.0, 0.0, 0.002)),
        quota=rng.choice(({}, {"cpu": 3})),
    )


def play(seed: int, seconds: int = SECONDS) -> FleetOutcome:
    """Run one world, with bursts of work, and let it come to rest."""
    world = world_of(seed)
    rng = random.Random(seed)
    wrong = ""
    try:
        for second in range(seconds):
            if rng.random() < 0.01:
                _submit(world, rng, second)
            if rng.random() < 0.002:
                _drain_one(world, rng)
            if rng.random() < 0.0005:
                world.split(seconds=rng.choice((20, 90)))
            world.step()
        world.rest()
    except Violation as violation:
        wrong = str(violation)
    done = sum(1 for one in world.work if one.done)
    return FleetOutcome(seed, wrong, sum(world.cloud.created.values()), done)


def _drain_one(world: FleetWorld, rng: random.Random) -> None:
    ready = [one for one in world.fleet.slices.values() if one.is_live]
    if ready:
        deadline_ms = world.now_ms + 30_000 if rng.random() < 0.3 else 0
        world.drain(rng.choice(ready), deadline_ms)


def _submit(world: FleetWorld, rng: random.Random, second: int) -> None:
    kind = rng.randrange(4)
    runs_ms = rng.choice(RUNS_MS)
    if kind == 0:
        device = Device("tpu", "v5litepod-16", 4)
        world.submit(f"/g{second}", runs_ms=runs_ms, gang=4, device=device)
    elif kind == 1:
        device = Device("tpu", "v5litepod-16", rng.choice((1, 4)))
        world.submit(f"/d{second}", runs_ms=runs_ms, device=device)
    else:
        for index in range(rng.randrange(1, 40)):
            cpu_millis = rng.choice((500, 1000, 4000))
            world.submit(f"/c{second}/{index}", runs_ms=runs_ms, cpu_millis=cpu_millis)
