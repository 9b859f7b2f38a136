"""`iris deploy`: services, and proxies of others that are to find them."""

from __future__ import annotations

from pathlib import Path

import click

from iris.cli.options import connected
from iris.client.client import Client

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def deploy() -> None:
    """Look after services: deployments and their routes."""


@deploy.command("watch")
@click.argument("name")
@click.option("--template", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Jinja2.")
@click.option("--out", required=True, type=_FILE, help="The file that is written from it.")
@click.option("--then", help="Run after each change of the file, e.g. 'nginx -s reload'.", metavar="COMMAND")
@click.option("--check", help="Run before: if it fails the file goes back, e.g. 'nginx -t'.", metavar="COMMAND")
@connected
def watch(client: Client, name: str, template: Path, out: Path, then: str | None, check: str | None) -> None:
    """Keep a file up to date with the routes of NAME, for a proxy that is not ours.

    The template has: deployment, version, reason, and routes, each with id, address, host, port and state (healthy or
    stale). Changes in quick succession are one; the same bytes are no change. While the gateway cannot be reached the
    file stays as it is. A COMMAND that fails is run again. It goes on until it is stopped.
    """
    from iris.cli.discovery_file import DiscoveryFile, follow

    follow(client, name, DiscoveryFile(template, out, then or "", check or ""))
