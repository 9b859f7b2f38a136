"""What fair share counts as used, counted anew from the journal: every attempt from its assignment to
its end, halved with every half-life.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from iris_core.spec.jobs import JobSpec
from iris_core.spec.projects import ROOT, upwards
from iris_state.records.changes import (
    Assigned,
    Closed,
    Commit,
    JobAdmitted,
    JobAmended,
    Moved,
    ProjectRemoved,
    ProjectSet,
)
from iris_state.records.shares import ShareKey, ShareNode, Shares, counted_of

HALF_LIFE_S = 20.0
"""As simulated state services have it: storms last several."""
_CLOSE = 1e-9
Key = tuple[int, int, int]


def is_counted(commits: Iterable[Commit]) -> bool:
    """Whether the weights of projects decided the order at some time."""
    return _read(commits).was_on


def violations(commits: Iterable[Commit], shares: Shares) -> Iterator[str]:
    """What the state service counts otherwise than the journal says."""
    book = _read(commits)
    stored = shares.stored()
    if book.is_on is not (stored is not None):
        yield f"the weights {book.weights} are followed: {stored is not None}"
    for node in stored.nodes if stored is not None else ():
        key = ShareKey(node.path, node.user)
        if key in book.has_chains:  # which attempt of a chain holds something is not known here
            continue
        used = book.used(key, node.at_ms)
        if any(
            abs(one - other) > _CLOSE * max(1.0, other)
            for one, other in zip(node.used, used, strict=True)
        ):
            yield f"{key} has used {node.used}, by the journal {used}"


def _read(commits: Iterable[Commit]) -> _Book:
    book = _Book()
    for commit in commits:
        for change in commit.changes:
            book.take(change, commit.at_ms)
    return book


class _Book:
    """Who has held what, and from when to when.

    Attributes:
        open: whose each attempt is, what it holds, and since when that counts.
        was_held: what was held, until an end that is known.
        was_on: whether two projects had weights at some time.
        has_chains: where attempts have waited for others.
    """

    def __init__(self) -> None:
        self.specs: dict[int, JobSpec] = {}
        self.users: dict[int, str] = {}
        self.weights: dict[str, float] = {}
        self.open: dict[Key, tuple[ShareKey, list[int], int]] = {}
        self.was_held: dict[ShareKey, list[tuple[list[int], int, int]]] = defaultdict(list)
        self.has_chains: set[ShareKey] = set()
        self.was_on = False

    @property
    def is_on(self) -> bool:
        return len(self.weights) > 1

    def take(self, change: object, at_ms: int) -> None:
        if isinstance(change, JobAdmitted):
            self.specs[change.number] = change.spec
            self.users[change.number] = change.user
        elif isinstance(change, JobAmended):
            self.specs[change.job] = change.spec
        elif isinstance(change, ProjectSet | ProjectRemoved):
            self._weigh(change, at_ms)
        elif isinstance(change, Assigned):
            spec = self.specs[change.job]
            key = ShareKey(spec.project or ROOT, self.users[change.job])
            amount = counted_of(spec.resources.amount)
            self.open[change.job, change.index, change.attempt] = (key, amount, at_ms)
            if change.chain is not None:
                self.has_chains.update(_way(key))
        elif isinstance(change, Closed) or (isinstance(change, Moved) and change.closed):
            found = self.open.pop((change.job, change.index, change.attempt), None)
            if found is not None:
                key, amount, since_ms = found
                for one in _way(key):
                    self.was_held[one].append((amount, since_ms, at_ms))

    def _weigh(self, change: ProjectSet | ProjectRemoved, at_ms: int) -> None:
        """With the second weight everything begins to count."""
        was_on = self.is_on
        self.weights.pop(change.path, None)
        if isinstance(change, ProjectSet) and change.spec.weight is not None:
            self.weights[change.path] = change.spec.weight
        self.was_on |= self.is_on
        if self.is_on and not was_on:
            self.was_held.clear()
            self.open = {one: (key, held, at_ms) for one, (key, held, _) in self.open.items()}

    def used(self, key: ShareKey, at_ms: int) -> list[float]:
        """Of each resource the amount times seconds, as of a time after which nothing is counted."""
        parts = [
            *self.was_held[key],
            *((held, since, at_ms) for of, held, since in self.open.values() if key in _way(of)),
        ]
        found = [0.0] * len(ShareNode("", "", 0).used)
        for held, since_ms, until_ms in parts:
            seconds = _remaining_s(at_ms - until_ms) - _remaining_s(at_ms - since_ms)
            found = [one + amount * seconds for one, amount in zip(found, held, strict=True)]
        return found


def _remaining_s(age_ms: int) -> float:
    """The integral of what is left of 1, from so long ago on back for ever: seconds."""
    return HALF_LIFE_S * _PER_HALVING * 0.5 ** (age_ms / 1000 / HALF_LIFE_S)


_PER_HALVING = 1.4426950408889634
"""1 / ln 2."""


def _way(key: ShareKey) -> list[ShareKey]:
    """A user of a project, the project, and those above it."""
    return [key, *(ShareKey(path, "") for path in upwards(key.path))]
