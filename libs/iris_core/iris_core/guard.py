"""Checks each status table when it is imported, so that an invalid table never runs.

Every status that is not terminal has an owner and a way out, a terminal one has no way out, and
every cell can be reached. Out of scope: whether a row is ever the first that matches, which tests
check. Source: docs/design/semantics.md#rules-and-judgement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, TypeAlias

from iris_core.errors import IrisError
from iris_core.lifecycle import Derivation, Rule
from iris_core.states import Outcome

TableRow: TypeAlias = Rule[Any, Any] | Derivation[Any, Any]


class TableBroken(IrisError):
    """A table has a status without a way out, or a cell that cannot be reached."""


def guard(
    name: str,
    statuses: Iterable[Enum],
    terminal: frozenset[Any],
    rows: Iterable[TableRow],
    ways_out: Mapping[Any, TableRow],
    clocked: frozenset[Any] = frozenset(),
) -> None:
    """Raises TableBroken with everything that is wrong with a table.

    Args:
        ways_out: for each status that is not terminal, the row by which a timeout or the loss of a
            worker leaves it.
        clocked: the statuses with a timeout; a row can expire from these only.
    """
    statuses = tuple(statuses)
    rows = tuple(rows)
    wrong = [*_unowned(statuses, terminal, rows), *_stuck(statuses, terminal, ways_out)]
    for row in rows:
        wrong += _leaves_an_end(row, terminal)
        if isinstance(row, Rule):
            wrong += _unreachable(row, clocked)
    if wrong:
        raise TableBroken(f"{name}: {'; '.join(wrong)}")


def _unowned(
    statuses: Iterable[Enum], terminal: frozenset[Any], rows: tuple[TableRow, ...]
) -> Iterator[str]:
    for status in statuses:
        if status not in terminal and not any(status in row.sources for row in rows):
            yield f"{status.name} has no owner"


def _stuck(
    statuses: Iterable[Enum], terminal: frozenset[Any], ways_out: Mapping[Any, TableRow]
) -> Iterator[str]:
    for status in statuses:
        if status in terminal:
            continue
        way = ways_out.get(status)
        if (
            way is None
            or status not in way.sources
            or not any(to is not status for to in _targets(way))
        ):
            yield f"nothing leads out of {status.name} by the clock or a loss"


def _targets(row: TableRow) -> list[Enum]:
    if isinstance(row, Derivation):
        return [row.target]
    return [to.status for to in row.targets if to.status is not None]


def _leaves_an_end(row: TableRow, terminal: frozenset[Any]) -> Iterator[str]:
    for status in row.sources & terminal:
        yield f"{row.name} leads out of {status.name}, which is an end"


def _unreachable(rule: Rule[Any, Any], clocked: frozenset[Any]) -> Iterator[str]:
    """Cells of a row that no result can reach."""
    if rule.success is not None and Outcome.SUCCESS not in rule.outcomes:
        yield f"{rule.name} has a target for success, which nobody claims"
    failing = (rule.need_retry, rule.give_up, rule.free_give_up, rule.budget)
    if any(cell is not None for cell in failing) and Outcome.FAILURE not in rule.outcomes:
        yield f"{rule.name} has a target or a budget for failure, which nobody claims"
    if rule.expired is not None and not rule.sources & clocked:
        yield f"{rule.name} expires from statuses without a patience"
    if rule.give_up is not None and rule.free_from >= rule.sources:
        yield f"{rule.name} gives up from statuses where it costs nothing"
    if (rule.free_give_up is None) is bool(rule.free_from):
        yield f"{rule.name} does not say where it is free from and where that ends, or only one of them"
    if not rule.targets:
        yield f"{rule.name} leads nowhere"
    if not rule.free_from <= rule.sources:
        yield f"{rule.name} is free from statuses it does not start from"
