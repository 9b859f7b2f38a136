"""Invariants between two states of a ledger: the past is unchanged, versions rise, no deadline is
missed.

What must hold at every moment is `iris_state.check.records`. Source:
    docs/design/reliability.md#invariants.
"""

from __future__ import annotations

from collections.abc import Container

from iris_core.errors import InvariantBroken
from iris_core.states import JobState, TaskState
from iris_core.tables import session as session_table
from iris_state.check.deployments import Wrongs
from iris_state.decide import coordinator
from iris_state.policy import Policy
from iris_state.records.apply.sessions import HISTORY_KEPT
from iris_state.records.changes import GANG
from iris_state.records.entities import AttemptKey, Key
from iris_state.records.inputs import TimerKey
from iris_state.records.ledger import Ledger


def check_timeouts(
    ledger: Ledger,
    policy: Policy,
    now_ms: int,
    tick_ms: int = 0,
    aside: Container[TimerKey] = (),
    ended_before: Container[Key] | None = None,
) -> None:
    """Raises InvariantBroken when a session has outstayed its timeout by more than a tick and
    nobody acted.

    Args:
        aside: timers that were set aside.
        ended_before: tasks that had ended at the last look, None for all. What is left of a task
            that ended since then may have been terminating for longer than its timeout: the next
                round acts.
    """
    for status, line in ledger.timeouts.items():
        timeout_ms, owner = policy.timeout_of(status), session_table.OWNER.get(status)
        if timeout_ms is None or owner is None:
            continue
        late = [
            key for key in line.over(timeout_ms + tick_ms, now_ms) if (owner.name, key) not in aside
        ]
        late = [key for key in late if coordinator.answered(ledger, policy, owner, key, now_ms)]
        if ended_before is not None:
            late = [key for key in late if key in ended_before or not _has_ended(ledger, key)]
        if late:
            raise InvariantBroken(
                f"sessions {late} are {status.value} for more than {timeout_ms} ms"
            )


def _has_ended(ledger: Ledger, key: Key) -> bool:
    number, index = key
    return index != GANG and ledger.jobs[number].task(index).is_terminal


class Growth:
    """Compares a ledger with what it was at the last look: the past stays, versions rise, terminal
    is terminal.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, tuple[bool, JobState]] = {}
        self._ended: dict[Key, TaskState] = {}
        self._closed: dict[AttemptKey, int] = {}
        self._versions: dict[int, int] = {}
        self._history: dict[int, int] = {}
        self._epoch = 0
        self._missed = False

    def miss(self) -> None:
        """There is no look at this state: a job may end in it, and be forgotten before the next
        look.
        """
        self._missed = True

    @property
    def ended(self) -> Container[Key]:
        """The tasks that had ended at the last look."""
        return self._ended

    def look(self, ledger: Ledger) -> None:
        """Raises InvariantBroken when something of the past has changed since the last look."""
        wrong = [*self._job_wrongs(ledger), *self._task_wrongs(ledger)]
        if ledger.epoch < self._epoch:
            wrong.append(f"epoch {ledger.epoch} after {self._epoch}")
        if wrong:
            raise InvariantBroken("; ".join(wrong))
        self._remember(ledger)

    def _job_wrongs(self, ledger: Ledger) -> Wrongs:
        for number, (ended, state) in self._jobs.items():
            job = ledger.jobs.get(number)
            if job is None:
                if not ended and not self._missed:
                    yield f"j{number} was {state.name} and is forgotten"
                continue
            if ended and job.state is not state:
                yield f"{job.name} was {state.name} and is {job.state.name}"
            if (
                sum(entry.attempts for entry in job.history) < self._history[number]
                and len(job.history) < HISTORY_KEPT
            ):
                yield f"{job.name} has lost history"
            if job.session is not None and job.session.version < self._versions[number]:
                yield f"{job.name} went back to version {job.session.version}"

    def _task_wrongs(self, ledger: Ledger) -> Wrongs:
        for (number, index), state in self._ended.items():
            job = ledger.jobs.get(number)
            if job is not None and job.task(index).state is not state:
                yield f"{job.name}/{index} was {state.name} and is {job.task(index).state.name}"
        for key, closed_ms in self._closed.items():
            attempt = ledger.attempt(key)
            if attempt is None:
                if key[0] in ledger.jobs:
                    yield f"attempt {key} is forgotten"
            elif attempt.closed_ms != closed_ms:
                yield f"attempt {key} was closed at {closed_ms} and is at {attempt.closed_ms}"

    def _remember(self, ledger: Ledger) -> None:
        self._missed = False
        self._epoch = ledger.epoch
        self._jobs = {job.number: (job.is_terminal, job.state) for job in ledger.jobs.values()}
        self._history = {
            job.number: sum(entry.attempts for entry in job.history) for job in ledger.jobs.values()
        }
        self._versions = {
            job.number: job.session.version
            for job in ledger.jobs.values()
            if job.session is not None
        }
        self._ended = {}
        self._closed = {}
        for job in ledger.jobs.values():
            for index, task in job.numbered():
                if task.is_terminal:
                    self._ended[(job.number, index)] = task.state
                for attempt in task.attempts:
                    if attempt.closed_ms:
                        self._closed[(job.number, index, attempt.number)] = attempt.closed_ms
