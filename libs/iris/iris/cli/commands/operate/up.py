"""`iris up`: start a cluster on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from iris.cli.installed import require_extra
from iris.cli.parsing.command import CliCommand
from iris.client.http.address import data_dir

_DATA = "Data directory.  [default: $IRIS_DATA, else ~/.local/state/iris]"
_HTTP = "Address that the gateway listens on; port 0 takes a free one.  [default: 127.0.0.1:8080]"


@click.command(cls=CliCommand)
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help=_DATA)
@click.option("--http", help=_HTTP, metavar="HOST:PORT")
@click.option(
    "--workers", type=click.IntRange(0, 1000), help="CPU hosts, each a process.  [default: 2]"
)
@click.option(
    "--worker-cpu",
    type=click.FloatRange(0, min_open=True),
    help="Cores of each host.  [default: an equal share of this machine's, 1 at least]",
)
@click.option(
    "--tpu",
    multiple=True,
    help="Simulated slices, for example v5litepod-16x2.",
    metavar="VARIANT[xN]",
)
@click.option(
    "--replicas",
    multiple=True,
    help="Processes of a service, for example state=2.",
    metavar="SERVICE=N",
)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    help="A kind of hosts that the cluster makes and deletes by itself, for example cpu:max=8, or a pool's file.",
    metavar="SPEC",
)
@click.option(
    "--auth/--no-auth", default=None, help="Require a token for every request.  [default: auth]"
)
@click.option(
    "--sandbox",
    is_flag=True,
    default=None,
    help="Run tasks in a sandbox; otherwise they run as you.",
)
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An iris.toml."
)
@click.option("-d", "--detach", is_flag=True, help="Return when it is ready; print its address.")
def up(data: Path | None, config: Path | None, detach: bool, **given: Any) -> int:
    """Start a whole cluster on this machine: an embedded NATS server, every service its own
    process, workers.

    Without --detach it stays until Ctrl-C. What is in --data stays, and the next `iris up`
    continues from it.
    """
    require_extra("local", "`iris up`")
    from iris.cli.cluster.launch import launch

    wanted = {key: value for key, value in given.items() if value not in (None, ())}
    return launch((data or data_dir()).absolute(), config, wanted, detach=detach)
