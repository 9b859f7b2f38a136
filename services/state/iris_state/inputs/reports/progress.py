"""Handles messages of hosts: registration, stages and ends of attempts, and the loss of a host.

Sources: docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from iris_core import codec
from iris_core.limits import ATTEMPTS, SENTENCE, TAIL, WORKER_BYTES, clipped
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, GivenNotice, Register, Stage
from iris_core.moments import LAST_MS
from iris_core.spec import exit_rules
from iris_core.states import Cause, Initiator, WorkerState
from iris_core.tables import task as table
from iris_core.tables.task import TaskRule
from iris_state.decide import cascade, poison
from iris_state.deployments import routes
from iris_state.policy import Policy
from iris_state.records.changes import Noticed, WorkerMoved, WorkerRegistered
from iris_state.records.claims import Claim, Step
from iris_state.records.entities import AttemptKey, Job
from iris_state.records.hosts import Worker
from iris_state.records.ledger import Ledger

LONGEST_NOTICE_MS = 24 * 3_600_000
"""Nobody is told longer before that a machine is taken away."""


def is_valid_registration(register: Register) -> bool:
    """Whether a host's registration is small enough to be forwarded."""
    return len(codec.pack(msgspec.structs.replace(register, attempts=()))) <= WORKER_BYTES


def lose(
    ledger: Ledger, worker: str, reason: str, death: cascade.Death | None = None
) -> Iterator[Step]:
    """Mark a host as LOST; every attempt on it ends. ``death``: see `cascade.lost_with`."""
    yield WorkerMoved(worker, WorkerState.LOST, reason)
    yield from cascade.lost_with(ledger, worker, death)


def on_leaving(
    ledger: Ledger, worker: str, how: str, why: str = "", notice_ms: int = 0
) -> Iterator[Step]:
    """A worker shuts down: it accepts nothing new, and later reports that none of its attempts is
    left.

    Its routes leave discovery at once; the worker lets them settle before it ends them.
    ``notice_ms``: how soon its machine is taken away; 0: that is not known.
    """
    if how == "gone":
        yield from lose(ledger, worker, clipped(why) or "it was stopped")
        return
    known = ledger.workers[worker]
    is_draining = known.state is WorkerState.DRAINING
    is_noticed = notice_ms > 0 and not known.notice_ms
    if not is_draining or is_noticed:
        yield WorkerMoved(
            worker,
            WorkerState.DRAINING,
            clipped(why) or "it is stopping",
            drained=is_draining and known.drained,
            by=known.by if is_draining else None,
            notice_ms=ledger.now_ms + min(notice_ms, LONGEST_NOTICE_MS) if is_noticed else 0,
        )
    for number in dict.fromkeys(key[0] for key in ledger.presence[worker].open):
        found = ledger.route_for(number)
        if found is not None:
            yield from routes.end(*found, f"worker {worker} is stopping")


def on_register(ledger: Ledger, policy: Policy, register: Register) -> Iterator[Step]:
    """A host starts: its attributes are stored, the attempts it still runs are adopted, those it
    does not list are missing.

    A repeated registration is handled as a report, though it may have other attributes: attempts
    ordered since do not count as missing. A registration older than the present one is ignored.
    """
    known = ledger.workers.get(register.worker)
    if known is not None and known.state is not WorkerState.LOST:
        repeated = known.incarnation == register.incarnation
        older = register.boot == known.boot and register.monotonic_ms < known.monotonic_ms
        if repeated:
            if register.attributes != known.attributes and not older:
                yield _registered(register)
            yield from on_stages(ledger, policy, register.worker, register.attempts)
        if repeated or older:
            return
    found = {(s.ref.job, s.ref.index, s.ref.attempt) for s in register.attempts}
    presence = ledger.presence.get(register.worker)
    gone = [key for key in presence.open if key not in found] if presence is not None else []
    died = known is not None and known.state not in (WorkerState.LOST, WorkerState.DRAINING)
    crashed = [*gone, *_crashed(ledger, register.attempts)] if died else []
    beside = poison.bystanders(ledger, policy, crashed)
    yield _registered(register)
    if register.trouble and not (known is not None and known.drained):
        yield WorkerMoved(register.worker, WorkerState.DEGRADED, clipped(register.trouble))
    yield from on_stages(ledger, policy, register.worker, register.attempts, gone=gone)
    for key in gone:
        yield missing(key, register.worker, sudden=died, beside=key in beside)


def _crashed(ledger: Ledger, stages: Iterable[Stage]) -> list[AttemptKey]:
    """The open attempts that ended with their worker's process."""
    ended = (
        stage.ref
        for stage in stages
        if stage.ended is not None and stage.ended.cause is Cause.WORKER_CRASHED
    )
    keys = ((ref.job, ref.index, ref.attempt) for ref in ended)
    return [key for key in keys if (attempt := ledger.attempt(key)) is not None and attempt.is_open]


def _registered(register: Register) -> WorkerRegistered:
    return WorkerRegistered(
        register.worker,
        register.incarnation,
        register.attributes,
        register.total,
        address=register.address,
        version=register.version,
        monotonic_ms=register.monotonic_ms,
        max_attempts=min(register.max_attempts, ATTEMPTS),
        boot=register.boot,
        chains=register.chains,
    )


