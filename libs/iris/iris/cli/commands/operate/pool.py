"""`iris pool`: kinds of capacity that the cluster makes itself, and their slices."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from iris.cli.commands.operate.pool_tables import CHANGES, POOLS, SLICES, plan_words, pool_facts
from iris.cli.errors import warn
from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Row, print_facts, print_json, print_object, print_table
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.flags import flag_option, limit_options, with_options
from iris.cli.parsing.options import FROM_FILE, completions, connected, form_option
from iris.client.client import Client
from iris.client.http.transport import in_path
from iris.client.options.jobs import OptionReader
from iris.client.options.pools import (
    is_pool_file,
    is_pool_name,
    pool_from,
    read_value,
    shown_only,
    specified,
)
from iris.client.problems import InvalidOption
from iris_core.spec.option_table import PoolOptions, pool_rows
from iris_core.units import DURATION, counted
from iris_core.views.fleet import PoolView

_PAIRS = ("provider_options", "attributes")
_HISTORY_SHOWN = 20


class KnownPool(click.ParamType):  # type: ignore[type-arg]
    """A pool by name; completed from the gateway's list."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completions(ctx, "/v1/pools", "state")


class PoolTarget(KnownPool):
    """A pool by name, which may be new, or a file of one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_pool_file(value) and not is_pool_name(value):
            self.fail(
                f"{value!r} is neither the name of a pool (1 to 40 of a-z 0-9 -, starting with a letter"
                " and not ending with -) nor a file of one (.toml, .json, or - for stdin)",
                param,
                ctx,
            )
        return str(value)


class KnownSlice(click.ParamType):  # type: ignore[type-arg]
    """A slice by name or id; completed from the gateway's list."""

    name = "slice"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completions(ctx, "/v1/fleet/slices", "status")


NAME = KnownPool()
reason_option = click.option(
    "--reason", default="", help="Why; shown in the audit.", metavar="TEXT"
)
target_argument = click.argument("name", type=PoolTarget(), metavar="NAME|FILE")
pool_options = with_options(*map(flag_option, pool_rows()))
"""Options that describe a pool."""


@click.group(cls=CliGroup)
def pool() -> None:
    """Set pools of hosts that the cluster makes itself, and look at their slices.

    A pool is a kind of capacity that a provider can make; a slice is what it makes and deletes at
    once: one host, or a TPU slice of several.
    """


@pool.command("ls")
@form_option()
@connected
def list_pools(client: Client, form: str) -> None:
    """List pools with their slices, and what hinders them."""
    print_page(read_page(client, "/v1/pools"), POOLS, form)


@pool.command("show")
@click.argument("name", type=NAME)
@form_option()
@connected
def show(client: Client, name: str, form: str) -> None:
    """Show a pool with its slices."""
    found: Row = client.get(f"/v1/pools/{in_path(name)}", dict)
    if print_object(found, form):
        return
    print_facts(pool_facts(found))
    slices = list(client.pages("/v1/fleet/slices", dict, {"pool": name}))
    if slices:
        click.echo()
        print_table(slices, SLICES, wide=form == "wide")


@pool.command("set")
@target_argument
@pool_options
@connected
def set_pool(client: Client, name: str, **given: Any) -> None:
    """Make a pool, or change the given options of one; or replace a whole one by a FILE.

    A FILE ends in .toml or .json and has the fields of the API; - is JSON from stdin. A new pool
    needs --provider, --max and --cpu at least.
    """
    options = read_options(given)
    if is_pool_file(name):
        fields = _file_of(name, options)
        found = client.replace_pool(fields)
    else:
        if not options:
            raise click.UsageError("give at least one option, or a file: iris pool set cpu --max 8")
        found = client.set_pool(name, **options)
    _note_set(found)


def _note_set(found: PoolView) -> None:
    made = "is made" if found.version == 1 else "is set"
    most = counted(found.max, "slice")
    state = f"; it is {found.state}: {found.reason}" if found.reason else ""
    click.echo(f"{found.name} {made}: {found.min} to {most} of {found.provider}{state}", err=True)
    for warning in found.warnings:
        warn(warning)


