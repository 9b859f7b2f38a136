"""Why a job or a task waits, and why tasks of the job failed, whichever task is asked about."""

from __future__ import annotations

from itertools import islice
from typing import Any

from iris_core.codec import to_builtins
from iris_core.states import TaskState
from iris_core.views.causes import LOOKED_AT, FailureGroup, failure_groups
from iris_core.views.queries import WhyQuery
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_job, known_task
from iris_state.views.cluster.pool_reasons import with_pools
from iris_state.views.pages import Pieces, parts
from iris_state.views.work import jobs
from iris_state.views.work.tasks import task_view

AT_ONCE = 50
"""Failed tasks that are looked at in one piece of a read."""


def why(ledger: Ledger, query: WhyQuery) -> Pieces[dict[str, Any]]:
    """The reasons of `jobs.why` with what pools have to do with them, and the causes of failures, of
    which the last lines are the output of ``user``.
    """
    record = known_task(ledger, query.task)[0] if query.task else known_job(ledger, query.job)
    causes = yield from causes_of(ledger, record)
    found = yield from jobs.why(ledger, query)
    if (reason := found["pending_reason"]) is not None:
        found["pending_reason"] = with_pools(ledger, record, reason)
    return {**found, "user": record.user, "causes": causes}


def causes_of(ledger: Ledger, record: Job) -> Pieces[list[FailureGroup]]:
    """The failed tasks of a job in groups, the largest first; of the first `LOOKED_AT` tasks."""
    if not record.counts[TaskState.FAILED]:
        return []
    failed = (index for index, task in record.numbered() if task.state is TaskState.FAILED)
    views: list[dict[str, Any]] = []
    for some in parts(list(islice(failed, LOOKED_AT)), AT_ONCE):
        views += (to_builtins(task_view(ledger, record, index)) for index in some)
        yield
    return failure_groups(views)
