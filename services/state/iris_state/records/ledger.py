"""All records, in memory: `apply` is the only way to write them, for a new change and for replay
alike.

Queue, open attempts, capacity, clocks and children are indexes over the records and can be rebuilt;
`check` compares the two. The package `apply` holds one function per kind of change; neither decides
anything.
Source: docs/ARCHITECTURE.md; docs/design/semantics.md#entities,
    docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from sortedcontainers import SortedDict

from iris_core.access.rights import Membership
from iris_core.messages.scheduler_state import OCCUPIED
from iris_core.messages.state_worker import HeartbeatMessage
from iris_core.placement.priority import PriorityKey
from iris_core.placement.queue import TaskQueue, as_ranges
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.quota import GROUP, Quota, by_default, of_groups
from iris_core.spec.projects import ROOT, within
from iris_core.spec.resources import NOTHING, Amount
from iris_core.states import KernelStatus, PriorityBand, SessionStatus, TaskState, WorkerState
from iris_core.tables.session import SINGLE, StatusTimeout
from iris_core.units import DAY_MS
from iris_state.policy import FleetPolicy, GraceLimits
from iris_state.records import changes as c
from iris_state.records.answers import KeptAnswers, SpentKeys
from iris_state.records.audit import AuditLog
from iris_state.records.deployments.load import Loads
from iris_state.records.deployments.records import Deployment, Probes, Route
from iris_state.records.entities import (
    Attempt,
    AttemptKey,
    HistoryEntry,
    Job,
    Key,
    Session,
    Task,
    Totals,
    kernel_status,
    lingers,
    was_cancelled,
)
from iris_state.records.facts import PublicFact
from iris_state.records.fleet.packing import PackedWork
from iris_state.records.fleet.records import Fleet
from iris_state.records.fleet.sightings import Sightings
from iris_state.records.gates import WHOLE, GateKind
from iris_state.records.hosts import Presence, Worker, running_output
from iris_state.records.indexes.chains import chain_of
from iris_state.records.indexes.gates import GateIndex
from iris_state.records.indexes.host_sums import HostSums
from iris_state.records.indexes.index import WAITING, JobIndex
from iris_state.records.indexes.job_timers import JobTimers
from iris_state.records.indexes.running_usage import RunningInPools, RunningUsage
from iris_state.records.indexes.stored import (
    NONE_STORED,
    Leftover,
    StoredBytes,
    StoredKind,
    StoredSums,
    on_last_day,
)
from iris_state.records.indexes.timer_queue import TimeoutQueue
from iris_state.records.indexes.usage_days import PROJECT, UsageDays, groups_of_project
from iris_state.records.projects import ProjectTree
from iris_state.records.queue_holds import QueueHold
from iris_state.records.shares import ShareMove, Shares, StoredShares
from iris_state.records.weight import written

_WHOLE = re.compile(r"[0-9]{1,18}")


def whole_number(text: str) -> int | None:
    """The number in a text of ASCII digits; None for any other text, or one that is too long."""
    return int(text) if _WHOLE.fullmatch(text) else None


def parts_of_task(text: str) -> tuple[str, str]:
    """The job and the index of the text of a task, with the owner at the job: ``/train@ann`` and
    ``0`` of ``/train/0@ann``.
    """
    whole, at, user = text.partition("@")
    name, _, last = whole.rpartition("/")
    return f"{name}{at}{user}", last


def _take_out(numbers: list[int], number: int) -> None:
    """Remove a number from a list in ascending order, if it is there."""
    at = bisect_left(numbers, number)
    if at < len(numbers) and numbers[at] == number:
        del numbers[at]


class Ledger:
    """All records and their indexes."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.names: dict[str, int] = SortedDict()
        self.namesakes: dict[str, list[int]] = {}
        self._unsettled_runs: dict[str, list[int]] = {}
        self.shared_names: dict[str, dict[str, int]] = {}
        self.index = JobIndex()
        self.tally: dict[PriorityBand, list[int]] = {
            band: [0] * len(TaskState) for band in PriorityBand
        }
        self.idempotency: dict[str, int] = {}
        self.spent_keys = SpentKeys()
        self.answers = KeptAnswers()
        self.audit = AuditLog()
        self.workers: dict[str, Worker] = {}
        self.presence: dict[str, Presence] = {}
        self.output_hosts: set[str] = set()
        self.host_sums = HostSums()
        self.heard: TimeoutQueue[str] = TimeoutQueue()
        self.lost: TimeoutQueue[str] = TimeoutQueue()
        self.quotas: dict[str, Quota] = {}
        self.default_quota = Quota("")
        self.groups: dict[str, tuple[str, ...]] = {}
        self.grace_limits = GraceLimits()
        self.nominations: dict[Key, str] = {}
        self.avoided: dict[Key, dict[str, int]] = {}
        self.alone: dict[AttemptKey, Attempt] = {}
        self.reasons: dict[int, Reason] = {}
        self.pending_because: Counter[tuple[PriorityBand, ReasonCode]] = Counter()
        self.looks: dict[int, int] = {}
        self.newest_rows: dict[int, dict[int, HistoryEntry]] = {}
        self.kernels: dict[int, Counter[KernelStatus]] = {}
        self.open_of_job: Counter[int] = Counter()
        self.open_attempts = 0
        self.held_back: set[int] = set()
        self.retimed: set[int] = set()
        self.gates = GateIndex(self.jobs)
        self.queue_holds: dict[int, QueueHold] = {}
        self.next_hold = 1
        self.requested: dict[int, Amount] = {}
        self.written: dict[int, int] = {}
        self.live_bytes: Counter[str] = Counter()
        self.job_bytes: Counter[str] = Counter()
        self.stored = StoredSums()
        self._running_today: tuple[int, Counter[str]] = (-1, Counter())
        self.totals = Totals()
        self.usage = UsageDays()
        self.project_usage = UsageDays()
        self.running_usage = RunningUsage(self.usage)
        self.running_in_projects = RunningUsage(self.project_usage, groups_of_project)
        self.pool_usage = UsageDays()
        self.slice_usage = UsageDays()
        self.running_in_pools = RunningInPools(self.pool_usage)
        self.projects = ProjectTree()
        self.pending_of_project: Counter[str] = Counter()
        self.shares = Shares()
        self.fair_share: bool | Literal["auto"] = "auto"
        self.next_number = 1
        self.epoch = 0
        self.first_epoch = 0
        self.boots: dict[str, int] = {}
        self.deployments: dict[int, Deployment] = {}
        self.deployment_names: dict[str, int] = SortedDict()
        self.destroyed: dict[int, None] = {}
        self.route_of_job: dict[int, tuple[int, int]] = {}
        self.probes = Probes()
        self.loads = Loads()
        self.next_deployment = 1
        self.fleet = Fleet()
        self.fleet_policy = FleetPolicy()
        self.sightings = Sightings()
        self.packed: PackedWork | None = None
        self.now_ms = 0
        self.discovery_version = 0
        self.queue = TaskQueue()
        self.newly_queued: list[Key] = []
        self.pending_of_user: Counter[str] = Counter()
        self.timeouts: dict[SessionStatus, TimeoutQueue[Key]] = {
            status: TimeoutQueue()
            for status in SessionStatus
            if StatusTimeout().of(status) is not None
        }
        self.timers = JobTimers()
        self.facts: list[PublicFact] = []

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    def find_job(self, text: str) -> Job | None:
        """The job of an opaque id ``j<number>`` or of a name (its newest run), either also with its
        owner: ``/train@ann``. Of a name of several users without one, the newest of all.
        """
        name, _, user = text.partition("@")
        if name.startswith("j") and (found := whole_number(name[1:])) is not None:
            job = self.jobs.get(found)
            return job if job is None or user in ("", job.user) else None
        if user:
            return self.job_of(user, name)
        number = self.names.get(name)
        return self.jobs.get(number) if number is not None else None

    def job_of(self, user: str, name: str) -> Job | None:
        """The newest run of a name among the jobs of one user."""
        number = self.names.get(name)
        if number is None:
            return None
        if (owners := self.shared_names.get(name)) is not None:
            number = owners.get(user)
            return self.jobs[number] if number is not None else None
        job = self.jobs[number]
        return job if job.user == user else None

    def find_deployment(self, text: str) -> Deployment | None:
        """The deployment of a name (its newest), else of an opaque id ``d<number>``."""
        named = self.deployment_named(text)
        number = whole_number(text[1:]) if named is None and text.startswith("d") else None
        return self.deployments.get(number) if number is not None else named

    def deployment_named(self, name: str) -> Deployment | None:
        """The newest deployment of a name."""
        number = self.deployment_names.get(name)
        return self.deployments[number] if number is not None else None

    def route_for(self, job: int) -> tuple[Deployment, Route] | None:
        """The deployment and the route of a job, until the route has ended; None for any other
        job.
        """
        found = self.route_of_job.get(job)
        if found is None:
            return None
        deployment = self.deployments[found[0]]
        return deployment, deployment.routes[found[1]]

    def running_output(self) -> Counter[str]:
        """What running attempts hold of output, by user, as hosts have told last."""
        found: Counter[str] = Counter()
        for number, size in running_output(self.with_output()).items():
            if (job := self.jobs.get(number)) is not None:
                found[job.user] += max(0, size - max(0, job.evicted.output - job.stored.output))
        return found

    def with_output(self) -> Iterator[Presence]:
        """The hosts whose running attempts have stored output, as they have told last."""
        return (self.presence[worker] for worker in self.output_hosts)

    def note(self, heartbeat: HeartbeatMessage, now_ms: int) -> None:
        """Keep what a heartbeat tells of its host; in memory only."""
        presence = self.presence[heartbeat.worker]
        presence.note(heartbeat, now_ms)
        if presence.output_bytes:
            self.output_hosts.add(heartbeat.worker)
        else:
            self.output_hosts.discard(heartbeat.worker)

    def end_output(self, worker: str, job: int, size: int) -> None:
        """The end of an attempt has told its output, which the host's last heartbeat counted among
        what runs.
        """
        if worker not in self.output_hosts:
            return
        reported = self.presence[worker].output_bytes
        if job in reported:
            reported[job] -= size
            if reported[job] <= 0:
                del reported[job]
            self._running_today = (-1, Counter())

    def stored_today(self, user: str) -> int:
        """What a user has stored on this day, what runs included."""
        return self.stored.on_day(user, self.now_ms // DAY_MS) + self.running_today()[user]

    def over_stored(self) -> frozenset[str]:
        """The users who have stored as much today as they may."""
        if not any(one.max_stored_today for one in (self.default_quota, *self.quotas.values())):
            return frozenset()
        stored, running = self.stored, self.running_today()
        users = stored.today.keys() | stored.bundles.today.keys() | running.keys()
        return frozenset(
            user
            for user in users
            if 0 < self.quota_of(user).max_stored_today <= self.stored_today(user)
        )

    def running_today(self) -> Counter[str]:
        """What running attempts of each user have stored on this day, as hosts have told last;
        summed once a second.
        """
        second = self.now_ms // 1000
        if self._running_today[0] != second:
            found: Counter[str] = Counter()
            for number, size in running_output(self.with_output()).items():
                if (job := self.jobs.get(number)) is not None:
                    found[job.user] += on_last_day(size, job.started_ms, self.now_ms)
            self._running_today = second, found
        return self._running_today[1]

    def ending_runs(self, job: Job) -> list[Job]:
        """Earlier runs of a job, of its name and owner, with attempts whose end is not known
        yet.
        """
        runs = self._unsettled_runs.get(job.name, ())
        earlier = [
            self.jobs[number] for number in runs if number < job.number and self.open_of_job[number]
        ]
        return [run for run in earlier if run.user == job.user]

    def quota_of(self, user: str) -> Quota:
        """A user's limits: those set for the user, else those of the user's groups, else the
        default.
        """
        own = self.quotas.get(user)
        if own is not None:
            return own
        found = self.group_quotas(user)
        return of_groups(user, found) if found else by_default(user, self.default_quota)

    def group_quotas(self, user: str) -> list[Quota]:
        """The limits of those groups of a user that have some."""
        names = (f"{GROUP}{group}" for group in self.groups.get(user, ()))
        return [self.quotas[name] for name in names if name in self.quotas]

    def members(self, group: str) -> list[str]:
        """The users that are known to be in a group ``@name``, without those whose own limits are
        set.
        """
        name = group.removeprefix(GROUP)
        return [
            user
            for user, groups in self.groups.items()
            if name in groups and user not in self.quotas
        ]

    def find_task(self, text: str) -> tuple[Job, int] | None:
        """The job and index of ``/train/0``, ``j7/0``, or with its owner ``/train/0@ann``."""
        name, last = parts_of_task(text)
        job = self.find_job(name)
        index = whole_number(last)
        if job is None or index is None or not job.has(index):
            return None
        return job, index

    def attempt(self, key: AttemptKey) -> Attempt | None:
        job = self.jobs.get(key[0])
        if job is None or not job.has(key[1]):
            return None
        attempts = job.task(key[1]).attempts
        return attempts[key[2]] if 0 <= key[2] < len(attempts) else None

    def is_apart(self, key: Key) -> bool:
        """Whether a task is kept off workers with other attempts now."""
        return bool(self.avoided) and self.avoided.get(key, {}).get(OCCUPIED, 0) > self.now_ms

    def session(self, job: Job, index: int) -> Session | None:
        """The stored session record of a task; None while a session of one has nothing to store."""
        return job.session if job.session is not None else job.task(index).session

    def session_since(self, job: Job, index: int) -> int:
        """When a session entered its status, ms."""
        if job.session is not None:
            return job.session.since_ms
        task = job.task(index)
        return (
            task.queued_ms
            if task.state is TaskState.PENDING or not task.attempts
            else task.attempts[-1].since_ms
        )

    def session_status(self, job: Job, index: int) -> SessionStatus:
        """A coscheduled session's stored status; a session of one follows its only kernel."""
        if job.session is not None:
            return job.session.status
        task = job.task(index)
        if task.session is not None and task.session.status is SessionStatus.TERMINATED:
            return (
                SessionStatus.TERMINATED
            )  # the session's end has timed out; its kernel's end is still unknown
        return SINGLE[KernelStatus.CANCELLED if was_cancelled(job, task) else kernel_status(task)]

    def hear(self, worker: str, at_ms: int) -> None:
        """Record contact from a host that is not lost; kept in memory only."""
        self.presence[worker].heartbeat_ms = at_ms
        self.heard.enter(worker, at_ms)

    def miss(self, worker: Worker) -> None:
        """A host is LOST; a drained one is expected back, the others are deleted after a long
        time.
        """
        self.lost.leave(worker.id)
        if not worker.drained:
            self.lost.enter(worker.id, worker.lost_ms)

    # ── indexes: jobs ─────────────────────────────────────────────────────────────────────────────

    def index_job(self, job: Job, size: int | None = None) -> None:
        """Add a job to every index: a new one, or one from a snapshot; ``size``: see `file_job`."""
        self.file_job(job, size)
        if not job.is_terminal and self.ending_runs(job):
            self.held_back.add(job.number)
        pending = job.counts[TaskState.PENDING]
        if pending == len(job.tasks) and not any(task.attempts for task in job.tasks):
            self.enqueue_new(job)
            self.pending_of_user[job.user] += pending
            self._count_in_projects(job, pending)
        else:
            for index, task in job.numbered():
                self._index_task(job, index, task)
            for index, task in job.numbered():
                if task.state is TaskState.PENDING:
                    if task.not_before_ms:
                        self.delay(job, index, task.not_before_ms)
                    self.wait_for_place(job, index)
        if job.session is not None:
            self.kernels[job.number] = Counter(kernel_status(task) for task in job.tasks)
            self.start_timeout(job.session.status, (job.number, c.GANG), job.session.since_ms)
        if job.gates or job.spec.singleton:
            self.gates.add(job)
            for gate in job.closed_gates:
                if gate.kind is GateKind.NOT_BEFORE and not job.is_terminal:
                    self.timers.set(("gate", job.number, WHOLE), gate.until_ms)
        if job.retimed and not job.is_terminal:
            self.retimed.add(job.number)
        self.timers.start_scheduling(job)
        self.timers.start_idle(job)

    def file_job(self, job: Job, size: int | None = None) -> None:
        """Add a finished job to the indexes by number, name and parent only.

        ``size``: bytes of what its owner wrote, when that was measured before.
        """
        self.jobs[job.number] = job
        self.requested[job.number] = job.spec.resources.amount
        self.stored.move(job.user, NONE_STORED, job.held)
        self.weigh(job, written(job.spec, self.index) if size is None else size)
        self._file_name(job)
        if (parent := self.jobs.get(job.parent)) is not None:
            parent.children.append(job.number)

    def _file_name(self, job: Job) -> None:
        """Let a name lead to its newest run, over all users and for each of several."""
        before = self.names.get(job.name)
        if before is not None:
            self.namesakes.setdefault(job.name, [before]).append(job.number)
            earlier = self._unsettled_runs.get(job.name, [before])
            unsettled = [number for number in earlier if not self._is_settled(number)]
            self._unsettled_runs[job.name] = [*unsettled, job.number]
            owners = self.shared_names.get(job.name)
            if owners is None and self.jobs[before].user != job.user:
                owners = self.shared_names[job.name] = {self.jobs[before].user: before}
            if owners is not None:
                owners[job.user] = max(job.number, owners.get(job.user, 0))
        self.names[job.name] = max(job.number, before or 0)

    def _is_settled(self, number: int) -> bool:
        """Whether a job is gone, or has ended with all its attempts, so that no later run of its
        name waits for it.
        """
        job = self.jobs.get(number)
        return job is None or (job.is_terminal and not self.open_of_job[number])

    def weigh(self, job: Job, size: int) -> None:
        """Set the bytes of memory of what the owner of a job wrote; see `records.weight`."""
        before, self.written[job.number] = self.written.get(job.number, 0), size
        self.job_bytes[job.user] += size - before
        if not job.is_terminal:
            self.live_bytes[job.user] += size - before

    def end_weight(self, job: Job) -> None:
        """A job has ended: it no longer counts among the live ones of its user."""
        self.live_bytes[job.user] -= self.written[job.number]
        if not self.live_bytes[job.user]:
            del self.live_bytes[job.user]

    def store(self, job: Job, more: StoredBytes) -> None:
        """An attempt of a job has ended and has stored this."""
        before, job.stored = job.held, job.stored.plus(more)
        self.stored.move(job.user, before, job.held)

    def evict(self, job: Job, gone: StoredBytes) -> None:
        """This of what a job has stored was deleted to make room."""
        before, job.evicted = job.held, job.evicted.plus(gone)
        self.stored.move(job.user, before, job.held)

    def count_tasks(self, job: Job, sign: int) -> None:
        """Add a job's tasks to the counts of its band, or subtract them with ``sign`` -1."""
        counts = self.tally[job.band]
        for state, n in enumerate(job.counts):
            counts[state] += sign * n

    def _index_task(self, job: Job, index: int, task: Task) -> None:
        self._index_open(job, index, task)
        if task.current is not None:
            self.watch(job, index, task.current)
        elif (
            job.session is None
            and task.is_terminal
            and self.session_status(job, index) is SessionStatus.TERMINATING
        ):
            self.start_timeout(
                SessionStatus.TERMINATING, (job.number, index), task.attempts[-1].since_ms
            )

    def _index_open(self, job: Job, index: int, task: Task) -> None:
        for attempt in task.attempts:
            if attempt.is_open:
                self.hold(job, index, attempt)

    def _leave_stored(self, job: Job) -> None:
        """A deleted job has left what it stored; also attempts may have stored something whose ends
        were never told.
        """
        self.stored.move(job.user, job.held, NONE_STORED)
        if job.started_ms or job.stored != NONE_STORED:
            kinds = [StoredKind.OUTPUT]
            kinds += [StoredKind.ARTIFACTS] if job.spec.output else []
            kinds += [StoredKind.RESULTS] if job.spec.calls else []
            self.stored.leftovers.append(Leftover(job.number, tuple(kinds)))

    def forget_job(self, job: Job) -> None:
        """Remove a job from every index."""
        del self.jobs[job.number], self.requested[job.number], self.open_of_job[job.number]
        self.job_bytes[job.user] -= self.written.pop(job.number)
        if not self.job_bytes[job.user]:
            del self.job_bytes[job.user]
        self._leave_stored(job)
        self.kernels.pop(job.number, None)
        self.newest_rows.pop(job.number, None)
        self._forget_name(job)
        self.index.remove(job)
        self.count_tasks(job, -1)
        if (parent := self.jobs.get(job.parent)) is not None:
            _take_out(parent.children, job.number)

    def _forget_name(self, job: Job) -> None:
        """Point the name at its newest remaining run, of all users and of each."""
        runs = self.namesakes.get(job.name, [job.number])
        _take_out(runs, job.number)
        if job.name in self._unsettled_runs:
            _take_out(self._unsettled_runs[job.name], job.number)
        if job.name in self.shared_names:
            owners: dict[str, int] = {}
            for number in runs:
                user = self.jobs[number].user
                owners[user] = max(number, owners.get(user, 0))
            self.shared_names[job.name] = owners
            if len(owners) < 2:
                del self.shared_names[job.name]
        if runs:
            self.names[job.name] = runs[-1]
        else:
            del self.names[job.name]
        if len(runs) < 2:
            self.namesakes.pop(job.name, None)
            self._unsettled_runs.pop(job.name, None)

    # ── indexes: deployments ──────────────────────────────────────────────────────────────────────

    def index_deployment(self, deployment: Deployment) -> None:
        """Add a deployment to every index: a new one, or one from a snapshot."""
        self.deployments[deployment.number] = deployment
        self.deployment_names[deployment.name] = deployment.number
        for route in deployment.held():
            if route.job:
                self.route_of_job[route.job] = (deployment.number, route.number)

    def forget_deployment(self, deployment: Deployment) -> None:
        """Remove a deployment from the indexes; its name may belong to a newer one."""
        del self.deployments[deployment.number]
        self.destroyed.pop(deployment.number, None)
        self.loads.books.pop(deployment.number, None)
        self.loads.minutes.forget(deployment.number)
        if self.deployment_names.get(deployment.name) == deployment.number:
            del self.deployment_names[deployment.name]

    # ── indexes: the queue, resources, timers ─────────────────────────────────────────────────────

    def wait_for_place(self, job: Job, index: int) -> None:
        """A task waits."""
        self._count_pending(job, 1)
        if job.counts[TaskState.PENDING] == 1:
            self.index.enter(WAITING, job.number)
        self.enqueue(job, index)

    def enqueue(self, job: Job, index: int) -> None:
        """Add a pending task to the queue under its job's key, unless an attempt of it, or of an
        earlier run of the job, may still run.

        The members of a gang are added together.
        """
        if job.number in self.held_back or (
            job.is_gang and job.counts[TaskState.PENDING] < len(job.tasks)
        ):
            return
        ready = job.indexes if job.is_gang else (index,)
        if self.open_of_job[job.number] and any(lingers(job, one) for one in ready):
            return
        if (job.gates and job.is_gated) or any(job.task(one).is_gated for one in ready):
            return
        for one in ready:
            if self.queue.add(job.number, self.key_of(job), ((one, one + 1),)):
                self.newly_queued.append((job.number, one))

    def enqueue_new(self, job: Job) -> None:
        """Add the tasks of a job that was never placed to the queue, without those that a gate
        keeps out of it.
        """
        if job.number in self.held_back or job.is_gated:
            return
        if job.opens_by_task:
            ranges = as_ranges(index for index, task in job.numbered() if not task.gates)
        else:
            ranges = job.indexes.ranges
        self.queue.add(job.number, self.key_of(job), ranges)

    def key_of(self, job: Job) -> PriorityKey:
        """The place of a job in the queue."""
        key = job.key
        if not self.shares.enabled:
            return key
        return key._replace(steps=self.shares.steps_of(job.spec.project, job.user))

    def begin_shares(self, fair_share: bool | Literal["auto"], half_life_ms: int) -> None:
        """Take the settings of fair share, before there are records."""
        self.fair_share = fair_share
        self.shares = Shares(half_life_ms)
        self.follow_weights(0)

    def follow_weights(self, at_ms: int) -> None:
        """Take the weights of projects: they decide whether there is fair share, too."""
        weights = {
            one.path: one.spec.weight for one in self.projects if one.spec.weight is not None
        }
        is_wanted = len(weights) > 1 if self.fair_share == "auto" else self.fair_share
        shares = self.shares
        if is_wanted and not shares.enabled:
            shares.begin(at_ms)
            for number, tasks in self._waiting_jobs():
                job = self.jobs[number]
                shares.wait(job.spec.project, job.user, number, tasks)
            for presence in self.presence.values():
                held = {chain_of(key, attempt.chain) for key, attempt in presence.open.items()}
                for number, _, _ in sorted(held):
                    job = self.jobs[number]
                    shares.hold(job.spec.project, job.user, self.requested[number], 1)
        elif shares.enabled and not is_wanted:
            shares.end()
        if shares.enabled:
            shares.weigh(weights)

    def _waiting_jobs(self) -> Iterator[tuple[int, int]]:
        """The jobs with pending tasks, and how many."""
        for number in self.index.of(WAITING):
            yield number, self.jobs[number].counts[TaskState.PENDING]

    def renew_shares(self, now_ms: int) -> list[ShareMove]:
        """At the end of a commit: renew the steps of fair share, and the places that follow."""
        moved = self.shares.renew(now_ms, self._capacity)
        for _, _, waiting in moved:
            for number in waiting:
                if number in self.jobs:
                    self.queue.move(number, self.key_of(self.jobs[number]))
        return moved

    def _capacity(self) -> Amount:
        """What the hosts have that are not lost."""
        total = NOTHING
        for worker in self.workers.values():
            if worker.state is not WorkerState.LOST:
                total = total + worker.total
        return total

    def restore_shares(self, stored: StoredShares | None, at_ms: int) -> None:
        """Take what a snapshot has of fair share, once all jobs are known."""
        self.shares.end()
        self.follow_weights(at_ms)
        if stored is not None and self.shares.enabled:
            waiting = (
                (self.jobs[number].spec.project, self.jobs[number].user, number, tasks)
                for number, tasks in self._waiting_jobs()
            )
            self.shares.restore(stored, waiting)
        for number in list(self.queue.jobs()) if self.shares.enabled else ():
            self.queue.move(number, self.key_of(self.jobs[number]))

    def delay(self, job: Job, index: int, until_ms: int) -> None:
        """Keep a pending task out of the queue until a time; 0: it may be queued."""
        task = job.task(index)
        if until_ms:
            self.timers.set(("gate", job.number, index), until_ms)
        elif task.not_before_ms:
            self.timers.clear(("gate", job.number, index))
        task.not_before_ms = until_ms

    def dequeue(self, job: Job, index: int) -> None:
        """A task is no longer pending: remove it from the queue, and its nomination."""
        self.queue.remove(job.number, index)
        self._count_pending(job, -1)
        if job.counts[TaskState.PENDING] == 1:
            self.index.leave(WAITING, job.number)
        if not self.pending_of_user[job.user]:
            del self.pending_of_user[job.user]
        if self.nominations:
            self.nominations.pop((job.number, index), None)

    def _count_in_projects(self, job: Job, by: int) -> None:
        """So many more tasks of a job wait, in its project and those above it but the root, and for
        fair share.
        """
        if by and self.shares.enabled:
            self.shares.wait(job.spec.project, job.user, job.number, by)
        for path in within(job.spec.project):
            self.pending_of_project[path] += by
            if not self.pending_of_project[path]:
                del self.pending_of_project[path]

    def pending_in(self, path: str) -> int:
        """How many tasks wait in a project and those below it."""
        if path == ROOT:
            return sum(counts[TaskState.PENDING] for counts in self.tally.values())
        return self.pending_of_project[path]

    def held_in(self, path: str) -> tuple[int, Amount]:
        """How many attempts are open in a project and those below it, and what they hold."""
        if path == ROOT:
            return self.running_usage.held_now((None, None))
        return self.running_in_projects.held_now((f"{path}/", None))

    def membership(self, user: str, path: str) -> Membership:
        """What a user is in a project, by direct mention and by the groups that are known."""
        return self.projects.membership(user, self.groups.get(user, ()), path)

    def _count_pending(self, job: Job, by: int) -> None:
        self.pending_of_user[job.user] += by
        if job.spec.project or self.shares.enabled:
            self._count_in_projects(job, by)
        reason = self.reasons.get(job.number)
        if reason is not None:
            self.pending_because[job.band, reason.code] += by

    def keep_reason(self, job: Job, reason: Reason) -> None:
        """Why the waiting tasks of a job wait, from now on."""
        self.drop_reason(job)
        self.reasons[job.number] = reason
        self.pending_because[job.band, reason.code] += job.counts[TaskState.PENDING]

    def drop_reason(self, job: Job) -> None:
        before = self.reasons.pop(job.number, None)
        if before is not None:
            self.pending_because[job.band, before.code] -= job.counts[TaskState.PENDING]

    def hold(self, job: Job, index: int, attempt: Attempt) -> None:
        """An attempt is open and holds resources of its worker."""
        presence = self.presence.get(attempt.worker)
        if presence is None:
            presence = self.presence[attempt.worker] = Presence(attempt.assigned_ms)
        key = (job.number, index, attempt.number)
        is_alone = attempt.chain is None and not presence.chains.members
        if is_alone or presence.chains.join(key, attempt.chain, presence.open):
            amount = self.requested[job.number]
            presence.committed = presence.committed + amount
            self.host_sums.hold(attempt.worker, amount)
            if self.shares.enabled:
                self.shares.hold(job.spec.project, job.user, amount, 1)
        presence.open[key] = attempt
        if len(presence.open) == 1:
            self.host_sums.use(attempt.worker, 1)
        self.use(job, index, attempt)
        self.open_of_job[job.number] += 1
        self.open_attempts += 1
        presence.building += attempt.is_building
        if attempt.alone:
            self.alone[(job.number, index, attempt.number)] = attempt

    def release(self, job: Job, index: int, attempt: Attempt) -> None:
        """The end of an attempt is known: free its resources; a repeated call changes nothing."""
        presence = self.presence[attempt.worker]
        if presence.open.pop((job.number, index, attempt.number), None) is not None:
            if presence.orders:
                presence.orders.pop((job.number, index, attempt.number), None)
            if attempt.alone:
                self.alone.pop((job.number, index, attempt.number), None)
            chains = presence.chains
            if not chains.members or chains.leave(
                (job.number, index, attempt.number), attempt.chain
            ):
                amount = self.requested[job.number]
                presence.committed = presence.committed - amount
                self.host_sums.release(attempt.worker, amount)
                if self.shares.enabled:
                    self.shares.hold(job.spec.project, job.user, amount, -1)
            if not presence.open:
                self.host_sums.use(attempt.worker, -1)
            self._stop_using(job, index, attempt)
            self.open_of_job[job.number] -= 1
            if not self.open_of_job[job.number]:
                del self.open_of_job[job.number]
            self.open_attempts -= 1
            if job.spec.singleton and job.is_terminal and not self.open_of_job[job.number]:
                self.gates.end_singleton(job)
            if self.held_back and not self.open_of_job[job.number]:
                newest = self.job_of(job.user, job.name)
                if newest is not None:
                    self._enqueue_next_run(newest)

    @property
    def every_usage(self) -> tuple[UsageDays, ...]:
        """All sums by day."""
        return self.usage, self.project_usage, self.pool_usage, self.slice_usage

    def use(self, job: Job, index: int, attempt: Attempt) -> None:
        """An open attempt may hold its place from now on."""
        amount = self.requested[job.number]
        label = job.spec.labels.get(PROJECT, "")
        place = self.fleet.place_of(attempt.worker, amount) if self.fleet.pools else None
        is_new = self.running_usage.enter(job, amount, index, attempt, label, place)
        if path := job.spec.project:
            self.running_in_projects.enter(job, amount, index, attempt, path, place)
        if is_new and place is not None:
            self.running_in_pools.enter(job, amount, index, attempt, place.pool, place)

    def _stop_using(self, job: Job, index: int, attempt: Attempt) -> None:
        """An attempt does not hold its place any more."""
        amount = self.requested[job.number]
        place = self.running_usage.leave(job, amount, index, attempt)
        if job.spec.project:
            self.running_in_projects.leave(job, amount, index, attempt)
        if place is not None:
            self.running_in_pools.leave(job, amount, index, attempt)

    def _enqueue_next_run(self, job: Job) -> None:
        """An earlier run of a name has ended: queue the newest run, unless another one has not
        ended.
        """
        if job.number not in self.held_back or self.ending_runs(job):
            return
        self.held_back.remove(job.number)
        for index, task in job.numbered():
            if task.state is TaskState.PENDING and (job.number, index) not in self.queue:
                self.enqueue(job, index)

    def watch(self, job: Job, index: int, attempt: Attempt) -> None:
        """Start the timers of a placed task: its timeout while it runs, its session's timeout until
        then.
        """
        if attempt.status is KernelStatus.RUNNING:
            if (limit_ms := job.limit_ms(attempt)) is not None:
                self.timers.set(("timeout", job.number, index), limit_ms)
        elif job.session is None:
            self.start_timeout(SINGLE[attempt.status], (job.number, index), attempt.since_ms)

    def unwatch(self, job: Job, index: int, attempt: Attempt) -> None:
        """Stop the timers of an attempt that its task leaves."""
        if job.spec.timeout_ms is not None or attempt.ending is not None:
            self.timers.clear(("timeout", job.number, index))
        if job.session is None:
            self.stop_timeout(SINGLE[attempt.status], (job.number, index))
            job.task(index).session = None

    def start_timeout(self, status: SessionStatus, key: Key, at_ms: int) -> None:
        """Start the timeout of a session's status, if it has one."""
        line = self.timeouts.get(status)
        if line is not None:
            line.enter(key, at_ms)
            if (
                status is SessionStatus.TERMINATING
            ):  # a task may have waited for its kernel's end before it ended
                line.keep_order()

    def stop_timeout(self, status: SessionStatus, key: Key) -> None:
        line = self.timeouts.get(status)
        if line is not None:
            line.leave(key)
