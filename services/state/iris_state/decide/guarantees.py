"""What is held of the guarantees of projects now, and on which side of its band a job waits. Pure: reads
the ledger. Source: docs/design/team.md#guarantee-and-share.
"""

from __future__ import annotations

from iris_core.placement.guarantees import GuaranteedAmount, Guarantees, held_of
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger


def need_of(job: Job) -> GuaranteedAmount:
    """What one task of a job holds."""
    return held_of(job.spec.resources.amount)


def held_guarantees(ledger: Ledger) -> Guarantees:
    """What is guaranteed, and what open attempts and promises hold of it; all of them as staying."""
    found = ledger.projects.guarantees()
    for path in found.amounts:
        found.held[path] = found.staying[path] = held_of(ledger.held_in(path)[1])
    for number, _ in ledger.nominations if found else ():
        job = ledger.jobs[number]
        found.add(job.spec.project, need_of(job), staying=False)
    return found


def side_of(guarantees: Guarantees, job: Job) -> str:
    """``near`` when one more task of a job stays within the guarantee of its project, else ``far``; empty
    while nothing is guaranteed.
    """
    if not guarantees:
        return ""
    return "near" if guarantees.near(job.spec.project, need_of(job), 1) else "far"
