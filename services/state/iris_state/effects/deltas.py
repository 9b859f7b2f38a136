"""Deltas for the scheduler's mirror: one numbered delta per commit, and a full snapshot on request.

A delta is the net effect of a commit, in the order that `Delta` prescribes. The version is the
commit's journal sequence, so a gap is seen across restarts too. Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from iris_core import codec
from iris_core.limits import CHUNK_BYTES, DELTA_BYTES
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import (
    Avoid,
    Delta,
    FullSnapshot,
    Hold,
    JobRow,
    Nomination,
    ProjectRow,
    Queued,
    Ran,
    Reclaimed,
    ShareRow,
    WorkerRow,
)
from iris_core.placement.chains import is_chainable
from iris_core.placement.queue import as_ranges
from iris_core.quota import by_default, is_group
from iris_core.spec.resources import ResourceLimits
from iris_core.states import Cause, KernelStatus, WorkerState
from iris_state.policy import Policy
from iris_state.records import changes as c
from iris_state.records.entities import Job, Key
from iris_state.records.fleet_changes import (
    OrphanDeleted,
    PoolGrowth,
    PoolRemoved,
    PoolSet,
    SliceCleared,
    SliceMoved,
    SliceRequested,
)
from iris_state.records.hosts import Worker
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import complete
from iris_state.records.shares import ShareMove

NOTHING = -2
"""A version that no mirror has, so that a delta after it never applies."""


def _limited(ledger: Ledger) -> list[str]:
    """The users whose limits are set, by their name or by a group."""
    own = [name for name in ledger.quotas if not is_group(name)]
    others = (user for user in ledger.groups if user not in ledger.quotas)
    return own + [user for user in others if ledger.group_quotas(user)]


class DeltaBuilder:
    """Collects the changes of one commit, after each has been applied."""

    def __init__(self, ledger: Ledger, policy: Policy) -> None:
        self._ledger = ledger
        self._policy = policy
        self._clear()

    def _clear(self) -> None:
        self._jobs: dict[int, None] = {}
        self._workers: dict[str, None] = {}
        self._forgotten: dict[str, None] = {}
        self._quotas: dict[str, None] = {}
        self._projects: dict[str, None] = {}
        self._opened: dict[AttemptRef, None] = {}
        self._closed: dict[AttemptRef, None] = {}
        self._touched: dict[AttemptRef, None] = {}
        self._queued: dict[Key, None] = {}
        self._unqueued: dict[Key, None] = {}
        self._avoid: list[Avoid] = []
        self._nominated: dict[Key, str] = {}
        self._released: list[Nomination] = []
        self._gone: dict[int, None] = {}
        self._released_jobs: dict[int, None] = {}
        self._changed: dict[int, None] = {}
        self._ran: dict[int, Ran] = {}
        self._shares: list[ShareRow] = []

    def _admitted(self, change: c.JobAdmitted) -> None:
        self._jobs[change.number] = None

    def _job_grown(self, change: c.JobGrown) -> None:
        """Its row has another size."""
        if change.tasks and change.job not in self._jobs:
            self._changed[change.job] = None
        self._requeue()

    def _staged(self, change: c.Staged) -> None:
        if change.status is KernelStatus.RUNNING or change.detail:
            self._touched[AttemptRef(change.job, change.index, change.attempt)] = None

    def _stop_ordered(self, change: c.StopOrdered | c.GraceEnded) -> None:
        self._touched[AttemptRef(change.job, change.index, change.attempt)] = None

    def _assigned(self, change: c.Assigned) -> None:
        self._opened[AttemptRef(change.job, change.index, change.attempt)] = None
        self._queued.pop((change.job, change.index), None)

    def _moved(self, change: c.Moved) -> None:
        key = (change.job, change.index)
        if change.attempt >= 0:
            ref = AttemptRef(change.job, change.index, change.attempt)
            if change.closed:
                self._close(ref)
                self._note_run(ref)
            else:
                self._touched[ref] = None
        elif key in self._queued:
            del self._queued[key]
        elif change.job not in self._jobs:
            self._unqueued[key] = None
        self._requeue()

    def _note_run(self, ref: AttemptRef) -> None:
        """How long an attempt of a job has run of which tasks may wait behind one another."""
        job = self._ledger.jobs[ref.job]
        if job.spec.calls is None:
            return
        attempt = job.task(ref.index).attempts[ref.attempt]
        if attempt.started_ms:
            before = self._ran.get(ref.job, Ran(ref.job, 0, 0))
            ms = before.ms + attempt.ended_ms - attempt.started_ms
            self._ran[ref.job] = Ran(ref.job, before.attempts + 1, ms)

    def _closed_late(self, change: c.Closed) -> None:
        self._close(AttemptRef(change.job, change.index, change.attempt))
        self._end(change.job)
        self._requeue()

    def _gates_opened(self, change: c.GatesOpened) -> None:
        self._requeue()
        if not change.ranges:
            self._released_jobs[change.job] = None

    def _amended(self, change: c.JobAmended) -> None:
        """Its row and its place in the queue are told anew: out of it, and into it as of the end of
        the commit.
        """
        self._requeue()
        if change.job not in self._jobs:
            self._changed[change.job] = None
            self._tell_again(self._ledger.jobs[change.job])
            self._nominated |= {
                key: host for key, host in self._ledger.nominations.items() if key[0] == change.job
            }

    def _queue_held(self, change: c.QueueHeld) -> None:
        """What it holds is out of the queue."""
        self._requeue()
        for job in (
            self._ledger.jobs[number]
            for number in self._ledger.gates.gated
            if number not in self._jobs
        ):
            if any(gate.hold == change.number for gate in job.gates):
                self._tell_again(job)

    def _tell_again(self, job: Job) -> None:
        self._unqueued.update(dict.fromkeys((job.number, index) for index in job.indexes))
        self._released_jobs[job.number] = None

    def _requeue(self) -> None:
        """A task that left its attempt, or whose attempt has ended, may be in the queue again."""
        for key in self._ledger.newly_queued:
            self._queued[key] = None
        self._ledger.newly_queued.clear()

    def _close(self, ref: AttemptRef) -> None:
        self._touched.pop(ref, None)
        if ref in self._opened:
            del self._opened[ref]
            self._unqueued[(ref.job, ref.index)] = None
        else:
            self._closed[ref] = None

    def _job_moved(self, change: c.JobMoved) -> None:
        self._end(change.job)

    def _end(self, number: int) -> None:
        """A job is removed when it has ended and none of its attempts holds resources."""
        if self._ledger.jobs[number].is_terminal and not self._ledger.open_of_job[number]:
            self._gone[number] = None

    def _nomination(self, change: c.Nominated) -> None:
        if change.worker:
            self._nominated[(change.job, change.index)] = change.worker
        else:
            self._released.append(Nomination(change.job, change.index, ""))

    def _avoided(self, change: c.Avoided) -> None:
        self._avoid.append(Avoid(change.job, change.index, change.worker, change.until_ms))
        attempts = self._ledger.jobs[change.job].task(change.index).attempts
        if not change.until_ms and attempts and attempts[-1].is_open:
            self._touched[AttemptRef(change.job, change.index, attempts[-1].number)] = None

    def _worker_moved(self, change: c.WorkerRegistered | c.WorkerMoved) -> None:
        self._workers[change.worker] = None
        self._forgotten.pop(change.worker, None)

    def _worker_forgotten(self, change: c.WorkerForgotten) -> None:
        self._workers.pop(change.worker, None)
        self._forgotten[change.worker] = None

    def _slice_moved(self, change: SliceMoved | SliceRequested) -> None:
        """Its hosts may be given work, or no longer."""
        one = self._ledger.fleet.slices.get(change.number)
        if one is not None:
            known = (host for host in one.hosts if host in self._ledger.workers)
            self._workers.update(dict.fromkeys(known))

    def _pools_changed(self, change: PoolSet | PoolRemoved) -> None:
        """Hosts whose names lie in a pool may be given work only as hosts of its slices."""
        name = change.pool if isinstance(change, PoolRemoved) else change.spec.name
        known = (host for host in self._ledger.workers if host.startswith(f"{name}-"))
        self._workers.update(dict.fromkeys(known))

    def _quota_set(self, change: c.QuotaSet) -> None:
        name = change.quota.user
        for user in self._ledger.members(name) if is_group(name) else [name]:
            self._quotas[user] = None

    def _groups_noted(self, change: c.GroupsNoted) -> None:
        self._quotas[change.user] = None

    def _project_changed(self, change: c.ProjectSet | c.ProjectRemoved) -> None:
        self._projects[change.path] = None

    def share(self, moved: Iterable[ShareMove]) -> None:
        """The jobs of these have another place at the end of the commit."""
        self._shares += [ShareRow(*key, steps) for key, steps, _ in moved]

    REACTIONS = complete(
        {
            c.JobAdmitted: _admitted,
            c.Assigned: _assigned,
            c.Staged: _staged,
            c.StopOrdered: _stop_ordered,
            c.GraceEnded: _stop_ordered,
            c.Moved: _moved,
            c.Closed: _closed_late,
            c.JobMoved: _job_moved,
            c.GatesOpened: _gates_opened,
            c.JobAmended: _amended,
            c.JobGrown: _job_grown,
            c.QueueHeld: _queue_held,
            c.Nominated: _nomination,
            c.Avoided: _avoided,
            c.WorkerRegistered: _worker_moved,
            c.WorkerMoved: _worker_moved,
            c.WorkerForgotten: _worker_forgotten,
            c.QuotaSet: _quota_set,
            c.GroupsNoted: _groups_noted,
            SliceMoved: _slice_moved,
            SliceRequested: _slice_moved,
            PoolSet: _pools_changed,
            PoolRemoved: _pools_changed,
            c.ProjectSet: _project_changed,
            c.ProjectRemoved: _project_changed,
        },
        nothing=(
            *(
                c.Requeued,
                c.Noticed,
                c.JobClosed,
                c.QueueReleased,
                c.JobPruned,
                c.SessionMoved,
                c.Judged,
            ),
            *(c.Answered, c.Dropped, c.Evicted, c.Audited, c.Led),
            *c.DEPLOYMENT_KINDS,
            PoolGrowth,
            SliceCleared,
            OrphanDeleted,
        ),
    )

    def take(self, version: int, after: int, drafts: int, at_ms: int) -> Delta:
        """The delta of the commit with this journal sequence, see `Delta`; then begin the next."""
        ledger = self._ledger
        known = [
            ledger.jobs[number] for number in self._jobs | self._changed if number in ledger.jobs
        ]
        queued = [*self._whole(self._jobs | self._released_jobs), *self._again()]
        moved = [ref for ref in self._touched if ref not in self._opened]
        back = [*self._queued, *self._pending_of(self._released_jobs)]
        delta = Delta(
            version=version,
            at_ms=at_ms,
            jobs=tuple(job_row(ledger, job) for job in known),
            workers=tuple(
                worker_row(ledger, ledger.workers[w], self._policy.max_building)
                for w in self._workers
            ),
            quotas=tuple(ledger.quota_of(user) for user in self._quotas),
            projects=tuple(project_row(ledger, path) for path in self._projects),
            closed=tuple(self._closed),
            unqueued=tuple(_grouped(self._unqueued, ledger)),
            opened=tuple([hold(ledger, self._policy, ref) for ref in self._opened]),
            moved=tuple(hold(ledger, self._policy, ref) for ref in moved),
            queued=tuple(queued),
            avoid=tuple(self._avoid),
            nominations=tuple(Nomination(*key, worker) for key, worker in self._nominated.items()),
            reclaimed=tuple(reclaimed(ledger, back)),
            released=tuple(self._released),
            gone=tuple(self._gone),
            lost_workers=tuple(self._forgotten),
            after=after,
            ran=tuple(self._ran.values()),
            drafts=drafts,
            shares=tuple(self._shares),
        )
        self._clear()
        return delta

    def _whole(self, numbers: Iterable[int]) -> Iterable[Queued]:
        """The pending tasks of jobs admitted in this commit, or of which a gate has opened."""
        for number in numbers:
            pending = self._ledger.queue.pending(number)
            if len(pending):
                yield Queued(
                    number, as_ranges(pending), self._ledger.jobs[number].task(pending[0]).queued_ms
                )

    def _pending_of(self, numbers: Iterable[int]) -> Iterator[Key]:
        for number in numbers:
            yield from ((number, index) for index in self._ledger.queue.pending(number))

    def _again(self) -> Iterable[Queued]:
        """Tasks of earlier jobs that are pending again."""
        back = {
            key: None
            for key in self._queued
            if key[0] not in self._jobs and key[0] not in self._released_jobs
        }
        return _grouped(back, self._ledger)


def _grouped(keys: Iterable[Key], ledger: Ledger) -> list[Queued]:
    """Tasks as ranges per job, with the time since which the job's first one is pending."""
    indexes: dict[int, list[int]] = {}
    for number, index in keys:
        indexes.setdefault(number, []).append(index)
    return [
        Queued(number, as_ranges(sorted(found)), ledger.jobs[number].task(min(found)).queued_ms)
        for number, found in indexes.items()
        if number in ledger.jobs
    ]


