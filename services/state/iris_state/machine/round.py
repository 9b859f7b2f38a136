"""One round: applies changes one at a time, and their consequences until nothing follows.

It holds the effects since the last commit and the consequences still to compute; the ledger has the
records, `conclude` and `coordinator` judge. It decodes no input. Source:
    docs/ARCHITECTURE.md#modules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from iris_core.access.actor import Actor
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import OCCUPIED
from iris_core.states import (
    Cause,
    Initiator,
    KernelStatus,
    SliceCause,
    SliceStatus,
    TaskState,
    WorkerState,
)
from iris_core.tables.session import OWNER, SessionRule
from iris_state.decide import cascade, coordinator, endings
from iris_state.decide.conclude import conclude
from iris_state.decide.retention import Retention
from iris_state.deployments.reconciler import Reconciler
from iris_state.effects.deliveries import Deliveries
from iris_state.effects.deltas import DeltaBuilder
from iris_state.effects.kinds import Effect
from iris_state.effects.orders import OrderBook
from iris_state.inputs.reports import liveness
from iris_state.machine.fleet import FleetRounds
from iris_state.policy import Policy
from iris_state.records import changes as c
from iris_state.records.apply import apply
from iris_state.records.changes import GANG, Avoided, Change, Commit, Moved, Nominated
from iris_state.records.claims import Claim, Step
from iris_state.records.fleet_changes import (
    OrphanDeleted,
    PoolGrowth,
    PoolRemoved,
    PoolSet,
    SliceCleared,
    SliceMoved,
    SliceRequested,
)
from iris_state.records.handlers import AWAITING, DELIVERING, REPORTS, SessionFacts, SessionId
from iris_state.records.indexes.timer_queue import TimerQueue
from iris_state.records.inputs import DeliveryResult
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import bind, complete

PASSES = 100
"""Passes over one deployment in one round, at most; creating, updating and deleting 300 routes took
four.
"""

_AVOIDED = frozenset(
    {
        Cause.UNDELIVERED,
        Cause.PREPARE_TIMEOUT,
        Cause.START_TIMEOUT,
        Cause.INFRASTRUCTURE,
        Cause.WORKER_CRASHED,
    }
)


class Round:
    """Every change passes through `apply`, and then through the reactions of each consumer.

    Attributes:
        effects: what the inputs since the last commit have caused. now_ms: the time of the round.
        begun: how many changes have begun to be applied.
        actor: whose command is executed now; None: nobody's.
        stop_again: stops that could not be delivered, and when each is sent again.
    """

    def __init__(self, ledger: Ledger, policy: Policy, retention: Retention) -> None:
        self.ledger = ledger
        self.policy = policy
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.begun = 0
        self.retention = retention
        self.orders = OrderBook(ledger, policy.order_expires_ms, policy.task_token_ms)
        self.deltas = DeltaBuilder(ledger, policy)
        self.deliveries = Deliveries(ledger)
        self.deployments = Reconciler(ledger, policy)
        self.fleet = FleetRounds(ledger, int(policy.terminating_timeout_s * 1000))
        self.actor: Actor | None = None
        self.stop_again: TimerQueue[tuple[str, AttemptRef]] = TimerQueue()
        self._claims: deque[Step] = deque()
        self._dirty: dict[int, bool] = {}
        self._replay_reactions = bind(self.retention)
        self._reactions = bind(self.retention, self.orders, self.deltas, self.deployments, self)

    def replay(self, commit: Commit) -> None:
        """Apply the changes of an earlier commit; their consequences are in it or in a later
        one.
        """
        for change in commit.changes:
            apply(self.ledger, change, commit.at_ms)
            for react in self._replay_reactions[type(change)]:
                react(change)
        self.now_ms = self.ledger.now_ms = commit.at_ms
        self.ledger.newly_queued.clear()

    def take(self, happenings: Iterable[Step]) -> None:
        """Judge claims and apply changes one after the other: each after the one before it is
        applied.
        """
        for happening in happenings:
            change = (
                conclude(self.ledger, happening, self.policy)
                if isinstance(happening, Claim)
                else happening
            )
            if change is not None:
                self.apply(change)

    def apply(self, change: Change) -> None:
        """Apply a change, and record the messages and follow-up checks it needs; `settle` runs the
        checks.
        """
        if self.actor is not None and type(change) in c.SIGNED:
            change = msgspec.structs.replace(change, by=self.actor)
        self.begun += 1
        apply(self.ledger, change, self.now_ms)
        self.effects.append(change)
        self.effects += self.ledger.facts
        self.ledger.facts.clear()
        for react in self._reactions[type(change)]:
            react(change)

    @contextmanager
    def acting(self, actor: Actor | None) -> Iterator[None]:
        """Every change that is applied within is the actor's."""
        before = self.actor
        self.actor = actor
        try:
            yield
        finally:
            self.actor = before

    def drop(self, count: int) -> None:
        """Drop the effects after the first ``count``, and the pending follow-up checks."""
        del self.effects[count:]
        self.ledger.facts.clear()
        self._claims.clear()
        self._dirty.clear()

    # ── consequences of a change ──────────────────────────────────────────────────────────────────

    def _assigned(self, change: c.Assigned) -> None:
        if not self.ledger.jobs[change.job].started_ms:
            self._dirty[change.job] = True

    def _kernel_moved(self, change: c.Staged | c.Closed) -> None:
        """A gang's session follows a start at once: the next claim may be the end that the same
        report tells.
        """
        if change.job not in self.ledger.kernels:
            return
        if isinstance(change, c.Staged) and change.status is KernelStatus.RUNNING:
            self._derive(change.job, self._dirty.pop(change.job, False))
        else:
            self._dirty.setdefault(change.job, False)

    def _moved(self, change: c.Moved) -> None:
        self._dirty[change.job] = True
        self._claims.extend(cascade.siblings(self.ledger, change))
        self._keep_off(change)

    def _job_moved(self, change: c.JobMoved) -> None:
        if self.ledger.jobs[change.job].is_terminal:
            self._claims.extend(cascade.remaining(self.ledger, change))

    def _job_closed(self, change: c.JobClosed) -> None:
        self._dirty[change.job] = True

    def _session_moved(self, change: c.SessionMoved) -> None:
        if change.job in self.ledger.kernels:
            self._dirty.setdefault(change.job, False)
            self.deliveries.forget(change.job)
            self._claims.extend(cascade.members(self.ledger, change))

    def _worker_moved(self, change: c.WorkerMoved) -> None:
        if change.state in (WorkerState.LOST, WorkerState.DRAINING):
            self._release(change.worker)
        self.fleet.look_soon()

    def _worker_registered(self, change: c.WorkerRegistered) -> None:
        self.fleet.look_soon()

    def _pool_set(self, change: PoolSet) -> None:
        self.fleet.look_soon()

    def _slice_moved(self, change: SliceMoved) -> None:
        """The hosts of a slice that is not ready are promised to nothing, and what runs on one that
        is given up is told to stop: it was preempted.
        """
        one = self.ledger.fleet.slices.get(change.number)
        if one is None or one.status is SliceStatus.READY:
            return
        for host in one.hosts:
            if self.ledger.nominations:
                self._release(host)
            if _is_given_up(change) and host in self.ledger.presence:
                self._claims.extend(self._stops(host, f"slice {one.name} is given up"))

    def _stops(self, host: str, note: str) -> Iterator[Step]:
        for (number, index, _), attempt in list(self.ledger.presence[host].open.items()):
            if not attempt.is_stopping:
                claim = Claim(
                    endings.way_out(attempt),
                    number,
                    index,
                    attempt.number,
                    Cause.PREEMPTED,
                    Initiator.SYSTEM,
                    note=note,
                )
                yield endings.order(self.ledger.jobs[number], index, claim)

    REACTIONS = complete(
        {
            c.Assigned: _assigned,
            c.Staged: _kernel_moved,
            c.Moved: _moved,
            c.Closed: _kernel_moved,
            c.JobMoved: _job_moved,
            c.JobClosed: _job_closed,
            c.SessionMoved: _session_moved,
            c.WorkerMoved: _worker_moved,
            c.WorkerRegistered: _worker_registered,
            PoolSet: _pool_set,
            SliceMoved: _slice_moved,
        },
        nothing=(
            *(
                c.GatesOpened,
                c.JobAmended,
                c.Requeued,
                c.GraceEnded,
                c.StopOrdered,
                c.Noticed,
                c.JobGrown,
            ),
            *(c.QueueHeld, c.QueueReleased),
            *(
                c.JobAdmitted,
                c.JobPruned,
                c.Judged,
                c.Nominated,
                c.Avoided,
                c.WorkerForgotten,
            ),
            *(c.QuotaSet, c.GroupsNoted, c.Answered, c.Dropped, c.Evicted, c.Audited, c.Led),
            *c.DEPLOYMENT_KINDS,
            *(PoolRemoved, PoolGrowth, SliceRequested, SliceCleared, OrphanDeleted),
            *c.PROJECT_KINDS,
        ),
    )

    def settle(self) -> None:
        """Apply the consequences until there are none: siblings, derived jobs, their tasks and
        children, promoted sessions.
        """
        while self._claims or self._dirty:
            while self._claims:
                self.take((self._claims.popleft(),))
            if self._dirty:
                number = next(iter(self._dirty))
                self._derive(number, self._dirty.pop(number))

    def reconcile(self, number: int) -> None:
        """Have follow what follows from the records of a deployment, if it is time to look at it.

        Raises RuntimeError when there is no end to that.
        """
        due = self.deployments.due
        for _ in range(PASSES):
            if not due.is_due(number, self.now_ms):
                return
            try:
                with self.acting(None):  # a deployment is kept by Iris, whoever has changed it
                    self.take(self.deployments.steps(number, self.now_ms))
                    self.settle()
            except Exception:
                self.deployments.look(number)
                raise
        raise RuntimeError(f"deployment d{number} does not come to rest")

    def decide_fleet(self) -> None:
        """Have follow what follows from pools, slices and waiting work, and give the orders."""
        with self.acting(None):
            self.take(self.fleet.decisions())
            self.settle()
        self.effects += self.fleet.orders()

    def _derive(self, number: int, has_moved: bool) -> None:
        """Derive the state of one job from its tasks: its session first, then, when one of them has
        moved, the job.
        """
        job = self.ledger.jobs.get(number)
        if job is None:
            return
        if job.session is not None:
            promoted = coordinator.promote(self.ledger, job, coordinator.ENDINGS)
            if promoted is None:
                if job.session.status in AWAITING and not self.deliveries.is_wanting(job):
                    self._round_of((job.number, GANG))
                promoted = coordinator.promote(self.ledger, job, coordinator.PROGRESS)
            if promoted is not None:
                self.apply(promoted)
        moved = cascade.job(job) if has_moved else None
        if moved is not None:
            self.apply(moved)

    def _release(self, worker: str) -> None:
        """This host accepts nothing new: withdraw its nominations."""
        for key in [
            key for key, nominated in self.ledger.nominations.items() if nominated == worker
        ]:
            self.apply(Nominated(*key, ""))

    def _keep_off(self, moved: Moved) -> None:
        """After a failure to deliver or build: the task avoids that worker for a growing time."""
        if moved.state is not TaskState.PENDING or not (moved.suspect or moved.cause in _AVOIDED):
            return
        task = self.ledger.jobs[moved.job].task(moved.index)
        worker = task.attempts[moved.attempt].worker
        times = (
            sum(a.worker == worker and (a.suspect or a.cause in _AVOIDED) for a in task.attempts)
            - 1
        )
        self.apply(
            Avoided(moved.job, moved.index, worker, self.now_ms + self.policy.avoid_ms(times))
        )
        job = self.ledger.jobs[moved.job]
        if moved.suspect and not job.is_gang and job.spec.probe is None:
            self.apply(
                Avoided(moved.job, moved.index, OCCUPIED, self.now_ms + self.policy.suspect_wait_ms)
            )

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────

    def on_delivered(self, delivered: DeliveryResult) -> None:
        """A worker accepted an order, or it could not be delivered: judge its sessions."""
        order = delivered.order
        if not delivered.error:
            self.take(liveness.on_reached(self.ledger, self.orders, delivered, self.now_ms))
            self.deliveries.took(order)
            for ref in (*order.prepare, *order.start):
                self._dirty.setdefault(ref.job, False)
            return
        retry_ms = self.now_ms + int(self.policy.order_retry_s * 1000)
        self.take(liveness.on_unreached(self.ledger, self.policy, delivered))
        for session in self.deliveries.sessions(order):
            never = self.deliveries.never_taken(delivered, session)
            if never:
                self.take(
                    coordinator.unread(
                        self.ledger,
                        self.policy,
                        session,
                        never,
                        reason=delivered.error,
                        now_ms=self.now_ms,
                    )
                )
            elif (
                session not in self.deliveries.again
            ):  # otherwise another host has failed the same try already
                self._round_of(session, delivered.error)
                self.deliveries.again.set(session, retry_ms)
        for stop in order.stop:
            self.stop_again.set((delivered.worker, stop.ref), retry_ms)

    def _round_of(self, session: SessionId, error: str = "") -> None:
        """Run the handler of a session's status on it, if that is about orders."""
        status, _ = coordinator.seen(self.ledger, session)
        rule = OWNER.get(status) if status is not None else None
        if rule is not None and rule.name in DELIVERING:
            self.show(rule, [session], error)

    def show(self, rule: SessionRule, sessions: Iterable[SessionId], error: str = "") -> None:
        """One round of a handler over these sessions."""
        shown = [self._view(session, error) for session in sessions]
        self.take(
            coordinator.run(
                self.ledger, self.policy, rule, REPORTS[rule.name], shown=shown, now_ms=self.now_ms
            )
        )

    def _view(self, id_: SessionId, error: str) -> SessionFacts:
        job = self.ledger.jobs[id_[0]]
        status, version = coordinator.seen(self.ledger, id_)
        assert status is not None
        if id_[1] != GANG:
            return SessionFacts(id_, status, 1, (id_[1],), undelivered=error, version=version)
        return SessionFacts(
            id_,
            status,
            len(job.tasks),
            self.deliveries.wanting(job),
            undelivered=error,
            version=version,
        )


def _is_given_up(change: SliceMoved) -> bool:
    """Whether what runs on a slice is not waited for any more."""
    return change.status is SliceStatus.DELETING or change.cause is SliceCause.SPOT_NOTICE
