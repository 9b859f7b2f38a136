"""A copy of the state service's records that placement needs: a full snapshot, then numbered
deltas.

It applies deltas as they are and decides nothing. A delta out of sequence is refused; the owner
then requests a full snapshot. Source: docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace
from sortedcontainers import SortedList

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
    Reclaimed,
    ShareRow,
)
from iris_core.placement.queue import Range, TaskQueue
from iris_core.quota import Quota
from iris_core.spec.jobs import TASKS
from iris_core.spec.projects import ROOT
from iris_core.spec.resources import ResourceLimits
from iris_core.states import PriorityBand
from iris_scheduler.mirror.capacity import DEPTH
from iris_scheduler.mirror.chains import JobChains
from iris_scheduler.mirror.classes import (
    Amounts,
    ClassKey,
    JobClass,
    Line,
    Peers,
    SameAmounts,
    Shape,
    Turn,
    class_key,
    key_of,
    place_of,
)
from iris_scheduler.mirror.families import Families
from iris_scheduler.mirror.hosts import Hosts
from iris_scheduler.mirror.needs import ClassNeeds
from iris_scheduler.mirror.usage import Usage

T = TypeVar("T")
NO_LIMIT = ResourceLimits()


@dataclass(slots=True)
class MirrorChanges:
    """Changes of pending jobs since the last call of `looked`.

    Attributes:
        fresh: jobs that are newly pending, or whose reason may have changed.
        left: jobs that have no pending task any more.
        counted: jobs with ``max_parallel`` whose number of open attempts has changed.
    """

    fresh: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)


class Mirror:
    """The records of the state service as of ``version``, and of so many ``drafts`` of the next.

    Attributes:
        jobs, quotas: rows by number and by user. projects: by path, of those with a limit or a
            guarantee. reclaimed: waiting tasks whose last attempt gave way to work within a guarantee,
            and when.
        queue: the pending tasks, in order. since_ms: since when each job is pending.
        lines: by band and kind of device, then by what a task takes, the places of jobs of single
            tasks that wait, see `place_of`.
        nominations: by task, the worker on which freed capacity is reserved for it. avoids: by job,
            index and worker: until when the task is excluded from the worker.
        kinds: the scheduling class of every job. needs: of all classes. hosts: workers and the resources held on them.
            held: open attempts by band. routes: of each deployment whose routes are spread, the
                worker of each attempt that goes on.
        families: the waiting jobs below each job. users: how many jobs of each user there are.
        chains: of each job whose tasks may wait behind one another; what is known of their lengths
            is lost with a full snapshot, and learned again.
    """

    def __init__(self) -> None:
        self.version = -1
        self.drafts = 0
        self.at_ms = 0
        self.jobs: dict[int, JobRow] = {}
        self.quotas: dict[str, Quota] = {}
        self.projects: dict[str, ProjectRow] = {}
        self.queue = TaskQueue()
        self.since_ms: dict[int, int] = {}
        self.lines: dict[Line, dict[Amounts, SameAmounts]] = {}
        self.families = Families()
        self._smallest = {band: [SortedList() for _ in range(DEPTH)] for band in PriorityBand}
        self.nominations: dict[tuple[int, int], str] = {}
        self.nominated_jobs: dict[int, int] = {}
        self.reclaimed: dict[tuple[int, int], int] = {}
        self.avoids: dict[int, dict[int, dict[str, int]]] = {}
        self._avoids_until = SortedList()
        self.kinds: dict[int, JobClass] = {}
        self.hosts = Hosts()
        self.usage = Usage()
        self.project_usage = Usage()
        self.users = Counter[str]()
        self.changes = MirrorChanges()
        self.held = dict.fromkeys(PriorityBand, 0)
        self.routes: dict[str, dict[AttemptRef, str]] = {}
        self.chains: dict[int, JobChains] = {}
        self._sharing: dict[tuple[str, str], dict[int, None]] = {}
        self._open_attempts: dict[int, int] = {}
        self._leaving: set[int] = set()
        self._classes: dict[ClassKey, JobClass] = {}
        self._members: dict[JobClass, int] = {}
        self._peers: dict[tuple[Turn, Shape], Peers] = {}
        self.needs = ClassNeeds()

    @classmethod
    def of(cls, chunks: Iterable[FullSnapshot]) -> Mirror:
        """A mirror built from all chunks of one full snapshot."""
        mirror = cls()
        chunks = sorted(chunks, key=lambda chunk: chunk.chunk)
        for part in _PARTS:
            for chunk in chunks:
                part(mirror, chunk)
        for chunk in chunks:
            mirror.version, mirror.at_ms = chunk.version, max(mirror.at_ms, chunk.at_ms)
        return mirror

    def apply(self, delta: Delta) -> bool:
        """Apply the changes of one commit. Returns False, and changes nothing, when it does not
        follow the present version.
        """
        if (delta.after, delta.drafts) != (self.version, self.drafts) or not self._knows_jobs_of(
            delta
        ):
            return False
        _put_rows(self, delta)
        self._close(delta.closed)
        for queued in delta.unqueued:
            self._unqueue(queued)
        self._open(delta.opened)
        self._hold(delta.moved)
        _put_pending(self, delta)
        for nomination in delta.released:
            self._remove_nomination(nomination.job, nomination.index)
        for ran in delta.ran:
            if ran.job in self.chains:
                self.chains[ran.job].learn(ran)
        for number in delta.gone:
            self._gone(number)
        for name in delta.lost_workers:
            self._lose(name)
        for share in delta.shares:
            self._share(share)
        self.drafts = self.drafts + 1 if delta.version == self.version else 0
        self.version = delta.version
        self.at_ms = delta.at_ms
        return True

    def places(self, job: int, count: int) -> int:
        """How many of ``count`` tasks of a job may start: one with ``max_parallel`` has at most so
        many open attempts, those that are being stopped included.
        """
        limit = self.jobs[job].max_parallel
        return (
            count if limit is None else min(count, max(0, limit - self._open_attempts.get(job, 0)))
        )

    def avoiding(self, now_ms: int) -> set[int]:
        """Pending jobs with tasks that are excluded from a worker at this time."""
        excluded = self._avoids_until.irange((now_ms + 1,))
        return {job for _, job, index, _ in excluded if (job, index) in self.queue}

    def peers(self) -> Iterable[Peers]:
        """All classes, by turn and shape."""
        return self._peers.values()

    def smallest(self, band: PriorityBand) -> list[int]:
        """Of each dimension the least that a class of a band, or of a lower one, asks for."""
        lists = [self._smallest[of] for of in PriorityBand if of >= band]
        return [
            min((amounts[dimension][0] for amounts in lists if amounts[dimension]), default=0)
            for dimension in range(DEPTH)
        ]

    def looked(self) -> MirrorChanges:
        """The changes since the last call, which are then cleared."""
        changes = self.changes
        self.changes = MirrorChanges()
        self.hosts.grown = set()
        return changes

    @contextmanager
    def supposing(self, row: JobRow, ranges: Sequence[Range]) -> Iterator[None]:
        """A context in which this job, with these tasks, is in the mirror as if it had been
        submitted.
        """
        changes = self.changes
        self.changes = MirrorChanges(set(changes.fresh), set(changes.left), set(changes.counted))
        self._job(row)
        self._queue(Queued(row.job, tuple(ranges), row.submitted_ms))
        try:
            yield
        finally:
            self._gone(row.job)
            self.changes = changes

    def snapshot(self) -> FullSnapshot:
        """The whole mirror as a sorted value, so that equal mirrors give equal snapshots."""
        return FullSnapshot(
            version=self.version,
            at_ms=self.at_ms,
            jobs=_sorted(self.jobs.values(), lambda row: row.job),
            workers=_sorted(
                (host.row for host in self.hosts.known() if host.row), lambda row: row.worker
            ),
            quotas=_sorted(self.quotas.values(), lambda quota: quota.user),
            projects=_sorted(self.projects.values(), lambda row: row.path),
            holds=_sorted((hold for hold, _ in self.hosts.holds()), lambda hold: hold.ref),
            queued=tuple(
                Queued(job, self.queue.ranges(job), self.since_ms[job]) for job in self.queue.jobs()
            ),
            avoid=tuple(
                Avoid(job, index, worker, until)
                for job, tasks in sorted(self.avoids.items())
                for index, workers in sorted(tasks.items())
                for worker, until in sorted(workers.items())
            ),
            nominations=tuple(
                Nomination(job, index, worker)
                for (job, index), worker in sorted(self.nominations.items())
            ),
            reclaimed=tuple(
                Reclaimed(job, index, at_ms)
                for (job, index), at_ms in sorted(self.reclaimed.items())
            ),
        )

    # ── one change each ───────────────────────────────────────────────────────────────────────────

    def _job(self, row: JobRow) -> None:
        before = self.jobs.get(row.job)
        if before is not None:
            self._gone_from_class(row.job)
            self._change_band(before, row)
            if row.max_parallel != before.max_parallel:
                self.changes.counted.add(row.job)
        self.jobs[row.job] = row
        if row.chained:
            self.chains.setdefault(row.job, JobChains())
        kind = self._class_for(class_key(row, row.replicas))
        self.kinds[row.job] = kind
        self._members[kind] += 1
        self.users[row.user] += 1
        self._sharing.setdefault((row.project or ROOT, row.user), {})[row.job] = None
        if self.queue.pending(row.job):
            self._line_up(kind, row)

    def _share(self, share: ShareRow) -> None:
        """The jobs of a user in a project have another place in the order."""
        for job in self._sharing.get((share.project, share.user), ()):
            before = self.jobs[job]
            if before.steps == share.steps:
                continue
            kind = self.kinds[job]
            row = replace(before, steps=share.steps)
            if not self.queue.pending(job):
                self.jobs[job] = row
                continue
            self._leave_line(kind, before)
            self.jobs[job] = row
            self._line_up(kind, row)
            self.queue.move(job, key_of(row))
            self.changes.fresh.add(job)

    def _change_band(self, before: JobRow, row: JobRow) -> None:
        """Count a job's open attempts in its new band; where they are, others may preempt them
        now.
        """
        held = self._open_attempts.get(row.job, 0) if row.band is not before.band else 0
        self.held[before.band] -= held
        self.held[row.band] += held
        if held:
            self.hosts.grown.update(
                hold.worker for hold, _ in self.hosts.holds() if hold.ref.job == row.job
            )

    def _class_for(self, key: ClassKey) -> JobClass:
        kind = self._classes.get(key)
        if kind is None:
            kind = self._classes[key] = JobClass(key)
            kind.row = self.needs.add(kind.need)
            kind.peers = self._peers.setdefault((kind.peers.turn, kind.shape), kind.peers)
            kind.peers.members += 1
            self._members[kind] = 0
            for amounts, amount in zip(self._smallest[kind.band], kind.need.amounts, strict=True):
                amounts.add(amount)
        return kind

    def _gone_from_class(self, job: int) -> None:
        kind = self.kinds.pop(job)
        row = self.jobs[job]
        user = row.user
        self._leave_line(kind, row)
        sharing = self._sharing[row.project or ROOT, user]
        del sharing[job]
        if not sharing:
            del self._sharing[row.project or ROOT, user]
        self.users[user] -= 1
        if not self.users[user]:
            del self.users[user]
        self._members[kind] -= 1
        if not self._members[kind]:
            del self._members[kind], self._classes[kind.key]
            self.needs.drop(kind.row)
            kind.peers.members -= 1
            if not kind.peers.members:
                del self._peers[kind.peers.turn, kind.shape]
            for amounts, amount in zip(self._smallest[kind.band], kind.need.amounts, strict=True):
                amounts.remove(amount)
            self.hosts.forget(kind)

    def _gone(self, job: int) -> None:
        """A job will have no further pending tasks; its row stays until its open attempts have
        ended.
        """
        if job not in self.jobs:
            return
        self._dequeued(job, self.queue.drop(job))
        for number, index in list(self.nominations) if job in self.nominated_jobs else ():
            if number == job:
                self._remove_nomination(job, index)
        self._forget_reclaimed(job, [index for of, index in self.reclaimed if of == job])
        for index, workers in self.avoids.pop(job, {}).items():
            for worker, until_ms in workers.items():
                self._avoids_until.remove((until_ms, job, index, worker))
        if self._open_attempts.get(job):
            self._leaving.add(job)
            return
        self._leaving.discard(job)
        self._gone_from_class(job)
        self.chains.pop(job, None)
        del self.jobs[job]

    def _lose(self, name: str) -> None:
        host = self.hosts.host(name)
        lost = [hold for hold, _ in host.holds.values()]
        counted = Counter(hold.ref.job for hold, _ in host.counted())
        self._forget_routes(host.holds)
        self.hosts.lose(name)
        for hold in lost:
            if hold.ref.job in self.chains:
                self.chains[hold.ref.job].pop(hold)
        self._account(Counter(hold.ref.job for hold in lost), counted, -1)

    def _knows_jobs_of(self, delta: Delta) -> bool:
        listed = {row.job for row in delta.jobs}
        numbers = {
            *(hold.ref.job for hold in (*delta.opened, *delta.moved)),
            *(tasks.job for tasks in delta.queued),
        }
        return all(number in listed or number in self.jobs for number in numbers)

    def _close(self, refs: Iterable[AttemptRef]) -> None:
        self._forget_routes(refs)
        closed = Counter[int]()
        freed = Counter[int]()
        for ref in refs:
            held = self.hosts.release(ref)
            if held is None:
                continue
            closed[ref.job] += 1
            freed[ref.job] += ref.job not in self.chains or not self.hosts.chained(held[0])
            if ref.job in self.chains:
                self.chains[ref.job].pop(held[0])
        self._account(closed, freed, -1)

    def _open(self, holds: Iterable[Hold]) -> None:
        placed: dict[int, list[int]] = {}
        for hold in holds:
            placed.setdefault(hold.ref.job, []).append(hold.ref.index)
        for job, indexes in placed.items():
            self._dequeued(job, self.queue.take(job, indexes))
            self._forget_reclaimed(job, indexes)
            for index in indexes if job in self.nominated_jobs else ():
                self._remove_nomination(job, index)
        self._hold(holds)

    def _hold(self, holds: Iterable[Hold]) -> None:
        kinds = self.kinds
        hosts = self.hosts
        chains = self.chains
        opened = Counter[int]()
        taken = Counter[int]()
        for hold in holds:
            self._note_route(hold)
            job = hold.ref.job
            if job in chains:
                chains[job].put(hold)
            if hosts.hold(hold, kinds[job].need):
                opened[job] += 1
                taken[job] += job not in chains or hosts.chained(hold) == 1
        self._account(opened, taken, 1)

    def _note_route(self, hold: Hold) -> None:
        key = self.jobs[hold.ref.job].spread
        if key in ("", TASKS):
            return
        if hold.stopping:
            self._forget_routes((hold.ref,))
        else:
            self.routes.setdefault(key, {})[hold.ref] = hold.worker

    def _forget_routes(self, refs: Iterable[AttemptRef]) -> None:
        for ref in refs if self.routes else ():
            key = self.jobs[ref.job].spread if ref.job in self.jobs else ""
            placed = self.routes.get(key, {})
            if placed.pop(ref, None) is not None and not placed:
                del self.routes[key]

    def _account(self, counts: Mapping[int, int], held: Mapping[int, int], sign: int) -> None:
        """Adjust the count of open attempts of each job, opened (1) or ended (-1), and of what they
        hold together.
        """
        for job, count in counts.items():
            row = self.jobs[job]
            self.usage.add(row.user, self.kinds[job].need, sign * held.get(job, 0))
            if row.project:
                self.project_usage.add(row.project, self.kinds[job].need, sign * held.get(job, 0))
            self.held[row.band] += sign * count
            self._open_attempts[job] = self._open_attempts.get(job, 0) + sign * count
            if row.max_parallel is not None:
                self.changes.counted.add(job)
            if not self._open_attempts[job]:
                del self._open_attempts[job]
                if job in self._leaving:
                    self._gone(job)

    def _avoid(self, place: Avoid) -> None:
        workers = self.avoids.setdefault(place.job, {}).setdefault(place.index, {})
        before_ms = workers.get(place.worker)
        if before_ms is not None:
            self._avoids_until.remove((before_ms, place.job, place.index, place.worker))
        workers[place.worker] = place.until_ms
        self._avoids_until.add((place.until_ms, place.job, place.index, place.worker))
        self.changes.fresh.add(place.job)

    def _queue(self, tasks: Queued) -> None:
        row = self.jobs[tasks.job]
        if not self.queue.pending(tasks.job):
            self.since_ms[tasks.job] = tasks.since_ms
            self._line_up(self.kinds[tasks.job], row)
        self.queue.add(tasks.job, key_of(row), tasks.ranges)
        self.since_ms[tasks.job] = min(self.since_ms[tasks.job], tasks.since_ms)
        self.changes.fresh.add(tasks.job)

    def _unqueue(self, tasks: Queued) -> None:
        self._dequeued(tasks.job, self.queue.remove_ranges(tasks.job, tasks.ranges))
        self._forget_reclaimed(
            tasks.job,
            [
                index
                for of, index in self.reclaimed
                if of == tasks.job and any(start <= index < stop for start, stop in tasks.ranges)
            ],
        )
        for job, index in list(self.nominations) if tasks.job in self.nominated_jobs else ():
            if job == tasks.job and any(start <= index < stop for start, stop in tasks.ranges):
                self._remove_nomination(job, index)

    def _forget_reclaimed(self, job: int, indexes: Iterable[int]) -> None:
        """Tasks of a job have left the queue."""
        for index in indexes if self.reclaimed else ():
            self.reclaimed.pop((job, index), None)

    def _dequeued(self, job: int, count: int) -> None:
        if not count or self.queue.pending(job):
            return
        self._leave_line(self.kinds[job], self.jobs[job])
        del self.since_ms[job]
        self.changes.fresh.discard(job)
        self.changes.left.add(job)

    def _line_up(self, kind: JobClass, row: JobRow) -> None:
        """A job of a class waits."""
        place = place_of(row)
        self.families.put(row)
        kind.line_up(place, row.user)
        if not kind.is_gang:
            line = self.lines.setdefault(kind.line, {})
            line.setdefault(kind.need.amounts, SameAmounts()).add(place)

    def _leave_line(self, kind: JobClass, row: JobRow) -> None:
        """A job of a class waits no more, if it did."""
        place = place_of(row)
        self.families.drop(row)
        kind.leave_line(place, row.user)
        line = self.lines.get(kind.line, {})
        amounts = kind.need.amounts
        if amounts in line and not kind.is_gang:
            line[amounts].discard(place)
            if not line[amounts].places:
                del line[amounts]
            if not line:
                del self.lines[kind.line]

    def _add_nomination(self, nomination: Nomination) -> None:
        task = (nomination.job, nomination.index)
        if task not in self.nominations:
            self.nominated_jobs[nomination.job] = self.nominated_jobs.get(nomination.job, 0) + 1
        self.nominations[task] = nomination.worker
        self.changes.fresh.add(nomination.job)

    def _remove_nomination(self, job: int, index: int) -> None:
        worker = self.nominations.pop((job, index), None)
        if worker is None:
            return
        self.hosts.grown.add(worker)
        self.nominated_jobs[job] -= 1
        if not self.nominated_jobs[job]:
            del self.nominated_jobs[job]
        if self.queue.pending(job):
            self.changes.fresh.add(job)


def _put_rows(mirror: Mirror, rows: Delta | FullSnapshot) -> None:
    for job in rows.jobs:
        mirror._job(job)
    for worker in rows.workers:
        mirror.hosts.put(worker)
    for quota in rows.quotas:
        if quota.user and quota.is_default:
            mirror.quotas.pop(quota.user, None)
        else:
            mirror.quotas[quota.user] = quota
    for project in rows.projects:
        if project.limit == project.guarantee == NO_LIMIT:
            mirror.projects.pop(project.path, None)
        else:
            mirror.projects[project.path] = project


def _put_holds(mirror: Mirror, chunk: FullSnapshot) -> None:
    mirror._hold(chunk.holds)


def _put_pending(mirror: Mirror, rows: Delta | FullSnapshot) -> None:
    for tasks in rows.queued:
        mirror._queue(tasks)
    for place in rows.avoid:
        mirror._avoid(place)
    for nomination in rows.nominations:
        mirror._add_nomination(nomination)
    for task in rows.reclaimed:
        mirror.reclaimed[task.job, task.index] = task.at_ms


_PARTS = (_put_rows, _put_holds, _put_pending)


def _sorted(rows: Iterable[T], key: Callable[[T], object]) -> tuple[T, ...]:
    return tuple(sorted(rows, key=key))  # type: ignore[arg-type]
