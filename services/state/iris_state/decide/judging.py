"""Judges one outcome for one record and returns a result and a target, for sessions, deployments
and routes.

Callers apply the target to their kind of record. Source:
docs/design/semantics.md#rules-and-judgement.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from iris_core.lifecycle import Rule, decide
from iris_core.states import Outcome, SchedulingResult

W = TypeVar("W", bound=Enum)
P = TypeVar("P", bound=Enum)


class Judgement(NamedTuple, Generic[W]):
    """The result of a claim; ``target`` None keeps the status."""

    result: SchedulingResult
    target: W | None
    reason: str


def judgement(
    rule: Rule[W, P],
    status: W,
    outcome: Outcome,
    reason: str = "",
    *,
    tries: int = 0,
    limit: int = 0,
    in_status_ms: int = 0,
    timeout_ms: int | None = None,
) -> Judgement[W] | None:
    """Judge a record in ``status``; None when the row does not start from that status, or ignores
    the claim.

    Arguments as of `lifecycle.judge`. An expired record gets a reason if its handler gave none.
    """
    if status not in rule.sources:
        return None  # its status has changed between claim and judgement
    result, to = decide(
        rule,
        status,
        outcome,
        tries=tries,
        limit=limit,
        in_status_ms=in_status_ms,
        timeout_ms=timeout_ms,
    )
    if result is SchedulingResult.SKIPPED:
        return None
    if result is SchedulingResult.EXPIRED and not reason:
        reason = f"{status.value} for more than {(timeout_ms or 0) / 1000:g} s"
    return Judgement(result, to.status if to is not None else None, reason)
