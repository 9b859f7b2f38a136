"""What a job counts for, as memory, is what the process grows by: for every part that its owner
writes.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from iris_core import codec
from iris_core.spec.calls import Calls
from iris_core.spec.index_set import MAX_INDEXES, PARSED, IndexSet
from iris_core.spec.jobs import Constraint, Dependency, Environment, ExitRule, JobSpec
from iris_core.states import Cause, ConstraintOp, JobState
from iris_state.records.changes import JobAdmitted, JobMoved
from iris_state.records.gates import Gate, GateKind
from iris_state.snapshots import snapshot
from tests.unit.state.test_snapshot import HOST, Story, done, restored

Written = dict[str, Any]
WARM, COUNT = 20, 40
DIGEST = "{:064x}".format


def many(number: int, count: int, length: int = 0) -> list[str]:
    """Texts that no other job has."""
    return [f"{number}.{index}".ljust(length, "x") for index in range(count)]


KINDS: dict[str, Callable[[int], Written]] = {
    "nothing": lambda number: {},
    "command": lambda number: {"command": tuple(many(number, 200))},
    "one long word": lambda number: {"command": ("x" * 100_000 + str(number),)},
    "env": lambda number: {"env": dict.fromkeys(many(number, 200), f"v{number}")},
    "labels": lambda number: {"labels": {f"k{n}": f"{number}.{n}" for n in range(60)}},
    "shared labels": lambda number: {"labels": {f"k{n}": "vision" for n in range(60)}},
    "ports": lambda number: {"ports": tuple(many(number, 30))},
    "preload": lambda number: {"preload": tuple(many(number, 60))},
    "constraints": lambda number: {
        "constraints": tuple(Constraint(key, value=f"v{number}") for key in many(number, 60))
    },
    "values of in": lambda number: {
        "constraints": (Constraint("zone", ConstraintOp.IN, values=tuple(many(number, 300, 100))),)
    },
    "setup": lambda number: {"environment": Environment(setup="x" * 50_000 + str(number))},
    "rules": lambda number: {
        "on_exit": tuple(ExitRule((str(code),), "fail") for code in range(1, 15))
    },
    "an array": lambda number: {"array": ",".join(str(3 * n + number) for n in range(200))},
    "calls": lambda number: {
        "calls": Calls(
            runner=DIGEST(number),
            function=DIGEST(number),
            segments=tuple(DIGEST(1000 * number + n) for n in range(200)),
            firsts=tuple(range(1000, 1200)),
            count=200,
        )
    },
    "after": lambda number: {"after": tuple(Dependency(name) for name in many(number, 30, 100))},
}


def admitted(number: int, written: Written, gates: tuple[Gate, ...] = ()) -> JobAdmitted:
    """As it is read from the journal: nothing of it is shared."""
    spec = JobSpec(**({"name": f"/j{number}", "command": ("true",)} | written))
    change = JobAdmitted(
        number,
        spec.name,
        spec,
        "ann",
        10 + number,
        10 + number,
        idempotency_key=f"k{number}",
        gates=gates,
    )
    return codec.unpack(codec.pack(change), JobAdmitted)


def grown(tell: Callable[[int], None]) -> int:
    """The memory that a process takes for `COUNT` records more."""
    for number in range(1, WARM):
        tell(number)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(WARM, WARM + COUNT):
        tell(number)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("kind", KINDS)
def test_finished_jobs_weigh_what_the_process_grows_by(kind):
    story, weighed = Story(), []
    story.tell(HOST)

    def tell(number: int) -> None:
        story.tell(
            admitted(number, KINDS[kind](number)),
            *done(number, 0),
            JobMoved(number, JobState.SUCCEEDED, Cause.EXITED),
        )
        weighed.append(story.retention.bytes)

    took = grown(tell)
    counted = weighed[-1] - weighed[WARM - 2]
    assert 1 / 1.5 < took / counted < 1.5, f"{took:,} bytes count as {counted:,}"


def growth_of(kind: str) -> tuple[int, int]:
    """What live jobs take, and what they count for."""
    story, weighed = Story(), []
    story.tell(HOST)

    def tell(number: int) -> None:
        story.tell(admitted(number, KINDS[kind](number)))
        weighed.append(story.ledger.live_bytes["ann"])

    return grown(tell), weighed[-1] - weighed[WARM - 2]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "nothing"])
def test_live_jobs_count_for_what_their_owner_wrote(kind):
    plain, plain_counted = growth_of("nothing")
    took, counted = (
        one - other for one, other in zip(growth_of(kind), (plain, plain_counted), strict=True)
    )
    assert 1 / 1.5 < took / counted < 1.5, f"{took:,} bytes count as {counted:,}"


def test_gates_weigh_too():
    story, weighed = Story(), []
    story.tell(HOST)

    def tell(number: int) -> None:
        gates = tuple(
            Gate(bit, GateKind.HELD, reason="x" * 500 + f"{number}.{bit}", opened_ms=1)
            for bit in range(20)
        )
        story.tell(
            admitted(number, {}, gates),
            *done(number, 0),
            JobMoved(number, JobState.SUCCEEDED, Cause.EXITED),
        )
        weighed.append(story.retention.bytes)

    took = grown(tell)
    counted = weighed[-1] - weighed[WARM - 2]
    assert 1 / 1.5 < took / counted < 1.5, f"{took:,} bytes count as {counted:,}"


def test_what_lives_is_counted_until_it_ends_and_after_a_restart():
    story = Story()
    story.tell(HOST)
    story.tell(admitted(1, {"env": {"A": "x" * 5000}}), admitted(2, {}))
    both = story.ledger.live_bytes["ann"]
    assert restored(snapshot.cut(story.ledger, 1, story.at_ms)).live_bytes["ann"] == both > 5000
    for number in (1, 2):
        story.tell(*done(number, 0), JobMoved(number, JobState.SUCCEEDED, Cause.EXITED))
    assert not story.ledger.live_bytes


def test_parsed_index_sets_take_little_memory_together():
    scattered = ",".join(str(index * index) for index in range(MAX_INDEXES))
    gc.collect()
    tracemalloc.start()
    kept = IndexSet.parse(scattered)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == MAX_INDEXES
    assert PARSED * size < 128 << 20
