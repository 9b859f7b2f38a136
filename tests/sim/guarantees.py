"""What gave way to guarantees of projects, counted anew from the journal: nobody was left with less
than was guaranteed, no gang went in part, and what gave way took nothing back at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from iris_core.placement.guarantees import NOTHING, GuaranteedAmount, held_of, way_of
from iris_core.spec.jobs import JobSpec
from iris_state.records.changes import (
    Assigned,
    Closed,
    Commit,
    JobAdmitted,
    JobAmended,
    Moved,
    Nominated,
    ProjectRemoved,
    ProjectSet,
)
from iris_state.records.stops import StopOrdered

RECLAIM_MIN_S = 8.0
"""As simulated schedulers have it."""
Key = tuple[int, int, int]


def reclaimed(commits: Iterable[Commit]) -> int:
    """How many attempts gave way."""
    return sum(_gives_way(change) for commit in commits for change in commit.changes)


def violations(commits: Iterable[Commit]) -> Iterator[str]:
    """What was reclaimed against the rules."""
    book = _Book()
    for commit in commits:
        for gives_way, changes in groupby(commit.changes, _evicts):
            if gives_way:
                yield from book.reclaim(list(changes), commit.at_ms)
            else:
                for change in changes:
                    book.take(change)


def _gives_way(change: object) -> bool:
    return isinstance(change, Moved | StopOrdered) and change.note.startswith("reclaimed by /")


def _evicts(change: object) -> bool:
    """Whether it is a part of what is reclaimed: a stop, or a promise."""
    return _gives_way(change) or (isinstance(change, Nominated) and bool(change.worker))


class _Book:
    """What each project holds, change by change.

    Attributes:
        open: attempts whose end is not known, and whether they hold something of their own.
            staying: those of them that were not told to stop.
    """

    def __init__(self) -> None:
        self.specs: dict[int, JobSpec] = {}
        self.guarantees: dict[str, GuaranteedAmount] = {}
        self.open: dict[Key, bool] = {}
        self.staying: dict[Key, None] = {}
        self.gave_way_ms: dict[tuple[int, int], int] = {}

    def take(self, change: object) -> None:
        if isinstance(change, JobAdmitted):
            self.specs[change.number] = change.spec
        elif isinstance(change, JobAmended):
            self.specs[change.job] = change.spec
        elif isinstance(change, ProjectSet):
            self.guarantees[change.path] = held_of(change.spec.guarantee)
        elif isinstance(change, ProjectRemoved):
            self.guarantees.pop(change.path, None)
        elif isinstance(change, Assigned):
            key = (change.job, change.index, change.attempt)
            self.open[key] = change.chain is None
            self.staying[key] = None
        elif isinstance(change, Moved | StopOrdered | Closed):
            key = (change.job, change.index, change.attempt)
            self.staying.pop(key, None)
            if isinstance(change, Closed) or (isinstance(change, Moved) and change.closed):
                self.open.pop(key, None)

    def reclaim(self, changes: list[object], at_ms: int) -> Iterator[str]:
        """Stops and promises of some evictions, one after the other."""
        has_stops = False
        for is_stop, several in groupby(changes, _gives_way):
            if is_stop:
                for note, stops in groupby(several, lambda change: change.note):  # type: ignore[attr-defined]
                    yield from self._evict(note, list(stops), at_ms)
            elif has_stops:
                yield from self._promise(several, at_ms)
            has_stops = is_stop

    def _promise(self, tasks: Iterable[object], at_ms: int) -> Iterator[str]:
        for task in tasks:
            assert isinstance(task, Nominated)
            since_ms = at_ms - self.gave_way_ms.get((task.job, task.index), -1 << 60)
            if since_ms < RECLAIM_MIN_S * 1000:
                yield f"{task} takes back what it gave {since_ms} ms ago"

    def _evict(self, note: str, stops: list[object], at_ms: int) -> Iterator[str]:
        project = note.removeprefix("reclaimed by ").partition(" for ")[0]
        keys = [
            (change.job, change.index, change.attempt)  # type: ignore[attr-defined]
            for change in stops
        ]
        self.gave_way_ms |= {(job, index): at_ms for job, index, _ in keys}
        keys = [key for key in keys if key in self.staying and self.open.get(key)]
        for job in {job for job, _, _ in keys if self.specs[job].coscheduling is not None}:
            left = {key for key in self.staying if key[0] == job} - set(keys)
            if left:
                yield f"{note}: {left} of a gang went on"
        common = set(way_of(project))
        paths = {path for job, _, _ in keys for path in way_of(self.specs[job].project)}
        for path in sorted(paths - common):
            if not any(self.guarantees.get(path, NOTHING)) or self._has_chains(path):
                continue
            going = self._sum(path, keys)
            before = self._sum(path, self.staying)
            kept = [
                (b - g >= most, b >= most)
                for most, b, g in zip(self.guarantees[path], before, going, strict=True)
                if most and g
            ]
            if any(had and not has for has, had in kept) or (
                kept and not any(map(itemgetter(0), kept))
            ):
                yield f"{note}: {path} held {before}, is guaranteed {self.guarantees[path]}, lost {going}"
        for change in stops:
            self.take(change)

    def _sum(self, path: str, keys: Iterable[Key]) -> GuaranteedAmount:
        amounts = [
            held_of(self.specs[key[0]].resources.amount)
            for key in keys
            if path in way_of(self.specs[key[0]].project) and self.open.get(key)
        ]
        return tuple(map(sum, zip(NOTHING, *amounts, strict=True)))

    def _has_chains(self, path: str) -> bool:
        """Whether attempts wait for others there: then it is not known here which of them hold what."""
        return any(
            not holds and path in way_of(self.specs[key[0]].project)
            for key, holds in self.open.items()
        )
