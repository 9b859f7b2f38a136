"""The timers of tasks and jobs: by what is due, a job's number and a task's index. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from iris_core.states import TaskState
from iris_state.records.entities import Job
from iris_state.records.gates import WHOLE
from iris_state.records.indexes.timer_queue import TimerQueue


class JobTimers(TimerQueue[tuple[str, int, int]]):
    """All timers, and when those of a whole job start and stop."""

    def start_idle(self, job: Job, since_ms: int = 0) -> None:
        """Wait for the next request of the client of an open job, from its last one or a later time
        on.
        """
        if job.open and job.spec.calls is not None and job.spec.calls.idle_s is not None:
            due_ms = max(job.grown_ms, since_ms) + int(job.spec.calls.idle_s * 1000)
            self.set(("idle", job.number, WHOLE), due_ms)

    def start_scheduling(self, job: Job, indexes: Sequence[int] = ()) -> None:
        """Start the scheduling timeout of a job that is eligible, or of those of its tasks that
        are.
        """
        timeout = job.spec.scheduling_timeout_s
        if timeout is None or job.is_terminal or job.is_gated:
            return
        timeout_ms = int(timeout * 1000)
        if not job.opens_by_task:
            self.set(
                ("scheduling", job.number, 0), (job.eligible_ms or job.submitted_ms) + timeout_ms
            )
            return
        for index in indexes or job.indexes:
            task = job.task(index)
            if task.state is TaskState.PENDING and not task.attempts and not task.gates:
                self.set(("scheduling", job.number, index), task.queued_ms + timeout_ms)

    def stop_scheduling(self, job: Job) -> None:
        """Stop the scheduling timeout of a job that is not eligible any more, or has ended."""
        if job.spec.scheduling_timeout_s is None:
            return
        for index in job.indexes if job.opens_by_task else (0,):
            self.clear(("scheduling", job.number, index))