def hold(ledger: Ledger, policy: Policy, ref: AttemptRef) -> Hold:
    """One open attempt as the scheduler sees it."""
    job = ledger.jobs[ref.job]
    attempt = job.task(ref.index).attempts[ref.attempt]
    stopping = attempt.status is KernelStatus.TERMINATING or attempt.ending is not None
    since_ms = attempt.ending.since_ms if attempt.ending is not None else attempt.since_ms
    cause = attempt.ending.cause if attempt.ending is not None else attempt.cause
    grace_ms = ledger.grace_limits.of(job.spec.grace_ms(0), cause)
    longer_ms = 0 if attempt.at_once else min(grace_ms, policy.expected_grace_ms(job.band))
    return Hold(
        ref,
        attempt.worker,
        building=attempt.is_building,
        stopping=stopping,
        since_ms=attempt.started_ms or attempt.assigned_ms,
        stopping_ms=since_ms + longer_ms if stopping else 0,
        alone=attempt.alone,
        chain=AttemptRef(ref.job, *attempt.chain) if attempt.chain is not None else None,
    )


def reclaimed(ledger: Ledger, tasks: Iterable[Key]) -> Iterator[Reclaimed]:
    """Those of some waiting tasks that have given way to work within a guarantee, and when."""
    for number, index in tasks:
        job = ledger.jobs.get(number)
        attempts = job.task(index).attempts if job is not None else ()
        if attempts and attempts[-1].cause is Cause.RECLAIMED:
            yield Reclaimed(number, index, attempts[-1].ended_ms)


