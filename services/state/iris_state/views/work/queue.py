"""View of the queue: one row per pending job, with the columns of its key.
docs/design/semantics.md#order.
"""

from __future__ import annotations

from bisect import bisect_right

from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import Caller
from iris_core.placement.guarantees import Guarantees
from iris_core.placement.priority import PriorityKey
from iris_core.placement.reasons import Reason
from iris_core.spec.jobs import JobSpec
from iris_core.spec.projects import ROOT
from iris_core.states import PriorityBand, TaskState, display_name
from iris_core.views.jobs import ClosedGate, GatedJobView, Page, QueueHoldView, QueueRow, moment
from iris_core.views.queries import ClosedGateQuery, GatedJobsQuery, QueueHoldsQuery, QueueQuery
from iris_state.decide import gates
from iris_state.decide.guarantees import held_guarantees, side_of
from iris_state.decide.projects import project_of
from iris_state.records.entities import Job, Task
from iris_state.records.ledger import Ledger
from iris_state.records.queue_holds import QueueHold
from iris_state.views.actors import actor_view
from iris_state.views.pages import Piece, Pieces, behind, page, parts
from iris_state.views.work.jobs import reason_of, reason_outside_the_queue

LOOKED_AT_ONCE = 2000
"""Jobs that are looked at in one piece of a read."""


def queue(ledger: Ledger, query: QueueQuery) -> Page:
    """The order of the key; ``position`` counts the tasks before a job's first. The cursor is the key of
    the last row.
    """
    rows = (
        (_cursor(ledger.queue.key(number)), number)
        for number in ledger.queue.jobs(_place(query.cursor))
    )
    guarantees = held_guarantees(ledger)
    return page(rows, lambda number: _queue_row(ledger, guarantees, number), query)


def _cursor(key: PriorityKey) -> str:
    return "_".join(str(int(part)) for part in key)


def _place(cursor: str) -> PriorityKey | None:
    """The key after which a page begins, whether or not that job is still pending."""
    if not cursor:
        return None
    try:
        band, *rest = (int(part) for part in cursor.split("_"))
        return PriorityKey(PriorityBand(band), *rest)
    except (ValueError, TypeError):
        raise Refused(Code.INVALID, "not a cursor of this listing") from None


def _queue_row(ledger: Ledger, guarantees: Guarantees, number: int) -> QueueRow:
    record = ledger.jobs[number]
    pending = ledger.queue.pending(number)
    return QueueRow(
        position=ledger.queue.position(number, pending[0]),
        task=f"{record.name}/{pending[0]}",
        job=record.name,
        user=record.user,
        band=display_name(record.band),
        depth=record.depth,
        root_submitted_at=moment(record.root_submitted_ms),
        submitted_at=moment(record.submitted_ms),
        sequence=record.number,
        tasks=len(pending),
        pending_reason=reason_of(ledger, record),
        id=f"{record.id}/{pending[0]}",
        job_id=record.id,
        side=side_of(guarantees, record),
        project=record.spec.project or ROOT,
        step=ledger.shares.levels(record.spec.project, record.user),
    )


def gated(ledger: Ledger, query: GatedJobsQuery) -> Pieces[Piece]:
    """The jobs with tasks that a gate, the pause before a retry, or an earlier attempt or run that
    has not ended keeps out of the queue, oldest first.
    """
    after = behind(query.cursor) or 0
    found = {*ledger.gates.gated, *ledger.held_back, *ledger.open_of_job}
    for timers in parts(list(ledger.timers.items()), LOOKED_AT_ONCE):
        yield
        found.update(number for (kind, number, _), _ in timers if kind == "gate")
    numbers = sorted(found)
    outside: list[tuple[int, int]] = []
    for part in parts(numbers[bisect_right(numbers, after) :], LOOKED_AT_ONCE):
        yield
        outside += [(one, one) for one in part if one in ledger.jobs and _outside(ledger, one) > 0]
        if len(outside) > query.limit:
            break
    present = ((one, one) for one, _ in outside if one in ledger.jobs)
    return page(present, lambda number: _gated_row(ledger, number), query)


def _outside(ledger: Ledger, number: int) -> int:
    """How many pending tasks of a job are not in the queue."""
    return ledger.jobs[number].counts[TaskState.PENDING] - len(ledger.queue.pending(number))


def _gated_row(ledger: Ledger, number: int) -> GatedJobView:
    record = ledger.jobs[number]
    if ledger.open_of_job[number] or number in ledger.held_back:
        pending = [task for task in record.tasks if task.state is TaskState.PENDING]
        reason: Reason | None = reason_outside_the_queue(ledger, record, pending)
    else:
        gated = record.is_gated
        waiting = (
            task
            for task in record.tasks
            if task.state is TaskState.PENDING and (gated or task.is_gated)
        )
        reason = gates.reason_for(ledger, record, next(waiting, Task()))
    return GatedJobView(
        job=record.name,
        job_id=record.id,
        user=record.user,
        band=display_name(record.band),
        submitted_at=moment(record.submitted_ms),
        tasks=_outside(ledger, number),
        pending_reason=reason,
    )


def holds(ledger: Ledger, query: QueueHoldsQuery) -> Page:
    """The holds on the queue, oldest first."""
    after = behind(query.cursor) or 0
    held = _held(ledger)
    rows = ((number, hold) for number, hold in ledger.queue_holds.items() if number > after)
    return page(rows, lambda hold: _hold_view(hold, held.get(hold.number, [])), query)


def hold_view(ledger: Ledger, number: int) -> QueueHoldView:
    """One hold on the queue."""
    return _hold_view(ledger.queue_holds[number], _held(ledger).get(number, []))


def _held(ledger: Ledger) -> dict[int, list[Job]]:
    """The jobs that each hold keeps out of the queue, by its number."""
    found: dict[int, list[Job]] = {}
    for job in map(ledger.jobs.__getitem__, ledger.gates.gated if ledger.queue_holds else ()):
        for gate in job.gates:
            found.setdefault(gate.hold, []).append(job)
    return found


def _hold_view(hold: QueueHold, held: list[Job]) -> QueueHoldView:
    return QueueHoldView(
        id=hold.id,
        user=hold.user or None,
        band=hold.band or None,
        label=hold.label or None,
        reason=hold.reason or None,
        by=actor_view(hold.by),
        since=moment(hold.at_ms),
        jobs=len(held),
        tasks=sum(job.counts[TaskState.PENDING] for job in held),
    )


def closed_gate(ledger: Ledger, query: ClosedGateQuery, caller: Caller) -> ClosedGate:
    """In which project a job of the ``spec`` would be, what it would wait for besides capacity, and
    what it would have of fair share in its order, if it were submitted now. Raises Refused.
    """
    try:
        spec = codec.from_json(query.spec.encode(), JobSpec)
    except Undecodable as error:
        raise Refused(Code.INVALID, str(error)) from None
    user = spec.user or caller.user
    above = spec.name.rpartition("/")[0]
    parent = ledger.job_of(user, above) if above else None
    project = project_of(ledger, spec.project, user, caller, parent)
    return ClosedGate(
        reason=gates.reason_for_new(ledger, spec, spec.user),
        project=project,
        steps=ledger.shares.steps_of(project, user),
    )
