"""Hypothesis strategies for small clusters: devices, taints, racks, slices, bands, quotas."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from iris_core.messages.scheduler_state import WorkerRow
from iris_core.spec.jobs import Attribute, Constraint
from iris_core.spec.resources import Device
from iris_core.states import ConstraintOp as Op
from iris_core.states import WorkerState
from tests.support.scheduling import tpus, worker

ZONES = ("eu", "us")
RACKS = ("r1", "r2")
USERS = ("ann", "bob")
GANGS = (
    "rack:preferred",
    "rack:preferred zone",
    "rack zone",
    "rack zone:preferred",
    "rack:preferred zone:preferred",
)
"""Levels of the topology, as of `tests.support.scheduling.levels`."""

states = st.sampled_from(
    [WorkerState.HEALTHY] * 6 + [WorkerState.DRAINING, WorkerState.DEGRADED, WorkerState.LOST]
)


@st.composite
def a_worker(draw: st.DrawFn, number: int) -> WorkerRow:
    """A CPU host, or one VM of a slice of two."""
    attributes: dict[str, Attribute] = {}
    if draw(st.booleans()):
        attributes["zone"] = draw(st.sampled_from(ZONES))
    if draw(st.booleans()):
        attributes["rack"] = draw(st.sampled_from(RACKS))
    if draw(st.integers(0, 5)) == 0:
        attributes["taint:old"] = 1
    if draw(st.booleans()):
        attributes["rack"] = RACKS[number % 2]
    if draw(st.booleans()):
        attributes |= {"tpu-name": f"s{number // 2}", "tpu-worker-id": number % 2}
        attributes |= {
            "device-type": "tpu",
            "device-variant": draw(st.sampled_from(["v4-16", "v5p-16"])),
        }
        chips = 4
    else:
        chips = 0
    row = worker(
        f"w{number}",
        cpu=draw(st.integers(1, 5)),
        memory=draw(st.integers(1, 4)),
        chips=chips,
        state=draw(states),
        window=draw(st.integers(1, 4)),
    )
    return WorkerRow(row.worker, row.state, attributes, row.total, row.max_building)


@st.composite
def workers(draw: st.DrawFn) -> list[WorkerRow]:
    """Up to nine hosts, mostly many."""
    return [draw(a_worker(number)) for number in range(draw(st.sampled_from([0, 2, 4, 6, 8, 9])))]


conditions = st.lists(
    st.sampled_from(
        [
            Constraint("zone", Op.EQ, "eu"),
            Constraint("zone", Op.NE, "eu"),
            Constraint("rack", Op.EXISTS),
            Constraint("tpu-worker-id", Op.LE, 0),
            Constraint("taint:old", Op.EXISTS),
            Constraint("taint:old", Op.EQ, 1, mode="preferred"),
            Constraint("zone", Op.EQ, "us", mode="preferred"),
            Constraint("rack", Op.IN, None, ("r2", "r3"), mode="preferred"),
        ]
    ),
    max_size=2,
).map(tuple)

devices: st.SearchStrategy[Device | None] = st.sampled_from(
    [
        None,
        None,
        None,
        tpus("v4-16", 1),
        tpus("v4-16", 4),
        tpus("auto", 2),
        tpus(("v4-16", "v5p-16"), 4),
    ]
)


@st.composite
def a_job(draw: st.DrawFn) -> dict[str, Any]:
    """Options of `Story.submit`, without a name."""
    gang = draw(st.sampled_from(["", "", "", "rack", "tpu-name", *GANGS]))
    slices = draw(st.sampled_from([1, 1, 2, 3])) if gang and not gang.startswith("rack:") else 1
    return {
        "replicas": slices * draw(st.integers(1, 3 if slices == 1 else 2)),
        "cpu": draw(st.sampled_from([0, 0.5, 1, 1, 2, 3])),
        "memory": draw(st.integers(0, 2)),
        "device": draw(devices),
        "band": draw(
            st.sampled_from(["production", "interactive", "interactive", "batch", "batch"])
        ),
        "user": draw(st.sampled_from(USERS)),
        "constraints": draw(conditions),
        "group_by": gang,
        "slices": slices,
        "within": draw(st.sampled_from(["", "zone"])) if slices > 1 and "zone" not in gang else "",
        "timeout_s": draw(st.sampled_from([None, 10.0, 1000.0])),
        "depth": draw(st.integers(1, 3)),
    }


jobs = st.lists(a_job(), max_size=6)

quotas = st.fixed_dictionaries(
    {
        "max_running_cpu": st.sampled_from([0, 1000, 3000]),
        "max_running_memory": st.sampled_from([0, 2]),
        "max_running_accelerators": st.sampled_from([0, 4]),
    }
)
