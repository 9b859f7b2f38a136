"""`iris context`: gateways by name."""

from __future__ import annotations

import os

import click
import msgspec

from iris.cli.output.pages import ListedPage, print_page
from iris.cli.output.tables import Column, Row, print_facts, print_object
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.options import form_option
from iris.client.http.address import check_url
from iris.client.http.contexts import Context, Contexts, contexts_path, load_contexts, save_contexts
from iris.client.problems import InvalidOption

COLUMNS = (
    Column("CURRENT", lambda row: "*" if row["current"] else ""),
    Column("NAME", lambda row: row["name"]),
    Column("URL", lambda row: row["url"]),
    Column("TOKEN", lambda row: "yes" if row["token"] else "", gives=1),
)


@click.group(cls=CliGroup)
def context() -> None:
    """Name gateways and choose one."""


@context.command()
@click.argument("name")
@click.argument("url")
@click.option("--token", envvar="IRIS_TOKEN", help="Bearer token; preferably set in IRIS_TOKEN.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Copy the token from a file; `-` is stdin.",
    metavar="FILE",
)
def add(name: str, url: str, token: str | None, token_file: str | None) -> None:
    """Remember a gateway under NAME; the first one is used from now on."""
    path = contexts_path()
    known = load_contexts(path)
    if token_file is not None and not (token := read_from(token_file)):
        raise InvalidOption(f"{token_file} holds no token")
    if not name.strip():
        raise InvalidOption("a name must not be empty")
    if token is None and "IRIS_TOKEN" in os.environ:
        raise InvalidOption("IRIS_TOKEN is set, but empty")
    kept = Contexts(
        known.current or name, {**known.known, name: Context(check_url(url), token or "")}
    )
    save_contexts(path, kept)
    click.echo(f"{name} is kept in {path}; in use: {kept.current}", err=True)


def read_from(token_file: str) -> str:
    with click.open_file(token_file) as file:
        return str(file.read()).strip()


@context.command("list")
@form_option()
def list_contexts(form: str) -> None:
    """List what is known; tokens are not shown."""
    contexts = load_contexts(contexts_path())
    print_page(ListedPage([described(contexts, name) for name in contexts.known]), COLUMNS, form)


def check_known(contexts: Contexts, name: str) -> None:
    """Raises InvalidOption when there is no context of that name."""
    if name not in contexts.known:
        raise InvalidOption(
            f"there is no context {name!r}; `iris context list` shows those there are"
        )


def described(contexts: Contexts, name: str) -> Row:
    """What is shown of a context."""
    one = contexts.known[name]
    return {
        "name": name,
        "url": one.url,
        "token": bool(one.token),
        "current": name == contexts.current,
    }


@context.command()
@click.argument("name")
@form_option()
def show(name: str, form: str) -> None:
    """Show one gateway; its token is not shown."""
    contexts = load_contexts(contexts_path())
    check_known(contexts, name)
    found = described(contexts, name)
    if not print_object(found, form):
        print_facts((column.title.lower(), column.cell(found)) for column in COLUMNS)


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Use this gateway from now on; `-` uses none."""
    path = contexts_path()
    contexts = load_contexts(path)
    if name != "-":
        check_known(contexts, name)
    save_contexts(path, msgspec.structs.replace(contexts, current="" if name == "-" else name))
    click.echo(f"in use: {name}", err=True)


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget a gateway and its token; none is in use afterwards if it was this one."""
    path = contexts_path()
    contexts = load_contexts(path)
    check_known(contexts, name)
    known = {other: one for other, one in contexts.known.items() if other != name}
    save_contexts(path, Contexts("" if contexts.current == name else contexts.current, known))
    click.echo(f"{name} is removed", err=True)
