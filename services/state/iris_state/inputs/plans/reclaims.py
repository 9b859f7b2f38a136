"""Checks evictions for work within the guarantee of its project against what is held now.

Source: docs/design/team.md#guarantee-and-share.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Eviction
from iris_core.placement.guarantees import Guarantees, ProjectPart, multiplied
from iris_state.decide.guarantees import held_guarantees, need_of
from iris_state.records.entities import Attempt
from iris_state.records.ledger import Ledger


class Reclaims:
    """The evictions of one plan that reclaim what projects are guaranteed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def is_just(self, eviction: Eviction) -> bool:
        """Whether the waiting tasks, of one job, are within the guarantee of their project, and all victims
        of their band borrow. If so, they count as told to stop.
        """
        jobs = self._ledger.jobs
        numbers = {nomination.job for nomination in eviction.nominations}
        if len(numbers) != 1 or not (numbers | {v.job for v in eviction.victims}) <= jobs.keys():
            return False
        waiting = jobs[numbers.pop()]
        project = waiting.spec.project
        need = multiplied(need_of(waiting), len(eviction.nominations))
        parts = [(jobs[number], part) for number, part in self._parts(eviction.victims)]
        giving = [part for job, part in parts if job.band == waiting.band]
        others = [part for job, part in parts if job.band != waiting.band]
        if not self._guarantees.is_just(project, need, giving, others):
            return False
        for part in (*giving, *others):
            self._guarantees.stop(*part)
        self._guarantees.add(project, need, staying=False)
        return True

    def _parts(self, victims: Iterable[AttemptRef]) -> list[tuple[int, ProjectPart]]:
        """What ends together, in order: each attempt, and all members of a gang."""
        found: dict[tuple[int, int], int] = {}
        for victim in victims:
            unit = (victim.job, -1 if self._ledger.jobs[victim.job].is_gang else victim.index)
            found[unit] = found.get(unit, 0) + 1
        jobs = self._ledger.jobs
        return [
            (number, (jobs[number].spec.project, multiplied(need_of(jobs[number]), count)))
            for (number, _), count in found.items()
        ]

    @cached_property
    def _guarantees(self) -> Guarantees:
        """What is guaranteed and held as of now."""
        found = held_guarantees(self._ledger)
        for presence in self._ledger.presence.values() if found else ():
            for (number, _, _), attempt in presence.open.items():
                if attempt.is_stopping and _counts(attempt):
                    job = self._ledger.jobs[number]
                    found.stop(job.spec.project, need_of(job))
        return found


def _counts(attempt: Attempt) -> bool:
    """Whether it holds something of its own: what waits behind another attempt does not."""
    return attempt.chain is None or bool(attempt.building_ms or attempt.started_ms)
