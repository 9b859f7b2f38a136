"""View of the queue: one row per pending job, with the columns of its key. docs/design/semantics.md#order."""

from __future__ import annotations

from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.errors import Code, Refused
from iris_core.priority import PriorityKey
from iris_core.spec import JobSpec
from iris_core.states import PriorityBand, display_name
from iris_core.view_queries import ClosedGateQuery, QueueQuery
from iris_core.views import ClosedGate, Page, QueueRow, moment
from iris_state.decide import gates
from iris_state.records.ledger import Ledger
from iris_state.views.pages import page
from iris_state.views.work.jobs import reason_of


def queue(ledger: Ledger, query: QueueQuery) -> Page:
    """The exact order; ``position`` counts the tasks before a job's first. The cursor is the key of the last row."""
    rows = ((_cursor(ledger.queue.key(number)), number) for number in ledger.queue.jobs(_place(query.cursor)))
    return page(rows, lambda number: _queue_row(ledger, number), query)


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


def _queue_row(ledger: Ledger, number: int) -> QueueRow:
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
    )


def closed_gate(ledger: Ledger, query: ClosedGateQuery) -> ClosedGate:
    """What a job of the ``spec`` would wait for besides capacity, if it were submitted now. Raises Refused."""
    try:
        spec = codec.from_json(query.spec.encode(), JobSpec)
    except Undecodable as error:
        raise Refused(Code.INVALID, str(error)) from None
    return ClosedGate(reason=gates.reason_for_new(ledger, spec, spec.user))
