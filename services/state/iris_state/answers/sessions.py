"""Sessions as people see them: a coscheduled job's, and the one of each task of a plain job. ST."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from iris_core.errors import Code, Refused
from iris_core.states import TaskState
from iris_core.views import KernelView, Page, SessionView, moment
from iris_state.answers.pages import page
from iris_state.ledger import Ledger, whole_number
from iris_state.records import Job, Task, kernel_status


def session_view(ledger: Ledger, record: Job, index: int | None) -> SessionView:
    """A coscheduled job's session (``index`` None), or the session of one task of a plain job."""
    members = range(len(record.tasks)) if index is None else (index,)
    at = index or 0
    stored = ledger.session(record, at)
    return SessionView(
        id=record.id if index is None else f"{record.id}-{index}",
        job=record.name,
        status=ledger.session_status(record, at).value.lower(),
        since=moment(ledger.session_since(record, at)),
        tries=dict(stored.tries) if stored is not None else {},
        kernels=[_kernel(record, i) for i in members],
    )


def _kernel(record: Job, index: int) -> KernelView:
    task: Task = record.tasks[index]
    placed = task.attempts[-1] if task.attempts and task.state is not TaskState.PENDING else None
    return KernelView(
        task=f"{record.name}/{index}",
        attempt=placed.number if placed is not None else len(task.attempts),
        worker=placed.worker if placed is not None else "",
        status=kernel_status(task).value.lower(),
    )


def sessions(ledger: Ledger, arguments: dict[str, Any]) -> Page:
    """Coscheduled sessions, and every placed or waiting session of one; newest job first."""
    wanted = arguments.get("status")
    only = ledger.find_job(str(arguments["job"])) if arguments.get("job") else None
    records = [only] if only is not None else [ledger.jobs[number] for number in reversed(ledger.jobs)]
    if arguments.get("job") and only is None:
        raise Refused(Code.NOT_FOUND, f"there is no job {arguments['job']}")
    after = _after_session(arguments)
    rows = (
        (f"{record.number}-{-1 if index is None else index}", (record, index))
        for record, index in _all_sessions(records)
        if (after is None or (-record.number, -1 if index is None else index) > after)
        and wanted in (None, "", ledger.session_status(record, index or 0).value.lower())
    )
    return page(rows, lambda row: session_view(ledger, *row), arguments)


def _after_session(arguments: dict[str, Any]) -> tuple[int, int] | None:
    """Newest job first, so the key is (minus the job's number, task index or -1)."""
    cursor = arguments.get("cursor")
    if not cursor:
        return None
    found = re.fullmatch(r"([0-9]{1,18})-(-1|[0-9]{1,18})", str(cursor))
    if found is None:
        raise Refused(Code.INVALID, "not a cursor of this listing")
    return -int(found[1]), int(found[2])


def _all_sessions(records: Iterable[Job]) -> Iterable[tuple[Job, int | None]]:
    for record in records:
        if record.is_gang:
            yield record, None
        else:
            for index in range(len(record.tasks)):
                yield record, index


def session(ledger: Ledger, arguments: dict[str, Any]) -> SessionView:
    name, _, index = str(arguments.get("id", "")).partition("-")
    record, place = ledger.find_job(name), whole_number(index or "0")
    if record is None or place is None or place >= len(record.tasks):
        raise Refused(Code.NOT_FOUND, f"there is no session {arguments.get('id')}")
    return session_view(ledger, record, None if record.is_gang else place)
