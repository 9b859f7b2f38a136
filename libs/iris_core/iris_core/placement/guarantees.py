"""Guarantees of projects: which work is within one, and which attempts may give way for it.

The scheduler decides by it, and the state service checks by it what a scheduler asks for. A guarantee
of a resource says nothing about work that does not ask for that resource. Two projects are judged
below the place where their ways to the root meet: what is above is common to both. Pure arithmetic;
who is chosen is decided elsewhere. Source: docs/design/team.md#guarantee-and-share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import add, sub

from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.projects import ROOT, within
from iris_core.spec.resources import Amount, ResourceLimits

GuaranteedAmount = tuple[int, ...]
"""An amount for each of `RUNNING_LIMITS`."""

NOTHING: GuaranteedAmount = (0,) * len(RUNNING_LIMITS)
ProjectPart = tuple[str, GuaranteedAmount]
"""The project of some attempts, and what they hold."""


def held_of(amount: Amount | ResourceLimits) -> GuaranteedAmount:
    """The amounts that guarantees are about."""
    return tuple([getattr(amount, resource.name) for _, resource in RUNNING_LIMITS])


@lru_cache(maxsize=4096)
def way_of(project: str) -> tuple[str, ...]:
    """A project and those above it, the innermost first, without the root."""
    return tuple(within("" if project == ROOT else project))


class Guarantees:
    """What is guaranteed, and what is held of it.

    Attributes:
        amounts: by the path of a project that has a guarantee.
        held: by path, what open attempts hold in a project and below it, with what is promised there.
        staying: the same, without the promises and without what has been told to stop.
    """

    def __init__(self, amounts: Mapping[str, GuaranteedAmount]) -> None:
        self.amounts = {path: amount for path, amount in amounts.items() if any(amount)}
        self.held = dict.fromkeys(self.amounts, NOTHING)
        self.staying = dict.fromkeys(self.amounts, NOTHING)

    def __bool__(self) -> bool:
        """Whether there is any guarantee."""
        return bool(self.amounts)

    def on_way(self, project: str) -> list[str]:
        """A project and those above it that have a guarantee, the innermost first."""
        return [path for path in way_of(project) if path in self.amounts]

    def add(self, project: str, amount: GuaranteedAmount, *, staying: bool = True) -> None:
        """Count attempts, or promises, of a project; ``staying``: attempts that were not told to stop."""
        for path in self.on_way(project):
            self.held[path] = tuple(map(add, self.held[path], amount))
            if staying:
                self.staying[path] = tuple(map(add, self.staying[path], amount))

    def stop(self, project: str, amount: GuaranteedAmount) -> None:
        """Attempts of a project have been told to stop: they hold what they hold until they end."""
        for path in self.on_way(project):
            self.staying[path] = tuple(map(sub, self.staying[path], amount))

    def near(self, project: str, need: GuaranteedAmount, count: int) -> int:
        """How many of ``count`` such tasks stay within every guarantee on the way of their project; none
        where nothing that they ask for is guaranteed.
        """
        is_covered = False
        for path in self.on_way(project):
            for guaranteed, held, asked in zip(
                self.amounts[path], self.held[path], need, strict=True
            ):
                if guaranteed and asked:
                    is_covered = True
                    count = min(count, max(0, guaranteed - held) // asked)
        return count if is_covered else 0

    def may_reclaim(self, project: str, need: GuaranteedAmount) -> bool:
        """Whether such a task is within the innermost guarantee on its way that says something about
        it, so that work of other projects may be told to give way for it.
        """
        for path in self.on_way(project):
            if self._says(path, need):
                return not self._exceeded(path, need)
        return False

    def gives_way(self, project: str, need: GuaranteedAmount, unit: ProjectPart) -> bool:
        """Whether attempts that end together borrow, as seen from a task of a project, so that all that
        stays of their own project is at least what it is guaranteed.
        """
        of, amount = unit
        common = self._common(project, of)
        if of == project or not self._covers(project, need, common):
            return False
        if not self._is_below_all_exceeded(project, need, common):
            return False
        return all(self._lends(path, amount) for path in self.on_way(of) if path not in common)

    def is_just(
        self,
        project: str,
        need: GuaranteedAmount,
        giving: Sequence[ProjectPart],
        others: Sequence[ProjectPart] = (),
    ) -> bool:
        """Whether these may give way, in this order, for such a task of a project. ``others``: what ends
        besides, whatever it is guaranteed.
        """
        if not self.may_reclaim(project, need):
            return False
        left = self.copy()
        for other in others:
            left.stop(*other)
        for unit in giving:
            if not left.gives_way(project, need, unit):
                return False
            left.stop(*unit)
        return self.suffices(project, need, [*giving, *others])

    def copy(self) -> Guarantees:
        """The same, to be changed."""
        other = Guarantees(self.amounts)
        other.held.update(self.held)
        other.staying.update(self.staying)
        return other

    def _is_below_all_exceeded(
        self, project: str, need: GuaranteedAmount, common: set[str]
    ) -> bool:
        """Whether the end of work makes room in each guarantee that the task would exceed."""
        return all(path in common for path in self.on_way(project) if self._exceeded(path, need))

    def suffices(self, project: str, need: GuaranteedAmount, units: Sequence[ProjectPart]) -> bool:
        """Whether no guarantee on the way of a task is exceeded, or exceeded further, if these end and it
        starts in their place.
        """
        for path in self.on_way(project):
            freed = [amount for of, amount in units if path in way_of(of)]
            ends = tuple(map(sum, zip(NOTHING, *freed, strict=True)))
            rows = zip(self.amounts[path], self.held[path], need, ends, strict=True)
            for guaranteed, held, asked, less in rows:
                if guaranteed and asked and held + asked - less > max(guaranteed, held):
                    return False
        return True

    def _lends(self, path: str, amount: GuaranteedAmount) -> bool:
        """Whether a project still holds what it is guaranteed without such attempts: of what they hold,
        and of at least one thing that it held more of. What it held less of anyway does not protect
        them.
        """
        if not self._says(path, amount):
            return True
        is_beyond = False
        rows = zip(self.amounts[path], self.staying[path], amount, strict=True)
        for guaranteed, held, less in rows:
            if not (guaranteed and less):
                continue
            if held - less >= guaranteed:
                is_beyond = True
            elif held >= guaranteed:
                return False
        return is_beyond

    def _says(self, path: str, amount: GuaranteedAmount) -> bool:
        """Whether a guarantee is about something of what is asked for, or held."""
        return any(map(_both, self.amounts[path], amount))

    def _exceeded(self, path: str, need: GuaranteedAmount) -> bool:
        """Whether a guarantee would be exceeded with one more such task."""
        rows = zip(self.amounts[path], self.held[path], need, strict=True)
        return any(
            guaranteed and asked and held + asked > guaranteed for guaranteed, held, asked in rows
        )

    def _common(self, project: str, other: str) -> set[str]:
        return set(way_of(project)).intersection(way_of(other))

    def _covers(self, project: str, need: GuaranteedAmount, common: set[str]) -> bool:
        """Whether a guarantee below the place where two ways meet is about the task."""
        return any(path not in common and self._says(path, need) for path in self.on_way(project))


def _both(one: int, other: int) -> bool:
    return one > 0 and other > 0


def multiplied(amount: GuaranteedAmount, count: int) -> GuaranteedAmount:
    """What so many such tasks hold."""
    return tuple([count * part for part in amount])
