"""Stores the journal, a snapshot and messages of one simulated run with faults as this release
writes them.

A kept one is never rewritten.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from iris_core import codec
from iris_core.messages.gateway_scheduler import PlanPreview, PlanRequest
from iris_core.messages.gateway_state import AdminCommand, Caller, FleetCommand, RerunJob
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
from iris_core.states import Cause
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.changes import Change, Commit
from iris_state.snapshots import snapshot
from tests.golden import KINDS
from tests.golden.test_golden import summary
from tests.sim.fleet.play import world_of
from tests.sim.world import World

SEED = 98
LONGEST = 4096
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
    PlanPreview(
        "not_now", ((0, "w0"),), ("/b/0",), Reason(ReasonCode.BEHIND, "behind others"), 3, 9
    ),
)
"""What the simulation does not say."""


def main(release: str) -> None:
    """Write ``journal``, ``snapshot`` (of two thirds of it), ``summary.json`` and ``messages``."""
    where = Path(__file__).parent / release
    where.mkdir()
    journal = keep_messages(where)
    journal += fleet_commits(codec.unpack(journal[-1], Commit))
    (where / "journal").write_bytes(codec.pack(journal))
    machine = Machine(Policy(), "golden")
    for sequence, data in enumerate(journal, 1):
        machine.replay(sequence, data)
        if sequence == len(journal) * 2 // 3:
            cut = snapshot.cut(machine.ledger, machine.sequence, machine.last_ms, f"{sequence}.0")
            (where / "snapshot").write_bytes(cut)
    (where / "summary.json").write_text(json.dumps(summary(machine), indent=1) + "\n")


def fleet_commits(last: Commit) -> list[bytes]:
    """What a simulated fleet changes, as commits behind the last one of a journal."""
    world = world_of(SEED)
    for number in range(6):
        world.submit(f"/golden/{number}", cpu_millis=4000)
    world.run(400)
    by_time: dict[int, list[Change]] = {}
    for at_ms, change in world.changes:
        by_time.setdefault(at_ms, []).append(change)
    begun_ms = min(by_time)
    return [
        codec.pack(Commit(last.epoch, last.serial + behind, last.at_ms + at_ms - begun_ms, changes))
        for behind, (at_ms, changes) in enumerate(by_time.items(), 1)
    ]


def keep_messages(where: Path) -> list[bytes]:
    """Play the storm and keep the longest message of each kind that was said in it; its journal."""
    said: dict[str, bytes] = {}
    pack = codec.pack

    def listen(message: Any) -> bytes:
        data, kind = pack(message), type(message).__name__
        if kind in KINDS and len(said.get(kind, b"")) < len(data) <= LONGEST:
            said[kind] = data
        return data

    codec.pack = listen
    try:
        world = World(SEED)
        outcome = world.run()
        for message in OUTSIDE:
            listen(message)
    finally:
        codec.pack = pack
    assert not outcome.wrong
    (where / "messages").write_bytes(pack(dict(sorted(said.items()))))
    return [entry.data for entry in world.server.journal_of_all_times]


if __name__ == "__main__":
    main(sys.argv[1])
