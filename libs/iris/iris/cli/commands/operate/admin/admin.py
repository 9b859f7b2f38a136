"""`iris admin`: maintain stored data, in the files of a stopped local cluster or on NATS servers.

Out of scope: the work itself, which `iris_state.admin` does.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from iris.cli.commands.operate.admin.token import token
from iris.cli.installed import require_extra
from iris.cli.parsing.command import CliGroup
from iris.client.http.address import data_dir, read_cluster
from iris.client.problems import InvalidOption
from iris.cluster.pools import slots_in
from iris.cluster.process import ISOLATED
from iris_service.settings import BadSetting, load

_FILE = click.Path(dir_okay=False, path_type=Path)
_SERVER_NAME = re.compile(r"[\w-]+\Z", re.ASCII)
_DATA = "Data directory of the local cluster.  [default: $IRIS_DATA, else ~/.local/state/iris]"
_CONFIG = (
    "An iris.toml. The servers in its [nats] are used, unless --data or --nats says otherwise."
)

F = TypeVar("F", bound=Callable[..., Any])


def located(command: F) -> F:
    """Give a command ``--data``, ``--nats`` and ``--config``, and the start of its program's
    arguments as its first.
    """

    @click.option("--data", type=click.Path(file_okay=False, path_type=Path), help=_DATA)
    @click.option(
        "--nats", help="All servers of a NATS cluster, instead of a local one.", metavar="URL[,URL]"
    )
    @click.option(
        "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help=_CONFIG
    )
    @functools.wraps(command)
    def with_place(data: Path | None, nats: str | None, config: Path | None, **given: Any) -> None:
        program = [sys.executable, *ISOLATED, "-m", "iris_state.admin"]
        program += ["--config", str(config)] if config else []
        servers = nats or (_servers_of(config) if config and not data else "")
        command([*program, *place((data or data_dir()).absolute(), servers)], **given)

    return with_place  # type: ignore[return-value]


def _servers_of(config: Path) -> str:
    """The NATS servers that an `iris.toml` names; empty when it names none."""
    try:
        return load(config, os.environ).text("nats", "url")
    except BadSetting as error:
        raise click.UsageError(str(error)) from error


def place(data: Path, nats: str) -> list[str]:
    """An option for the files of a stopped cluster. An address is passed in the environment: it may
    hold a password.
    """
    if nats:
        os.environ["IRIS_NATS_URL"] = nats
        return []
    if cluster := read_cluster(data):
        os.environ |= {"IRIS_NATS_URL": cluster.nats_url, "IRIS_NATS_NKEY_SEED": cluster.nats_seed}
        return []
    return ["--store", str(data / "nats")]


def become(program: list[str]) -> None:
    require_extra("server", "`iris admin`")
    sys.stdout.flush()
    os.execv(sys.executable, program)


@click.group(cls=CliGroup)
def admin() -> None:
    """Verify, repair, back up and restore what a cluster has stored; make tokens; configure NATS
    servers.

    Of a local cluster that is stopped the files are read, of one that is up what its NATS server
    holds.
    """


@admin.command()
@click.argument("file", type=_FILE, required=False)
@located
def verify(program: list[str], file: Path | None) -> None:
    """Read what a state service would start from, or the backup FILE; changes nothing. Ends with 65
    if damaged.
    """
    become([*program, "verify", *([str(file)] if file else [])])


@admin.command()
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@located
def repair(program: list[str], yes: bool) -> None:
    """Replace damaged records by what can be read, and list what is lost. The state services must
    be stopped.
    """
    become([*program, "repair", *(["--yes"] if yes else [])])


@admin.command()
@click.option("--apply", is_flag=True, help="Change the streams, also where they become less safe.")
@located
def streams(program: list[str], apply: bool) -> None:
    """Compare the streams with the settings of [nats]: copies, how long and how much is kept.

    Services make what is missing and raise what is lower. Only --apply lowers what is safer than
    the settings say.
    """
    become([*program, "streams", *(["--apply"] if apply else [])])


@admin.command()
@click.argument("file", type=_FILE)
@click.option("--events", is_flag=True, help="Public events as well.")
@click.option("--logs", is_flag=True, help="Output of tasks as well.")
@located
def backup(program: list[str], file: Path, events: bool, logs: bool) -> None:
    """Write the records, the bundles, and the targets and subscriptions of messages into FILE while
    the cluster runs.
    """
    more = [*(["--events"] if events else []), *(["--logs"] if logs else [])]
    become([*program, "backup", *more, str(file.absolute())])


@admin.command()
@click.argument("file", type=_FILE)
@located
def restore(program: list[str], file: Path) -> None:
    """Fill an empty cluster from FILE: a data directory nothing was started on yet, or empty NATS
    servers.
    """
    become([*program, "restore", str(file.absolute())])


admin.add_command(token)


@admin.command("nats-config")
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory to write to.",
)
@click.option(
    "--worker", "workers", multiple=True, metavar="NAME", help="The id of a worker; once for each."
)
@click.option(
    "--pools",
    type=click.File("rb"),
    metavar="FILE",
    help="A key for each host that these pools may have: what `iris pool ls -o json` prints; - is stdin.",
)
@click.option(
    "--observer",
    "observers",
    multiple=True,
    metavar="NAME",
    help="A client that may watch public events; once for each.",
)
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="NAME=HOST",
    help="A server of a cluster, and where the others reach it; once for each of three or five.",
)
@click.option(
    "--store",
    default="/var/lib/nats",
    show_default=True,
    help="Where the server keeps its streams.",
)
@click.option("--tls-cert", help="Path of the server's certificate on its host.", metavar="FILE")
@click.option("--tls-key", help="Path of the certificate's key on its host.", metavar="FILE")
@click.option(
    "--tls-ca", help="Path of the authority that signed the clients' certificates.", metavar="FILE"
)
def nats_config(
    out: Path,
    workers: Sequence[str],
    pools: IO[bytes] | None,
    observers: Sequence[str],
    servers: Sequence[str],
    store: str,
    tls_cert: str,
    tls_key: str,
    tls_ca: str,
) -> None:
    """Write accounts, permissions and keys for NATS servers of your own: one, or with --server a
    cluster.

    Run it again with another --worker, or with --pools after a pool was set, to add some: keys that
    are there stay. Then have the server read accounts.conf again, twice: nats-server --signal
    reload. Restart the servers of a NATS cluster instead, one after the other.
    """
    from iris_nats.nats_config import TlsFiles, write

    if bool(tls_cert) != bool(tls_key) or (tls_ca and not tls_cert):
        raise click.UsageError("--tls-cert and --tls-key belong together, --tls-ca goes with them")
    try:
        tls = TlsFiles(tls_cert, tls_key, tls_ca or "") if tls_cert else None
        hosts = slots_in(pools.read(), pools.name) if pools is not None else []
        made = write(out, [*workers, *hosts], observers, store, tls, read_servers(servers))
    except (ValueError, OSError, InvalidOption) as error:
        raise click.ClickException(str(error)) from None
    for path in made:
        click.echo(path)


def read_servers(given: Sequence[str]) -> dict[str, str]:
    """``NAME=HOST`` of each server of a cluster. Raises UsageError."""
    found = dict(one.partition("=")[::2] for one in given)
    if not all(_SERVER_NAME.match(name) and host for name, host in found.items()):
        raise click.UsageError(
            "--server is NAME=HOST, as in --server m1=10.0.0.1; NAME has letters, digits, '-' and '_'"
        )
    if len(found) not in (0, 3, 5):
        raise click.UsageError(
            f"a cluster has three or five servers of different names, not {len(found)}"
        )
    return found
