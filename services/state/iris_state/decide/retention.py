"""Deletes finished jobs, their idempotency keys, and answers. `machine` runs it at the end of each
round.

A job is finished when it has ended and the end of every attempt is known: it is compacted then, and
queued for deletion, oldest end first, of the user who has most. A job with children on record stays until they are deleted,
so that cancelling a tree always finds the whole tree; one that another job waits for stays too. Its
counts stay, its key for a while.
Source: docs/design/semantics.md#jobs; ADR 21.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from iris_core.states import SESSION_TERMINAL, TERMINAL
from iris_state.policy import Policy
from iris_state.records import changes as c
from iris_state.records.changes import DeploymentForgotten
from iris_state.records.compacted import CompactedTasks, compact, is_compacted
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import complete
from iris_state.records.weight import memory_of

PRUNED_AT_ONCE = 500
"""Jobs deleted in one round at most, which bounds the size of a commit."""

JOB_BYTES = 1250
"""Bytes of memory of a finished job of one task, besides what its owner wrote and what
`records.weight` measures: measured.
"""


class Retention:
    """Tracks finished jobs, after each change has been applied.

    Attributes:
        bytes: memory of finished jobs. bytes_of: of each user's.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ended: dict[int, None] = {}
        self._looked_at: dict[int, None] = {}
        self._line: dict[int, tuple[int, int, str]] = {}
        self._of_user: dict[str, dict[int, None]] = {}
        self.bytes_of: Counter[str] = Counter()
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
            *(c.WorkerRegistered, c.WorkerMoved, c.WorkerForgotten, c.QuotaSet, c.GroupsNoted),
            *(c.Answered, c.Dropped, c.Evicted, c.Audited, c.Led),
            *c.DEPLOYMENT_KINDS,
            *c.FLEET_KINDS,
            *c.PROJECT_KINDS,
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
            if job is not None and is_over(self._ledger, job):
                self._ended.pop(number, None)
                self._ledger.kernels.pop(number, None)
                compact(job)
                self._enter(job)
        self._looked_at = {}

    def _enter(self, job: Job) -> None:
        """Queue a job for deletion."""
        size = weight(job, self._ledger.written[job.number])
        self._line[job.number] = (job.finished_ms, size, job.user)
        self._of_user.setdefault(job.user, {})[job.number] = None
        self.bytes += size
        self.bytes_of[job.user] += size

    def _leave(self, number: int) -> None:
        """A job was deleted, by this replica or by the leader: remove it from the queue."""
        found = self._line.pop(number, None)
        if found is None:
            return
        _, size, user = found
        self.bytes -= size
        self.bytes_of[user] -= size
        del self._of_user[user][number]
        if not self._of_user[user]:
            del self._of_user[user], self.bytes_of[user]

    @property
    def finished(self) -> int:
        """How many jobs are queued for deletion."""
        return len(self._line)

    def restore(self) -> None:
        """Add every job of a ledger that was loaded from a snapshot."""
        ended = [job for job in self._ledger.jobs.values() if job.is_terminal]
        ended.sort(key=lambda job: (job.finished_ms, job.number))
        self._line, self._of_user, self.bytes_of, self.bytes = {}, {}, Counter(), 0
        for job in filter(is_compacted, ended):
            self._enter(job)
        self._ended = {job.number: None for job in ended if not is_compacted(job)}
        self._looked_at = dict(self._ended)
        self._parents = {}

    def forgettable(
        self, keep_jobs: int, keep_ms: int, now_ms: int, keep_bytes: int = 0
    ) -> Iterator[c.JobPruned]:
        """Jobs to delete now: those beyond ``keep_jobs`` and ``keep_bytes``, the oldest of the user
        who has most jobs, or bytes; and those finished for longer than ``keep_ms``; 0: never.

        Each must be applied before the next one is requested.
        """
        oldest_ms = now_ms - keep_ms if keep_ms else 0
        stays: dict[int, int] = {}  # what was looked at and stays counts as if it were deleted
        for _ in range(PRUNED_AT_ONCE):
            number = self._next(keep_jobs, oldest_ms, keep_bytes, stays)
            if number is None:  # as in nearly every round
                return
            stays[number] = self._line[number][1]
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
            del stays[number]

    def _next(
        self, keep_jobs: int, oldest_ms: int, keep_bytes: int, stays: dict[int, int]
    ) -> int | None:
        """The next job to delete: one that is too old, or the oldest one of the user who has most."""
        for number, (finished_ms, _, _) in self._line.items():
            if finished_ms >= oldest_ms:
                break
            if number not in stays:
                return number
        measure: Callable[[str], int]
        if keep_jobs and len(self._line) - len(stays) > keep_jobs:
            measure = self._count_of
        elif keep_bytes and self.bytes - sum(stays.values()) > keep_bytes:
            measure = self.bytes_of.__getitem__
        else:
            return None
        number = next(iter(self._of_user[max(self._of_user, key=measure)]))
        if number not in stays:
            return number
        by_most = sorted(self._of_user, key=measure, reverse=True)
        others = (number for user in by_most for number in self._of_user[user])
        return next((number for number in others if number not in stays), None)

    def _count_of(self, user: str) -> int:
        return len(self._of_user[user])

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
        oldest_audit_ms = now_ms - policy.keep_audit_ms
        oldest_ms = now_ms - policy.keep_keys_ms
        spent = ledger.spent_keys.surplus(policy.keep_keys_bytes, oldest_ms, PRUNED_AT_ONCE)
        answers = ledger.answers.surplus(
            policy.keep_answers, policy.keep_answers_bytes, PRUNED_AT_ONCE
        )
        entries: list[int] = []
        if ledger.audit.bytes > policy.keep_audit_bytes or ledger.audit.oldest_ms < oldest_audit_ms:
            entries = ledger.audit.surplus(policy.keep_audit_bytes, oldest_audit_ms, PRUNED_AT_ONCE)
        if not spent and not answers and not entries:
            return None
        return c.Dropped(entries=tuple(entries), spent=tuple(spent), answered=tuple(answers))

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


def is_over(ledger: Ledger, job: Job) -> bool:
    """Whether nothing of a job will change any more."""
    if not job.is_terminal or sum(job.counts[state] for state in TERMINAL) != len(job.tasks):
        return False
    if job.session is not None and job.session.status not in SESSION_TERMINAL:
        return False
    return not ledger.open_of_job[job.number]
