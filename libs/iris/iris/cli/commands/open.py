"""`iris open`: open the dashboard in a browser, signed in."""

from __future__ import annotations

import sys

import click
import msgspec

from iris.cli.options import connected
from iris.cli.parsing import CliCommand
from iris.client.client import Client


class _Link(msgspec.Struct):
    path: str


@click.command(cls=CliCommand, name="open")
@connected
def open_(client: Client) -> None:
    """Open the dashboard in a browser, signed in; print its address.

    The link signs in once, within a minute.
    """
    url = client.address.url + client.post("/v1/login-links", _Link).path
    click.echo(url)
    if sys.stdout.isatty():
        click.launch(url)
