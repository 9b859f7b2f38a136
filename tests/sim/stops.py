"""Judges stops by the journal: who was protected, who was told, and what became of those who ended
in time.
"""

from __future__ import annotations

from collections.abc import Iterable

from iris_core.spec.jobs import JobSpec
from iris_core.states import GIVES_WAY, Cause, KernelStatus, TaskState
from iris_state.records.changes import (
    Assigned,
    Closed,
    Commit,
    JobAdmitted,
    JobAmended,
    Moved,
    Requeued,
    Staged,
)
from iris_state.records.entities import AttemptKey
from iris_state.records.stops import Noticed, StopOrdered
from tests.sim.violation import expect

_SUCCEEDS = (TaskState.SUCCEEDED, TaskState.RUNNING)


class _Stops:
    """What was committed of stops so far."""

    def __init__(self) -> None:
        self.specs: dict[int, JobSpec] = {}
        self.since_ms: dict[AttemptKey, int] = {}
        self.ordered: dict[AttemptKey, StopOrdered] = {}
        self.told: set[tuple[AttemptKey, str]] = set()
        self.requeued: set[AttemptKey] = set()
        self.closed: set[AttemptKey] = set()

    def look(self, change: object, at_ms: int) -> None:
        if isinstance(change, JobAdmitted):
            self.specs[change.number] = change.spec
        elif isinstance(change, JobAmended):
            self.specs[change.job] = change.spec
        elif isinstance(
            change, Assigned | Staged | StopOrdered | Noticed | Requeued | Moved | Closed
        ):
            self._of_attempt(change, (change.job, change.index, change.attempt), at_ms)

    def _of_attempt(self, change: object, key: AttemptKey, at_ms: int) -> None:
        if isinstance(change, Assigned) or (
            isinstance(change, Staged) and change.status is KernelStatus.RUNNING
        ):
            self.since_ms[key] = at_ms
        elif isinstance(change, StopOrdered):
            expect(self.specs[key[0]].ends_late, f"{change} of a job without notice")
            expect(
                key not in self.ordered,
                f"{key} was told to stop twice: {self.ordered.get(key)} {change}",
            )
            self._preempted(change.cause, key, at_ms)
            self.ordered[key] = change
        elif isinstance(change, Noticed):
            expect(
                (key, change.notice.reason) not in self.told, f"{key} was noticed twice: {change}"
            )
            expect(self.specs[key[0]].notice is not None, f"{change} of a job without notice")
            self.told.add((key, change.notice.reason))
        elif isinstance(change, Requeued):
            self.requeued.add(key)
        elif isinstance(change, Moved):
            self._moved(change, key, at_ms)

    def _preempted(self, cause: Cause, key: AttemptKey, at_ms: int) -> None:
        if cause in GIVES_WAY:
            age_s, protect_s = (
                (at_ms - self.since_ms[key]) / 1000,
                self.specs[key[0]].protect_s or 0.0,
            )
            expect(
                age_s >= protect_s,
                f"{key} was preempted after {age_s} s, and is protected for {protect_s} s",
            )

    def _moved(self, moved: Moved, key: AttemptKey, at_ms: int) -> None:
        """A task leaves an attempt: one that was told to stop by its end, and by exit 0 it
        succeeds.
        """
        if key not in self.ordered:
            self._preempted(moved.cause, key, at_ms)
        elif moved.cause in (Cause.EXITED, *GIVES_WAY):
            expect(
                moved.closed or moved.cause in GIVES_WAY,
                f"{key} was left before its end is known: {moved}",
            )
        if key[0] not in self.specs or self.specs[key[0]].notice is None or key in self.requeued:
            return
        ended = moved.ended
        if ended is not None and (ended.exit_code, ended.signal) == (0, None):
            expect(moved.state in _SUCCEEDS, f"{key} exited 0 in time, and then {moved}")


def check_stops(commits: Iterable[Commit]) -> None:
    """Raises Violation."""
    stops = _Stops()
    for commit in commits:
        for change in commit.changes:
            stops.look(change, commit.at_ms)
