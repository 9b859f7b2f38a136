"""Stores journals of simulated runs, snapshots and messages as this release writes them.

What a release has written is never rewritten.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from iris_core import codec
from iris_core.messages.gateway_notifier import NotifyRequest, NotifyVerb
from iris_core.messages.gateway_scheduler import PlanPreview, PlanRequest
from iris_core.messages.gateway_state import (
    AdminCommand,
    Caller,
    FleetCommand,
    ProjectCommand,
    RerunJob,
)
from iris_core.messages.gateway_worker import CallResult, CallResults, LogChunk, TaskOutput
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_provisioner import (
    FleetOrders,
    FoundSlice,
    ListAnswer,
    ListOrder,
    OrderAnswer,
    OrderedHost,
    ProvisionerReport,
    SliceOrder,
)
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.spec.jobs import JobSpec
from iris_core.spec.projects import ProjectSpec
from iris_core.spec.resources import ResourceLimits
from iris_core.states import Cause
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.changes import Change, Commit
from iris_state.records.fleet_changes import PoolRemoved, PoolSet
from iris_state.records.indexes.stored import StoredBytes
from iris_state.records.inputs import RoomMade
from iris_state.snapshots import snapshot
from tests.golden import KINDS
from tests.golden.test_golden import changes_in, summary
from tests.sim.fleet.play import world_of
from tests.sim.fleet.world import cpu_pool
from tests.sim.world import World
from tests.support.script import Script

STORMS = (0, 21, 46)
"""Seeds whose storms together have every kind of change, but those of `STORY` and of fleets."""
FLEET = 129
LONGEST = 4096
STORY = """
    worker w0 cpu=4
    submit /train replicas=2 grace=60 timeout=30 notice=USR2@10
    schedule
    /train/0 running
    /train/1 running
    wait 31
    requeue /train/0
    cancel /train
    cancel /train now
    wait 1
    /train/0 left 0
    /train/1 left 0
    submit /next
    schedule
    /next/0 running
    /next/0 exit 0
    wait 3700
