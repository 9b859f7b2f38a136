"""Deletes finished jobs, their idempotency keys, and answers. `machine` runs it at the end of each
round.

A job is finished when it has ended and the end of every attempt is known: it is compacted then, and
queued for deletion, oldest end first. A job with children on record stays until they are deleted,
so that cancelling a tree always finds the whole tree; one that another job waits for stays too. Its
counts stay, its key for a while.
Source: docs/design/semantics.md#jobs; ADR 21.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from iris_core.states import SESSION_TERMINAL, TERMINAL
from iris_state.policy import Policy
from iris_state.records import changes as c
from iris_state.records.answers import kept_bytes
from iris_state.records.changes import DeploymentForgotten
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import complete
from iris_state.records.weight import memory_of
from iris_state.snapshots.compacted import CompactedTasks, compact, is_compacted

PRUNED_AT_ONCE = 500
"""Jobs deleted in one round at most, which bounds the size of a commit."""

JOB_BYTES = 1250
"""Bytes of memory of a finished job of one task, besides what its owner wrote and what
`records.weight` measures: measured.
"""


class Retention:
    """Tracks finished jobs, after each change has been applied."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ended: dict[int, None] = {}
        self._looked_at: dict[int, None] = {}
        self._line: dict[int, tuple[int, int]] = {}
        self.bytes = 0
        self._parents: dict[int, None] = {}

    def _job_moved(self, change: c.JobMoved) -> None:
        if self._ledger.jobs[change.job].is_terminal:
            self._ended[change.job] = self._looked_at[change.job] = None

    def _moved(self, change: c.Moved | c.Closed | c.SessionMoved) -> None:
        """A job that has ended may be finished now."""
        if change.job in self._ended:
            self._looked_at[change.job] = None

    def _pruned(self, change: c.JobPruned) -> None:
        self._leave(change.job)

    REACTIONS = complete(
        {
            c.JobMoved: _job_moved,
            c.Moved: _moved,
            c.Closed: _moved,
            c.SessionMoved: _moved,
            c.JobPruned: _pruned,
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
                c.JobClosed,
            ),
            *(c.QueueHeld, c.QueueReleased),
            *(c.JobAdmitted, c.Assigned, c.Staged, c.Judged, c.Nominated, c.Avoided),
            *(c.WorkerRegistered, c.WorkerMoved, c.WorkerForgotten, c.QuotaSet),
            *(c.Answered, c.Dropped, c.Audited, c.Led),
            *c.DEPLOYMENT_KINDS,
        ),
    )

    def settle(self) -> None:
        """Compact the jobs that are finished now. Called when nothing refers to the tasks of this
        round any more.
        """
        if not self._looked_at:
            return
        for number in self._looked_at:
            job = self._ledger.jobs.get(number)
            if job is not None and is_over(job):
                self._ended.pop(number, None)
                self._ledger.kernels.pop(number, None)
                compact(job)
                self._enter(job)
        self._looked_at = {}

    def _enter(self, job: Job) -> None:
        """Queue a job for deletion."""
        size = weight(job, self._ledger.written[job.number])
        self._line[job.number] = (job.finished_ms, size)
        self.bytes += size

    def _leave(self, number: int) -> None:
        """A job was deleted, by this replica or by the leader: remove it from the queue."""
        _, size = self._line.pop(number, (0, 0))
        self.bytes -= size

    @property
    def finished(self) -> int:
        """How many jobs are queued for deletion."""
        return len(self._line)

    def restore(self) -> None:
        """Add every job of a ledger that was loaded from a snapshot."""
        ended = [job for job in self._ledger.jobs.values() if job.is_terminal]
        ended.sort(key=lambda job: (job.finished_ms, job.number))
        self._line, self.bytes = {}, 0
        for job in filter(is_compacted, ended):
            self._enter(job)
        self._ended = {job.number: None for job in ended if not is_compacted(job)}
        self._looked_at = dict(self._ended)
        self._parents = {}

    def forgettable(
        self, keep_jobs: int, keep_ms: int, now_ms: int, keep_bytes: int = 0
    ) -> Iterator[c.JobPruned]:
        """Jobs to delete now: all but the newest ``keep_jobs`` and ``keep_bytes``, and those
        finished for longer than ``keep_ms``; 0: never.

        Each must be applied before the next one is requested.
        """
        surplus = len(self._line) - keep_jobs if keep_jobs else 0
        oldest = now_ms - keep_ms if keep_ms else 0

        def stays(finished_ms: int) -> bool:
            return (
                surplus <= 0
                and finished_ms >= oldest
                and not (keep_bytes and self.bytes > keep_bytes)
            )

        first = next(iter(self._line.values()), None)
        if first is None or stays(first[0]):  # as in nearly every round
            return
        for number, (finished_ms, _) in list(islice(self._line.items(), PRUNED_AT_ONCE)):
            if stays(finished_ms):
                return
            surplus -= 1
            job = self._ledger.jobs.get(number)
            if number in self._ledger.gates.waiters:
                self._line[number] = self._line.pop(number)  # looked at again after the others
                continue
            if job is not None and job.children:
                self._parents[number] = None
            elif job is not None:
                yield from self._with_parents(job)
                if number in self._ledger.jobs:
                    continue  # the change that should have been applied was set aside
            self._leave(number)

    def forgettable_deployments(self, keep: int) -> Iterator[DeploymentForgotten]:
        """Destroyed deployments beyond the number to keep, once all their routes have ended."""
        destroyed = self._ledger.destroyed
        for number in list(islice(destroyed, max(0, min(len(destroyed) - keep, PRUNED_AT_ONCE)))):
            deployment = self._ledger.deployments[number]
            if not deployment.held():
                yield DeploymentForgotten(number, deployment.name)

    def droppable(self, policy: Policy, now_ms: int) -> c.Dropped | None:
        """Keys of deleted jobs, answers, and entries of the audit, beyond the number to keep."""
        ledger = self._ledger
        keys = answers = 0
        bytes_left, oldest_ms = ledger.spent_keys.bytes, now_ms - policy.keep_keys_ms
        for key, at_ms in islice(ledger.spent_keys.items(), PRUNED_AT_ONCE):
            if bytes_left <= policy.keep_keys_bytes and at_ms >= oldest_ms:
                break
            keys += 1
            bytes_left -= kept_bytes(key)
        bytes_left = ledger.answers.bytes
        for request, (_, body) in islice(ledger.answers.items(), PRUNED_AT_ONCE):
            if (
                bytes_left <= policy.keep_answers_bytes
                and len(ledger.answers) - answers <= policy.keep_answers
            ):
                break
            answers += 1
            bytes_left -= kept_bytes(request, body)
        audited = self._surplus_audit(policy, now_ms)
        return c.Dropped(keys, answers, audited) if keys or answers or audited else None

    def _surplus_audit(self, policy: Policy, now_ms: int) -> int:
        """How many of the oldest entries of the audit are too old, or too much."""
        audit, count = self._ledger.audit, 0
        bytes_left, oldest_ms = audit.bytes, now_ms - policy.keep_audit_ms
        for at_ms, size in islice(audit.sizes(), PRUNED_AT_ONCE):
            if bytes_left <= policy.keep_audit_bytes and at_ms >= oldest_ms:
                break
            count += 1
            bytes_left -= size
        return count

    def _with_parents(self, job: Job) -> Iterator[c.JobPruned]:
        """Delete a job, and then every ancestor that only waited for it."""
        parent = job.parent
        yield c.JobPruned(job.number)
        above = self._ledger.jobs.get(parent)
        if above is not None and parent in self._parents and not above.children:
            del self._parents[parent]
            if parent in self._ledger.gates.waiters:
                self._enter(above)
                return
            yield from self._with_parents(above)


def weight(job: Job, written: int) -> int:
    """Bytes of memory of a finished job, of which its owner wrote so many."""
    tasks = len(job.tasks.data) if isinstance(job.tasks, CompactedTasks) else 0
    kept = (job.gates, job.history, job.error, job.note, job.usage)
    return JOB_BYTES + tasks + written + memory_of(kept)


def is_over(job: Job) -> bool:
    """Whether nothing of a job will change any more."""
    if not job.is_terminal or sum(job.counts[state] for state in TERMINAL) != len(job.tasks):
        return False
    if job.session is not None and job.session.status not in SESSION_TERMINAL:
        return False
    return is_compacted(job) or not any(
        attempt.is_open for task in job.tasks for attempt in task.attempts
    )
