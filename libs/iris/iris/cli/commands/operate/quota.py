"""`iris quota`: limits and usage of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Column, Row, print_facts, print_object
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.flags import with_options
from iris.cli.parsing.options import connected, form_option
from iris.client.client import Client
from iris.client.http.transport import in_path
from iris.client.quotas import put_limits, read_limits
from iris_core.quota import BAND, GATEWAY_LIMITS, QUOTA_LIMITS, UserLimit, is_group
from iris_core.spec.jobs import BANDS

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=CliGroup)
def quota() -> None:
    """Show and set what users may take; 0 is unlimited."""


def show_limit(limit: UserLimit, found: Row) -> str:
    """``3 of 8``, or ``8 each`` of the members of a group."""
    most = found.get(limit.name, 0)
    if is_group(found["user"]):
        return f"{limit.unit.show(most)} each" if most else "unlimited"
    return limit.show(found.get(limit.used, 0), most)


def source_of(name: str, found: Row) -> str:
    """Where a limit comes from, as the end of a line; empty for one of a group's own, and where an
    earlier gateway does not say it.
    """
    if is_group(found["user"]) or "sources" not in found:
        return ""
    return f", {found['sources'].get(name, 'set for the user')}"


def limit_column(limit: UserLimit, gives: int) -> Column:
    return Column(limit.words.upper(), lambda row: show_limit(limit, row), right=True, gives=gives)


COLUMNS = (
    Column("USER", lambda row: row["user"]),
    *(
        limit_column(limit, len(QUOTA_LIMITS) + 1 - place)
        for place, limit in enumerate(QUOTA_LIMITS)
    ),
    Column("BEST BAND", lambda row: str(row["max_band"]), gives=1),
)
"""BEST BAND gives way first, then the limits from the last."""


@quota.command("list")
@form_option()
@connected
def list_quotas(client: Client, form: str) -> None:
    """List the users and groups that have limits of their own, and what is used of them."""
    print_page(read_page(client, "/v1/quotas"), COLUMNS, form, name="user")


@quota.command()
@click.argument("user")
@form_option()
@connected
def show(client: Client, user: str, form: str) -> None:
    """Show the limits of a user, or of each member of a @GROUP, and what is used of them.

    Behind each limit of a user is where it comes from: set for the user, a group, or the default.
    """
    found: Row = client.get(f"/v1/quotas/{in_path(user)}", dict)
    if not print_object(found, form, name="user"):
        print_facts([*describe(found), *everybodys(client.get("/v1/meta", dict)["limits"])])


def describe(found: Row) -> list[tuple[str, str]]:
    """Each limit as ``used of limit``, and where it comes from: `default`, a group, or set for the
    user.
    """
    name = found["user"]
    groups = ", ".join(found.get("groups", ()))
    return [
        ("group" if is_group(name) else "user", name),
        *([("groups", groups)] if groups else []),
        *(
            (limit.words, show_limit(limit, found) + source_of(limit.name, found))
            for limit in QUOTA_LIMITS
        ),
        ("best band", show_band(found)),
    ]


def show_band(found: Row) -> str:
    """The best band, where it comes from, and whom it does not bound unless it is set for the
    user.
    """
    if is_group(found["user"]):
        return f"{found['max_band']} (admins are not bounded by limits of groups)"
    source = source_of(BAND, found)
    by = "limits of groups" if is_group(found.get("sources", {}).get(BAND, "")) else "the default"
    bounded = f" (of users; admins are not bounded by {by})" if found.get("is_default") else ""
    return f"{found['max_band']}{source}{bounded}"


def everybodys(limits: Row) -> list[tuple[str, str]]:
    """The limits that are the same for every user."""
    return [
        (limit.words, limit.show_alone(limits[limit.name]))
        for limit in GATEWAY_LIMITS
        if limit.name in limits
    ]


def limit_option(limit: UserLimit) -> Callable[[F], F]:
    words = f"{limit.about.capitalize()}; for example {limit.unit.example}."
    return click.option(*limit.options, limit.name, help=words, metavar=limit.unit.metavar)


@quota.command("set")
@click.argument("user")
@with_options(*map(limit_option, QUOTA_LIMITS))
@click.option("--max-band", type=click.Choice(BANDS), help="Highest band allowed.")
@connected
def set_quota(client: Client, user: str, **given: Any) -> None:
    """Set some of the limits of a user, or of each member of a @GROUP; the others stay. 0 is
    unlimited.

    What is set for a user comes before the user's groups, and these before the default. In several
    groups each limit is the most generous one. Groups are those that the issuer of a user's token
    names.
    """
    limits = {key: value for key, value in given.items() if value is not None}
    if not limits:
        raise click.UsageError("give at least one limit")
    for name, value in describe(put_limits(client, user, read_limits(limits))):
        click.echo(f"{name}: {value}", err=True)
