"""Tracks which hosts are alive, and reconciles the attempts of each with the ledger.

A heartbeat holds the whole state of a host, so any lost message is repaired here: orders that never
arrived are sent again, attempts that the host does not know have ended, and attempts it should not
run are ordered to stop.
Sources: docs/ARCHITECTURE.md; docs/design/semantics.md#tasks-and-attempts,
docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from iris_core.limits import clipped
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import HeartbeatMessage, Stage
from iris_core.spec.jobs import Attribute
from iris_core.states import KernelStatus, SessionStatus, WorkerState
from iris_state.decide import coordinator
from iris_state.decide.cascade import Death
from iris_state.effects.orders import OrderBook
from iris_state.inputs.reports.progress import lose, missing, on_stages
from iris_state.policy import Policy
from iris_state.records.changes import GANG, WorkerForgotten, WorkerMoved
from iris_state.records.claims import Step
from iris_state.records.entities import AttemptKey, ref_of
from iris_state.records.hosts import Presence, Worker
from iris_state.records.inputs import DeliveryResult, Fate
from iris_state.records.ledger import Ledger

_STARTING = frozenset({SessionStatus.PREPARED, SessionStatus.CREATING})
_NO_DIGITS = str.maketrans("", "", "0123456789")


def is_known(ledger: Ledger, worker: str, incarnation: str) -> bool:
    """Whether this incarnation of the host has registered and is not LOST."""
    record = ledger.workers.get(worker)
    return (
        record is not None
        and record.incarnation == incarnation
        and record.state is not WorkerState.LOST
    )


def on_heartbeat(
    ledger: Ledger,
    policy: Policy,
    orders: OrderBook,
    heartbeat: HeartbeatMessage,
    floor_ms: int,
    now_ms: int,
) -> Iterator[Step]:
    """Reconcile a host's list of attempts with the ledger. ``floor_ms``: when this leader began, or
    last stalled.
    """
    if not is_known(ledger, heartbeat.worker, heartbeat.incarnation):
        orders.register(heartbeat.worker, heartbeat.incarnation)
        return
    presence = ledger.presence[heartbeat.worker]
    ledger.hear(heartbeat.worker, now_ms)
    if heartbeat.sequence <= presence.sequence:
        return  # a heartbeat older than one already handled adds nothing
    presence.sequence = heartbeat.sequence
    ledger.note(heartbeat, now_ms)
    presence.hear(heartbeat.monotonic_ms, now_ms)
    if presence.undelivered or not presence.answered:
        orders.probe(heartbeat.worker)
    orders.renew_tokens(heartbeat.worker, now_ms)
    orders.repeat_timeouts(heartbeat.worker, heartbeat.timeouts)
    orders.mute(heartbeat.worker, heartbeat.muted, now_ms)
    if ledger.workers[heartbeat.worker].state is WorkerState.DRAINING:
        orders.tell_drained(heartbeat.worker)
    yield from _health(ledger, policy, heartbeat)
    yield from on_stages(ledger, policy, heartbeat.worker, heartbeat.attempts)
    stop_unknown_attempts(ledger, orders, heartbeat.worker, heartbeat.attempts)
    reported = {_key(stage.ref): stage for stage in heartbeat.attempts}
    for key in list(presence.open):
        claimed = reported.get(key)
        if claimed is None and _expired_unread(
            presence, key, heartbeat, now_ms - floor_ms > 2 * policy.order_expires_ms
        ):
            yield from _unread(ledger, policy, key, heartbeat.worker, now_ms=now_ms)
        elif claimed is None:
            yield from _unreported(ledger, orders, key, heartbeat)
        elif claimed.status is KernelStatus.PREPARED:
            _start_again(ledger, orders, key)
    presence.listed_ms = now_ms


def _key(ref: AttemptRef) -> AttemptKey:
    return (ref.job, ref.index, ref.attempt)


def _health(ledger: Ledger, policy: Policy, heartbeat: HeartbeatMessage) -> Iterator[Step]:
    """The state that a host says it has. One that is DEGRADED has another reason if more than its
    numbers changed.
    """
    worker = ledger.workers[heartbeat.worker]
    detail = clipped(heartbeat.detail)
    reached = ledger.presence[worker.id].undelivered < policy.undelivered_limit
    if not heartbeat.healthy and (
        worker.state is WorkerState.HEALTHY or (reached and _differs(worker, detail))
    ):
        yield WorkerMoved(worker.id, WorkerState.DEGRADED, detail)
    elif heartbeat.healthy and worker.state is WorkerState.DEGRADED and reached:
        yield WorkerMoved(worker.id, WorkerState.HEALTHY)


def _differs(worker: Worker, detail: str) -> bool:
    words = [text.translate(_NO_DIGITS) for text in (worker.reason, detail)]
    return worker.state is WorkerState.DEGRADED and words[0] != words[1]


def on_reached(
    ledger: Ledger, orders: OrderBook, delivered: DeliveryResult, now_ms: int
) -> Iterator[Step]:
    """An order was accepted: orders reach this host, and orders that waited for its clock can be
    sent.
    """
    worker = ledger.workers.get(delivered.worker)
    if (
        worker is None
        or worker.incarnation != delivered.order.incarnation
        or worker.state is WorkerState.LOST
    ):
        return
    presence = ledger.presence[worker.id]
    if not presence.answered:
        presence.answered, presence.reported_ms = (
            True,
            max(presence.reported_ms, delivered.monotonic_ms),
        )
    if not presence.heard:
        presence.hear(delivered.monotonic_ms, now_ms)
        for key, attempt in presence.open.items():
            if attempt.status is KernelStatus.SCHEDULED and key not in presence.orders:
                orders.place(ref_of(key))
    if presence.undelivered:
        presence.undelivered = 0
        if worker.state is WorkerState.DEGRADED and presence.listed_ms and not presence.detail:
            yield WorkerMoved(worker.id, WorkerState.HEALTHY)


def on_unreached(ledger: Ledger, policy: Policy, delivered: DeliveryResult) -> Iterator[Step]:
    """An order was not accepted: after several in a row the host gets no new work."""
    worker = ledger.workers.get(delivered.worker)
    if (
        worker is None
        or worker.incarnation != delivered.order.incarnation
        or delivered.fate is Fate.REFUSED
    ):
        return
    presence = ledger.presence[worker.id]
    presence.undelivered += 1 if presence.heard else policy.undelivered_limit
    if presence.undelivered >= policy.undelivered_limit and worker.state is WorkerState.HEALTHY:
        count = (
            f"{presence.undelivered} orders in a row"
            if presence.heard
            else "the first order of a new leader"
        )
        reason = f"{count} did not reach it: {delivered.error}"
        yield WorkerMoved(worker.id, WorkerState.DEGRADED, reason)


def _expired_unread(
    presence: Presence, key: AttemptKey, heartbeat: HeartbeatMessage, alone: bool
) -> bool:
    """Whether a host that does not list an attempt will never start it: every order for it has
    expired by the host's clock. ``alone``: so have all orders that the previous leader may have
    sent.
    """
    ordered = presence.orders.get(key)
    attempt = presence.open[key]
    if (
        ordered is None
        or attempt.building_ms
        or attempt.started_ms
        or (ordered.inherited and not alone)
    ):
        return False
    return 0 < ordered.expires_ms < heartbeat.monotonic_ms


def _unread(
    ledger: Ledger, policy: Policy, key: AttemptKey, worker: str, now_ms: int
) -> Iterator[Step]:
    reason = f"worker {worker} did not read its order within {policy.order_expires_s:g} s"
    job = ledger.jobs[key[0]]
    index = key[1]
    if ledger.presence[worker].open[key].status is KernelStatus.SCHEDULED:
        session = (job.number, GANG if job.is_gang else index)
        yield from coordinator.unread(
            ledger, policy, session, (index,), reason=reason, now_ms=now_ms
        )
    else:
        yield missing(key, worker, reason)


def _unreported(
    ledger: Ledger, orders: OrderBook, key: AttemptKey, heartbeat: HeartbeatMessage
) -> Iterator[Step]:
    """The host does not list an attempt: either the order never arrived, or the host has lost the
    attempt.

    A heartbeat that is older than the host's newest report, or of the same millisecond, shows
    neither. Until the host's first answer to this leader any heartbeat may be too old, because its
    reports to the previous leader are unknown.
    """
    presence = ledger.presence[heartbeat.worker]
    attempt = presence.open[key]
    if attempt.status is KernelStatus.SCHEDULED:
        orders.place(ref_of(key))
    elif attempt.status is KernelStatus.TERMINATING and not (
        attempt.building_ms or attempt.started_ms
    ):
        orders.stop(
            heartbeat.worker, ref_of(key), attempt
        )  # its order may still be in flight: only the host knows
    elif presence.answered and heartbeat.monotonic_ms > presence.reported_ms:
        yield missing(key, heartbeat.worker)


def _start_again(ledger: Ledger, orders: OrderBook, key: AttemptKey) -> None:
    job = ledger.jobs[key[0]]
    if job.session is not None and job.session.status in _STARTING and job.task(key[1]).current:
        orders.start(ref_of(key))


def stop_unknown_attempts(
    ledger: Ledger, orders: OrderBook, worker: str, stages: Iterable[Stage]
) -> list[AttemptRef]:
    """Order a host to stop the attempts it should not run; the last stage it lists of each attempt
    counts.
    """
    last = {stage.ref: stage for stage in stages}
    return [stage.ref for stage in last.values() if stop_if_astray(ledger, orders, worker, stage)]


def stop_if_astray(ledger: Ledger, orders: OrderBook, worker: str, stage: Stage) -> bool:
    """Order a host to stop an attempt it should not run. True when it was ordered to."""
    if stage.ended is not None:
        return False
    key = _key(stage.ref)
    attempt = ledger.attempt(key)
    wanted = (
        attempt is not None
        and attempt.worker == worker
        and attempt.is_open
        and not attempt.is_stopping
    )
    if not wanted:
        orders.stop(worker, stage.ref, attempt)
    return not wanted


def silent(ledger: Ledger, lost_after_ms: int, silent_from_ms: int, now_ms: int) -> list[str]:
    """Hosts without a message for ``lost_after_ms``, by message time; none before ``silent_from_ms
    + lost_after_ms``.
    """
    return (
        ledger.heard.over(lost_after_ms, now_ms) if now_ms - silent_from_ms > lost_after_ms else []
    )


def lose_silent(
    ledger: Ledger, policy: Policy, workers: Iterable[str], now_ms: int
) -> Iterator[Step]:
    """Mark hosts that are `silent` as LOST."""
    death = Death(_silent_together(ledger, policy.lost_after_ms, now_ms), policy)
    for worker in workers:
        silence_ms = now_ms - ledger.presence[worker].heartbeat_ms
        noticed = ledger.workers[worker].state is WorkerState.DRAINING
        reason = f"not heard of for {silence_ms / 1000:.0f} s"
        yield from lose(ledger, worker, reason, None if noticed else death)


def _silent_together(
    ledger: Ledger, lost_after_ms: int, now_ms: int
) -> Counter[tuple[str, Attribute]]:
    """For each attribute, how many hosts were last heard of within half of ``lost_after_ms`` of one
    that is LOST now.
    """
    first_ms = now_ms - 3 * lost_after_ms // 2
    last_ms = now_ms - lost_after_ms // 2
    return Counter(
        attribute
        for worker in ledger.workers.values()
        if first_ms <= ledger.presence[worker.id].heartbeat_ms <= last_ms
        for attribute in worker.attributes.items()
    )


def long_lost(ledger: Ledger, forget_after_ms: int, now_ms: int) -> Iterator[WorkerForgotten]:
    """Delete hosts that have been LOST for long; 0: never."""
    for worker in ledger.lost.over(forget_after_ms, now_ms) if forget_after_ms else ():
        yield WorkerForgotten(worker)