def _reclaimable(ledger: Ledger) -> Iterator[Key]:
    """The waiting tasks that may have given way: none while nothing is guaranteed."""
    if ledger.projects.guarantees():
        for number in ledger.queue.jobs():
            yield from ((number, index) for index in ledger.queue.pending(number))


def job_row(ledger: Ledger, job: Job) -> JobRow:
    return JobRow.of(
        job.spec,
        job=job.number,
        name=job.name,
        user=job.user,
        depth=job.depth,
        root_submitted_ms=job.root_submitted_ms,
        submitted_ms=job.submitted_ms,
        chained=is_chainable(job.spec),
        steps=ledger.shares.steps_of(job.spec.project, job.user),
    )


def project_row(ledger: Ledger, path: str) -> ProjectRow:
    """A project as schedulers see it; one that was removed limits nothing."""
    project = ledger.projects.find(path)
    if project is None:
        return ProjectRow(path, ResourceLimits())
    return ProjectRow(path, project.spec.limit, project.spec.guarantee)


def worker_row(ledger: Ledger, worker: Worker, max_building: int) -> WorkerRow:
    """A host as schedulers see it: one of a slice that is not ready drains."""
    is_healthy = worker.state is WorkerState.HEALTHY
    cordon = ledger.fleet.cordon(worker.id) if ledger.fleet.pools and is_healthy else ""
    return WorkerRow(
        worker.id,
        WorkerState.DRAINING if cordon else worker.state,
        ledger.fleet.attributes(worker.id, worker.attributes),
        worker.total,
        max_building=max_building,
        max_attempts=worker.max_attempts,
        chains=worker.chains,
        reason=cordon or worker.reason,
    )


