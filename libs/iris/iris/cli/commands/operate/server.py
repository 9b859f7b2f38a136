"""`iris server`: replace this process by one service."""

from __future__ import annotations

import os
import sys

import click

from iris.cli.installed import require_extra
from iris.cli.parsing.command import CliCommand
from iris.cluster.process import ISOLATED

_ITS_OWN = {
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": ["-h", "--help"],
}


@click.command(cls=CliCommand, context_settings=_ITS_OWN)
@click.argument(
    "service",
    type=click.Choice(
        ["state", "scheduler", "gateway", "proxy", "worker", "provisioner", "notifier"]
    ),
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def server(service: str, arguments: tuple[str, ...]) -> None:
    """Run SERVICE; everything after it is the service's own, for example --help, --config FILE or
    --show-config.
    """
    require_extra("server", "`iris server`")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *ISOLATED, "-m", f"iris_{service}", *arguments])
