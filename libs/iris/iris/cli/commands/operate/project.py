"""`iris project`: the tree of who may use how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from iris.cli.errors import warn
from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Column, Row, print_facts, print_object, print_table
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.options import completions, connected, form_option
from iris.client.client import Client
from iris.client.problems import InvalidOption
from iris.client.projects import place_of
from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.resources import Resource


class KnownProject(click.ParamType):  # type: ignore[type-arg]
    """A project by path; completed from the gateway's list."""

    name = "path"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completions(ctx, "/v1/projects", "pending_tasks", name="path")


class Weight(click.ParamType):  # type: ignore[type-arg]
    """A number, or nothing for none; how large it may be is said by the state service."""

    name = "weight"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        if not value:
            return ""
        number: float = click.FLOAT(value, param, ctx)
        return number


PATH = KnownProject()
path_argument = click.argument("path", type=PATH, metavar="PATH")


@click.group(cls=CliGroup)
def project() -> None:
    """Set projects, and look at them.

    A project is a node of a tree, as /research/nlp. Every limit on the way from it to the root
    holds. What it is guaranteed others may use while it does not; it takes that back when it does.
    Its members submit to it and to those below it; its admins also stop and change its jobs, and
    set the projects below it. The root / is everybody's.
    """


def show_use(resource: Resource, found: Row) -> str:
    """``96 of 128``; of a project without that limit ``96``."""
    used = resource.unit.show(found["used"].get(resource.name, 0))
    most = found["limit"].get(resource.name, 0)
    return f"{used} of {resource.unit.show(most)}" if most else used


def amounts_of(found: Row, field: str) -> str:
    """``cpu 500, chips 64``; empty for none."""
    amounts = found.get(field, {})
    return ", ".join(
        f"{resource.word} {resource.unit.show(amounts[resource.name])}"
        for _, resource in RUNNING_LIMITS
        if amounts.get(resource.name)
    )


def show_waiting(found: Row) -> str:
    """``3 of 100``; without a limit ``3``."""
    most = found["max_pending_tasks"]
    return f"{found['pending_tasks']} of {most}" if most else str(found["pending_tasks"])


def _use_column(resource: Resource, gives: int) -> Column:
    return Column(
        resource.word.upper(), lambda row: show_use(resource, row), right=True, gives=gives
    )


_FIGURES = (
    *(
        _use_column(resource, len(RUNNING_LIMITS) - place)
        for place, (_, resource) in enumerate(RUNNING_LIMITS)
    ),
    Column("RUNNING", lambda row: str(row["running_tasks"]), right=True),
    Column("PENDING", show_waiting, right=True),
)
COLUMNS = (
    Column("PATH", lambda row: row["path"]),
    *_FIGURES,
    Column("GUARANTEED", lambda row: amounts_of(row, "guarantee"), wide=True, wraps=True),
    Column("BORROWED", lambda row: amounts_of(row, "borrowed"), wide=True, wraps=True),
    Column("ADMINS", lambda row: ", ".join(row["admins"]), wide=True, wraps=True),
    Column("MEMBERS", lambda row: ", ".join(row["members"]), wide=True, wraps=True),
)
"""Columns of resources give way from the last."""
TREE = (Column("PROJECT", lambda row: row["branch"]), *_FIGURES)


@project.command("ls")
@form_option()
@connected
def list_projects(client: Client, form: str) -> None:
    """List projects with what they use, each right before those below it."""
    print_page(read_page(client, "/v1/projects"), COLUMNS, form, name="path")


@project.command("tree")
@connected
def tree(client: Client) -> None:
    """Draw the tree of projects with what they use."""
    found = list(client.pages("/v1/projects", dict))
    print_table(branches(found), TREE)


def branches(found: Sequence[Row]) -> Iterator[Row]:
    """Projects, each with its name behind the lines that lead to it."""
    last = {one["children"][-1] for one in found if one["children"]}
    shown = {one["path"]: one for one in found}
    for one in found:
        lines = ""
        path = one["path"]
        if one["parent"] is not None:
            lines = ("└─ " if path in last else "├─ ") + path.rpartition("/")[2]
            above = one["parent"]
            while above in shown and shown[above]["parent"] is not None:
                lines = ("   " if above in last else "│  ") + lines
                above = shown[above]["parent"]
        yield {**one, "branch": lines or path}


