"""`iris server`: one service in this process's place."""

from __future__ import annotations

import os
import sys

import click

from iris_gateway.cli.cluster.child import ISOLATED


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
@click.argument("service", type=click.Choice(["state", "scheduler", "gateway", "worker"]))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def server(service: str, arguments: tuple[str, ...]) -> None:
    """Run SERVICE; everything after it is the service's own, for example --config FILE or --show-config."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *ISOLATED, "-m", f"iris_{service}", *arguments])
