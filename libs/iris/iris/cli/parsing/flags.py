"""Makes the flags of commands from the table of options."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import click

from iris_core.spec.option_table import JobOptions, OptionRow, Time, rows_of
from iris_core.spec.resources import Resource, ResourceRequest
from iris_core.units import DURATION

F = TypeVar("F", bound=Callable[..., Any])

_LIMIT = "Maximum number of rows."
_CURSOR = "Go on from the next_cursor of -o json, with the same options."


def with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Give a command these options, in this order."""

    def give(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return give


def limit_options(limit: int) -> Callable[[F], F]:
    """``-n`` and ``--cursor``: how much of a listing, and from where."""
    count = click.option(
        "-n", "--limit", type=click.IntRange(1), default=limit, show_default=True, help=_LIMIT
    )
    return with_options(count, click.option("--cursor", help=_CURSOR, metavar="CURSOR"))


def resource_option(resource: Resource) -> Callable[[F], F]:
    """``--memory SIZE``."""
    default = getattr(ResourceRequest(), resource.name)
    unit = resource.unit
    shown = f"  [default: {unit.show(default)}]" if default else ""
    words = f"One task's {resource.words}, for example {unit.example}.{shown}"
    return click.option(f"--{resource.word.replace('_', '-')}", help=words, metavar=unit.metavar)


def flag_option(row: OptionRow, more: Mapping[str, Any] | None = None) -> Callable[[F], F]:
    """The flag of a row; its type follows from that of the SDK's keyword."""
    option = row.option
    names = row.flags
    if row.kind == bool | None:
        names = (f"{names[0]}/--no-{names[0].removeprefix('--')}",)
    kind = {
        "help": row.help,
        "metavar": option.metavar or (DURATION if row.kind == Time else None),
        **_kind(row.kind),
        **(more or {}),
    }
    return click.option(*names, row.name, **kind)


def job_flags(wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[Callable[[F], F]]:
    """The flags of some options of a job, each with what click is told of it besides what its row
    says.
    """
    return (flag_option(row, wanted[row.name]) for row in rows_of(JobOptions) if row.name in wanted)


def _kind(hint: Any) -> dict[str, Any]:
    """What click is told of the type of a value: texts are parsed where all callers' texts are."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if bool in members:
        return {"default": None} if len(members) > 1 else {"default": None, "is_flag": True}
    if choices := next((get_args(one) for one in members if get_origin(one) is Literal), ()):
        return {"type": click.Choice(choices)}
    if any(get_origin(one) in (Sequence, Mapping) for one in members):
        return {"multiple": True}
    return {} if str in members else {"type": float if float in members else int}
