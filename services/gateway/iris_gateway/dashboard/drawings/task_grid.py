"""Every task of a job as one glyph that links to it. Pure. Source:
docs/design/page.md#components.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup

from iris_core.spec.index_set import IndexSet
from iris_gateway.dashboard.drawings.bars import CLASS, ORDER

CELLS = 1_000
"""Glyphs of a job at most; of more tasks, several in a row share one, which shows the first state
of `ORDER`.
"""

_RANK = {state: rank for rank, state in enumerate(ORDER)}


def task_grid(
    job: str,
    indexes: IndexSet,
    runs: Iterable[Sequence[str | int]],
    value: Callable[[int], int | None],
) -> Markup:
    """The tasks of a job, by index.

    Args:
        runs: each state with how many tasks in a row are in it. value: of a task in its array;
            None: it has none.
    """
    states = [str(state) for state, count in runs for _ in range(int(count))]
    each = -(-len(states) // CELLS) or 1
    cells = (states[start : start + each] for start in range(0, len(states), each))
    return Markup("").join(
        _cell(job, indexes, at * each, cell, value=value) for at, cell in enumerate(cells)
    )


def _cell(
    job: str, indexes: IndexSet, start: int, states: list[str], value: Callable[[int], int | None]
) -> Markup:
    state = min(states, key=lambda one: _RANK.get(one, len(ORDER)))
    index = indexes[start + states.index(state)]
    last = indexes[start + len(states) - 1]
    name = f"{indexes[start]} to {last}" if len(states) > 1 else str(index)
    if len(states) == 1 and (found := value(index)) is not None:
        name += f" (value {found})"
    many = f"{states.count(state)} of {len(states)} {state}" if len(states) > 1 else state
    return Markup('<a class="{}" href="/tasks/{}/{}" title="{}: {}"></a>').format(
        CLASS.get(state, ""), job, index, name, many
    )
