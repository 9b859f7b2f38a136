"""Who waits for whom: an index over the gates of jobs, and the gates that are to be judged. It
decides nothing.

The ledger keeps it; `gates` judges what is in ``ripe``. Derived from the records, so a snapshot
does not hold it.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Mapping
from itertools import islice

from iris_state.records.entities import Job, Key
from iris_state.records.gates import WHOLE, Gate, GateKind


class GateIndex:
    """The closed gates of jobs that have not ended.

    Attributes:
        gated: jobs with a closed gate. waiters: by the number of a job, the jobs that wait for it
            or for its tasks.
        followers: of those, the jobs for which each start and end of a task matters.
        singletons: by user and key, the jobs that may run or are still ending, in the order of
            their admission.
        ripe: gates to judge: a job and the index of a task, or `WHOLE`, in the order in which they
            were noted.
        later: jobs of which a gate is to be judged behind those, because another job has ended.
        left: by job and gate, for how many tasks a gate with ``each`` is closed.
    """

    def __init__(self, jobs: Mapping[int, Job]) -> None:
        self._jobs = jobs
        self.gated: dict[int, None] = {}
        self.waiters: dict[int, dict[int, None]] = {}
        self.followers: dict[int, dict[int, None]] = {}
        self.singletons: dict[tuple[str, str], list[int]] = {}
        self.ripe: dict[Key, None] = {}
        self.later: deque[int] = deque()
        self.left: dict[tuple[int, int], int] = {}

    def add(self, job: Job) -> None:
        """A job that is new, or from a snapshot, or has other gates now; they are all to be
        judged.
        """
        if job.spec.singleton:
            line = self.singletons.setdefault((job.user, job.spec.singleton), [])
            if job.number not in line:
                insort(line, job.number)
        if job.is_terminal or not job.closed_gates:
            return
        self.gated[job.number] = None
        self.ripe[job.number, WHOLE] = None
        for gate in job.closed_gates:
            if gate.kind is GateKind.DEPENDENCY:
                self.waiters.setdefault(gate.job, {})[job.number] = None
                if gate.follows_tasks:
                    self.followers.setdefault(gate.job, {})[job.number] = None
            if gate.each:
                self.left[job.number, gate.number] = sum(
                    bool(task.gates & gate.bit) for task in job.tasks
                )

    def remove(self, job: Job, gates: tuple[Gate, ...]) -> None:
        """A job has ended, or these of its gates are open or dropped."""
        for gate in gates:
            self.left.pop((job.number, gate.number), None)
            left = (
                () if job.is_terminal else [one for one in job.closed_gates if one.job == gate.job]
            )
            if not left:
                _leave(self.waiters, gate.job, job.number)
            if not any(one.follows_tasks for one in left):
                _leave(self.followers, gate.job, job.number)
        if job.is_terminal or not job.closed_gates:
            self.gated.pop(job.number, None)
            self.ripe.pop((job.number, WHOLE), None)

    def note_job(self, number: int) -> None:
        """A job has started or ended: judge what waits for it."""
        self.later.extend(self.waiters[number])

    def next_ripe(self, most: int) -> list[Key]:
        """The gates to judge first, at most so many."""
        while self.later and len(self.ripe) < most:
            self.ripe[self.later.popleft(), WHOLE] = None
        return list(islice(self.ripe, most))

    def are_noted(self, job: Job) -> bool:
        """Whether a gate of a job is to be judged."""
        return job.number in self.later or any(number == job.number for number, _ in self.ripe)

    def note_task(self, job: Job, index: int) -> None:
        """A task has started or ended: judge the tasks in its place of jobs that wait task by task,
        and what waits for a start.
        """
        place = job.indexes.position(index)
        for number in self.followers[job.number]:
            waiter = self._jobs[number]
            for gate in waiter.closed_gates:
                if gate.job == job.number and gate.each:
                    self.ripe[number, waiter.indexes[place]] = None
                elif gate.job == job.number:
                    self.ripe[number, WHOLE] = None

    def end_singleton(self, job: Job) -> None:
        """No attempt of an ended job may run any more: the next of its singleton key is to be
        judged.
        """
        line = self.singletons[job.user, job.spec.singleton]
        line.remove(job.number)
        if line:
            self.ripe[line[0], WHOLE] = None
        else:
            del self.singletons[job.user, job.spec.singleton]


def _leave(of: dict[int, dict[int, None]], number: int, waiter: int) -> None:
    waiting = of.get(number, {})
    if waiting.pop(waiter, ()) is None and not waiting:
        del of[number]
