"""A job's history for display: the recorded judgements, and those derived from attempts' times.

A session of one that succeeded without a retry has no row of its own: its SUCCESS rows are made
here from the times of its attempts. History is shown and decides nothing. Source:
    docs/design/semantics.md#rules-and-judgement.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from itertools import count as counting
from operator import attrgetter, itemgetter

from iris_core.access.actor import Actor
from iris_core.lifecycle import Derivation
from iris_core.states import Cause
from iris_core.states import SchedulingResult as Result
from iris_core.states import SessionStatus as S
from iris_core.tables import session as table
from iris_core.tables.session import Promotion, SessionRule
from iris_core.views.jobs import HistoryRow, LatestHistoryView, moment
from iris_state.decide.coordinator import REQUEUED_BY_A_HANDLER
from iris_state.records.changes import GANG
from iris_state.records.entities import (
    Attempt,
    HistoryEntry,
    Job,
    Task,
    ended_waiting,
    was_cancelled,
)
from iris_state.views.actors import actor_view
from iris_state.views.pages import Pieces

TASKS = 100
ATTEMPTS = 500
"""At most so many tasks, and attempts of them, are sorted by time together: see `parts`."""
LOOKED_AT_ONCE = 1000
"""Tasks that are looked at in one piece of a read."""

Part = tuple[int, int]
"""The first task of a part of a history, and the number of the first attempt of each of its
tasks.
"""

Timed = tuple[tuple[int, int, int, int, int], HistoryEntry]
"""A row with its place in the history: its time, and among the rows of that millisecond its
attempt, its place in that, its task, and its number among the stored rows.
"""
_AT = itemgetter(0)
_WHILE_PENDING = 0
_SINCE = 6
_AT_ITS_END = 7
"""The places of stored rows in an attempt, before and behind the stages of its start, which have the
places between, and the first of its end.
"""


def parts(job: Job, start: Part, task: int | None = None) -> Iterator[Part]:
    """The parts of a job's history from a given one on, so that a page needs only one of them; with
    ``task``, the parts with rows of that task, and of its gang, which are in the first part.

    A part has the rows of at most `TASKS` tasks and `ATTEMPTS` attempts. The boundaries depend on
    the number of tasks only, so a growing history is divided in the same way.
    """
    tasks, attempts = _sizes(job)
    first, number = start
    own = 0 if task is None else _position(job, task) // tasks * tasks
    while first < len(job.tasks):
        if task is None or first in (0, own):
            yield first, number
        number += attempts
        if all(len(task.attempts) <= number for task in job.tasks[first : first + tasks]):
            first = first + tasks
            number = 0


def entries(job: Job, part: Part, task: int | None = None) -> list[HistoryEntry]:
    """Every judgement about the sessions of one part, oldest first; with ``task``, of that task and
    its gang only.
    """
    first, number = part
    timed = _derived(job, part)
    if not number:
        of_part = range(first, first + _sizes(job)[0])
        timed += [one for one in _stored(job) if _position(job, one[1].index) in of_part]
    found = _in_order(timed)
    return found if task is None else [entry for entry in found if entry.index in (GANG, task)]


def newest(job: Job, index: int, count: int, *, of_task: bool) -> list[HistoryRow]:
    """The newest rows: the stored ones, and those of the part with the newest attempt of a task.
    ``of_task``: only those of that task and its gang.
    """
    tasks, attempts = _sizes(job)
    made = len(job.task(index).attempts)
    part = _position(job, index) // tasks * tasks, max(made - 1, 0) // attempts * attempts
    found = _in_order([*_stored(job), *_derived(job, part)])
    if of_task:
        found = [entry for entry in found if entry.index in (GANG, index)]
    return [row_of(job, entry) for entry in found[-count:]]


def latest(job: Job, count: int) -> Pieces[LatestHistoryView]:
    """The newest judgements of a whole job, found from the tasks that have changed last.

    They are counted where the attempts are few; each attempt is one at least.
    """
    attempts = 0
    changed: list[tuple[int, int, Task]] = []
    for tasks in _some_at_a_time(job):
        attempts += sum(len(task.attempts) for _, task in tasks)
        timed = ((_changed_ms(job, task), index, task) for index, task in tasks)
        changed = heapq.nlargest(count, chain(changed, timed), key=_AT)
        yield
    total = attempts
    if attempts <= ATTEMPTS:
        total = 0
        for tasks in _some_at_a_time(job):
            total += sum(1 for one in tasks for _ in _newest_first(job, *one))
            yield
    stored = sorted(_stored(job), key=_AT, reverse=True)
    newest_of_each = (_newest_first(job, index, task) for _, index, task in changed)
    merged = heapq.merge(stored, *newest_of_each, key=_AT, reverse=True)
    found = [row_of(job, entry) for _, entry in islice(merged, count)]
    return LatestHistoryView(
        items=found[::-1], total=len(stored) + total, is_least=attempts > ATTEMPTS
    )


def _some_at_a_time(job: Job) -> Iterator[list[tuple[int, Task]]]:
    """The tasks of a plain job with their indexes, `LOOKED_AT_ONCE` at a time."""
    for first in range(0, 0 if job.is_gang else len(job.tasks), LOOKED_AT_ONCE):
        indexes = job.indexes.since(job.indexes[first])
        yield list(zip(indexes, job.tasks[first : first + LOOKED_AT_ONCE], strict=False))


def _changed_ms(job: Job, task: Task) -> int:
    """When a task had its last row, about: when its attempt did, or its job ended."""
    last = task.attempts[-1] if task.attempts else None
    times = (
        (last.assigned_ms, last.building_ms, last.started_ms, last.ended_ms, last.closed_ms)
        if last
        else (0,)
    )
    return max(*times, job.finished_ms) if ended_waiting(task) else max(times)


def _newest_first(job: Job, index: int, task: Task) -> Iterator[Timed]:
    """The derived rows of one task."""
    if ended_waiting(task):
        yield from sorted(_of_end(job, index, task), key=_AT, reverse=True)
    for number, attempt in reversed(list(enumerate(task.attempts))):
        yield from sorted(_of_attempt(index, task, attempt, number), key=_AT, reverse=True)


def _position(job: Job, index: int) -> int:
    """The position of a task among those of its job; 0 for rows of the whole job."""
    if not job.spec.indexes or index == GANG:
        return max(index, 0)
    return job.indexes.position(index)


def _sizes(job: Job) -> tuple[int, int]:
    """The number of tasks of a part, and of attempts of each."""
    tasks = min(TASKS, len(job.tasks))
    return tasks, ATTEMPTS // tasks


def _stored(job: Job) -> list[Timed]:
    """The stored rows."""
    return [
        ((entry.first_ms, *_place(job, entry), entry.index, number), entry)
        for number, entry in enumerate(job.history)
    ]


def _place(job: Job, entry: HistoryEntry) -> tuple[int, int]:
    """The attempt that a stored row is about, and its place in that."""
    if job.is_gang or entry.index == GANG:
        return 0, _WHILE_PENDING if entry.from_status == S.PENDING else _SINCE
    attempts = job.task(entry.index).attempts
    begun = bisect_left(attempts, entry.first_ms, key=attrgetter("assigned_ms"))
    if entry.from_status == S.PENDING:
        return begun, _WHILE_PENDING
    is_over = begun > 0 and 0 < attempts[begun - 1].ended_ms < entry.first_ms
    return begun if is_over or not begun else begun - 1, _SINCE


def _derived(job: Job, part: Part) -> list[Timed]:
    """The rows derived from the attempts of a part; all rows of a gang are stored."""
    if job.is_gang:
        return []
    (first, number), (tasks, attempts) = part, _sizes(job)
    found: list[Timed] = []
    indexes = job.indexes.since(job.indexes[first])
    for task, index in zip(job.tasks[first : first + tasks], indexes, strict=False):
        for place, attempt in enumerate(task.attempts[number : number + attempts], number):
            found += _of_attempt(index, task, attempt, place)
        if ended_waiting(task) and number <= max(len(task.attempts) - 1, 0) < number + attempts:
            found += _of_end(job, index, task)
    return found


def _of_attempt(index: int, task: Task, attempt: Attempt, number: int) -> list[Timed]:
    """The derived rows of one attempt."""
    return _timed(_without_delay(index, task, attempt), number)


def _of_end(job: Job, index: int, task: Task) -> list[Timed]:
    """The derived rows of the end of a task that was pending."""
    return _timed(_cancelled(job, index, task), len(task.attempts))


def _timed(found: Iterable[HistoryEntry], attempt: int) -> list[Timed]:
    begun = counting(1)
    ended = counting(_AT_ITS_END)
    timed: list[Timed] = []
    for entry in found:
        place = next(ended if entry.to_status in _OUT else begun)
        if entry.first_ms:
            timed.append(((entry.first_ms, attempt, place, entry.index, 0), entry))
    return timed


def _in_order(timed: list[Timed]) -> list[HistoryEntry]:
    return [entry for _, entry in sorted(timed, key=_AT)]


_OUT = frozenset({S.PENDING, S.TERMINATING, S.TERMINATED, S.CANCELLED})


def entity(job: Job, index: int) -> str:
    """The public id of a session."""
    return job.id if index == GANG else f"{job.id}-{index}"


def row_of(job: Job, entry: HistoryEntry) -> HistoryRow:
    """A judgement as a row of the history."""
    return history_row(entity(job, entry.index), entry, entry.result.value)


def history_row(name: str, entry: HistoryEntry, result: str) -> HistoryRow:
    return HistoryRow(
        entity=name,
        handler=entry.handler,
        from_status=entry.from_status.lower(),
        to_status=entry.to_status.lower(),
        result=result,
        reason=entry.reason,
        attempts=entry.attempts,
        first_at=moment(entry.first_ms),
        last_at=moment(entry.last_ms),
        by=actor_view(entry.by),
    )


def _entry(
    index: int,
    at_ms: int,
    row: SessionRule | Promotion,
    before: S,
    why: str = "",
    result: Result = Result.SUCCESS,
    by: Actor | None = None,
) -> HistoryEntry:
    after = _after(row, before, result).value
    return HistoryEntry(
        index,
        row.name,
        before.value,
        after,
        result=result,
        reason=why,
        attempts=1,
        first_ms=at_ms,
        last_ms=at_ms,
        by=by,
    )


def _after(row: SessionRule | Promotion, before: S, result: Result = Result.SUCCESS) -> S:
    if isinstance(row, Derivation):
        return row.target
    to = row.target(result)
    return to.status if to is not None and to.status is not None else before


def _without_delay(index: int, task: Task, attempt: Attempt) -> Iterator[HistoryEntry]:
    """The rows derived from the times of one attempt; a time of 0 means that the stage was not
    reached.

    A host reports building and running; the statuses between them were passed by then.
    """
    started = attempt.started_ms
    reached = S.PENDING
    for row, at_ms in (
        (table.SCHEDULE, attempt.assigned_ms),
        (table.PREPARE, attempt.building_ms or started),
        (table.PROMOTE_TO_PREPARED, started),
        (table.START, started),
        (table.PROMOTE_TO_RUNNING, started),
    ):
        if at_ms:
            yield _entry(index, at_ms, row, reached)
            reached = _after(row, reached)
    why = attempt.cause.value if attempt.cause is not None else ""
    if attempt is task.attempts[-1] and task.is_terminal and not ended_waiting(task):
        yield _entry(
            index, attempt.ended_ms, table.DETECT_TERMINATION, reached, why=why, by=attempt.by
        )
        yield _entry(index, attempt.closed_ms, table.PROMOTE_TO_TERMINATED, S.TERMINATING)
    elif attempt.cause not in REQUEUED_BY_A_HANDLER:
        yield _entry(
            index, attempt.ended_ms, table.REGRESS_TO_PENDING, reached, why=why, by=attempt.by
        )


def _cancelled(job: Job, index: int, task: Task) -> Iterator[HistoryEntry]:
    """The end of a task that was pending, unless a handler gave it up, which is a stored row."""
    at_ms = job.finished_ms
    why = task.cause.value if task.cause is not None else ""
    if task.cause is Cause.SCHEDULING_TIMEOUT:
        yield _entry(index, at_ms, table.SCHEDULE, S.PENDING, why=task.note, result=Result.EXPIRED)
    elif was_cancelled(job, task):
        if task.cause is not Cause.RESCHEDULES_SPENT:
            yield _entry(index, at_ms, table.DETECT_CANCELLATION, S.PENDING, why=why, by=task.by)
    else:
        yield _entry(index, at_ms, table.DETECT_TERMINATION, S.PENDING, why=why, by=task.by)
        closed_ms = task.attempts[-1].closed_ms
        if closed_ms:
            yield _entry(index, closed_ms, table.PROMOTE_TO_TERMINATED, S.TERMINATING)
