"""The reaction of each consumer to each kind of change: one table per consumer, with an entry for
every kind.

A consumer keeps the records, or data derived from them. A new kind of change needs an entry in each
table, a function or nothing: a table without an entry for each kind cannot be imported.
Source: docs/ARCHITECTURE.md#modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, Protocol, get_args

from iris_state.records.changes import Change

KINDS: frozenset[type] = frozenset(get_args(Change))

Reaction = Callable[..., None]


class Consumer(Protocol):
    """REACTIONS: by kind of change: (consumer, change)."""

    REACTIONS: dict[type, Reaction]


def complete(table: dict[type, Reaction], nothing: Iterable[type] = ()) -> dict[type, Reaction]:
    """The table of one consumer; ``nothing`` are the kinds it ignores. Raises TypeError unless each
    stands once.
    """
    named = [*table, *nothing]
    wrong = {kind.__name__ for kind in KINDS.symmetric_difference(named)}
    wrong |= {kind.__name__ for kind in named if named.count(kind) > 1}
    if wrong:
        raise TypeError(
            f"a reaction, or nothing, must be named once for {', '.join(sorted(wrong))}"
        )
    return table


def bind(*consumers: Consumer) -> dict[type, tuple[Callable[[Any], None], ...]]:
    """For each kind of change, the reactions of these consumers, in their order."""
    return {
        kind: tuple(
            MethodType(one.REACTIONS[kind], one) for one in consumers if kind in one.REACTIONS
        )
        for kind in KINDS
    }
