"""Checks the tasks that a plan lets wait behind open attempts of their job, against the current
ledger.

Each is accepted or refused by itself: those that are accepted need no capacity, because they run in
the place of what is open. Source: docs/design/calls.md#chains.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.messages.scheduler_state import Extension, Plan
from iris_core.placement.chains import CHAIN_ENDED, LONGEST, is_chainable
from iris_core.states import Cause, Initiator
from iris_core.tables import task as table
from iris_state.inputs.plans.accept import Refusals, no_entry
from iris_state.records.claims import Claim
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger


def on_extensions(ledger: Ledger, plan: Plan, refused: Refusals) -> Iterator[Claim]:
    """Accept or refuse each task; refusals are appended to ``refused``."""
    for extension in plan.extensions:
        job = ledger.jobs.get(extension.chain.job)
        for index in extension.indexes:
            cause = _refusal(ledger, job, extension, index)
            if job is None or cause:
                refused.append((extension.chain.job, index, cause))
                continue
            yield Claim(
                table.ASSIGN,
                job.number,
                index,
                initiator=Initiator.SCHEDULER,
                cause=Cause.EXITED,
                worker=extension.worker,
                chain=(extension.chain.index, extension.chain.attempt),
            )


def _refusal(ledger: Ledger, job: Job | None, extension: Extension, index: int) -> str:
    if job is None or job.is_terminal:
        return "job_ended"
    if not is_chainable(job.spec):
        return "malformed"
    cause = no_entry(ledger, job, index, extension.worker)
    if cause:
        return cause
    if not ledger.workers[extension.worker].chains:
        return "malformed"
    presence = ledger.presence[extension.worker]
    head = extension.chain
    name = (head.job, head.index, head.attempt)
    first = presence.open.get(name)
    if not presence.chains.has(name) and (first is None or first.chain is not None):
        return CHAIN_ENDED
    return "no_room" if len(list(presence.chains.of(name, None))) >= LONGEST else ""
