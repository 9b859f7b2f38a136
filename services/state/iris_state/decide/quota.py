"""Limits of users: whether a job would exceed one, and the usage of each. The scheduler enforces
running limits.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iris_core.access.rights import Verb, may
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import Caller
from iris_core.quota import BAND, QUOTA_LIMITS, stored_words
from iris_core.spec.jobs import JobSpec
from iris_core.spec.projects import upwards
from iris_core.spec.resources import Amount
from iris_core.states import PriorityBand, TaskState
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.records.weight import written


@dataclass(frozen=True, slots=True)
class Added:
    """What a submission or a growth adds: tasks, and bytes of memory of what its owner wrote."""

    tasks: int
    written: int


@dataclass(frozen=True, slots=True)
class Counted:
    """How a limit on submissions is counted.

    Attributes:
        has: the present count of the user. adds: what is added to it. frees: what a job's end
            subtracts.
        words: what a refusal says, of the user, the limit and the count, where it is not about what
            is added.
        bounds_new_work: it bounds what somebody asks for now; what replaces something that has ended,
            as the next route of a deployment, adds nothing.
    """

    has: Callable[[Ledger, str], int]
    adds: Callable[[Added], int]
    frees: Callable[[Ledger, Job], int]
    words: Callable[[Ledger, str, int, int], str] | None = None
    bounds_new_work: bool = False


COUNTED = {
    "max_pending_tasks": Counted(
        has=lambda ledger, user: ledger.pending_of_user[user],
        adds=lambda added: added.tasks,
        frees=lambda ledger, job: job.counts[TaskState.PENDING],
    ),
    "max_live_bytes": Counted(
        has=lambda ledger, user: ledger.live_bytes[user],
        adds=lambda added: added.written,
        frees=lambda ledger, job: ledger.written[job.number],
    ),
    "max_stored_today": Counted(
        has=lambda ledger, user: ledger.stored_today(user),
        adds=lambda added: 1 if added.tasks else 0,
        frees=lambda ledger, job: 0,
        words=lambda ledger, user, most, has: stored_words(user, most, has, ledger.now_ms),
        bounds_new_work=True,
    ),
}
"""By the name of the limit. Limits on resources are not in it, because they refuse nothing."""

if COUNTED.keys() != {limit.name for limit in QUOTA_LIMITS if limit.resource is None}:
    raise ValueError("every limit of the table that bounds no resource is counted, and no other")


def check(
    ledger: Ledger, spec: JobSpec, user: str, replaced: Job | None, caller: Caller | None = None
) -> None:
    """Raises Refused when the job would exceed a limit of its user, or of its project, not counting
    the job it replaces. ``caller``: see `check_band`.
    """
    added = Added(spec.task_count, written(spec, ledger.index))
    _check_limits(ledger, user, added, replaced, is_asked=caller is not None)
    _check_projects(ledger, spec, spec.task_count, replaced)
    check_band(ledger, spec, user, caller)


def check_band(ledger: Ledger, spec: JobSpec, user: str, caller: Caller | None) -> None:
    """Raises Refused when the user may not ask for the band of the job.

    The default and limits of groups are for callers who are no admins; None: nobody asks now, as
    for the next route of a deployment.
    """
    if user not in ledger.quotas and (caller is None or may(caller, Verb.EXCEED_BAND)):
        return
    quota = ledger.quota_of(user)
    if spec.priority_band < quota.max_band:
        best = PriorityBand(quota.max_band).name.lower()
        words = f"{user} may ask for band {best} at best{quota.source_words(BAND)}, not {spec.band}"
        raise Refused(Code.FORBIDDEN, f"{words}; an admin allows it with iris quota set")


def check_growth(ledger: Ledger, job: Job, added: Added) -> None:
    """Raises Refused when what a job is to grow by would exceed a limit of its user, or of its
    project.
    """
    _check_limits(ledger, job.user, added, None)
    _check_projects(ledger, job.spec, added.tasks, None)


def check_amended(ledger: Ledger, job: Job, spec: JobSpec) -> None:
    """Raises Refused when another specification of a live job would exceed a limit of its user."""
    more = written(spec, ledger.index) - ledger.written[job.number]
    if not job.is_terminal and more > 0:
        _check_limits(ledger, job.user, Added(0, more), None)


def _check_projects(ledger: Ledger, spec: JobSpec, tasks: int, replaced: Job | None) -> None:
    """Raises Refused when so many more tasks would exceed what may wait in the project of a job, or
    in one above it.
    """
    for project in ledger.projects.on_the_way(spec.project_path) if tasks else ():
        most = project.spec.max_pending_tasks
        if not most:
            continue
        path = project.path
        has = ledger.pending_in(path)
        if replaced is not None and path in upwards(replaced.spec.project_path):
            has -= replaced.counts[TaskState.PENDING]
        if has + tasks > most:
            raise Refused(
                Code.OVER_QUOTA,
                f"project {path} may have {most} pending tasks, has {has}, and {tasks} more are asked for",
            )


def _check_limits(
    ledger: Ledger, user: str, added: Added, replaced: Job | None, *, is_asked: bool = True
) -> None:
    """``is_asked``: whether somebody asks for it now."""
    quota = ledger.quota_of(user)
    for limit in QUOTA_LIMITS:
        counted = COUNTED.get(limit.name)
        most = getattr(quota, limit.name)
        if counted is None or not most or (counted.bounds_new_work and not is_asked):
            continue
        has = counted.has(ledger, user)
        adds = counted.adds(added)
        if replaced is not None and replaced.user == user:
            has -= counted.frees(ledger, replaced)
        if not adds or has + adds <= most:
            continue
        if counted.words is not None:
            raise Refused(Code.OVER_QUOTA, counted.words(ledger, user, most, has))
        may, present, asks = map(limit.unit.show, (most, has, adds))
        source = quota.source_words(limit.name)
        words = (
            f"{user} may have {may} {limit.words}{source}, has {present} and asks for {asks} more"
        )
        raise Refused(Code.OVER_QUOTA, words)


def used(ledger: Ledger, user: str, running: Amount) -> dict[str, int]:
    """The amount in use for each limit, by `UserLimit.used`; ``running`` is what the user's open
    attempts hold.
    """
    return {
        limit.used: getattr(running, limit.resource.name)
        if limit.resource
        else COUNTED[limit.name].has(ledger, user)
        for limit in QUOTA_LIMITS
    }
