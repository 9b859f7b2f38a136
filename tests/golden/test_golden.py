"""What earlier releases wrote replays to what it meant then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iris_core import codec
from iris_state import snapshot
from iris_state.check import check
from iris_state.machine import Machine
from iris_state.policy import Policy

RELEASES = sorted(path.parent for path in Path(__file__).parent.glob("*/summary.json"))


def summary(machine: Machine) -> dict[str, Any]:
    """A ledger as names, states and counters, which outlive every change of its encoding."""
    return {
        "sequence": machine.sequence,
        "cursor": machine.cursor,
        "epoch": machine.ledger.epoch,
        "jobs": {
            job.id: {
                "name": job.name,
                "state": job.state.name,
                "tasks": [
                    [task.state.name, task.failure_count, task.preemption_count, len(task.attempts)]
                    for task in job.tasks
                ],
            }
            for job in machine.ledger.jobs.values()
        },
        "workers": {worker.id: worker.state.value for worker in machine.ledger.workers.values()},
        "keys": machine.ledger.idempotency,
        "answered": len(machine.ledger.answers),
    }


def wanted(release: Path) -> Any:
    return json.loads((release / "summary.json").read_text())


def journal(release: Path) -> list[bytes]:
    return codec.unpack((release / "journal").read_bytes(), list[bytes])


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_journal_of_an_earlier_release_replays(release):
    machine = Machine(Policy(), "golden")
    for sequence, data in enumerate(journal(release), 1):
        machine.replay(sequence, data)
    check(machine.ledger)
    assert summary(machine) == wanted(release)


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_snapshot_of_an_earlier_release_is_gone_on_from(release):
    machine = Machine(Policy(), "golden")
    machine.restore(snapshot.read((release / "snapshot").read_bytes()))
    for sequence, data in enumerate(journal(release)[machine.sequence :], machine.sequence + 1):
        machine.replay(sequence, data)
    check(machine.ledger)
    assert summary(machine) == wanted(release)


def test_there_is_something_to_replay():
    assert RELEASES
