"""`iris open`: open the dashboard in a browser, signed in."""

from __future__ import annotations

import sys

import click

from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import connected
from iris.client.client import Client


@click.command(cls=CliCommand, name="open")
@connected
def open_(client: Client) -> None:
    """Open the dashboard in a browser, signed in; print its address.

    The link signs in once, within minutes.
    """
    url = client.login_link()
    click.echo(url)
    if sys.stdout.isatty():
        click.launch(url)