def missing(
    key: AttemptKey, worker: str, error: str = "", *, sudden: bool = False, beside: bool = False
) -> Claim:
    """An attempt that its worker does not know has ended. ``sudden``: the worker's process has too;
    ``beside``: see `poison.bystanders`.
    """
    error = (error or f"worker {worker} has no trace of it") + (
        poison.NOT_CHARGED if beside else ""
    )
    return Claim(
        table.LOSE_BESIDE if beside else table.LOSE,
        *key,
        Cause.MISSING,
        Initiator.WORKER,
        ended=Ended(Cause.MISSING, error=error),
        note=error,
        sudden=sudden,
    )


def on_stages(
    ledger: Ledger,
    policy: Policy,
    worker: str,
    stages: Collection[Stage],
    gone: Collection[AttemptKey] = (),
) -> Iterator[Step]:
    """What a worker says of attempts; words about an attempt of another worker count for nothing.

    ``gone``: attempts that ended with the worker's process as well, and that it does not know any
    more.
    """
    crashed = _crashed(ledger, stages)
    beside = poison.bystanders(ledger, policy, [*crashed, *gone]) if crashed else frozenset()
    for stage in stages:
        ref = stage.ref
        attempt = ledger.attempt((ref.job, ref.index, ref.attempt))
        if attempt is None or attempt.worker != worker:
            continue
        if stage.notices and attempt.is_open:
            known = {notice.reason for notice in attempt.notices}
            new = {notice.reason: notice for notice in stage.notices if notice.reason not in known}
            yield from (
                Noticed(ref.job, ref.index, ref.attempt, _in_time(notice))
                for notice in new.values()
            )
        if stage.ended is not None:
            claim = _ended(ledger.jobs[ref.job], ref, stage.ended, ledger.workers[worker])
            innocent = claim.sudden and (ref.job, ref.index, ref.attempt) in beside
            yield _uncharged(claim) if innocent else claim
        elif stage.status in table.STAGES:
            rule = table.STAGES[stage.status]
            detail = stage.detail and clipped(stage.detail)
            yield Claim(
                rule,
                ref.job,
                ref.index,
                ref.attempt,
                initiator=Initiator.WORKER,
                status=stage.status,
                detail=detail,
                waits=stage.waits,
            )


def _in_time(notice: GivenNotice) -> GivenNotice:
    """A notice at times that there are, whatever the clock of its host is."""
    at_ms, deadline_ms = (min(max(0, ms), LAST_MS) for ms in (notice.at_ms, notice.deadline_ms))
    return msgspec.structs.replace(notice, at_ms=at_ms, deadline_ms=deadline_ms)


def _uncharged(claim: Claim) -> Claim:
    return msgspec.structs.replace(
        claim, rule=table.LOSE_BESIDE, note=claim.note + poison.NOT_CHARGED
    )


_WORKERS_END = frozenset({Cause.MISSING, Cause.WORKER_CRASHED})


def _failed(job: Job, ended: Ended) -> TaskRule:
    """The row for an exit that is not a success: as the job's rules say, else a failure."""
    return table.ON_EXIT[exit_rules.action(job.spec.on_exit, ended.exit_code, ended.signal)]


def _ended(job: Job, ref: AttemptRef, ended: Ended, worker: Worker) -> Claim:
    """The claim for an end: exit 0 succeeded, any other exit failed; everything else is charged to
    the host.
    """
    succeeded = ended.cause is Cause.EXITED and ended.exit_code == 0 and ended.signal is None
    if len(ended.error) > SENTENCE or len(ended.stderr_tail) > TAIL:
        tail = ended.stderr_tail[-TAIL:]
        ended = msgspec.structs.replace(ended, error=clipped(ended.error), stderr_tail=tail)
    if (kept := ended.artifact) is not None and len(kept.note) + len(kept.upload) > SENTENCE:
        kept = msgspec.structs.replace(kept, note=clipped(kept.note), upload=kept.upload[:SENTENCE])
        ended = msgspec.structs.replace(ended, artifact=kept)
    if succeeded:
        rule = table.FINISH if job.is_gang else table.SUCCEED
        cause = Cause.EXITED
    elif ended.cause is Cause.EXITED:
        rule = _failed(job, ended)
        cause = Cause.FAILED
    elif ended.cause is Cause.TIMEOUT:
        rule = table.KILL
        cause = Cause.TIMEOUT
    elif ended.cause is Cause.HANDED_BACK:
        rule = table.HAND_BACK
        cause = Cause.HANDED_BACK
    else:
        rule = table.LOSE
        cause = ended.cause if ended.cause in _WORKERS_END else Cause.INFRASTRUCTURE
    return Claim(
        rule,
        ref.job,
        ref.index,
        ref.attempt,
        cause=cause,
        initiator=Initiator.WORKER,
        ended=ended,
        note="" if succeeded else ended.error,
        sudden=cause is Cause.WORKER_CRASHED and worker.state is not WorkerState.DRAINING,
    )
