"""The record of everything, in memory: `apply` is the only writer, and the same for a new change and for replay.

What is kept beside the records (queue, open attempts, capacity, clocks, children) is an index over them and can be
rebuilt; `check` compares the two. No decision is taken here. Source: architecture.md "ledger"; semantics.md 1, 4.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from iris_core.messages import Quota
from iris_core.names import JobName
from iris_core.queue import TaskQueue
from iris_core.reasons import Reason
from iris_core.states import (
    ACTIVE,
    KERNEL_UNSTARTED,
    SHOWN_AS,
    TERMINAL,
    Budget,
    Cause,
    JobState,
    KernelStatus,
    SchedulingResult,
    SessionStatus,
    TaskState,
    WorkerState,
)
from iris_core.tables.session import SINGLE, Patience
from iris_state import changes as c
from iris_state.deadlines import Alarms, Line
from iris_state.records import Attempt, AttemptKey, HistoryEntry, Job, Key, Presence, Session, Task, Totals, Worker

ANSWERS_KEPT = 20_000
HISTORY_KEPT = 1_000
"""Rows of history one job keeps; the oldest go first."""
LOOK_BACK = 64
"""How far back an equal row of the same session is looked for among those of its job's other sessions."""


class Told(NamedTuple):
    """One public fact that a change makes, before it has a number; `outbox` words it.

    ``task`` is None for a job's or session's own; ``tasks`` > 1 stands for that many tasks from ``task`` on.
    """

    entity: str
    job: Job
    task: int | None
    attempt: Attempt | None
    state: str
    previous: str | None
    cause: Cause | None
    at_ms: int
    exit_code: int | None = None
    tasks: int = 1


