"""Views of sessions: a coscheduled job's, and the one of each task of a plain job. Status
Transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from iris_core.errors import Code, Refused
from iris_core.states import SESSION_TERMINAL, TaskState
from iris_core.views.jobs import KernelView, Page, SessionView, moment
from iris_core.views.queries import SessionQuery, SessionsQuery
from iris_state.records.changes import GANG
from iris_state.records.compacted import is_compacted
from iris_state.records.entities import Job, Task, kernel_status
from iris_state.records.ledger import Ledger, whole_number
from iris_state.records.targets import known_job
from iris_state.views.pages import numbers_behind, page
from iris_state.views.work.jobs import reason_of_task

REASON_ROWS = 50
"""The newest rows of a job's history that are searched for the reason of a session."""
_OVER = frozenset(status.value.lower() for status in SESSION_TERMINAL)


def session_view(ledger: Ledger, record: Job, at: int) -> SessionView:
    """The session of a job's task: a coscheduled job's, or that of one task of a plain job."""
    members = record.indexes if record.is_gang else (at,)
    stored = ledger.session(record, at)
    return SessionView(
        id=record.id if record.is_gang else f"{record.id}-{at}",
        job=record.name,
        status=ledger.session_status(record, at).value.lower(),
        since=moment(ledger.session_since(record, at)),
        tries=dict(stored.tries) if stored is not None else {},
        kernels=[_kernel(record, i) for i in members],
        job_id=record.id,
        reason=_reason(ledger, record, at),
    )


def _reason(ledger: Ledger, record: Job, at: int) -> str:
    """What a session waits for, else the newest reason in the last rows of its history."""
    if waits_for := reason_of_task(ledger, record, at):
        return waits_for.message
    index = GANG if record.is_gang else at
    rows = islice(reversed(record.history), REASON_ROWS)
    return next((row.reason for row in rows if row.index == index and row.reason), "")


def _kernel(record: Job, index: int) -> KernelView:
    task: Task = record.task(index)
    placed = task.attempts[-1] if task.attempts and task.state is not TaskState.PENDING else None
    return KernelView(
        task=f"{record.name}/{index}",
        attempt=placed.number if placed is not None else len(task.attempts),
        worker=placed.worker if placed is not None else "",
        status=kernel_status(task).value.lower(),
        id=f"{record.id}/{index}",
    )


def sessions(ledger: Ledger, query: SessionsQuery) -> Page:
    """Coscheduled sessions, and without ``gangs`` every session of one; newest job first, then by
    task.
    """
    status = query.status
    after = numbers_behind(query.cursor, 2)  # job and task of the last session read
    if query.job:
        numbers: Iterable[int] = (known_job(ledger, query.job).number,)
    else:
        newest = after[0] if after is not None else None
        numbers = ledger.index.all.irange(maximum=newest, reverse=True)
    records = (
        record for number in numbers if (record := ledger.jobs[number]).is_gang or not query.gangs
    )
    rows = _sessions_of(records, after, over=status in ("", *_OVER))

    def wanted(row: tuple[Job, int] | None) -> bool:
        return row is not None and status in ("", ledger.session_status(*row).value.lower())

    return page(rows, lambda row: session_view(ledger, *row), query, wanted)  # type: ignore[misc]


def _sessions_of(
    records: Iterable[Job], after: Sequence[int] | None, *, over: bool
) -> Iterable[tuple[str, tuple[Job, int] | None]]:
    """Each session's position, job, and first task; without ``over``, a finished job is one empty
    row.
    """
    for record in records:
        begin = after[1] + 1 if after is not None and after[0] == record.number else 0
        if is_compacted(record) and not over:
            yield f"{record.number}-{record.spec.replicas}", None
        elif record.is_gang:
            if not begin:
                yield f"{record.number}-0", (record, 0)
        else:
            for index in record.indexes.since(begin):
                yield f"{record.number}-{index}", (record, index)


def session(ledger: Ledger, query: SessionQuery) -> SessionView:
    name, _, index = query.session.partition("-")
    record = ledger.find_job(name)
    place = whole_number(index or "0")
    if record is None or place is None or not record.has(place):
        raise Refused(Code.NOT_FOUND, f"there is no session {query.session}")
    return session_view(ledger, record, place)
