"""docs/states.md: every table of `iris_core.tables`, then every status with its wire value.

Out of scope: any rule; a new table is drawn because it is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import iris_core.tables
from drawings.markdown import document, grid
from iris_core import states
from iris_core.lifecycle import Condition, Derivation, Rule, To
from iris_core.states import MatchType, SchedulingResult, TaskState

ORDER = ("task", "job", "session", "deployment", "route", "slice")
STATUSES: dict[str, type[Enum]] = {
    "Task": states.TaskState,
    "Job": states.JobState,
    "Session": states.SessionStatus,
    "Attempt": states.KernelStatus,
    "Deployment": states.DeploymentLifecycle,
    "Route": states.RouteStatus,
    "Slice": states.SliceStatus,
    "Worker": states.WorkerState,
}
RESULTS = (
    SchedulingResult.SUCCESS,
    SchedulingResult.NEED_RETRY,
    SchedulingResult.EXPIRED,
    SchedulingResult.GIVE_UP,
)
EXPLAINED = """\
A cell is where a row leads for that result; an empty one keeps the status and records the result. In brackets: what a
task's attempt is left as. A failure is charged to the named counter and is a retry while the counter is not over its
limit; from the statuses under "free from" it costs nothing of that, counts against `max_reschedules` only, and leads
where the last column says when that is spent. A result that nobody can claim of a row, and no clock, has no cell: the
import of a table that has one fails. Some test fails for every other cell that is changed
(`tests/unit/state/test_mutated_tables.py`,
`tests/unit/state/deployments/test_mutated_deployment_tables.py`,
`tests/unit/state/fleet/test_mutated_slice_table.py`)."""

AnyRule = Rule[Any, Any]
AnyDerivation = Derivation[Any, Any]
Edge = tuple[Enum, Enum]


def rank(member: Enum) -> int:
    """Where a status stands: task states in the order a task goes through them, others as
    enumerated.
    """
    order: list[Enum] = (
        [*states.DISPLAY_COLOURS] if isinstance(member, TaskState) else [*type(member)]
    )
    return order.index(member)


def names(members: Iterable[Enum]) -> str:
    """Statuses in order, in one word when they are all that end."""
    members = frozenset(members)
    if members in (states.TERMINAL, states.KERNEL_TERMINAL):
        return "a terminal status"
    return " ".join(m.name for m in sorted(members, key=rank))


def rules(table: Any) -> tuple[AnyRule, ...]:
    return tuple(row for row in table.TABLE if isinstance(row, Rule))


def derivations(table: Any) -> tuple[AnyDerivation, ...]:
    rows = (*table.TABLE, *getattr(table, "PROMOTIONS", ()))
    return tuple(row for row in rows if isinstance(row, Derivation))


def target(to: To[Any, Any] | None) -> str:
    """``PENDING (attempt FAILED)``, ``keep`` for a target that only touches the part, empty for
    none.
    """
    if to is None:
        return ""
    status = to.status.name if to.status else "keep"
    return status if to.part is None or to.part.name == status else f"{status} ({to.part.name})"


def edges(table: Any) -> dict[Edge, list[str]]:
    """Each way from one status to another, with the rows that take it."""
    found: dict[Edge, list[str]] = {}

    def add(source: Enum, to: Enum | None, label: str) -> None:
        if to is not None and to is not source and label not in found.setdefault((source, to), []):
            found[source, to].append(label)

    for rule in rules(table):
        for source in rule.sources:
            for result in RESULTS:
                to = rule.target(result, source)
                add(source, to.status if to else None, rule.name)
    for row in derivations(table):
        for source in row.sources:
            add(source, row.target, row.name)
    return found


def diagram(table: Any) -> str:
    """The edges as a Mermaid state diagram; a status nothing leads out of is an end."""
    found = edges(table)
    ordered = sorted(found, key=lambda edge: (rank(edge[0]), rank(edge[1])))
    lines = [f"    {a.name} --> {b.name}: {', '.join(found[a, b])}" for a, b in ordered]
    ends = {b for _, b in found} - {a for a, _ in found}
    lines += [f"    {end.name} --> [*]" for end in sorted(ends, key=rank)]
    start = min((a for a, _ in found), key=rank)
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {start.name}", *lines, "```"])


def rule_rows(table: Any) -> str:
    head = (
        "row",
        "from",
        "success",
        "need retry",
        "expired",
        "give up",
        "charged",
        "free from",
        "too often",
    )
    return grid(
        head,
        (
            (
                f"`{rule.name}`",
                names(rule.sources),
                *(target(rule.target(result)) for result in RESULTS),
                rule.budget.value if rule.budget else "",
                names(rule.free_from),
                target(rule.free_give_up),
            )
            for rule in rules(table)
        ),
    )


def words(condition: Condition[Any]) -> str:
    """A condition as a person would say it."""
    if condition.fact:
        return condition.fact.replace("_", " ")
    inside = names(condition.statuses)
    if condition.over:
        return f"more than `{condition.over}` in {inside}"
    quantity = {MatchType.ALL: "all", MatchType.ANY: "any", MatchType.NOT_ANY: "none"}
    return f"{quantity[condition.match]} in {inside}" if condition.match else inside


def derivation_rows(table: Any) -> str:
    rows = (
        (
            str(number),
            f"`{row.name}`",
            names(row.sources) or "any",
            ", or ".join(
                " and ".join(words(c) for c in alternative) or "otherwise"
                for alternative in row.any_of
            ),
            row.target.name,
        )
        for number, row in enumerate(derivations(table), start=1)
    )
    return grid(("", "row", "from", "when, over the parts", "to"), rows)


def moved_rows(table: Any) -> str:
    """The cells of the source that another row of this table owns, with the reason for each."""
    rows = (
        (
            f"`{cell.row}`",
            cell.cell,
            f"`{cell.owner.name}`" if cell.owner else "no row",
            cell.reason,
        )
        for cell in table.MOVED
    )
    return grid(("row of Status Transitions", "cell", "owner here", "reason"), rows)


def section(name: str, table: Any) -> str:
    parts = [f"## {name.capitalize()}", (table.__doc__ or "").split("\n\n")[0].replace("\n", " ")]
    if rules(table):
        parts += [diagram(table), rule_rows(table)]
    if derivations(table):
        parts += ["Derived from the parts, the first row that matches:", derivation_rows(table)]
    if hasattr(table, "MOVED"):
        why = "Each edge has one owner, so some cells of Status Transitions belong to another row here"
        parts += [
            f"{why} ([semantics](design/semantics.md#sessions)):",
            moved_rows(table),
        ]
    return "\n\n".join(parts)


def values() -> str:
    rows = []
    for entity, enumeration in STATUSES.items():
        for member in enumeration:
            colour = f"`{states.DISPLAY_COLOURS[member]}`" if isinstance(member, TaskState) else ""
            rows.append((entity, member.name, f"`{member.value}`", colour))
    return grid(("of", "status", "wire value", "colour"), rows)


def states_document() -> str:
    """Every table of `iris_core.tables`, then every status with its wire value."""
    present = {module.name for module in iter_modules(iris_core.tables.__path__)}
    ordered = [name for name in ORDER if name in present] + sorted(present - set(ORDER))
    tables = [section(name, import_module(f"iris_core.tables.{name}")) for name in ordered]
    task, session = (import_module(f"iris_core.tables.{name}") for name in ("task", "session"))
    shows = {kernel: task.becomes(row)[0].name for kernel, row in task.STAGES.items()}
    alone = ((k.name, shows.get(k, ""), s.name) for k, s in session.SINGLE.items())
    shown = grid(("attempt", "its task shows", "a session of one is"), alone)
    return document(
        "States",
        "iris_core.tables and iris_core.states",
        EXPLAINED,
        *tables,
        "## What an attempt's status says of its task, and of its session when it is the only one",
        shown,
        "## Wire values",
        values(),
    )
