"""`iris audit`: who did what."""

from __future__ import annotations

import click

from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Column, Row
from iris.cli.output.times import show_moment
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.flags import limit_options
from iris.cli.parsing.options import connected, form_option
from iris.client.client import Client
from iris_core.units import MOMENT


def describe(row: Row) -> str:
    """The detail, and how often the same command was given."""
    times = row.get("times", 1)
    repeated = f"{times:,} times since {show_moment(row['first_at'])}" if times > 1 else ""
    return "; ".join(filter(None, (row["detail"], repeated)))


COLUMNS = (
    Column("AT", lambda row: show_moment(row["at"]), gives=2),
    Column("WHO", lambda row: row["by"]["name"]),
    Column("DID", lambda row: row["action"].replace("_", " ")),
    Column("TO", lambda row: f"{row['kind']} {row['name']}"),
    Column("OWNER", lambda row: row["owner"] or "", gives=1),
    Column("DETAIL", describe, wraps=True),
    Column("ID", lambda row: row["id"], wide=True),
    Column("ROLE", lambda row: row["by"]["role"] or "", wide=True),
    Column("TOKEN", lambda row: row["by"]["token"] or "", wide=True),
    Column("ADDRESS", lambda row: row["by"]["address"] or "", wide=True),
)


@click.command(cls=CliCommand)
@click.option("--by", help="Only commands of this user.", metavar="USER")
@click.option(
    "--of",
    help="Only what was done to this job, worker or deployment, or to what this user owns.",
    metavar="JOB|WORKER|USER",
)
@click.option("--since", help="Only since this time: 7d, or a date.", metavar=MOMENT)
@limit_options(100)
@form_option()
@connected
def audit(
    client: Client,
    by: str | None,
    of: str | None,
    since: str | None,
    limit: int,
    cursor: str | None,
    form: str,
) -> None:
    """Show who did what, newest first: all for admins, for others what concerns them."""
    query = {"by": by, "of": of, "since": since}
    print_page(
        read_page(client, "/v1/audit", query, limit, cursor=cursor), COLUMNS, form, name="id"
    )
