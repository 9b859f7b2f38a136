"""Rules of status tables, the function that judges an outcome, and the one that derives a whole
from its parts.

A rule is a row of a table in `iris_core.tables`; nothing outside the tables decides a status. Out
of scope: making claims (handlers, workers), and applying changes (the ledger). Sources:
docs/design/semantics.md#rules-and-judgement, docs/design/semantics.md#sessions,
docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from iris_core.states import Budget, MatchType, Outcome, SchedulingResult

W = TypeVar("W", bound=Enum)
P = TypeVar("P", bound=Enum)


_CELLS = {
    SchedulingResult.SUCCESS: "success",
    SchedulingResult.NEED_RETRY: "need_retry",
    SchedulingResult.EXPIRED: "expired",
    SchedulingResult.GIVE_UP: "give_up",
}

SUCCEEDS = frozenset({Outcome.SUCCESS})
FAILS = frozenset({Outcome.FAILURE})
EITHER = SUCCEEDS | FAILS


@dataclass(frozen=True, slots=True)
class To(Generic[W, P]):
    """A rule's target: the status of the entity, and of its part (a task's attempt).

    None keeps the present status (docs/design/semantics.md#rules-and-judgement).
    """

    status: W | None = None
    part: P | None = None


@dataclass(frozen=True)
class Rule(Generic[W, P]):
    """One row: the source statuses, and the target for each result. Without a target the status
    stays and the result is recorded.

    Attributes:
        outcomes: the outcomes that may be claimed; any other claim is ignored. A timeout needs no
            claim.
        budget: which counter a failure is charged to.
        free_from: statuses from which a failure is charged to the reschedule counter instead.
        free_give_up: the target of such a failure when that counter exceeds its limit.
    """

    name: str
    sources: frozenset[W]
    outcomes: frozenset[Outcome] = EITHER
    success: To[W, P] | None = None
    need_retry: To[W, P] | None = None
    expired: To[W, P] | None = None
    give_up: To[W, P] | None = None
    budget: Budget | None = None
    free_from: frozenset[W] = frozenset()
    free_give_up: To[W, P] | None = None

    def target(self, result: SchedulingResult, source: W | None = None) -> To[W, P] | None:
        """The row's target for a result of an entity in ``source``; SKIPPED has none."""
        if result is SchedulingResult.GIVE_UP and source in self.free_from:
            return self.free_give_up
        cell = _CELLS.get(result)
        return getattr(self, cell) if cell is not None else None

    def charged(self, source: W) -> Budget | None:
        """The counter that is charged when an entity in ``source`` fails under this rule."""
        return Budget.RESCHEDULE if source in self.free_from else self.budget

    @property
    def targets(self) -> tuple[To[W, P], ...]:
        cells = (self.success, self.need_retry, self.expired, self.give_up, self.free_give_up)
        return tuple(to for to in cells if to is not None)


def judge(
    outcome: Outcome,
    *,
    tries: int = 0,
    limit: int = 0,
    in_status_ms: int = 0,
    timeout_ms: int | None = None,
) -> SchedulingResult:
    """The result of one claim: exactly one per entity and round.

    Args:
        tries: failures counted so far, this one not included.
        limit: how many failures are retried; 0 gives up at the first, 5 at the sixth.
        in_status_ms: how long the entity has been in its status, by the time of the message being
            applied.
        timeout_ms: how long it may be in that status; it expires when strictly longer. None: never.

    Source: docs/design/semantics.md#rules-and-judgement, "The judgement".
    """
    if outcome is Outcome.SUCCESS:
        return SchedulingResult.SUCCESS
    if outcome is Outcome.FAILURE and tries + 1 > limit:
        return SchedulingResult.GIVE_UP
    if timeout_ms is not None and in_status_ms > timeout_ms:
        return SchedulingResult.EXPIRED
    if outcome is Outcome.FAILURE:
        return SchedulingResult.NEED_RETRY
    return SchedulingResult.SKIPPED


def decide(
    rule: Rule[W, P],
    source: W,
    outcome: Outcome,
    *,
    tries: int = 0,
    limit: int = 0,
    in_status_ms: int = 0,
    timeout_ms: int | None = None,
) -> tuple[SchedulingResult, To[W, P] | None]:
    """The result of a claim about an entity in ``source`` under a row, and the row's target for it;
    None keeps the status.

    Arguments as of `judge`.
    """
    if outcome not in rule.outcomes:
        outcome = Outcome.SKIPPED
    result = judge(
        outcome, tries=tries, limit=limit, in_status_ms=in_status_ms, timeout_ms=timeout_ms
    )
    return result, rule.target(result, source)


@dataclass(frozen=True, slots=True)
class Condition(Generic[P]):
    """A condition on the counts of the parts' statuses, or on a named fact about the whole.

    Attributes:
        match: ALL, ANY or NOT_ANY of the parts are in ``statuses``; a whole without parts matches
            nothing.
        over: instead of a match: more parts are in ``statuses`` than the limit of this name.
        fact: instead of both: this fact holds.
    """

    statuses: frozenset[P] = frozenset()
    match: MatchType | None = None
    over: str = ""
    fact: str = ""

    def holds(self, counts: Mapping[P, int], facts: Mapping[str, int]) -> bool:
        """Whether the condition holds for these counts. ``facts`` maps names to limits and
        facts.
        """
        if self.fact:
            return bool(facts[self.fact])
        inside = 0
        for status in self.statuses:
            inside += counts.get(status, 0)
        if self.over:
            return inside > facts[self.over]
        total = sum(counts.values())
        if not total:
            return False
        if self.match is MatchType.ALL:
            return inside == total
        return (inside > 0) if self.match is MatchType.ANY else (inside == 0)


@dataclass(frozen=True)
class Derivation(Generic[W, P]):
    """A row that derives: in any of ``sources`` (empty: any), when one of ``any_of`` holds, the
    target is ``target``.
    """

    name: str
    target: W
    any_of: tuple[tuple[Condition[P], ...], ...]
    sources: frozenset[W] = frozenset()

    def matches(self, status: W | None, counts: Mapping[P, int], facts: Mapping[str, int]) -> bool:
        """Whether every condition of at least one alternative holds."""
        if self.sources and status not in self.sources:
            return False
        for alternative in self.any_of:
            for condition in alternative:
                if not condition.holds(counts, facts):
                    break
            else:
                return True
        return False


def derive(
    table: Sequence[Derivation[W, P]],
    counts: Mapping[P, int],
    facts: Mapping[str, int] | None = None,
    status: W | None = None,
) -> Derivation[W, P] | None:
    """The first row that matches; None, which keeps the status, when none does."""
    facts = facts or {}
    for row in table:
        if row.matches(status, counts, facts):
            return row
    return None


def by_source(
    table: Sequence[Derivation[W, P]], statuses: Iterable[W]
) -> dict[W, tuple[Derivation[W, P], ...]]:
    """The rows that may match in each status, in the order of the table."""
    return {
        status: tuple(row for row in table if not row.sources or status in row.sources)
        for status in statuses
    }
