"""Limits of users: whether a job would exceed one, and the usage of each. The scheduler enforces
running limits.

Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iris_core.errors import Code, Refused
from iris_core.quota import QUOTA_LIMITS
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import PriorityBand, TaskState
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Counted:
    """How a limit on submissions is counted.

    Attributes:
        has: the present count of the user. adds: what so many tasks add. frees: what a job's end
            subtracts.
    """

    has: Callable[[Ledger, str], int]
    adds: Callable[[int], int]
    frees: Callable[[Job], int]


COUNTED = {
    "max_pending_tasks": Counted(
        has=lambda ledger, user: ledger.pending_of_user[user],
        adds=lambda tasks: tasks,
        frees=lambda job: job.counts[TaskState.PENDING],
    ),
}
"""By the name of the limit. Limits on resources are not in it, because they refuse nothing."""

if COUNTED.keys() != {limit.name for limit in QUOTA_LIMITS if limit.resource is None}:
    raise ValueError("every limit of the table that bounds no resource is counted, and no other")


def check(ledger: Ledger, spec: JobSpec, user: str, replaced: Job | None) -> None:
    """Raises Refused when the job would exceed a limit of its user, not counting the job it
    replaces.
    """
    quota = ledger.quota_of(user)
    for limit in QUOTA_LIMITS:
        counted, most = COUNTED.get(limit.name), getattr(quota, limit.name)
        if counted is None or not most:
            continue
        has = counted.has(ledger, user)
        if replaced is not None and replaced.user == user:
            has -= counted.frees(replaced)
        _check_count(user, limit.words, has, counted.adds(spec.task_count), most)
    check_band(ledger, spec, user)


def check_band(ledger: Ledger, spec: JobSpec, user: str) -> None:
    """Raises Refused when the user may not ask for the band of the job."""
    highest = ledger.quota_of(user).max_band
    if spec.priority_band < highest:
        best = PriorityBand(highest).name.lower()
        raise Refused(Code.FORBIDDEN, f"{user} may ask for band {best} at best, not {spec.band}")


def check_growth(ledger: Ledger, job: Job, tasks: int) -> None:
    """Raises Refused when so many tasks more would exceed a limit of a job's user."""
    quota = ledger.quota_of(job.user)
    for limit in QUOTA_LIMITS:
        counted, most = COUNTED.get(limit.name), getattr(quota, limit.name)
        if counted is not None and most:
            _check_count(
                job.user, limit.words, counted.has(ledger, job.user), counted.adds(tasks), most
            )


def _check_count(user: str, words: str, has: int, adds: int, most: int) -> None:
    if has + adds > most:
        raise Refused(
            Code.OVER_QUOTA, f"{user} may have {most} {words}, has {has} and asks for {adds} more"
        )


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