def full(ledger: Ledger, version: int, at_ms: int, policy: Policy) -> FullSnapshot:
    """The content of a mirror as of the commit with this journal sequence.

    It holds the jobs with a pending or an open task, including ended jobs with an attempt that is
    being stopped, jobs that are held back by one or kept out of the queue by a gate, and open jobs.
    """
    holds = [
        hold(ledger, policy, AttemptRef(*key))
        for presence in ledger.presence.values()
        for key in presence.open
    ]
    later = (number for (kind, number, _), _ in ledger.timers.items() if kind in ("gate", "idle"))
    outside = {*ledger.held_back, *ledger.gates.gated, *later}
    numbers = dict.fromkeys([*ledger.queue.jobs(), *(h.ref.job for h in holds), *sorted(outside)])
    return FullSnapshot(
        version=version,
        at_ms=at_ms,
        jobs=tuple(job_row(ledger, ledger.jobs[number]) for number in numbers),
        workers=tuple(
            worker_row(ledger, worker, policy.max_building) for worker in ledger.workers.values()
        ),
        quotas=(
            by_default("", ledger.default_quota),
            *map(ledger.quota_of, _limited(ledger)),
        ),
        projects=tuple(project_row(ledger, project.path) for project in ledger.projects),
        holds=tuple(holds),
        queued=tuple(
            Queued(number, ledger.queue.ranges(number), _since(ledger.jobs[number], ledger))
            for number in ledger.queue.jobs()
        ),
        avoid=tuple(
            Avoid(*key, worker, until)
            for key, workers in ledger.avoided.items()
            for worker, until in workers.items()
            if until > at_ms
        ),
        nominations=tuple(Nomination(*key, worker) for key, worker in ledger.nominations.items()),
        reclaimed=tuple(reclaimed(ledger, _reclaimable(ledger))),
    )


