"""`iris doctor`: finds misconfigurations of a cluster and prints what to do about each."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import click
import msgspec

from iris.cli.exit_codes import ExitCode
from iris.cli.output.tables import print_json
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import connect
from iris.client.client import Client
from iris.client.http.address import data_dir, read_cluster
from iris.client.problems import NoGateway
from iris.doctor.checks import Finding, notes, problems
from iris.doctor.facts import ClusterFacts

_ANSWER_S = 10.0
"""A gateway that takes longer is as useless as one that has ended."""


class Diagnosis(msgspec.Struct, frozen=True):
    """What ``--json`` prints."""

    problems: list[Finding]
    notes: list[str]


@click.command(cls=CliCommand)
@click.option("--url", help="Address of the gateway.", metavar="URL")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory of the local cluster.",
)
@click.option(
    "--nats", help="The servers of a NATS cluster, instead of a local one.", metavar="URL[,URL]"
)
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="An iris.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print the problems as one JSON object.")
@click.pass_context
def doctor(
    ctx: click.Context,
    url: str | None,
    data: Path | None,
    nats: str | None,
    config: str | None,
    as_json: bool,
) -> int:
    """Find what is misconfigured, here, at the gateway and at the NATS servers; ends with 1 when
    something is.

    With the key of the role admin (nkey_seed of [nats]) in the directory that `iris admin
    nats-config` wrote, it also checks the settings and the clocks of the servers, the permissions
    of every key, and who is connected.
    """
    from iris.doctor.collect import collect
    from iris_service.settings import BadSetting

    logging.getLogger().addHandler(logging.NullHandler())  # what is wrong is printed as a problem
    where = (data or data_dir()).absolute()
    with contextlib.ExitStack() as stack:
        client: Client | None = None
        with contextlib.suppress(NoGateway):
            client = stack.enter_context(connect(ctx, url, retry_for_s=0.0, answer_s=_ANSWER_S))
        try:
            facts = collect(client, where, nats or "", config or "")
        except BadSetting as error:
            raise click.UsageError(str(error)) from None
    found = Diagnosis(problems(facts), notes(facts))
    if as_json:
        print_json(found)
    else:
        print_places(facts, where)
        print_diagnosis(found)
    return ExitCode.UNEXPECTED if found.problems else ExitCode.SUCCEEDED


def print_places(facts: ClusterFacts, data: Path) -> None:
    """Where it has looked."""
    if facts.gateway is not None:
        click.echo(f"gateway: {facts.gateway.url} (from {facts.gateway.origin})")
    if facts.bus is not None:
        click.echo(f"NATS: {facts.bus.url}")
    cluster = read_cluster(data)
    for service, urls in cluster.metrics.items() if cluster else ():
        click.echo(f"metrics of {service}: {' '.join(urls)}")


def print_diagnosis(found: Diagnosis) -> None:
    """Each problem as four lines; one line when there is none."""
    for note in found.notes:
        click.echo(f"{click.style('note', fg='yellow')}: {note}")
    for problem in found.problems:
        click.echo(f"\n{click.style(problem.code, fg='red')}: {problem.what}")
        click.echo(f"  why it matters: {problem.why}")
        click.echo(f"  what to do: {problem.do}")
        click.echo(f"  see {problem.see}")
    if not found.problems:
        click.echo("nothing is wrong")
