"""Applies changes of hosts, nominations, quotas, and answers.

Sources: docs/design/semantics.md#tasks-and-attempts, docs/design/semantics.md#order,
docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_core.errors import Code
from iris_core.messages.scheduler_state import OCCUPIED
from iris_core.states import WorkerState
from iris_state.records import changes as c
from iris_state.records.hosts import Presence, Worker
from iris_state.records.ledger import Ledger

BOOTS = 16
"""Boots of hosts of leaders whose times are remembered, the newest."""


def worker_registered(ledger: Ledger, change: c.WorkerRegistered, at_ms: int) -> None:
    """A host registers, for the first time or again; a drained one stays drained.

    One that has not restarted has other attributes, and all else is as it was.
    """
    known = ledger.workers.get(change.worker)
    if (
        known is not None
        and known.incarnation == change.incarnation
        and known.state is not WorkerState.LOST
    ):
        presence = ledger.presence[change.worker]
        ledger.host_sums.leave(known, presence)
        known.attributes = change.attributes
        known.monotonic_ms = change.monotonic_ms
        ledger.host_sums.enter(known, presence)
        return
    if known is not None:
        ledger.host_sums.leave(known, ledger.presence[change.worker])
    drained = known is not None and known.drained
    worker = ledger.workers[change.worker] = Worker(
        change.worker,
        change.incarnation,
        change.attributes,
        change.total,
        state=WorkerState.DRAINING if drained else WorkerState.HEALTHY,
        reason=known.reason if known is not None and drained else "",
        address=change.address,
        version=change.version,
        registered_ms=at_ms,
        monotonic_ms=change.monotonic_ms,
        drained=drained,
        max_attempts=change.max_attempts,
        boot=change.boot,
        chains=change.chains,
        held=known.held if known is not None else [],
        by=known.by if known is not None and drained else None,
        since_ms=at_ms,
        last_end_ms=known.last_end_ms if known is not None else 0,
    )
    ledger.lost.leave(change.worker)
    presence = ledger.presence.setdefault(change.worker, Presence(at_ms))
    presence.begin()
    ledger.host_sums.enter(worker, presence)
    ledger.hear(change.worker, at_ms)


def worker_moved(ledger: Ledger, change: c.WorkerMoved, at_ms: int) -> None:
    """A host has another state; why it was drained, and by whom, is kept while it is lost."""
    worker = ledger.workers[change.worker]
    presence = ledger.presence[change.worker]
    ledger.host_sums.leave(worker, presence)
    if change.state is not worker.state:
        worker.since_ms = at_ms
    worker.state = change.state
    worker.notice_ms = change.notice_ms or worker.notice_ms
    ledger.host_sums.enter(worker, presence)
    if change.state is WorkerState.LOST:
        ledger.heard.leave(change.worker)
        if change.drained is not None:
            worker.drained = change.drained
            worker.reason = change.reason
            worker.by = change.by
        elif not worker.drained:
            worker.reason = change.reason
            worker.by = change.by
        worker.lost_ms = at_ms
        ledger.miss(worker)
        return
    worker.reason = change.reason
    worker.by = change.by
    worker.drained = change.state is WorkerState.DRAINING and change.drained is not False


def worker_forgotten(ledger: Ledger, change: c.WorkerForgotten, at_ms: int) -> None:
    """A host is deleted; attempts keep its name."""
    ledger.host_sums.leave(ledger.workers[change.worker], ledger.presence[change.worker])
    del ledger.workers[change.worker], ledger.presence[change.worker]
    ledger.output_hosts.discard(change.worker)
    ledger.lost.leave(change.worker)
    for key, workers in list(ledger.avoided.items()):
        workers.pop(change.worker, None)
        if not workers:
            del ledger.avoided[key]


def nominated(ledger: Ledger, change: c.Nominated, at_ms: int) -> None:
    """Nominate a worker for a pending task, or withdraw the nomination."""
    if change.worker:
        ledger.nominations[(change.job, change.index)] = change.worker
    else:
        ledger.nominations.pop((change.job, change.index), None)


def avoided(ledger: Ledger, change: c.Avoided, at_ms: int) -> None:
    """Exclude a worker for a task until a time; a task that is kept apart no longer shares its
    worker again.
    """
    ledger.avoided.setdefault((change.job, change.index), {})[change.worker] = change.until_ms
    if change.worker == OCCUPIED and not change.until_ms:
        for key in [key for key in ledger.alone if key[:2] == (change.job, change.index)]:
            ledger.alone.pop(key).alone = False


def quota_set(ledger: Ledger, change: c.QuotaSet, at_ms: int) -> None:
    ledger.quotas[change.quota.user] = change.quota


def groups_noted(ledger: Ledger, change: c.GroupsNoted, at_ms: int) -> None:
    if change.groups:
        ledger.groups[change.user] = change.groups
    else:
        ledger.groups.pop(change.user, None)


def answered(ledger: Ledger, change: c.Answered, at_ms: int) -> None:
    """Keep the latest answers, so that a repeated request gets the same answer."""
    ledger.answers.keep(change.request_id, change.status, change.body, change.user)
    if change.status == Code.INTERNAL.value:
        ledger.totals.dead_letters += 1


def dropped(ledger: Ledger, change: c.Dropped, at_ms: int) -> None:
    for key in change.spent:
        ledger.spent_keys.drop(key)
        ledger.idempotency.pop(key, None)
    for request in change.answered:
        ledger.answers.drop(request)
    for number in change.entries:
        ledger.audit.drop(number)


def audited(ledger: Ledger, change: c.Audited, at_ms: int) -> None:
    ledger.audit.add(change, at_ms)


def led(ledger: Ledger, change: c.Led, at_ms: int) -> None:
    if not ledger.epoch:
        ledger.first_epoch = change.epoch
    ledger.epoch = change.epoch
    if change.boot:
        ledger.boots.pop(change.boot, None)
        ledger.boots[change.boot] = change.boot_ms
    for boot in list(ledger.boots)[:-BOOTS]:
        del ledger.boots[boot]


WRITERS: dict[type, Callable[[Ledger, Any, int], None]] = {
    c.WorkerRegistered: worker_registered,
    c.WorkerMoved: worker_moved,
    c.WorkerForgotten: worker_forgotten,
    c.Nominated: nominated,
    c.Avoided: avoided,
    c.QuotaSet: quota_set,
    c.GroupsNoted: groups_noted,
    c.Answered: answered,
    c.Led: led,
    c.Dropped: dropped,
    c.Audited: audited,
}