def chunks(whole: FullSnapshot) -> Iterator[bytes]:
    """The same as messages of about `CHUNK_BYTES`, the last one marked."""
    number = 0
    size = 0
    rows = _no_rows()
    for name in rows:
        for row in getattr(whole, name):
            packed = msgspec.Raw(codec.pack(row))
            if size and size + len(packed) > CHUNK_BYTES:
                yield codec.pack(
                    msgspec.structs.replace(_EMPTY, **_head(whole, number), **rows, last=False)
                )
                number = number + 1
                size = 0
                rows = _no_rows()
            rows[name].append(packed)
            size += len(packed)
    yield codec.pack(msgspec.structs.replace(_EMPTY, **_head(whole, number), **rows))


_EMPTY: Any = FullSnapshot(0, 0)
_ROWS = (
    "jobs",
    "workers",
    "quotas",
    "holds",
    "queued",
    "avoid",
    "nominations",
    "projects",
    "reclaimed",
)


def _head(whole: FullSnapshot, number: int) -> dict[str, int]:
    return {"version": whole.version, "at_ms": whole.at_ms, "chunk": number}


def _no_rows() -> dict[str, list[msgspec.Raw]]:
    return {name: [] for name in _ROWS}


def fitting(delta: Delta) -> bytes:
    """A delta as a message; one that is too large becomes `everything`."""
    data = codec.pack(delta)
    return data if len(data) <= DELTA_BYTES else codec.pack(everything(delta.version, delta.at_ms))


def everything(version: int, at_ms: int) -> Delta:
    """The message that makes every scheduler request a full snapshot."""
    return Delta(version, at_ms, after=NOTHING)


def _since(job: Job, ledger: Ledger) -> int:
    pending = ledger.queue.pending(job.number)
    return job.task(pending[0]).queued_ms if len(pending) else job.submitted_ms