@project.command("show")
@path_argument
@form_option()
@connected
def show(client: Client, path: str, form: str) -> None:
    """Show a project: its limits and what is used of them, and who is in it."""
    found: Row = client.get(place_of(path), dict)
    if not print_object(found, form, name="path"):
        print_facts(describe(found))


def describe(found: Row) -> Iterator[tuple[str, str]]:
    """A project as lines."""
    yield "path", found["path"]
    yield "children", ", ".join(found["children"])
    if found.get("weight") is not None:
        yield "weight", f"{found['weight']:g}"
    if found.get("share") is not None:
        yield "share", f"{found['share']:g}"
    for _, resource in RUNNING_LIMITS:
        yield resource.words, show_use(resource, found)
    for name, words in (
        ("guarantee", "guaranteed"),
        ("borrowed", "borrowed"),
        ("near", "left of it"),
    ):
        if amounts := amounts_of(found, name):
            yield words, amounts
    yield "running tasks", str(found["running_tasks"])
    yield "pending tasks", show_waiting(found)
    yield "admins", ", ".join(found["admins"])
    yield "members", ", ".join(found["members"])
    yield "default for", ", ".join(found["default_for"])
    for warning in found["warnings"]:
        yield "warning", warning


@project.command("set")
@path_argument
@click.option(
    "--weight",
    type=Weight(),
    help="Its part among the projects beside it, where there is fair share; '' is as 1.",
    metavar="N",
)
@click.option(
    "--guarantee",
    help="What it may hold before others, and takes back from those that use it: cpu=500,chips=64.",
    metavar="RESOURCE=AMOUNT,...",
)
@click.option(
    "--limit",
    "project_limit",
    help="What its running tasks hold; beyond it others go first: cpu=500,memory=4TiB,chips=64.",
    metavar="RESOURCE=AMOUNT,...",
)
@click.option(
    "--max-pending",
    type=click.IntRange(min=0),
    help="Its waiting tasks; a job that would pass it is refused. 0 is no limit.",
    metavar="N",
)
@click.option("--member", "members", help="Who may submit: ada,@nlp.", metavar="NAMES")
@click.option(
    "--admin", "admins", help="Who may change its jobs, and set what is below it.", metavar="NAMES"
)
@click.option(
    "--default-for",
    help="Users whose jobs are in it that name no project.",
    metavar="USERS",
)
@connected
def set_project(client: Client, path: str, **given: Any) -> None:
    """Make a project, or change the given parts of one; each list replaces what is there, '' empties
    it.

    cpu is in cores. A parent must exist. A user has one default: setting it elsewhere takes it from
    there.
    """
    options = {name: value for name, value in given.items() if value is not None}
    for name in ("members", "admins", "default_for"):
        if name in options:
            options[name] = names_in(options[name])
    if "project_limit" in options:
        options["limit"] = options.pop("project_limit")
    for name in ("guarantee", "limit"):
        if name in options:
            options[name] = amounts_in(name, options[name])
    found = client.set_project(path, **options)
    made = "is made" if found.version == 1 else "is set"
    click.echo(f"{found.path} {made}", err=True)
    for warning in found.warnings:
        warn(warning)


def names_in(text: str) -> list[str]:
    """``ada,@nlp``."""
    return [name for name in (part.strip() for part in text.split(",")) if name]


def amounts_in(option: str, text: str) -> dict[str, str]:
    """``cpu=500,chips=64``. Raises InvalidOption."""
    found = {}
    for part in names_in(text):
        word, equals, amount = part.partition("=")
        if not equals or not amount:
            raise InvalidOption(
                f"{option}: {part!r} is not RESOURCE=AMOUNT; write for example chips=64"
            )
        found[word] = amount
    return found


@project.command("rm")
@path_argument
@connected
def remove(client: Client, path: str) -> None:
    """Remove a project that has none below it, and no job that has not ended."""
    client.remove_project(path)
    click.echo(f"{path} is removed", err=True)
