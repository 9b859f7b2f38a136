"""Applies holds on the queue, and their ends. Source:
docs/adr/0084-a-job-is-changed-in-place.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from iris_core.states import PriorityBand
from iris_state.records import changes as c
from iris_state.records.apply.jobs import suspend
from iris_state.records.entities import Job
from iris_state.records.facts import HoldFact
from iris_state.records.gates import next_number
from iris_state.records.indexes.index import Field
from iris_state.records.ledger import Ledger
from iris_state.records.queue_holds import QueueHold


def held(ledger: Ledger, change: c.QueueHeld, at_ms: int) -> None:
    """Close a gate of every job that it matches, all at once; jobs that come later are admitted
    with one.
    """
    wanted = (change.user, change.band, change.label)
    hold = QueueHold(change.number, *wanted, by=change.by, at_ms=at_ms, reason=change.reason)
    ledger.queue_holds[change.number] = hold
    ledger.facts.append(HoldFact(hold, "held", None, at_ms, by=change.by))
    ledger.next_hold = max(ledger.next_hold, change.number + 1)
    for job in matched(ledger, hold):
        ledger.timers.stop_scheduling(job)
        job.gates = (*job.gates, hold.gate(next_number(job.gates)))
        ledger.gates.add(job)
        suspend(ledger, job)


def matched(ledger: Ledger, hold: QueueHold) -> Iterator[Job]:
    """The jobs that have not ended and that a hold matches."""
    fields: list[Field] = []
    fields += [("user", hold.user)] if hold.user else []
    fields += [("band", PriorityBand[hold.band.upper()])] if hold.band else []
    fields += [("label", hold.label)] if hold.label else []
    found = sorted((ledger.index.of(field) for field in fields), key=len)
    for number in list(found[0]):
        job = ledger.jobs[number]
        if not job.is_terminal and hold.matches(job.user, job.spec):
            yield job


def released(ledger: Ledger, change: c.QueueReleased, at_ms: int) -> None:
    """Forget a hold; the gates of the jobs that it held are judged in the next rounds, so many at a
    time.
    """
    hold = ledger.queue_holds.pop(change.number)
    ledger.facts.append(HoldFact(hold, "released", "held", at_ms, by=change.by))
    for number in ledger.gates.gated:
        if any(gate.hold == change.number for gate in ledger.jobs[number].gates):
            ledger.gates.later.append(number)


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = {
    c.QueueHeld: held,
    c.QueueReleased: released,
}
