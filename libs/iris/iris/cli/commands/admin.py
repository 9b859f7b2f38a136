"""`iris admin`: maintain stored data, in the files of a stopped local cluster or on NATS servers.

Out of scope: the work itself, which `iris_state.admin` does.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from iris.cli.parsing import CliGroup
from iris.client.address import data_dir, read_cluster
from iris.cluster.process import ISOLATED

_FILE = click.Path(dir_okay=False, path_type=Path)
_DATA = "Which local cluster.  [default: $IRIS_DATA, else ~/.local/state/iris]"


F = TypeVar("F", bound=Callable[..., Any])


def located(command: F) -> F:
    """Give a command ``--data``, ``--nats`` and ``--config``, and the start of its program's arguments as its first."""

    @click.option("--data", type=click.Path(file_okay=False, path_type=Path), help=_DATA)
    @click.option("--nats", help="All servers of a NATS cluster, instead of a local one.", metavar="URL[,URL]")
    @click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An iris.toml.")
    @functools.wraps(command)
    def with_place(data: Path | None, nats: str | None, config: Path | None, **given: Any) -> None:
        program = [sys.executable, *ISOLATED, "-m", "iris_state.admin"]
        program += ["--config", str(config)] if config else []
        command([*program, *place((data or data_dir()).absolute(), nats)], **given)

    return with_place  # type: ignore[return-value]


def place(data: Path, nats: str | None) -> list[str]:
    """An option for the files of a stopped cluster. An address is passed in the environment, because it may hold a
    password.
    """
    cluster = read_cluster(data)
    if nats or cluster:
        os.environ["IRIS_NATS_URL"] = nats or (cluster.nats_url if cluster else "")
        return []
    return ["--store", str(data / "nats")]


def become(program: list[str]) -> None:
    sys.stdout.flush()
    os.execv(sys.executable, program)


@click.group(cls=CliGroup)
def admin() -> None:
    """Verify, repair, back up and restore what a cluster has stored.

    Of a local cluster that is stopped the files are read, of one that is up what its NATS server holds.
    """


@admin.command()
@click.argument("file", type=_FILE, required=False)
@located
def verify(program: list[str], file: Path | None) -> None:
    """Read what a state service would start from, or the backup FILE; changes nothing. Ends with 65 if damaged."""
    become([*program, "verify", *([str(file)] if file else [])])


@admin.command()
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@located
def repair(program: list[str], yes: bool) -> None:
    """Replace damaged records by what can be read, and list what is lost. The state services must be stopped."""
    become([*program, "repair", *(["--yes"] if yes else [])])


@admin.command()
@click.argument("file", type=_FILE)
@click.option("--events", is_flag=True, help="Public events as well.")
@click.option("--logs", is_flag=True, help="What tasks have printed as well.")
@located
def backup(program: list[str], file: Path, events: bool, logs: bool) -> None:
    """Write the records and the bundles into FILE while the cluster runs."""
    more = [*(["--events"] if events else []), *(["--logs"] if logs else [])]
    become([*program, "backup", *more, str(file.absolute())])


@admin.command()
@click.argument("file", type=_FILE)
@located
def restore(program: list[str], file: Path) -> None:
    """Fill an empty cluster from FILE: a data directory nothing was started on yet, or empty NATS servers."""
    become([*program, "restore", str(file.absolute())])