"""
"""What storms hardly ever have: a requeued task, a grace period that is ended, and records that are
deleted by retention, of which the policy here keeps next to none.
"""
FRUGAL = Policy(keep_answers=1, keep_jobs=1)
OUTSIDE: tuple[Any, ...] = (
    AdminCommand("drain", "w0", Caller("root", "admin"), "r", 7, {"reason": "a new disk"}),
    RerunJob("/a", Caller("ann"), "r", 7, True),
    LogChunk("stderr", 7, 40, b"caf\xc3\xa9\n", 3, True),
    TaskOutput(
        AttemptRef(1, 0, 2),
        (LogChunk("stderr", 7, 40, b"caf\xc3\xa9\n", 3, True, 1, "log_attempt_bytes = 40"),),
    ),
    CallResults(
        1,
        (
            CallResult(0, 0, "value", b"v", Cause.EXITED, 0),
            CallResult(1, 2, "died", b"", Cause.EXITED, None, 9),
            CallResult(2, 0, "chunk", b"", Cause.EXITED, 1, None, True),
        ),
    ),
    FleetCommand("drain", "cpu-0", Caller("root", "admin"), "r", 7, deadline_s=60.0),
    ProjectCommand("set", "/a/b", Caller("root", "admin"), "r", 7, ProjectSpec(members=("ann",))),
    FleetOrders(
        3,
        "p1",
        orders=(
            SliceOrder(
                "create", "exec", {"program": "p"}, "cpu", "cpu-0", 7, 7, (OrderedHost("cpu-0-0"),)
            ),
        ),
        lists=(ListOrder("exec", {"program": "p"}, 9),),
        slots={"cpu": (8, 1)},
    ),
    ProvisionerReport(
        "p1",
        3,
        ("p",),
        {"cpu": 8},
        answers=(OrderAnswer("create", "cpu-0", 7, 7, "exhausted", "no spot", 60.0),),
        lists=(ListAnswer("exec", {"program": "p"}, 9, (FoundSlice("cpu-0", 7, "failed", "x"),)),),
    ),
    PlanRequest(JobSpec(name="/a", command=("true",)), Caller("ann"), 7),
    NotifyRequest(NotifyVerb.ADD_TARGET, Caller("ann"), body=b'{"name":"ops"}', key="k1"),
    PlanPreview(
        "not_now", ((0, "w0"),), ("/b/0",), Reason(ReasonCode.BEHIND, "behind others"), 3, 9
    ),
)
"""What the simulation does not say."""


def main(release: str) -> None:
    """Write ``journals``, ``snapshots`` (each of two thirds of one), ``summary.json`` and
    ``messages``.
    """
    where = Path(__file__).parent / release
    said: dict[str, bytes] = {}
    journals = {"story": story()}
    with listening(said):
        journals |= {f"storm-{seed}": storm(seed) for seed in STORMS}
    longest = max(journals.values(), key=len)
    longest += fleet(codec.unpack(longest[-1], Commit))
    check_changes(journals)
    snapshots, summaries = {}, {}
    for name, journal in journals.items():
        machine = Machine(Policy(), "golden")
        for sequence, data in enumerate(journal, 1):
            machine.replay(sequence, data)
            if sequence == len(journal) * 2 // 3:
                snapshots[name] = snapshot.cut(
                    machine.ledger, machine.sequence, machine.last_ms, f"{sequence}.0"
                )
        summaries[name] = summary(machine)
    where.mkdir()
    (where / "journals").write_bytes(codec.pack(journals))
    (where / "snapshots").write_bytes(codec.pack(snapshots))
    (where / "messages").write_bytes(codec.pack(dict(sorted(said.items()))))
    (where / "summary.json").write_text(json.dumps(summaries, indent=1) + "\n")


def check_changes(journals: dict[str, list[bytes]]) -> None:
    """Raises AssertionError for kinds of changes that no journal has."""
    missing = {kind.__name__ for kind in get_args(Change)} - changes_in(journals)
    assert not missing, f"no journal has {', '.join(sorted(missing))}"


def story() -> list[bytes]:
    """The commits of `STORY`, whose jobs' output is deleted for want of room."""
    script = Script(FRUGAL)
    world = script.world
    world.change_project(
        "/team",
        members=("ann",),
        guarantee=ResourceLimits(cpu_millis=1000),
        limit=ResourceLimits(cpu_millis=4000),
    )
    world.change_project("/team/gone")
    world.change_project("/team/gone", action="remove")
    script.play(STORY)
    [last] = script.world.ledger.jobs
    script.world.step(RoomMade(last, StoredBytes(output=7)))
    script.close()
    return [data for _, data in script.world.commits]


def storm(seed: int) -> list[bytes]:
    """The commits of a simulated run with faults."""
    world = World(seed)
    outcome = world.run()
    assert not outcome.wrong
    return [entry.data for entry in world.server.journal_of_all_times]


def fleet(last: Commit) -> list[bytes]:
    """What a simulated fleet changes, as commits behind the last one of a journal."""
    world = world_of(FLEET)
    for number in range(6):
        world.submit(f"/golden/{number}", cpu_millis=4000)
    world.run(400)
    by_time: dict[int, list[Change]] = {}
    for at_ms, change in world.changes:
        by_time.setdefault(at_ms, []).append(change)
    spare = cpu_pool("spare", max=1)
    by_time[max(by_time) + 1] = [PoolSet(spare), PoolRemoved(spare.name)]
    begun_ms = min(by_time)
    return [
        codec.pack(Commit(last.epoch, last.serial + behind, last.at_ms + at_ms - begun_ms, changes))
        for behind, (at_ms, changes) in enumerate(by_time.items(), 1)
    ]


@contextmanager
def listening(said: dict[str, bytes]) -> Iterator[None]:
    """Keep the longest message of each kind that is packed meanwhile, and those of `OUTSIDE`."""
    pack = codec.pack

    def listen(message: Any) -> bytes:
        data, kind = pack(message), type(message).__name__
        if kind in KINDS and len(said.get(kind, b"")) < len(data) <= LONGEST:
            said[kind] = data
        return data

    codec.pack = listen
    try:
        yield
        for message in OUTSIDE:
            listen(message)
    finally:
        codec.pack = pack


if __name__ == "__main__":
    main(sys.argv[1])
