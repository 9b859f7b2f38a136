"""Maps of many short calls in the simulated plan: their tasks wait behind one another, and some
call takes long.
"""

from __future__ import annotations

import random

import msgspec

from iris_core.messages.message import AttemptRef
from iris_core.spec.calls import Calls
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import ResourceRequest
from tests.sim.plans import respecified

MAPPED = 0.6
"""In so many worlds there are maps."""


def mapped(rng: random.Random, plan: list[tuple[float, object]]) -> list[tuple[float, object]]:
    """The same plan, in some worlds with maps in place of some plain jobs; a repeated submission is
    of the same.
    """
    if rng.random() >= MAPPED:
        return plan
    return respecified(plan, lambda spec: _as_map(rng, spec))


def _as_map(rng: random.Random, spec: JobSpec) -> JobSpec:
    if spec.is_gang or spec.probe or spec.indexes or spec.replicas > 100 or rng.random() < 0.5:
        return spec
    count = rng.choice((6, 30, 60))
    reuse = 20 if count > 6 else 1
    calls = Calls(
        runner="a" * 64,
        function="b" * 64,
        segments=("c" * 64,),
        firsts=(0,),
        count=count,
        reuse=reuse,
    )
    ask = ResourceRequest(rng.choice((500, 1000, 2000)), 1 << 20)
    return msgspec.structs.replace(spec, replicas=count, calls=calls, resources=ask)


def fate(seed: int, ref: AttemptRef) -> tuple[float, int]:
    """How long a call runs, in seconds, and its exit code: most are short, few take long or
    fail.
    """
    rng = random.Random(f"{seed}/call/{ref.job}/{ref.index}/{ref.attempt}")
    kind = rng.random()
    return 2.5 if kind < 0.02 else rng.choice((0.01, 0.03, 0.08)), int(rng.random() < 0.02)
