"""Keep the journal and a snapshot of one simulated storm as this release writes them. A kept one is never rewritten."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from iris_core import codec
from iris_state import snapshot
from iris_state.machine import Machine
from iris_state.policy import Policy
from tests.golden.test_golden import summary
from tests.sim.world import World

SEED = 8


def main(release: str) -> None:
    """Write ``journal``, ``snapshot`` (of two thirds of it) and ``summary.json``."""
    where = Path(__file__).parent / release
    where.mkdir()
    world = World(SEED)
    outcome = world.run()
    assert not outcome.wrong
    journal = world.server.journal_of_all_times
    (where / "journal").write_bytes(codec.pack(journal))
    machine = Machine(Policy(), "golden")
    for sequence, data in enumerate(journal, 1):
        machine.replay(sequence, data)
        if sequence == len(journal) * 2 // 3:
            cut = snapshot.cut(machine.ledger, machine.sequence, machine.cursor, machine.last_ms, f"{sequence}.0")
            (where / "snapshot").write_bytes(cut)
    (where / "summary.json").write_text(json.dumps(summary(machine), indent=1) + "\n")


main(sys.argv[1])
