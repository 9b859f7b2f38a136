"""`iris admin token`: the tokens in a gateway's token file, which holds their SHA-256 only."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from iris.cli.output.pages import ListedPage, print_page
from iris.cli.output.tables import Column, Row, print_facts, print_object
from iris.cli.output.times import show_millis
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.options import form_option
from iris.client.problems import InvalidOption
from iris_core.access.token_file import (
    ROLES,
    BadTokenFile,
    Role,
    Token,
    is_user_name,
    line_of,
    parse_tokens,
    token_of,
)
from iris_core.moments import parse_moment
from iris_core.units import MOMENT

COLUMNS = (
    Column("NAME", lambda row: row["name"]),
    Column("USER", lambda row: row["user"]),
    Column("ROLE", lambda row: row["role"], gives=2),
    Column("MADE", lambda row: show_millis(row["made_ms"]) if row["made_ms"] else "", gives=1),
    Column("EXPIRES", lambda row: show_millis(row["expires_ms"]) if row["expires_ms"] else "never"),
    Column("STATE", lambda row: "expired" if row["expired"] else ""),
)

_file = click.option(
    "--file",
    "file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The gateway's token_file; that of `iris up` is `tokens` in its data directory.",
)
_expires = click.option(
    "--expires",
    help="How long it is valid, at least 1m: 90d; or until when.  [default: for ever]",
    metavar=MOMENT,
)
_SHORTEST_MS = 60_000
"""Gateways read a changed file within seconds, and its times are whole seconds."""


@click.group(cls=CliGroup)
def token() -> None:
    """Make, list, revoke and rotate tokens of the API; gateways read a changed file within
    seconds.
    """


@token.command()
@click.argument("user")
@click.option(
    "--role", type=click.Choice(ROLES), default="user", show_default=True, help="What USER may do."
)
@click.option(
    "--name", default="", help="Of the token, shown in the audit.  [default: from its digest]"
)
@_expires
@_file
def add(user: str, role: Role, name: str, expires: str | None, file: Path) -> None:
    """Add a token of USER, and print it; it cannot be shown again. The file is made when it is
    missing.
    """
    for what in (user, name or user):
        if not is_user_name(what):
            raise click.BadParameter(
                f"{what!r} is not a user name; it holds letters, digits and '._@+-'"
            )
    text = read(file)
    if name in {one.name for one in tokens_in(file, text)} - {""}:
        raise InvalidOption(
            f"{file} has a token {name!r}; revoke or rotate that one, or choose another name"
        )
    secret, made = fresh(user, role, name, expires)
    write(file, f"{text}\n" if text and not text.endswith("\n") else text, line_of(made))
    click.echo(secret)


@token.command()
@_file
@form_option()
def ls(file: Path, form: str) -> None:
    """List the tokens of a file; the tokens themselves are not in it."""
    if not file.exists():
        raise InvalidOption(f"there is no file {file}; iris admin token add makes it")
    print_page(ListedPage([*map(described, tokens_in(file, read(file)))]), COLUMNS, form)


@token.command()
@click.argument("name")
@_file
@form_option()
def show(name: str, file: Path, form: str) -> None:
    """Show one token of a file; the token itself is not in it."""
    found = described(find(file, tokens_in(file, read(file)), name))
    if not print_object(found, form):
        print_facts((column.title.lower(), column.cell(found)) for column in COLUMNS)


def described(one: Token) -> Row:
    """What is shown of a token."""
    return {
        "name": one.name,
        "user": one.caller.user,
        "role": one.caller.role,
        "made_ms": one.made_ms,
        "expires_ms": one.expires_ms,
        "expired": one.has_expired(time.time_ns() // 1_000_000),
    }


@token.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--user", help="All tokens of this user.", metavar="USER")
@click.option(
    "-y", "--yes", is_flag=True, help="Do not ask before the last admin token is deleted."
)
@_file
def revoke(names: Sequence[str], user: str | None, yes: bool, file: Path) -> None:
    """Delete tokens by their names, or all of a user. A file without tokens permits nobody."""
    if bool(names) == (user is not None):
        raise click.UsageError("specify the names of tokens, or --user")
    text = read(file)
    known = tokens_in(file, text)
    gone = (
        [one for one in known if one.caller.user == user]
        if user
        else [find(file, known, name) for name in names]
    )
    if not gone:
        raise InvalidOption(f"{file} has no token of {user}")
    if not yes and admins(gone) and not admins([one for one in known if one not in gone]):
        click.confirm(
            f"Revoke {', '.join(admins(gone))}? {file} then has no admin token.",
            abort=True,
            err=True,
        )
    write(file, without(text, gone))
    for one in gone:
        click.echo(f"revoked {one.name} of {one.caller.user}", err=True)


@token.command()
@click.argument("name")
@_expires
@_file
def rotate(name: str, expires: str | None, file: Path) -> None:
    """Replace a token by another one of the same name, user and role, and print it; the old one is
    refused at once.
    """
    text = read(file)
    old = find(file, tokens_in(file, text), name)
    named = name if f"name={name}" in text.split() else ""
    role: Role = next(role for role in ROLES if role == old.caller.role)
    secret, made = fresh(old.caller.user, role, named, expires)
    write(file, without(text, [old]), line_of(made))
    click.echo(secret)


def fresh(user: str, role: Role, name: str, expires: str | None) -> tuple[str, Token]:
    """A new secret, and what is stored of it. Raises InvalidOption."""
    secret = f"iris_{secrets.token_urlsafe(32)}"
    now_ms = time.time_ns() // 1_000_000
    made = token_of(user, role, secret, name=name, made_ms=now_ms)
    if expires is None:
        return secret, made
    try:
        expires_ms = parse_moment(expires, now_ms)
    except ValueError as error:
        raise InvalidOption(f"--expires: {error}") from None
    if expires_ms < now_ms + _SHORTEST_MS:
        raise InvalidOption(
            f"--expires {expires}: a token is valid for at least 1m, for example 90d"
        )
    return secret, replace(made, expires_ms=expires_ms)


def admins(tokens: Sequence[Token]) -> list[str]:
    """The names of the tokens of admins that have not expired."""
    now_ms = time.time_ns() // 1_000_000
    return [
        one.name for one in tokens if one.caller.role == "admin" and not one.has_expired(now_ms)
    ]


def find(file: Path, known: Sequence[Token], name: str) -> Token:
    """The token of that name. Raises InvalidOption unless there is one."""
    found = [one for one in known if one.name == name]
    if len(found) != 1:
        count = f"{len(found)} tokens" if found else "no token"
        raise InvalidOption(f"{file} has {count} {name!r}; `iris admin token ls` lists them")
    return found[0]


def without(text: str, gone: Sequence[Token]) -> str:
    """The text without the lines of some tokens; comments and other lines stay as they are."""
    digests = {one.digest.hex() for one in gone}

    def kept() -> Iterator[str]:
        for line in text.splitlines(keepends=True):
            words = line.partition("#")[0].split()
            if len(words) < 3 or words[2].lower() not in digests:
                yield line

    return "".join(kept())


def read(file: Path) -> str:
    """The text of a token file; empty when there is none. Raises InvalidOption."""
    try:
        return file.read_text() if file.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{file}: {error}") from None


def tokens_in(file: Path, text: str) -> tuple[Token, ...]:
    """Raises InvalidOption for a file that a gateway would refuse."""
    try:
        return parse_tokens(text)
    except BadTokenFile as error:
        raise InvalidOption(f"{file}: {error}") from None


def write(file: Path, *parts: str) -> None:
    """Replace the file; its owner and mode stay, so that its gateway can still read it. Raises
    InvalidOption.
    """
    from iris_bus.connection.keys import write_private

    before = file.stat() if file.exists() else None
    try:
        write_private(file, "".join(parts))
        if before is not None:
            os.chown(file, before.st_uid, before.st_gid)
            file.chmod(before.st_mode & 0o777)
    except OSError as error:
        raise InvalidOption(f"{file}: {error}") from None
