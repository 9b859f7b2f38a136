"""Views of jobs: one, a listing, a tree, why one is pending, and its history."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice, takewhile
from typing import Any

from msgspec.structs import replace
from sortedcontainers import SortedList

from iris_core.limits import SHOWN
from iris_core.placement.reasons import (
    NOT_YET_LOOKED_AT,
    Reason,
    ReasonCode,
    run_before_ending,
    still_ending,
    waiting_for_victim,
)
from iris_core.spec import projects
from iris_core.states import TERMINAL, JobState, PriorityBand, TaskState, display_name
from iris_core.units import counted
from iris_core.views.jobs import (
    JOBS_ORDERED,
    NEWEST_FIRST,
    GateView,
    JobLink,
    JobView,
    OutOfMemoryView,
    Page,
    StoredView,
    TreeView,
    moment,
)
from iris_core.views.queries import HistoryQuery, JobsQuery, NamedJobsQuery, TreeQuery, WhyQuery
from iris_state.decide import gates
from iris_state.decide.guarantees import held_guarantees, side_of
from iris_state.records.entities import Attempt, HistoryEntry, Job, Task
from iris_state.records.gates import Gate, GateKind
from iris_state.records.indexes.index import Field, has
from iris_state.records.indexes.stored import NONE_STORED, StoredBytes
from iris_state.records.ledger import Ledger
from iris_state.records.shares import ShareKey
from iris_state.records.targets import known_job, known_project, known_task
from iris_state.views.actors import actor_view
from iris_state.views.order import in_order
from iris_state.views.pages import (
    MAX_TEXT,
    SCANNED,
    Piece,
    Pieces,
    behind,
    numbers_behind,
    page,
    shortened,
)
from iris_state.views.redaction import redacted
from iris_state.views.work import interruptions
from iris_state.views.work.abridged import abridged
from iris_state.views.work.history import entries, newest, parts, row_of
from iris_state.views.work.notices import note_of_early_end, note_of_killed_part, note_of_stop

TREE_JOBS = 500
"""Descendants of a job shown in a tree."""
WAITERS = 20
"""Jobs that wait for a job, shown with it."""
AHEAD_JOBS = 4000
"""Jobs of the queue that are looked at to say whose tasks precede one, at most: a few ms."""
ORDERED_AT_ONCE = 1000
"""Jobs that are put in order in one piece of a read."""
LOOKED_AT_ONCE = 2000
"""Tasks of a job that are looked at in one piece of a read."""
AHEAD_USERS = 3
"""Users that are named there, those with most tasks."""
WHY_ROWS = 20
"""The newest rows of history that `why` shows."""
_ROUTE = re.compile(r"/[^/]+/r\d+-\d+\Z")
_LAST = "\U0010ffff"
"""Sorts after every character of a name."""


def job_view(ledger: Ledger, record: Job, *, whole: bool = True) -> JobView:
    """One job; in a listing (``whole`` False) with a truncated specification."""
    parent = ledger.jobs.get(record.parent)
    before = ledger.jobs.get(record.rerun_of)
    head, _, _ = record.name.rpartition("/")
    spec = record.spec if whole else abridged(record.spec)
    return JobView(
        id=record.id,
        name=record.name,
        state=display_name(record.state),
        user=record.user,
        band=display_name(record.band),
        replicas=len(record.tasks),
        spec=redacted(spec),
        parent=parent.name if parent is not None else head or None,
        submitted_at=moment(record.submitted_ms),
        root_submitted_at=moment(record.root_submitted_ms),
        started_at=moment(record.started_ms),
        finished_at=moment(record.finished_ms),
        error=shortened(record.error, MAX_TEXT) or None,
        task_counts={display_name(state): n for state, n in record.counted().items()},
        pending_reason=reason_of(ledger, record),
        children=len(record.children),
        coscheduled=record.is_gang,
        cause=record.cause.value if record.cause is not None else None,
        interrupted=interruptions.of_job(ledger, record),
        spec_abridged=spec is not record.spec,
        rerun_of=before.id if before is not None else None,
        next_run=_next_run(ledger, record),
        parent_id=parent.id if parent is not None else None,
        submitted_by=actor_view(record.by),
        ended_by=actor_view(record.ended_by),
        version=record.version,
        gates=[_gate_view(ledger, gate) for gate in record.gates],
        waiters=[
            _link(ledger.jobs[n])
            for n in islice(ledger.gates.waiters.get(record.number, ()), WAITERS)
        ],
        open=record.open,
        note=note_of_job(record),
        name_shared=record.name in ledger.shared_names,
        stored=stored_view(record.stored),
        evicted=stored_view(record.evicted),
        project=record.spec.project_path,
    )


def stored_view(stored: StoredBytes) -> StoredView | None:
    """Bytes by kind; None where there are none."""
    if stored == NONE_STORED:
        return None
    return StoredView(
        artifact_bytes=stored.artifacts, output_bytes=stored.output, result_bytes=stored.results
    )


def note_of_job(record: Job) -> str | None:
    """That an open job waits for further calls, or why it does no more."""
    calls = record.spec.calls
    if not record.open or calls is None or calls.idle_s is None:
        return record.note or None
    return f"open; waits for further calls, at most {calls.idle_s:g} s after the last request of its client"


def dropped_gates(ledger: Ledger, record: Job) -> list[str]:
    """What a rerun does not wait for although the job that it repeats did; empty when there is
    nothing.
    """
    before = ledger.jobs.get(record.rerun_of)
    if before is None:
        return []
    times = {"its start time": bool(before.spec.not_before), "its release": before.spec.hold}
    after = () if record.spec.after else before.spec.after
    dropped = [
        *(dependency.job for dependency in after),
        *(name for name, given in times.items() if given),
    ]
    if not dropped:
        return []
    names = " and ".join(dropped)
    return [
        f"{record.name} does not wait for {names}, as {before.id} did: a rerun drops what the job waited for"
    ]


def _gate_view(ledger: Ledger, gate: Gate) -> GateView:
    other = ledger.jobs.get(gate.job)
    return GateView(
        kind=gate.kind.value,
        opened_at=moment(gate.opened_ms),
        job=_link(other) if other is not None else None,
        when=gate.when if gate.kind is GateKind.DEPENDENCY else None,
        each=gate.each,
        until_at=moment(gate.until_ms),
        key=gate.key or None,
        by=actor_view(gate.by),
        since=moment(gate.at_ms),
        reason=gate.reason or None,
        hold=f"h{gate.hold}" if gate.hold else None,
    )


def _link(job: Job) -> JobLink:
    return JobLink(id=job.id, name=job.name, state=display_name(job.state))


def _next_run(ledger: Ledger, record: Job) -> str | None:
    """The id of the next job of the same name and owner."""
    runs = ledger.namesakes.get(record.name, [])  # ascending
    for at in range(bisect_right(runs, record.number), len(runs)):
        later = ledger.jobs[runs[at]]
        if later.user == record.user:
            return later.id
    return None


def reason_of(ledger: Ledger, record: Job) -> Reason | None:
    """Why the pending tasks of a job are pending; None when none is."""
    if record.is_terminal or not record.is_waiting:
        return None
    if len(ledger.queue.pending(record.number)):
        return ledger.reasons.get(record.number, NOT_YET_LOOKED_AT)
    return reason_outside_the_queue(
        ledger, record, [task for task in record.tasks if task.state is TaskState.PENDING]
    )


def reason_of_task(ledger: Ledger, record: Job, index: int) -> Reason | None:
    """Why one task is pending; None when it is not."""
    task = record.task(index)
    if task.state is not TaskState.PENDING:
        return None
    if record.is_gang:
        return reason_of(ledger, record)
    if worker := _waits_for_victims(ledger, record.number, index):
        return waiting_for_victim([worker])  # the reason of the job may be that of another task
    if (record.number, index) in ledger.queue:
        return reason_of(ledger, record)
    return reason_outside_the_queue(ledger, record, [task])


def _waits_for_victims(ledger: Ledger, number: int, index: int) -> str:
    """The worker that a task is nominated to, while attempts there are stopping; empty: none."""
    worker = ledger.nominations.get((number, index), "")
    presence = ledger.presence.get(worker)
    if presence is None or ledger.is_apart((number, index)):
        return ""
    is_stopping = any(attempt.is_stopping for attempt in presence.open.values())
    return worker if is_stopping else ""


def reason_outside_the_queue(ledger: Ledger, record: Job, waiting: Sequence[Task]) -> Reason:
    """Why tasks of a job that are pending are not in the queue."""
    before = _open_on(task for run in ledger.ending_runs(record) for task in run.tasks)
    if before:
        return run_before_ending(before)
    ending = _open_on(waiting)
    if ending:
        return still_ending(ending)
    gated = gates.reason_for(ledger, record, min(waiting, key=_shut, default=Task()))
    return gated or ledger.reasons.get(record.number, NOT_YET_LOOKED_AT)


def _shut(task: Task) -> tuple[bool, int]:
    """Sorts first the task that a gate keeps from the queue for the shortest time."""
    return not task.is_gated, task.not_before_ms


def _open_on(tasks: Iterable[Task]) -> list[str]:
    return sorted(
        {attempt.worker for task in tasks for attempt in task.attempts if attempt.is_open}
    )


def jobs(ledger: Ledger, query: JobsQuery) -> Piece | Pieces[Piece]:
    """Newest first, or by ``order``; with ``since_ms`` those that were submitted since."""
    fields = _fields(ledger, query)
    prefix = query.name_prefix
    numbers = _shortest(ledger, fields, prefix)

    def wanted(record: Job) -> bool:
        if query.without_routes and is_route(record):
            return False
        return record.name.startswith(prefix) and (
            not fields or all(has(record, field) for field in fields)
        )

    def view(record: Job) -> JobView:
        return job_view(ledger, record, whole=False)

    if query.order != NEWEST_FIRST:
        parts = (filter(wanted, part) for part in _parts(ledger, numbers, query.since_ms))
        return _ordered(ledger, query, parts, view)
    last = behind(query.cursor)
    below: Iterator[int] = numbers.irange(maximum=last, inclusive=(True, False), reverse=True)
    rows: Iterator[tuple[int, Job]] = ((number, ledger.jobs[number]) for number in below)
    if query.since_ms:
        rows = takewhile(lambda row: row[1].submitted_ms >= query.since_ms, rows)
    return page(rows, view, query, wanted)


def _parts(ledger: Ledger, numbers: SortedList, since_ms: int) -> Iterator[list[Job]]:
    """The newest of these jobs, `JOBS_ORDERED` at most, newest first, so many at a time that jobs
    may change in between.
    """
    last = None
    for _ in range(0, JOBS_ORDERED, ORDERED_AT_ONCE):
        below = numbers.irange(maximum=last, inclusive=(True, False), reverse=True)
        part = list(islice(below, ORDERED_AT_ONCE))
        known = (ledger.jobs.get(number) for number in part)
        yield [job for job in known if job is not None and job.submitted_ms >= since_ms]
        if len(part) < ORDERED_AT_ONCE:
            return
        last = part[-1]


def _ordered(
    ledger: Ledger,
    query: JobsQuery,
    parts: Iterable[Iterable[Job]],
    view: Callable[[Job], JobView],
) -> Pieces[Piece]:
    """A page of jobs in another order. They are put in order once for all of its pieces."""
    found = yield from in_order(parts, query, ledger.now_ms)
    cursors = [cursor for cursor, _ in found]

    def is_kept(job: Job) -> bool:
        return job.number in ledger.jobs

    def rest(asked: JobsQuery) -> Piece:
        return page(found[cursors.index(asked.cursor) + 1 :], view, asked, is_kept)

    return replace(page(found, view, query, is_kept), rest=rest)


def is_route(record: Job) -> bool:
    """Whether a deployment made the job, as one of its routes."""
    return not record.parent and _ROUTE.match(record.name) is not None


def named_jobs(ledger: Ledger, query: NamedJobsQuery) -> Page:
    """The jobs with these names and ids that there are, in their order."""
    found = map(ledger.find_job, query.names)
    rows = enumerate(record for record in found if record is not None)
    return page(rows, lambda record: job_view(ledger, record, whole=False), query)


def _fields(ledger: Ledger, query: JobsQuery) -> set[Field]:
    """The fields that listed jobs must have. Raises Refused for an unknown parent or project."""
    fields: set[Field] = {
        (name, value) for name in ("user", "label") if (value := getattr(query, name))
    }
    if query.state:
        fields.add(("state", _named(JobState, query.state)))
    if query.band:
        fields.add(("band", _named(PriorityBand, query.band)))
    if query.parent:
        fields.add(("parent", known_job(ledger, query.parent).number))
    path = projects.normal(query.project)
    if path != projects.ROOT:
        if not ledger.index.of(("project", path)):  # those that have ended keep a removed one
            known_project(ledger, path)
        fields.add(("project", path))
    return fields


def _named(kind: type[IntEnum], name: str) -> IntEnum | None:
    """The member with this name; None, which no job has, for an unknown name."""
    return kind.__members__.get(name.upper())


def _shortest(ledger: Ledger, fields: set[Field], prefix: str) -> SortedList:
    """The smallest set of numbers that contains all jobs with these fields and this prefix."""
    numbers = min(map(ledger.index.of, fields), key=len, default=ledger.index.all)
    if prefix and len(numbers) > SCANNED:
        named = _with_prefix(ledger, prefix)
        return numbers if named is None else SortedList(named)
    return numbers


def _with_prefix(ledger: Ledger, prefix: str) -> set[int] | None:
    """The numbers of the jobs whose names have this prefix; None when they are more than one page
    reads.
    """
    between: Iterator[str] = ledger.names.irange(prefix, prefix + _LAST)  # type: ignore[attr-defined]
    names = list(islice(between, SCANNED + 1))
    numbers = set(map(ledger.names.__getitem__, names))
    for name in ledger.namesakes.keys() & names:
        numbers.update(islice(ledger.namesakes[name], SCANNED + 1))
        if len(numbers) > SCANNED:
            break
    return numbers if len(numbers) <= SCANNED else None


def tree(ledger: Ledger, query: TreeQuery) -> TreeView:
    """A job and its first `TREE_JOBS` descendants, breadth first; ``children`` of a job shows when
    some are left out.
    """
    root = TreeView(job=job_view(ledger, known_job(ledger, query.job)), children=[])
    line = deque([(root, known_job(ledger, query.job))])
    left = TREE_JOBS
    while line and left:
        above, record = line.popleft()
        for number in islice(record.children, left):
            left -= 1
            child = ledger.jobs[number]
            view = TreeView(job=job_view(ledger, child, whole=False), children=[])
            above.children.append(view)
            line.append((view, child))
    return root


def why(ledger: Ledger, query: WhyQuery) -> Pieces[dict[str, Any]]:
    """Why the pending tasks of a job, or one task, are pending, and what precedes them in the
    queue.
    """
    if query.task:
        record, index = known_task(ledger, query.task)
        place = record.indexes.position(index)
        out_of_memory = _out_of_memory(record, place, record.task(index))
        by = record.task(index).by
        attempt = record.task(index).current
        error = interruptions.end_of_task(record, index)
        started_ms = attempt.started_ms if attempt is not None else 0
        reason = reason_of_task(ledger, record, index)
        interrupted = interruptions.of_tasks(record, [index])
    else:
        record = known_job(ledger, query.job)
        out_of_memory = yield from _first_out_of_memory(record)
        started_ms = record.started_ms
        by = record.ended_by
        error = record.error
        index = _first_that_waits(ledger, record)
        reason = reason_of(ledger, record)
        interrupted = interruptions.of_job(ledger, record)
    is_queued = (record.number, index) in ledger.queue
    if is_queued and reason is not None:
        reason = _with_shares(ledger, record, reason)
    return {
        "job": record.name,
        "task": f"{record.name}/{index}",
        "job_id": record.id,
        "id": f"{record.id}/{index}",
        "state": display_name(record.task(index).state),
        "job_state": display_name(record.state),
        "pending_tasks": record.counts[TaskState.PENDING],
        "started_at": moment(started_ms),
        "pending_reason": reason,
        "ahead": ledger.queue.position(record.number, index) if is_queued else None,
        "ahead_note": _ahead_note(ledger, record, index) if is_queued else None,
        "side_note": _side_note(ledger, record) if is_queued else None,
        "note": note_of_task(ledger, record, record.task(index)),
        "job_note": note_of_job(record),
        "error": error or None,
        "by": actor_view(by),
        "replicas": len(record.tasks),
        "task_counts": {display_name(state): n for state, n in record.counted().items()},
        "interrupted": interrupted,
        "out_of_memory": out_of_memory,
        "history": newest(record, index, WHY_ROWS, of_task=bool(query.task)),
    }


def _side_note(ledger: Ledger, record: Job) -> str | None:
    """On which side of its band a job waits; None while nothing is guaranteed."""
    guarantees = held_guarantees(ledger)
    side = side_of(guarantees, record)
    project = record.spec.project_path
    if side == "near":
        names = " and ".join(guarantees.on_way(project))
        return f"near side: within what is guaranteed to {names}, so it goes before what borrows"
    if side == "far":
        return f"far side: {project} would borrow, so work within a guarantee goes first"
    return None


def _ahead_note(ledger: Ledger, record: Job, index: int) -> str | None:
    """Whose tasks precede one in the queue, how many, and why: ``behind 19,757 tasks: 7 of ann, in a
    higher band; 19,000 of bob, submitted before; 750 of this job``. Of a long queue it looks at the
    first jobs.
    """
    ahead = ledger.queue.position(record.number, index)
    if not ahead:
        return None
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    looked_at = 0
    for number in islice(ledger.queue.jobs(), AHEAD_JOBS):
        if number == record.number:
            break
        tasks = len(ledger.queue.pending(number))
        other = ledger.jobs[number]
        counts[_why_first(ledger, other, record)][other.user] += tasks
        looked_at += tasks
    words = [f"{_tasks_of(users)}, {why}" for why, users in counts.items()]
    own = ahead - ledger.queue.position(record.number, ledger.queue.pending(record.number)[0])
    if own:
        words.append(f"{own:,} of this job")
    first = f"the first {looked_at:,} and its own are " if looked_at + own < ahead else ""
    return f"behind {counted(ahead, 'task')}: {first}{'; '.join(words)}"


def _why_first(ledger: Ledger, before: Job, job: Job) -> str:
    """Why the tasks of one job precede those of another in the queue, in words."""
    first, then = ledger.queue.key(before.number), ledger.queue.key(job.number)
    if first.band != then.band:
        return "in a higher band"
    if first.negative_depth != then.negative_depth:
        return "of jobs deeper in their trees"
    if first.steps != then.steps:
        shares = ledger.shares
        less, more = _parted(ledger, before, job)
        words = f"{less.name} has had {shares.share(less):.2g} of its share"
        return f"as {words}, {more.name} {shares.share(more):.2g}"
    return "submitted before"


def _parted(ledger: Ledger, before: Job, job: Job) -> tuple[ShareKey, ShareKey]:
    """Who has had less and who more, where that puts one job before another one."""
    return ledger.shares.apart((before.spec.project, before.user), (job.spec.project, job.user))


def _with_shares(ledger: Ledger, record: Job, reason: Reason) -> Reason:
    """The reason of a job behind others with the shares for which they go first: its own, or of the
    project of it that they are compared with first, and theirs. Of a long queue it looks at the first
    jobs.
    """
    shares = ledger.shares
    if reason.code is not ReasonCode.BEHIND or not shares.enabled:
        return reason
    then = ledger.queue.key(record.number)
    own: ShareKey | None = None
    ahead: dict[str, float] = {}
    for number in islice(ledger.queue.jobs(), AHEAD_JOBS):
        if number == record.number or len(ahead) == SHOWN:
            break
        first = ledger.queue.key(number)
        if first[:2] == then[:2] and first.steps != then.steps:
            less, more = _parted(ledger, ledger.jobs[number], record)
            own = own or more
            if more == own:
                ahead[less.name] = round(shares.share(less), 3)
    if own is None:
        return reason
    facts = {"share": round(shares.share(own), 3), "ahead": ahead}
    return replace(reason, facts={**reason.facts, **facts})


def _tasks_of(users: Counter[str]) -> str:
    """How many tasks are of each user, those with most by name: ``301 of bob, 4 of 2 other
    users``.
    """
    most = users.most_common(AHEAD_USERS)
    words = [f"{tasks:,} of {user}" for user, tasks in most]
    if len(users) > len(most):
        rest = users.total() - sum(tasks for _, tasks in most)
        words.append(f"{rest:,} of {counted(len(users) - len(most), 'other user')}")
    return ", ".join(words)


def note_of_task(ledger: Ledger, record: Job, task: Task) -> str | None:
    """What an active task waits for: its worker, or as a finished member of a gang the others; or
    what is odd about its place or its process, also after its end.
    """
    if not task.waits_for_gang:
        current = task.current
        if current is None:
            last = task.attempts[-1] if task.attempts and task.state in TERMINAL else None
            if last is None or not last.started_ms:
                return None
            succeeded = task.state is TaskState.SUCCEEDED
            notes = [note_of_early_end(last), note_of_killed_part(last)] if succeeded else []
            return next(filter(None, notes), "") or last.detail or None
        return (
            note_of_stop(record, current, ledger.grace_limits, ledger.now_ms)
            or current.doing
            or current.detail
            or _queued_behind(record, current)
            or _apart(task, current)
            or _shared(ledger, record, current)
            or None
        )
    if record.leader_is_done:
        return "waiting for its gang to stop: task 0, its leader, is done"
    done = sum(other.waits_for_gang for other in record.tasks)
    return f"done, waiting for its gang: {done} of {len(record.tasks)} tasks are done"


def _queued_behind(record: Job, current: Attempt) -> str:
    """That an attempt waits for another to end, in whose place it runs then."""
    if current.chain is None or not current.waits_in_chain:
        return ""
    index, number = current.chain
    return f"waits on {current.worker} behind {record.name}/{index} (attempt {number}), in whose place it runs next"


def _apart(task: Task, current: Attempt) -> str:
    """Why nothing is placed beside an attempt."""
    blamed = next((one.worker for one in reversed(task.attempts) if one.suspect), "")
    return (
        f"alone on {current.worker} for now: worker {blamed} died soon after it had started"
        if current.alone
        else ""
    )


def _shared(ledger: Ledger, record: Job, current: Attempt) -> str:
    """That a route is not spread: how many others of its deployment are on its worker."""
    found = ledger.route_for(record.number)
    if found is None or record.spec.spread == "none":
        return ""
    jobs = [ledger.jobs.get(route.job) for route in found[0].held() if route.job != record.number]
    others = [job.task(0).current for job in jobs if job is not None]
    count = sum(other is not None and other.worker == current.worker for other in others)
    routes = counted(count, "other route")
    return (
        f"shares {current.worker} with {routes}: no other worker had room when it was placed"
        if count
        else ""
    )


def _first_out_of_memory(record: Job) -> Pieces[OutOfMemoryView | None]:
    """Of the first task whose last attempt reached its memory limit and failed."""
    for first in range(0, len(record.tasks), LOOKED_AT_ONCE):
        for place, task in enumerate(record.tasks[first : first + LOOKED_AT_ONCE], first):
            if (found := _out_of_memory(record, place, task)) is not None:
                return found
        yield
    return None


def _out_of_memory(record: Job, place: int, task: Task) -> OutOfMemoryView | None:
    """Of a task, if its last attempt reached its memory limit and failed."""
    last = task.attempts[-1] if task.attempts else None
    usage = last.usage if last is not None else None
    if last is None or usage is None or not usage.memory_limit_bytes or last.exit_code == 0:
        return None
    return OutOfMemoryView(
        task=f"{record.name}/{record.indexes[place]}",
        limit_bytes=usage.memory_limit_bytes,
        peak_bytes=last.peak_rss_bytes,
        suggested_bytes=2 * usage.memory_limit_bytes,
    )


def _first_that_waits(ledger: Ledger, record: Job) -> int:
    """The first pending task in the queue or, when none is queued, anywhere; the first task when
    none is pending.
    """
    pending = ledger.queue.pending(record.number)
    if len(pending):
        return pending[0]
    if not record.is_waiting:
        return record.indexes[0]
    return next(index for index, task in record.numbered() if task.state is TaskState.PENDING)


def history(ledger: Ledger, query: HistoryQuery) -> Page:
    """Judgements, oldest first; for a job of many tasks or attempts, part by part. With a task: its
    own and its gang's.
    """
    if query.task:
        record, task = known_task(ledger, query.task)
    else:
        record = known_job(ledger, query.job)
        task = None
    rows = _history_behind(record, task, *(numbers_behind(query.cursor, 3) or (0, 0, -1)))
    return page(rows, lambda entry: row_of(record, entry), query)


def _history_behind(
    record: Job, task: int | None, first: int, number: int, shown: int
) -> Iterator[tuple[str, HistoryEntry]]:
    """The rows of a part after the last one shown, and of every part after it, with their
    cursors.
    """
    begin = shown + 1
    for part in parts(record, (first, number), task):
        for at, entry in enumerate(entries(record, part, task)[begin:], begin):
            yield f"{part[0]}-{part[1]}-{at}", entry
        begin = 0
