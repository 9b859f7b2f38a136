"""Tracks which orders hosts have accepted, and which sessions wait for redelivery. Kept in memory
only.

A new leader sends every open order again, so none of this is in the journal. A failed delivery is
one failure of its session however many hosts failed it; the next try of the session comes
``order_retry_s`` later. Out of scope: what a failure means (`handlers`, `coordinator`). Source:
docs/design/semantics.md#sessions.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Order, OrderTaken
from iris_core.states import KERNEL_UNPREPARED, KernelStatus
from iris_core.tables.session import PREPARE, START
from iris_state.effects.orders import OrderBook
from iris_state.records.changes import GANG
from iris_state.records.entities import Attempt, Job
from iris_state.records.handlers import SessionId
from iris_state.records.indexes.timer_queue import TimerQueue
from iris_state.records.inputs import DeliveryResult, Fate
from iris_state.records.ledger import Ledger


class Deliveries:
    """The acknowledgements of one leader."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._taken: dict[int, set[tuple[AttemptRef, bool]]] = {}
        self.again: TimerQueue[SessionId] = TimerQueue()
        """When each session whose order was not accepted is ordered again."""

    def took(self, order: Order) -> None:
        """Record that a host accepted an order, for each member of a gang in it."""
        for refs, starting in ((order.prepare, False), (order.start, True)):
            for ref in refs:
                job = self._ledger.jobs.get(ref.job)
                if job is not None and not job.is_terminal:
                    self._taken.setdefault(ref.job, set()).add((ref, starting))

    def forget(self, number: int) -> None:
        """A session has another status: earlier acknowledgements do not apply to its new orders."""
        self._taken.pop(number, None)
        self.again.clear((number, GANG))

    def sessions(self, order: Order) -> Iterator[SessionId]:
        """The sessions that still wait for the effect of an order, each once."""
        found: dict[SessionId, None] = {}
        for ref in (*order.run, *order.prepare, *order.start):
            job = self._ledger.jobs.get(ref.job)
            if job is None or self._current(job, ref) is None:
                continue
            if job.session is not None:
                starting = ref in order.start
                rule = START if starting else PREPARE
                if job.session.status in rule.sources and not self._has(
                    job, ref, starting=starting
                ):
                    found[(job.number, GANG)] = None
            elif job.task(ref.index).attempts[-1].status is KernelStatus.SCHEDULED:
                found[(job.number, ref.index)] = None
        yield from found

    def never_taken(self, delivered: DeliveryResult, session: SessionId) -> tuple[int, ...]:
        """The members of a session, by task index, that no host will ever start, because their only
        order failed.
        """
        if delivered.fate is not Fate.NEVER:
            return ()
        orders = self._ledger.presence[delivered.worker].orders
        found = []
        for ref in (*delivered.order.run, *delivered.order.prepare):
            ordered = orders.get((ref.job, ref.index, ref.attempt))
            if (
                ref.job == session[0]
                and session[1] in (GANG, ref.index)
                and ordered is not None
                and ordered.once
            ):
                found.append(ref.index)
        return tuple(found)

    def wanting(self, job: Job) -> tuple[int, ...]:
        """The members of a gang whose workers have not accepted the order of the session's
        status.
        """
        return tuple(self._wanting(job))

    def is_wanting(self, job: Job) -> bool:
        """Whether there is such a member."""
        return next(self._wanting(job), None) is not None

    def _wanting(self, job: Job) -> Iterator[int]:
        starting = job.session is not None and job.session.status in START.sources
        for index, task in job.numbered():
            current = task.current
            if current is None:
                continue
            if not self._has(job, AttemptRef(job.number, index, current.number), starting=starting):
                yield index

    def _has(self, job: Job, ref: AttemptRef, *, starting: bool) -> bool:
        if (ref, starting) in self._taken.get(job.number, ()):
            return True
        status = job.task(ref.index).attempts[ref.attempt].status
        return status not in (_BEFORE_START if starting else _BEFORE_PREPARING)

    def _current(self, job: Job, ref: AttemptRef) -> Attempt | None:
        current = job.task(ref.index).current if job.has(ref.index) else None
        return current if current is not None and current.number == ref.attempt else None

    def order_again(self, orders: OrderBook, session: SessionId) -> None:
        """Send the orders of a session that were not accepted again, if it still waits for them."""
        job = self._ledger.jobs.get(session[0])
        if job is None:
            return
        for index in job.indexes if session[1] == GANG else (session[1],):
            attempt = job.task(index).current
            if attempt is None:
                continue
            ref = AttemptRef(job.number, index, attempt.number)
            if job.session is None or job.session.status in PREPARE.sources:
                if attempt.status is KernelStatus.SCHEDULED and (ref, False) not in self._taken.get(
                    job.number, ()
                ):
                    orders.place(ref)
            elif job.session.status in START.sources and not self._has(job, ref, starting=True):
                orders.start(ref)


def why_refused(worker: str, taken: OrderTaken) -> str:
    """Why a worker has not accepted an order, in words."""
    if taken.stopping:
        return f"worker {worker} is stopping"
    return f"worker {worker} has restarted, was paused, read its order too late, or has as many attempts as it may"


_BEFORE_PREPARING = frozenset({KernelStatus.SCHEDULED})
_BEFORE_START = KERNEL_UNPREPARED | {KernelStatus.PREPARED}