@pool.command("plan")
@target_argument
@pool_options
@form_option(forms=("table", "json"))
@connected
def plan(client: Client, name: str, form: str, **given: Any) -> None:
    """Dry run: what a pool would do now, with these options or as in a FILE; changes nothing."""
    options = read_options(given)
    fields: Mapping[str, Any]
    if is_pool_file(name):
        fields = _file_of(name, options)
    elif options:
        fields, _ = client.changed_pool(name, options)
    else:
        fields = specified(client.get(f"/v1/pools/{in_path(name)}", dict))
    found = client.plan_pool(fields)
    if form == "json":
        print_json(found)
    else:
        click.echo(f"{fields['name']} {plan_words(found)}")


@pool.command("pause")
@click.argument("name", type=NAME)
@reason_option
@connected
def pause(client: Client, name: str, reason: str) -> None:
    """Let a pool neither grow nor shrink; what it has stays."""
    client.pause_pool(name, reason=reason)
    click.echo(f"{name} is paused", err=True)


@pool.command("resume")
@click.argument("name", type=NAME)
@reason_option
@connected
def resume(client: Client, name: str, reason: str) -> None:
    """Let a pool grow and shrink again, and forget what hindered it."""
    client.resume_pool(name, reason=reason)
    click.echo(f"{name} is resumed", err=True)


@pool.command("rm")
@click.argument("name", type=NAME)
@click.option(
    "--drain",
    is_flag=True,
    help="Also while it has slices: idle ones go, what runs on others ends first.",
)
@connected
def remove(client: Client, name: str, drain: bool) -> None:
    """Remove a pool; one that has slices only with --drain."""
    gone = client.remove_pool(name, drain=drain)
    click.echo(f"{name} {'is removed' if gone else 'goes with its last slice'}", err=True)


@pool.command("history")
@click.argument("name", type=NAME)
@limit_options(_HISTORY_SHOWN)
@form_option(forms=("table", "wide", "json", "jsonl"))
@connected
def history(client: Client, name: str, limit: int, cursor: str | None, form: str) -> None:
    """Show what happened to the slices of a pool, newest first."""
    page = read_page(client, f"/v1/pools/{in_path(name)}/history", None, limit, cursor=cursor)
    print_page(page, CHANGES, form)


@pool.command("drain")
@click.argument("slice_name", type=KnownSlice(), metavar="SLICE")
@click.option(
    "--deadline",
    help="Delete it after this, whatever runs there: 10m.  [default: it waits]",
    metavar=DURATION,
)
@reason_option
@connected
def drain_slice(client: Client, slice_name: str, deadline: str | None, reason: str) -> None:
    """Give a slice back: no new work, and it is deleted when nothing runs there."""
    found = client.drain_slice(slice_name, deadline=deadline, reason=reason)
    click.echo(f"{found.name} {found.status}", err=True)


def read_options(given: Mapping[str, Any]) -> PoolOptions:
    """Parsed options as the SDK takes them. Raises InvalidOption with every mistake."""
    reading = OptionReader()
    options: dict[str, Any] = {
        key: value for key, value in given.items() if value is not None and key not in _PAIRS
    }
    for name in _PAIRS:
        pairs = [reading.read(partial(read_pair, text), None) for text in given[name]]
        if found := dict(pair for pair in pairs if pair is not None):
            options[name] = found
    reading.finish()
    return options  # type: ignore[return-value]


def read_pair(text: str) -> tuple[str, str | int | float | bool | None]:
    """``KEY=VALUE``. Raises InvalidOption."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise InvalidOption(f"{text!r} is not KEY=VALUE")
    return key, read_value(value)


def _file_of(name: str, options: PoolOptions) -> dict[str, Any]:
    """The specification in a file; what only an answer of the gateway has is left out, which is
    said. Raises UsageError, InvalidOption, OSError.
    """
    if options:
        flags = {row.name: row.flags[-1] for row in pool_rows()}
        named = ", ".join(flags[one] for one in options)
        raise click.UsageError(f"a file replaces the whole pool: leave out {named}")
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    found = pool_from(data, name)
    if more := shown_only(found, frozenset(PoolView.__struct_fields__)):
        click.echo(f"left out, as no part of a specification: {', '.join(more)}", err=True)
        found = specified(found)
    click.get_current_context().meta[FROM_FILE] = True
    return found
