"""Checks a scheduler's plan against the current ledger: each session is accepted or rejected as a
whole.

Sources: docs/design/semantics.md#sessions, docs/design/semantics.md#coscheduling,
    docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Eviction, Nomination, Placement, Plan
from iris_core.placement.constraints import eligible
from iris_core.placement.coscheduling import is_split
from iris_core.placement.window import places_beyond
from iris_core.spec.resources import Amount
from iris_core.states import Cause, Initiator, Outcome, TaskState, WorkerState
from iris_core.tables import task as table
from iris_core.tables.session import SCHEDULE
from iris_state.decide import coordinator, endings
from iris_state.inputs.plans.reclaims import Reclaims
from iris_state.policy import Policy
from iris_state.records.changes import GANG, Nominated
from iris_state.records.claims import Claim, Step
from iris_state.records.entities import Attempt, AttemptKey, Job, ref_of
from iris_state.records.handlers import SessionId
from iris_state.records.hosts import Presence
from iris_state.records.ledger import Ledger

Refusals = list[tuple[int, int, str]]
"""(job, index, cause) of each task that was refused."""


def on_plan(
    ledger: Ledger, policy: Policy, plan: Plan, refused: Refusals, now_ms: int, sequence: int
) -> Iterator[Step]:
    """Accept or refuse each session of a plan as a whole; refusals are appended to ``refused``.

    ``sequence`` is the journal sequence this round will have. Capacity that is gone is a failure of
    the session.
    """
    for placement in plan.placements:
        cause = _refusal_cause(ledger, policy, plan, placement)
        if cause:
            refused.extend((placement.job, index, cause) for index in placement.indexes)
        else:
            yield from _place(ledger, policy, plan, placement, refused=refused, now_ms=now_ms)
    for id_, cause in _failed(ledger, refused):
        if _saw_last_refusal(ledger, plan, id_):
            yield from coordinator.settle(
                ledger,
                policy,
                SCHEDULE,
                id_,
                outcome=Outcome.FAILURE,
                reason=f"refused: {cause}",
                now_ms=now_ms,
                version=sequence,
            )
    reclaims = Reclaims(ledger)
    for eviction in plan.evictions:
        if not eviction.reclaims or reclaims.is_just(eviction):
            yield from _evict(ledger, eviction, now_ms)


_GONE = frozenset(
    {"no_room", "no_match", "worker_unavailable", "building_window_full", "gang_split"}
)
"""Refusals that count as failures of a session; the others are about tasks that are no longer
pending.
"""


def _failed(ledger: Ledger, refused: Refusals) -> list[tuple[SessionId, str]]:
    """The sessions whose capacity was gone, each once."""
    found: dict[SessionId, str] = {}
    for number, index, cause in refused:
        if cause in _GONE:
            found.setdefault((number, GANG if ledger.jobs[number].is_gang else index), cause)
    return list(found.items())


def _saw_last_refusal(ledger: Ledger, plan: Plan, id_: SessionId) -> bool:
    """Whether the plan is based on a snapshot with the session's last refusal; if not, it counts as
    the same failure.
    """
    session = ledger.session(ledger.jobs[id_[0]], id_[1])
    return session is None or plan.version >= session.judged_at


def _refusal_cause(ledger: Ledger, policy: Policy, plan: Plan, placement: Placement) -> str:
    """Why a placement must be refused as a whole; empty when it can be checked task by task."""
    job = ledger.jobs.get(placement.job)
    if job is None or job.is_terminal:
        return "job_ended"
    if len(placement.indexes) != len(placement.workers) or not all(
        0 <= at < len(plan.workers) for at in placement.workers
    ):
        return "malformed"
    if not job.is_gang:
        return ""
    if sorted(placement.indexes) != list(job.indexes):
        return "gang_incomplete"
    if _unfit_workers(ledger, job, plan, placement):
        return "no_match"
    ask = job.spec.resources.amount
    for index, at in zip(placement.indexes, placement.workers, strict=True):
        cause = _no_seat(ledger, policy, job, index, worker=plan.workers[at], ask=ask)
        if cause:
            return cause
    hosts = [plan.workers[at] for at in placement.workers]
    seats = zip(placement.indexes, (ledger.workers[host].attributes for host in hosts), strict=True)
    if len(set(hosts)) != len(job.tasks) or is_split(job.spec, seats):
        return "gang_split"
    return ""


def _unfit_workers(ledger: Ledger, job: Job, plan: Plan, placement: Placement) -> frozenset[str]:
    """The hosts of a placement on which the job must not be placed, by its constraints and their
    taints.
    """
    named = {plan.workers[at] for at in placement.workers}
    hosts = [ledger.workers[name] for name in named if name in ledger.workers]
    spec = job.spec
    return frozenset(
        h.id
        for h in hosts
        if not eligible(spec.placement, spec.resources, ledger.fleet.attributes(h.id, h.attributes))
    )


def _place(
    ledger: Ledger, policy: Policy, plan: Plan, placement: Placement, refused: Refusals, now_ms: int
) -> Iterator[Step]:
    job = ledger.jobs[placement.job]
    ask = job.spec.resources.amount
    unfit = frozenset[str]() if job.is_gang else _unfit_workers(ledger, job, plan, placement)
    for index, at in zip(placement.indexes, placement.workers, strict=True):
        worker = plan.workers[at]
        cause = "" if job.is_gang else _no_seat(ledger, policy, job, index, worker=worker, ask=ask)
        if worker in unfit:
            cause = cause or "no_match"
        if cause:
            refused.append((job.number, index, cause))
        else:
            yield Claim(
                table.ASSIGN,
                job.number,
                index,
                initiator=Initiator.SCHEDULER,
                cause=Cause.EXITED,
                worker=worker,
            )
    if job.is_gang:
        yield from coordinator.settle(
            ledger,
            policy,
            SCHEDULE,
            (job.number, GANG),
            outcome=Outcome.SUCCESS,
            reason="",
            now_ms=now_ms,
        )


def _no_seat(ledger: Ledger, policy: Policy, job: Job, index: int, worker: str, ask: Amount) -> str:
    cause = no_entry(ledger, job, index, worker)
    if cause:
        return cause
    presence = ledger.presence[worker]
    host = ledger.workers[worker]
    if presence.building >= policy.max_building and not _has_share(
        ledger, presence, policy.max_building, user=job.user
    ):
        return "building_window_full"
    if not ask.fits(host.total - presence.committed):
        return "no_room"
    return ""


def _has_share(ledger: Ledger, presence: Presence, window: int, user: str) -> bool:
    """Whether a user may begin to prepare one more task on a host whose window is full."""
    by_user = Counter(
        ledger.jobs[number].user
        for (number, _, _), attempt in presence.open.items()
        if attempt.is_building
    )
    users = len(by_user.keys() | {user})
    return places_beyond(window, presence.building, by_user[user], users) > 0


def no_entry(ledger: Ledger, job: Job, index: int, worker: str) -> str:
    """Why a task must not be placed on a worker, whatever that has free; empty when it may be."""
    task = job.task(index) if job.has(index) else None
    if task is None or task.state is not TaskState.PENDING:
        return "not_pending"
    if (task.attempts or job.gates or job.number in ledger.held_back) and (
        job.number,
        index,
    ) not in ledger.queue:
        return "not_pending"  # the previous attempt may still run, or a gate is closed
    if (
        job.spec.max_parallel is not None
        and ledger.open_of_job[job.number] >= job.spec.max_parallel
    ):
        return "array_limit"
    host = ledger.workers.get(worker)
    is_cordoned = ledger.fleet.pools and ledger.fleet.cordon(worker)
    if host is None or host.state is not WorkerState.HEALTHY or is_cordoned:
        return "worker_unavailable"
    presence = ledger.presence[worker]
    if presence.open and ledger.is_apart((job.number, index)):
        return "not_alone"
    if ledger.alone and not ledger.alone.keys().isdisjoint(presence.open.keys()):
        return "kept_for_one"
    if not presence.heard:
        return "worker_not_heard"  # this leader does not know yet whether the host is alive
    return "no_room" if len(presence.open) >= host.max_attempts else ""


def _evict(ledger: Ledger, eviction: Eviction, now_ms: int) -> Iterator[Step]:
    """Preempt all victims or none: each must still run, be of a lower band than every task it is
    preempted for, or give way to their project's guarantee, and not be protected, nor anything that
    runs in its chain.
    """
    if not eviction.nominations or not all(
        _can_be_nominated(ledger, nomination) for nomination in eviction.nominations
    ):
        return
    waiting = [ledger.jobs[nomination.job] for nomination in eviction.nominations]
    lowest = max(job.band for job in waiting)
    for victim in eviction.victims:
        job = ledger.jobs.get(victim.job)
        if job is None or not _may_stop(job, victim, now_ms):
            return
        if job.band < lowest or (job.band == lowest and not eviction.reclaims):
            return
    going = _with_chains(ledger, eviction.victims)
    young = any(
        not one.waits_in_chain and _is_protected(ledger.jobs[ref.job], one, now_ms)
        for ref, one in going
    )
    if young or not _whole_gangs(ledger, eviction):
        return
    names = ", ".join(sorted({job.name for job in waiting}))
    for victim, attempt in going:
        job = ledger.jobs[victim.job]
        if job.band > lowest:
            note = f"preempted for {names}"
            claim = Claim(
                endings.way_out(attempt),
                *_key(victim),
                Cause.PREEMPTED,
                Initiator.SCHEDULER,
                note=note,
            )
        else:
            note = f"reclaimed by {waiting[0].spec.project_path} for {names}"
            is_route = ledger.route_for(job.number) is not None
            cause = Cause.PREEMPTED if is_route else Cause.RECLAIMED
            rule = endings.way_out(attempt, cause)
            claim = Claim(rule, *_key(victim), Cause.RECLAIMED, Initiator.SCHEDULER, note=note)
        yield endings.order(job, victim.index, claim)
    for nomination in eviction.nominations:
        yield Nominated(nomination.job, nomination.index, nomination.worker)


def _with_chains(ledger: Ledger, victims: Iterable[AttemptRef]) -> list[tuple[AttemptRef, Attempt]]:
    """The victims and whatever would run next in the place of one, without what was told to stop
    before; what has not started is not charged.
    """
    found: dict[AttemptKey, Attempt] = {}
    for victim in victims:
        key = _key(victim)
        attempt = ledger.attempt(key)
        presence = ledger.presence[attempt.worker] if attempt is not None else None
        if attempt is not None and presence is not None:
            found |= {
                one: presence.open[one]
                for one in presence.chains.of(key, attempt.chain)
                if one in presence.open
            }
    return [(ref_of(key), attempt) for key, attempt in found.items() if not attempt.is_stopping]


def _can_be_nominated(ledger: Ledger, nomination: Nomination) -> bool:
    """Whether the task is still pending and may start beside others, and the host still accepts work."""
    job = ledger.jobs.get(nomination.job)
    host = ledger.workers.get(nomination.worker)
    return (
        job is not None
        and (nomination.job, nomination.index) in ledger.queue
        and not ledger.is_apart((nomination.job, nomination.index))
        and host is not None
        and host.state is WorkerState.HEALTHY
        and not (ledger.fleet.pools and ledger.fleet.cordon(host.id))
    )


def _whole_gangs(ledger: Ledger, eviction: Eviction) -> bool:
    victims = {(v.job, v.index) for v in eviction.victims}
    gangs = {v.job for v in eviction.victims if ledger.jobs[v.job].is_gang}
    return all(
        (number, index) in victims
        for number in gangs
        for index, task in ledger.jobs[number].numbered()
        if task.current is not None
    )


def _may_stop(job: Job, ref: AttemptRef, now_ms: int) -> bool:
    """Whether an attempt is its task's, was not told to stop yet, and is old enough to be
    preempted.
    """
    current = job.task(ref.index).current if job.has(ref.index) else None
    if current is None or current.number != ref.attempt or current.is_stopping:
        return False
    return not _is_protected(job, current, now_ms)


def _is_protected(job: Job, attempt: Attempt, now_ms: int) -> bool:
    return now_ms - (attempt.started_ms or attempt.assigned_ms) < job.spec.protect_ms


def _key(ref: AttemptRef) -> AttemptKey:
    return ref.job, ref.index, ref.attempt