class Ledger:
    """All records and their indexes."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.names: dict[str, int] = {}
        self.namesakes: dict[str, list[int]] = {}
        self.idempotency: dict[str, int] = {}
        self.answers: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self.workers: dict[str, Worker] = {}
        self.presence: dict[str, Presence] = {}
        self.heard: Line[str] = Line()
        self.quotas: dict[str, Quota] = {}
        self.promises: dict[Key, str] = {}
        self.avoided: dict[Key, dict[str, int]] = {}
        self.reasons: dict[int, Reason] = {}
        self.kernels: dict[int, Counter[KernelStatus]] = {}
        self.open_of_job: Counter[int] = Counter()
        self.totals = Totals()
        self.next_number = 1
        self.epoch = 0
        self.queue = TaskQueue()
        self.pending_of_user: Counter[str] = Counter()
        self.lines: dict[SessionStatus, Line[Key]] = {
            status: Line() for status in SessionStatus if Patience().of(status) is not None
        }
        self.alarms: Alarms[tuple[str, int, int]] = Alarms()
        self.told: list[Told] = []
        self._apply: dict[type, Callable[[Any, int], None]] = {
            c.JobAdmitted: self._job_admitted,
            c.Assigned: self._of_task(self._assigned),
            c.Staged: self._of_task(self._staged),
            c.Moved: self._of_task(self._moved),
            c.Closed: self._of_task(self._closed),
            c.JobMoved: self._job_moved,
            c.SessionMoved: self._session_moved,
            c.Judged: self._judged,
            c.WorkerRegistered: self._worker_registered,
            c.WorkerMoved: self._worker_moved,
            c.Promised: self._promised,
            c.Avoided: self._avoided,
            c.QuotaSet: self._quota_set,
            c.Answered: self._answered,
            c.JobPruned: self._job_pruned,
            c.Led: self._led,
        }

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def find_job(self, text: str) -> Job | None:
        """The job of a name (its newest run) or of an opaque id ``j<number>``."""
        if text.startswith("j") and text[1:].isdigit():
            return self.jobs.get(int(text[1:]))
        number = self.names.get(text)
        return self.jobs.get(number) if number is not None else None

    def find_task(self, text: str) -> tuple[Job, int] | None:
        """The job and index of ``/train/0`` or ``j7/0``."""
        name, _, last = text.rpartition("/")
        job = self.find_job(name)
        if job is None or not last.isdigit() or int(last) >= len(job.tasks):
            return None
        return job, int(last)

    def attempt(self, key: AttemptKey) -> Attempt | None:
        job = self.jobs.get(key[0])
        if job is None or not 0 <= key[1] < len(job.tasks):
            return None
        attempts = job.tasks[key[1]].attempts
        return attempts[key[2]] if 0 <= key[2] < len(attempts) else None

    def session(self, job: Job, index: int) -> Session | None:
        """The stored session record a task belongs to; None while a session of one has nothing worth storing."""
        return job.session if job.session is not None else job.tasks[index].session

    def session_since(self, job: Job, index: int) -> int:
        """When a session came into its status, ms."""
        if job.session is not None:
            return job.session.since_ms
        task = job.tasks[index]
        return task.queued_ms if task.state is TaskState.PENDING or not task.attempts else task.attempts[-1].since_ms

    def session_status(self, job: Job, index: int) -> SessionStatus:
        """A coscheduled session's stored status; a session of one follows its only kernel."""
        if job.session is not None:
            return job.session.status
        task = job.tasks[index]
        if task.state is TaskState.PENDING:
            return SessionStatus.PENDING
        if not task.attempts:
            return SessionStatus.CANCELLED
        return SINGLE[task.attempts[-1].status]

    def hear(self, worker: str, at_ms: int) -> None:
        """A host that is not lost has said something, whatever it was; not recorded."""
        self.presence[worker].beat_ms = at_ms
        self.heard.enter(worker, at_ms)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, change: c.Change, at_ms: int) -> None:
        """Make one change true. Facts for the public are appended to `told`."""
        self._apply[type(change)](change, at_ms)

    def _of_task(self, write: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        """Write a change of one task, and keep its gang's counters of kernel statuses true."""

        def apply(change: Any, at_ms: int) -> None:
            kernels = self.kernels.get(change.job)
            if kernels is None:
                write(change, at_ms)
                return
            task = self.jobs[change.job].tasks[change.index]
            kernels[kernel_status(task)] -= 1
            write(change, at_ms)
            kernels[kernel_status(task)] += 1

        return apply

    def _job_admitted(self, change: c.JobAdmitted, at_ms: int) -> None:
        spec = change.spec
        counts = [0] * len(TaskState)
        counts[TaskState.PENDING] = spec.replicas
        job = Job(
            number=change.number,
            name=change.name,
            spec=spec,
            user=change.user,
            band=spec.priority_band,
            depth=JobName.from_string(change.name).depth,
            submitted_ms=change.submitted_ms,
            root_submitted_ms=change.root_submitted_ms,
            parent=change.parent,
            tasks=[Task(queued_ms=change.submitted_ms) for _ in range(spec.replicas)],
            counts=counts,
            session=Session(since_ms=change.submitted_ms) if spec.is_gang else None,
            idempotency_key=change.idempotency_key,
            traceparent=change.traceparent,
        )
        self.next_number = max(self.next_number, change.number + 1)
        self.totals.admitted += 1
        self.index_job(job)
        if change.idempotency_key:
            self.idempotency[idempotency(change.user, change.idempotency_key)] = change.number
        self.told.append(Told("task", job, 0, None, "pending", None, None, at_ms, tasks=spec.replicas))
        self.told.append(Told("job", job, None, None, "pending", None, None, at_ms))
        if job.session is not None:
            self.told.append(Told("session", job, None, None, "pending", None, None, at_ms))

    def index_job(self, job: Job) -> None:
        """Enter a job into every index: a new one, or one from a snapshot."""
        self.file_job(job)
        pending = job.counts[TaskState.PENDING]
        if pending == len(job.tasks):
            self.queue.add(job.number, job.key, ((0, pending),))
            self.pending_of_user[job.user] += pending
            for index, task in enumerate(job.tasks):
                if task.attempts:
                    self._index_open(job, index, task)
        else:
            for index, task in enumerate(job.tasks):
                self._index_task(job, index, task)
        if job.session is not None:
            self.kernels[job.number] = Counter(kernel_status(task) for task in job.tasks)
            self._enter_line(job.session.status, (job.number, c.GANG), job.session.since_ms)
        timeout = job.spec.scheduling_timeout_s
        if timeout is not None and not job.is_terminal:
            self.alarms.set(("scheduling", job.number, 0), job.submitted_ms + int(timeout * 1000))

    def file_job(self, job: Job) -> None:
        """Enter a job under its number, its name and its parent only: all that one that is over needs."""
        self.jobs[job.number] = job
        before = self.names.get(job.name)
        if before is not None:
            self.namesakes.setdefault(job.name, [before]).append(job.number)
        self.names[job.name] = max(job.number, before or 0)
        parent = self.jobs.get(job.parent)
        if parent is not None:
            parent.children.append(job.number)

    def _index_task(self, job: Job, index: int, task: Task) -> None:
        if task.state is TaskState.PENDING:
            self._enqueue(job, index)
        self._index_open(job, index, task)
        current = task.current
        if current is not None and task.state in ACTIVE:
            self._watch(job, index, current)

    def _index_open(self, job: Job, index: int, task: Task) -> None:
        for attempt in task.attempts:
            if attempt.is_open:
                self._hold(job, index, attempt)

    def _assigned(self, change: c.Assigned, at_ms: int) -> None:
        job = self.jobs[change.job]
        index = change.index
        task = job.tasks[index]
        attempt = Attempt(change.attempt, change.worker, at_ms, at_ms)
        if task.attempts:
            task.attempts.append(attempt)
        else:
            task.attempts = [attempt]
        self.queue.remove(job.number, index)
        self.pending_of_user[job.user] -= 1
        self.promises.pop((job.number, index), None)
        self._set_state(job, index, task, TaskState.ASSIGNED, attempt, None, at_ms)
        self._hold(job, index, attempt)
        if job.session is None:
            task.session = None
            self._enter_line(SessionStatus.SCHEDULED, (job.number, index), at_ms)

    def _staged(self, change: c.Staged, at_ms: int) -> None:
        job = self.jobs[change.job]
        task = job.tasks[change.index]
        attempt = task.attempts[change.attempt]
        before, attempt.status = attempt.status, change.status
        if before in KERNEL_UNSTARTED and change.status is KernelStatus.RUNNING:
            attempt.started_ms = attempt.started_ms or at_ms
            self.presence[attempt.worker].building -= 1
        elif not attempt.building_ms:
            attempt.building_ms = at_ms
        left, entered = SINGLE[before], SINGLE[change.status]
        if left is not entered:  # a stage within a status does not restart its clock
            attempt.since_ms = at_ms
            if job.session is None:
                key = (job.number, change.index)
                self._leave_line(left, key)
                self._enter_line(entered, key, at_ms)
                task.session = None
        shown = SHOWN_AS[change.status]
        if shown is not task.state:
            attempt.shown = shown
            self._set_state(job, change.index, task, shown, attempt, None, at_ms)
        if shown is TaskState.RUNNING:
            self._watch(job, change.index, attempt)

    def _moved(self, change: c.Moved, at_ms: int) -> None:
        job = self.jobs[change.job]
        index = change.index
        task = job.tasks[index]
        attempt = task.attempts[change.attempt] if change.attempt >= 0 else None
        if task.state is TaskState.PENDING:
            self.queue.remove(job.number, index)
            self.pending_of_user[job.user] -= 1
            self.promises.pop((job.number, index), None)
        if change.state in TERMINAL:
            task.cause, task.note = change.cause, change.note
        if attempt is not None and task.state in ACTIVE:
            self._leave_attempt(job, task, attempt, change, at_ms)
        elif change.cause is Cause.COSCHEDULED_SIBLING:
            task.preemption_count = job.spec.max_retries_preemption + 1
        self._set_state(job, index, task, change.state, attempt, change.cause, at_ms)
        if change.state is TaskState.PENDING:
            task.queued_ms = at_ms
            self._enqueue(job, index)

    def _leave_attempt(self, job: Job, task: Task, attempt: Attempt, change: c.Moved, at_ms: int) -> None:
        failures, preemptions = task.failure_count, task.preemption_count
        if change.charged_to is Budget.FAILURE:
            task.failure_count += 1
        elif change.charged_to is Budget.PREEMPTION:
            task.preemption_count += 1
        elif change.charged_to is Budget.RESCHEDULE:
            task.reschedules += 1
        elif change.cause is Cause.COSCHEDULED_SIBLING:
            task.preemption_count = job.spec.max_retries_preemption + 1
        attempt.failures = (failures, task.failure_count)
        attempt.preemptions = (preemptions, task.preemption_count)
        attempt.cause, attempt.initiator, attempt.charged_to = change.cause, change.initiator, change.charged_to
        attempt.shown = change.shown
        attempt.ended_ms = at_ms
        attempt.error = change.note
        self._unwatch(job, change.index, attempt)
        if attempt.status in KERNEL_UNSTARTED:
            self.presence[attempt.worker].building -= 1
        if change.closed:
            self._close(job, change.index, attempt, change.ended, at_ms)
        else:
            attempt.status, attempt.since_ms = KernelStatus.TERMINATING, at_ms

    def _closed(self, change: c.Closed, at_ms: int) -> None:
        job = self.jobs[change.job]
        attempt = job.tasks[change.index].attempts[change.attempt]
        self._close(job, change.index, attempt, change.ended, at_ms)

    def _close(self, job: Job, index: int, attempt: Attempt, ended: Any, at_ms: int) -> None:
        if ended is not None:
            attempt.exit_code, attempt.signal = ended.exit_code, ended.signal
            attempt.error = attempt.error or ended.error
            attempt.stderr_tail, attempt.peak_rss_bytes = ended.stderr_tail, ended.peak_rss_bytes
        attempt.status = KernelStatus.ERROR if ended is None or ended.cause in _NO_EXIT else KernelStatus.TERMINATED
        attempt.since_ms = attempt.closed_ms = at_ms
        self._release(job, index, attempt)

    def _job_moved(self, change: c.JobMoved, at_ms: int) -> None:
        job = self.jobs[change.job]
        previous, job.state = job.state, change.state
        if change.state is JobState.RUNNING:
            job.started_ms = job.started_ms or at_ms
        if job.is_terminal:
            job.finished_ms, job.cause, job.error = at_ms, change.cause, change.error
            self.alarms.clear(("scheduling", job.number, 0))
            self.reasons.pop(job.number, None)
        self.told.append(
            Told("job", job, None, None, change.state.name.lower(), previous.name.lower(), change.cause, at_ms)
        )

    def _session_moved(self, change: c.SessionMoved, at_ms: int) -> None:
        job = self.jobs[change.job]
        session = job.session
        assert session is not None
        before, key = session.status, (job.number, c.GANG)
        session.version += 1
        row = HistoryEntry(
            c.GANG,
            change.handler,
            before.value,
            change.status.value,
            change.result,
            change.reason,
            1,
            at_ms,
            at_ms,
        )
        self._remember(job, row)
        session.tries = {}
        if before is change.status:
            return
        self._leave_line(before, key)
        session.status, session.since_ms = change.status, at_ms
        self._enter_line(change.status, key, at_ms)
        self.told.append(
            Told("session", job, None, None, change.status.value.lower(), before.value.lower(), None, at_ms)
        )

    def _judged(self, change: c.Judged, at_ms: int) -> None:
        job = self.jobs[change.job]
        of_plain_job = change.index == c.GANG and job.session is None
        status = SessionStatus.PENDING if of_plain_job else self.session_status(job, max(change.index, 0))
        row = HistoryEntry(
            change.index,
            change.handler,
            status.value,
            status.value,
            change.result,
            change.reason,
            change.looks,
            change.since_ms or at_ms,
            at_ms,
        )
        self._remember(job, row)
        if change.result is SchedulingResult.SKIPPED:
            return
        session = job.session
        if session is None:
            task = job.tasks[change.index]
            session = task.session = task.session or Session(status, at_ms)
        session.version += 1
        session.tries = {**session.tries, change.handler: change.tries}
        session.judged_at = change.version

    def _remember(self, job: Job, row: HistoryEntry) -> None:
        """Append a row, or count it into the last one of its session when that says the same."""
        last = self._last_row(job, row.index)
        if last is not None and last.says(row):
            last.attempts += row.attempts
            last.last_ms = row.last_ms
        else:
            job.history.append(row)
            if len(job.history) > HISTORY_KEPT:
                del job.history[0]

    def _last_row(self, job: Job, index: int) -> HistoryEntry | None:
        if job.session is not None:
            return job.history[-1] if job.history else None
        return next((row for row in reversed(job.history[-LOOK_BACK:]) if row.index == index), None)

    def _worker_registered(self, change: c.WorkerRegistered, at_ms: int) -> None:
        known = self.workers.get(change.worker)
        drained = known is not None and known.drained
        state = WorkerState.DRAINING if drained else WorkerState.HEALTHY
        self.workers[change.worker] = Worker(
            change.worker,
            change.incarnation,
            change.attributes,
            change.total,
            state=state,
            reason=known.reason if known is not None and drained else "",
            address=change.address,
            version=change.version,
            registered_ms=at_ms,
            told_ms=change.told_ms,
            drained=drained,
        )
        self.presence.setdefault(change.worker, Presence(at_ms)).begin(change.told_ms)
        self.hear(change.worker, at_ms)

    def _worker_moved(self, change: c.WorkerMoved, at_ms: int) -> None:
        worker = self.workers[change.worker]
        worker.state = change.state
        if change.state is WorkerState.LOST:
            self.heard.leave(change.worker)
            worker.reason = worker.reason if worker.drained else change.reason
            return
        worker.reason = change.reason
        worker.drained = change.state is WorkerState.DRAINING

    def _promised(self, change: c.Promised, at_ms: int) -> None:
        if change.worker:
            self.promises[(change.job, change.index)] = change.worker
        else:
            self.promises.pop((change.job, change.index), None)

    def _avoided(self, change: c.Avoided, at_ms: int) -> None:
        self.avoided.setdefault((change.job, change.index), {})[change.worker] = change.until_ms

    def _quota_set(self, change: c.QuotaSet, at_ms: int) -> None:
        self.quotas[change.quota.user] = change.quota

    def _answered(self, change: c.Answered, at_ms: int) -> None:
        self.answers[change.request_id] = (change.status, change.body)
        while len(self.answers) > ANSWERS_KEPT:
            self.answers.popitem(last=False)

    def _job_pruned(self, change: c.JobPruned, at_ms: int) -> None:
        job = self.jobs.pop(change.job)
        self.kernels.pop(job.number, None)
        del self.open_of_job[job.number]
        self._count_forgotten(job)
        for key in [key for key in self.avoided if key[0] == job.number] if self.avoided else ():
            del self.avoided[key]
        self._forget_name(job)
        parent = self.jobs.get(job.parent)
        if parent is not None:
            parent.children = [number for number in parent.children if number != job.number]

    def _forget_name(self, job: Job) -> None:
        """The name leads to the newest run that is left."""
        runs = self.namesakes.get(job.name, [job.number])
        runs.remove(job.number)
        if runs:
            self.names[job.name] = max(runs)
        else:
            del self.names[job.name]
        if len(runs) < 2:
            self.namesakes.pop(job.name, None)

    def _count_forgotten(self, job: Job) -> None:
        totals = self.totals
        totals.pruned += 1
        state = job.state.name.lower()
        totals.jobs[state] = totals.jobs.get(state, 0) + 1
        for task_state, n in job.counted().items():
            word = _WORDS[task_state]
            totals.tasks[word] = totals.tasks.get(word, 0) + n

    def _led(self, change: c.Led, at_ms: int) -> None:
        self.epoch = change.epoch

    # ── indexes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _set_state(
        self,
        job: Job,
        index: int,
        task: Task,
        state: TaskState,
        attempt: Attempt | None,
        cause: Cause | None,
        at_ms: int,
    ) -> None:
        previous = task.state
        job.counts[previous] -= 1
        job.counts[state] += 1
        task.state = state
        exit_code = attempt.exit_code if attempt is not None else None
        self.told.append(Told("task", job, index, attempt, _WORDS[state], _WORDS[previous], cause, at_ms, exit_code))

    def _enqueue(self, job: Job, index: int) -> None:
        self.queue.add(job.number, job.key, ((index, index + 1),))
        self.pending_of_user[job.user] += 1

    def _hold(self, job: Job, index: int, attempt: Attempt) -> None:
        presence = self.presence.setdefault(attempt.worker, Presence(attempt.assigned_ms))
        presence.open[(job.number, index, attempt.number)] = attempt
        self.open_of_job[job.number] += 1
        presence.committed = presence.committed + job.spec.resources.amount
        if attempt.status in KERNEL_UNSTARTED:
            presence.building += 1

    def _release(self, job: Job, index: int, attempt: Attempt) -> None:
        presence = self.presence[attempt.worker]
        if presence.open.pop((job.number, index, attempt.number), None) is not None:
            presence.committed = presence.committed - job.spec.resources.amount
            self.open_of_job[job.number] -= 1

    def _watch(self, job: Job, index: int, attempt: Attempt) -> None:
        """Start the clocks of a placed task: its timeout when it runs, its session's patience until then."""
        if attempt.status is KernelStatus.RUNNING:
            if job.timeout_ms is not None:
                self.alarms.set(("timeout", job.number, index), attempt.started_ms + job.timeout_ms)
        elif job.session is None:
            self._enter_line(SINGLE[attempt.status], (job.number, index), attempt.since_ms)

    def _unwatch(self, job: Job, index: int, attempt: Attempt) -> None:
        if job.timeout_ms is not None:
            self.alarms.clear(("timeout", job.number, index))
        if job.session is None:
            self._leave_line(SINGLE[attempt.status], (job.number, index))
            job.tasks[index].session = None

    def _enter_line(self, status: SessionStatus, key: Key, at_ms: int) -> None:
        line = self.lines.get(status)
        if line is not None:
            line.enter(key, at_ms)

    def _leave_line(self, status: SessionStatus, key: Key) -> None:
        line = self.lines.get(status)
        if line is not None:
            line.leave(key)


_WORDS = {state: state.name.lower() for state in TaskState}
_NO_EXIT = frozenset({Cause.INFRASTRUCTURE, Cause.MISSING, Cause.WORKER_LOST})


def kernel_status(task: Task) -> KernelStatus:
    """How far the task's part of its session's present placement has come."""
    if task.state is TaskState.PENDING:
        return KernelStatus.PENDING
    return task.attempts[-1].status if task.attempts else KernelStatus.CANCELLED


def idempotency(user: str, key: str) -> str:
    """Where one user's idempotency key is kept: two users may choose the same."""
    return f"{user}\0{key}"
