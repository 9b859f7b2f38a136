"""Changes one cell of a table and reports whether a story fails.

Out of scope: which tables, and the stories.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

import pytest

from iris_core import states
from iris_core.lifecycle import Condition, Derivation, Rule, To
from iris_core.states import Budget, MatchType, SessionStatus, TaskState
from iris_state.machine.round import Round
from tests.support.world import World

S = TypeVar("S")


@dataclass(frozen=True)
class Mutant:
    """One cell with another value. ``place`` is an attribute of a row, or a key of a mapping."""

    name: str
    row: str
    where: Any
    place: Any
    value: Any

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """The tables are changed in place, because rows are known by identity."""
        before = (
            self.where[self.place]
            if isinstance(self.where, dict)
            else getattr(self.where, self.place)
        )
        self._put(before if self.value is before else self.value)
        try:
            yield
        finally:
            self._put(before)

    def _put(self, value: Any) -> None:
        if isinstance(self.where, dict):
            self.where[self.place] = value
        else:
            object.__setattr__(self.where, self.place, value)


CELLS = ("success", "need_retry", "expired", "give_up", "free_give_up")
NAMED_SETS = {value for value in vars(states).values() if isinstance(value, frozenset)}


def of_rule(rule: Rule[Any, Any], statuses: type[Enum]) -> Iterator[Mutant]:
    """Every cell of a row: other targets, none where there is one, one where there is none;
    sources, budgets.
    """

    def mutant(place: str, value: Any, said: str) -> Mutant:
        return Mutant(f"{rule.name}.{place} = {said}", rule.name, rule, place, value)

    for place in CELLS:
        to = getattr(rule, place)
        for other in others(statuses, to.status if to is not None else None):
            yield mutant(
                place, replace(to or To(), status=other), f"{other.name}, {to and to.part}"
            )
            if to is not None and to.part is not None and other is not to.part:
                yield mutant(place, replace(to, part=other), f"{to.status}, {other.name}")
        if to is not None:
            yield mutant(place, None, "keep")
    for less in without_one(rule.sources, statuses):
        yield mutant("sources", less, names(less))
    for less in without_one(rule.outcomes, None):
        yield mutant("outcomes", less, names(less))
    for budget in (None, *Budget):
        if budget is not rule.budget and (rule.budget is not None or statuses is TaskState):
            yield mutant("budget", budget, str(budget))
    for source in rule.sources:
        if statuses is TaskState:
            yield mutant("free_from", rule.free_from ^ {source}, names(rule.free_from ^ {source}))


def of_derivation(row: Derivation[Any, Any]) -> Iterator[Mutant]:
    """Every target, source, alternative and condition of a row."""

    def mutant(place: str, value: Any, said: str) -> Mutant:
        return Mutant(f"{row.name}.{said}", row.name, row, place, value)

    for other in others(type(row.target), row.target):
        yield mutant("target", other, f"target = {other.name}")
    for less in without_one(row.sources, SessionStatus) if row.sources else ():
        yield mutant("sources", less, f"sources = {names(less)}")
    for at, alternative in enumerate(row.any_of):
        yield mutant("any_of", row.any_of[:at] + row.any_of[at + 1 :], f"any_of without [{at}]")
        for number, condition in enumerate(alternative):
            for said, changed in of_condition(condition):
                new = alternative[:number] + changed + alternative[number + 1 :]
                value = (*row.any_of[:at], new, *row.any_of[at + 1 :])
                yield mutant("any_of", value, f"any_of[{at}][{number}]{said}")


def of_condition(condition: Condition[Any]) -> Iterator[tuple[str, tuple[Condition[Any], ...]]]:
    """A condition gone, of another kind, or over other statuses; a set that has a name is one
    value.
    """
    yield " gone", ()
    for match in MatchType:
        if condition.match is not None and match is not condition.match:
            yield f".match = {match.name}", (replace(condition, match=match),)
    if condition.statuses:
        kind = type(next(iter(condition.statuses)))
        yield (
            ".statuses = all others",
            (replace(condition, statuses=frozenset(kind) - condition.statuses),),
        )
    if len(condition.statuses) > 1 and condition.statuses not in NAMED_SETS:
        for less in without_one(condition.statuses, None):
            yield f".statuses = {names(less)}", (replace(condition, statuses=less),)


def of_mapping(
    name: str, mapping: dict[Any, Any], values: Callable[[Any], Any]
) -> Iterator[Mutant]:
    for key, value in mapping.items():
        for other in values(value):
            yield Mutant(
                f"{name}[{key.name}] = {getattr(other, 'name', other)}", name, mapping, key, other
            )


def others(kind: type[Enum], but: Enum | None) -> list[Any]:
    return [member for member in kind if member is not but and member.name != "UNSPECIFIED"]


def without_one(members: frozenset[Any], kind: type[Enum] | None) -> Iterator[frozenset[Any]]:
    """Less each of them; another one instead of the only one."""
    for member in members:
        rest = members - {member}
        yield (
            rest
            if rest or kind is None
            else frozenset({next(other for other in others(kind, member))})
        )


def names(members: frozenset[Any]) -> str:
    return " ".join(sorted(member.name for member in members)) or "none"


class Endless(AssertionError):
    """A changed table goes round and round."""


def quickly(
    monkeypatch: pytest.MonkeyPatch, tell: Callable[[S], World], changes: int
) -> Callable[[S], bool]:
    """Whether a story holds: invariants are asked once at its end, and it may make so many
    changes.
    """
    check, apply = World.check, Round.apply
    left = [0]

    def counted(real: Callable[..., Any] | None) -> Callable[..., Any]:
        def call(self: Any, *given: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Endless("this story takes no end")
            return real(self, *given) if real is not None else None

        return call

    monkeypatch.setattr(World, "check", counted(None))
    monkeypatch.setattr(World, "check_timeouts", counted(None))
    monkeypatch.setattr(Round, "apply", counted(apply))

    def holds(story: S) -> bool:
        left[0] = changes
        try:
            check(tell(story))
        except Exception:  # noqa: BLE001 - whatever a changed table makes of a story, it has been noticed
            return False
        return True

    return holds


def unnoticed(
    mutants: Iterable[Mutant],
    stories: Iterable[S],
    refused: Callable[[], bool],
    holds: Callable[[S], bool],
) -> list[str]:
    """The names of the changes that the guard accepts and no story notices; what noticed one is
    tried first.
    """
    order, found = list(dict.fromkeys(stories)), []
    for mutant in mutants:
        with mutant.made():
            if refused():
                continue
            at = next((at for at, story in enumerate(order) if not holds(story)), None)
        if at is None:
            found.append(mutant.name)
        else:
            order.insert(0, order.pop(at))
    return found
