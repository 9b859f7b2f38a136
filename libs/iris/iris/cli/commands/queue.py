"""`iris queue`: pending jobs in scheduling order."""

from __future__ import annotations

import click

from iris.cli.options import connected, form_option
from iris.cli.parsing import CliCommand
from iris.cli.tables import Column, Row, print_page
from iris.cli.times import age
from iris.client.client import Client


def reason_words(row: Row) -> str:
    """The pending reason's sentence, empty for none."""
    reason = row.get("pending_reason")
    return reason["message"] if reason else ""


COLUMNS = (
    Column("POS", lambda row: str(row["position"]), right=True),
    Column("JOB", lambda row: row["job"]),
    Column("TASKS", lambda row: str(row["tasks"]), right=True),
    Column("BAND", lambda row: row["band"], gives=5),
    Column("DEPTH", lambda row: str(row["depth"]), right=True, gives=2),
    Column("ROOT AGE", lambda row: age(row["root_submitted_at"]), right=True, gives=3),
    Column("AGE", lambda row: age(row["submitted_at"]), right=True, gives=6),
    Column("SEQ", lambda row: str(row["sequence"]), right=True, gives=1),
    Column("USER", lambda row: row["user"], gives=4),
    Column("WHY", reason_words, wraps=True),
)


@click.command(cls=CliCommand)
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of rows.")
@click.option("-a", "--all", "everything", is_flag=True, help="The whole queue.")
@form_option()
@connected
def queue(client: Client, limit: int, everything: bool, form: str) -> None:
    """Show what waits, in its exact order, with the columns of the key."""
    print_page(client.pages("/v1/queue", dict, None, None if everything else limit), COLUMNS, form, name="job")
