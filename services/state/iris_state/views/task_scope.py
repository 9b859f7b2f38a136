"""What the token of a task permits: to submit below its own job or beside its root, and to read,
grow, requeue and cancel its own subtree and what was submitted beside.

The gateway has verified the token without a request; only here is known whether its attempt is
still open and what is below its job. So a token ends with its attempt, at once. Pure: reads the
ledger. Source: docs/adr/0040-tokens-of-attempts.md. See also: `iris_gateway.dispatch.endpoint` lists
    the paths that take one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from iris_core.access.rights import is_task
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import Caller, RerunJob, SubmitJob, UserCommand
from iris_core.spec.jobs import JobSpec
from iris_core.views.queries import ViewQuery
from iris_state.decide import lineage
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.records.targets import named_job

Command = TypeVar("Command", bound=UserCommand)
Scope = Callable[[Ledger, Job, Any], Any]
"""What a kind of command is with the token of a task of this job. Raises Refused."""


def allowed_query(ledger: Ledger, query: ViewQuery, caller: Caller) -> None:
    """Raises Refused when a task may not read this."""
    if not is_task(caller):
        return
    own = _own_job(ledger, caller)
    if not query.for_tasks:
        raise _forbidden(own, "reads only jobs of its own subtree")
    job = getattr(query, "job", "")
    task = getattr(query, "task", "")
    if task:
        _check_within(ledger, own, named_job(ledger, task), task)
    if job or not task:
        _check_within(ledger, own, ledger.find_job(job), job)


def allowed_command(ledger: Ledger, command: Command, scope: Scope | None) -> Command:
    """The command as it is executed for its caller; ``scope``: of its kind.

    Raises Refused when a task may not do this.
    """
    if not is_task(command.caller):
        return command
    own = _own_job(ledger, command.caller)
    if scope is None:
        raise _forbidden(own, "submits, grows, reads, requeues and cancels jobs, nothing else")
    scoped: Command = scope(ledger, own, command)
    return scoped


def reaches(field: str) -> Scope:
    """The scope of a command whose ``field`` names a job or a task of the own subtree."""

    def within(ledger: Ledger, own: Job, command: Command) -> Command:
        name = getattr(command, field)
        _check_within(ledger, own, named_job(ledger, name), name)
        return command

    return within


def reruns_below(ledger: Ledger, own: Job, command: RerunJob) -> RerunJob:
    """A task runs jobs of its subtree again, but its own."""
    if _check_within(ledger, own, ledger.find_job(command.job), command.job) is own:
        raise _forbidden(own, "does not run its own job again")
    return command


def submits(ledger: Ledger, own: Job, command: SubmitJob) -> SubmitJob:
    """A task submits below its job, at best in the band of the parent, or beside its root."""
    if command.beside:
        return msgspec.structs.replace(command, spec=_beside(ledger, own, command))
    above = command.spec.name.rpartition("/")[0]
    found = ledger.job_of(own.user, above) or ledger.find_job(above)
    words = "submits only below its job"
    parent = _check_within(ledger, own, found, above or "the root", may=words)
    if command.spec.priority_band >= parent.band:
        return command
    spec = msgspec.structs.replace(command.spec, band=parent.spec.band)
    return msgspec.structs.replace(command, spec=spec)


def _beside(ledger: Ledger, own: Job, command: SubmitJob) -> JobSpec:
    """A job beside the root of ``own``, with what it inherits. Raises Refused."""
    spec = command.spec
    there = ledger.job_of(own.user, spec.name)
    if there is not None and not there.is_terminal and command.if_exists != "error":
        _check_within(ledger, own, there, spec.name)
    band = own.spec.band if spec.priority_band < own.band else spec.band
    labels = lineage.inherited(own, command)
    project = spec.project or own.spec.project_path
    return msgspec.structs.replace(spec, band=band, labels=labels, user=own.user, project=project)


def _own_job(ledger: Ledger, caller: Caller) -> Job:
    """The job of the attempt whose token this is. Raises Refused once the attempt has ended."""
    ref = caller.attempt
    attempt = ledger.attempt((ref.job, ref.index, ref.attempt)) if ref is not None else None
    if ref is None or attempt is None or not attempt.is_open or attempt.worker != caller.worker:
        raise Refused(Code.FORBIDDEN, "the attempt that this token was made for has ended")
    return ledger.jobs[ref.job]


def _check_within(ledger: Ledger, own: Job, job: Job | None, name: str, may: str = "") -> Job:
    """``job``, which is ``own`` or below it, or was submitted beside it. Raises Refused; which jobs
    exist elsewhere is not told.
    """
    if job is None and name.startswith(f"{own.name}/"):
        raise Refused(Code.NOT_FOUND, f"there is no job or task {name[:200]}")
    above = job
    while above is not None and above is not own:
        above = ledger.jobs.get(above.parent)
    if job is not None and above is None and not may and lineage.is_beside(ledger, own, job):
        return job
    if job is None or above is None:
        raise _forbidden(
            own, f"{may or 'reaches only its own subtree'}, and {name[:200]} is not in it"
        )
    return job


def _forbidden(own: Job, why: str) -> Refused:
    return Refused(Code.FORBIDDEN, f"the token of a task of {own.name} {why}")
