"""`iris down`: stop the cluster on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from iris.cli.installed import require_extra
from iris.cli.parsing.command import CliCommand
from iris.client.http.address import data_dir


@click.command(cls=CliCommand)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory of the cluster.",
)
def down(data: Path | None) -> int:
    """Stop the cluster on this machine, tasks included. Its data stays, and the next `iris up`
    continues from it.
    """
    require_extra("local", "`iris down`")
    from iris.cli.cluster.teardown import tear_down

    return tear_down((data or data_dir()).absolute())
