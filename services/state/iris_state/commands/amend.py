"""Changes jobs that have not ended: what they wait for, and some fields of their specification.

What is changed passes the checks of a submission again. Source:
docs/adr/0079-gates-keep-tasks-out-of-the-queue.md, docs/adr/0084-a-job-is-changed-in-place.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from iris_core.access.actor import actor_of, named
from iris_core.admission.amendments import patched_job
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import AmendJob
from iris_core.spec.jobs import JobSpec
from iris_core.states import Cause, Initiator
from iris_core.tables import task as table
from iris_state.commands.execute import check_length, check_owner
from iris_state.decide import gates, quota
from iris_state.records.changes import JobAmended
from iris_state.records.claims import Claim, Step
from iris_state.records.entities import Job
from iris_state.records.gates import GateKind
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_job


def on_amend(ledger: Ledger, command: AmendJob, now_ms: int) -> Iterator[Step]:
    """Hold or release a job, drop its dependencies, or change its specification. Raises Refused;
    Invalid lists every mistake.
    """
    job = known_job(ledger, command.job)
    check_owner(ledger, command.caller, job, "change")
    check_length("reason", command.reason)
    if job.is_terminal:
        words = f"{job.name} has ended ({job.state.name.lower()}): submit it again with iris rerun"
        raise Refused(Code.CONFLICT, words)
    if command.version not in (0, job.version):
        words = (
            f"{job.name} has version {job.version}, not {command.version}: it was changed meanwhile"
        )
        raise Refused(Code.CHANGED, words)
    spec = _patched(ledger, job, command)
    by = actor_of(command.caller)
    made = gates.amended(
        job, command.hold, command.reason, command.drop_after, by=by, now_ms=now_ms
    )
    if spec != job.spec:
        made = gates.under_holds(ledger, job.user, spec, made)
    if made != job.gates or spec != job.spec:
        hold = any(gate.kind is GateKind.HELD and gate.is_closed and not gate.hold for gate in made)
        after = () if command.drop_after else job.spec.after
        yield JobAmended(job.number, msgspec.structs.replace(spec, hold=hold, after=after), made)
    if command.stop and command.hold:
        yield from stopped(
            job, f"held by {named(by)}" + (f": {command.reason}" if command.reason else "")
        )


def _patched(ledger: Ledger, job: Job, command: AmendJob) -> JobSpec:
    if not command.patch:
        return job.spec
    found = ledger.route_for(job.number)
    if found is not None:
        words = f"{job.name} is a route of the deployment {found[0].name}: change that, with iris deploy update"
        raise Refused(Code.CONFLICT, words)
    spec = patched_job(job.spec, command.patch)
    if spec.band != job.spec.band:
        quota.check_band(ledger, spec, job.user, command.caller)
    quota.check_amended(ledger, job, spec)
    return spec


def stopped(job: Job, words: str) -> Iterator[Step]:
    """Stop what runs of a held job; its tasks wait with the others, and nothing is charged. A gang
    stops whole.
    """
    running = [index for index, task in job.numbered() if task.current is not None]
    for index in running[:1] if job.is_gang else running:
        yield Claim(
            table.STOP_FOR_HOLD,
            job.number,
            index,
            cause=Cause.HELD,
            initiator=Initiator.USER,
            note=words,
        )
