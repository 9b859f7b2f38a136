"""`iris session`: units that are placed all or none."""

from __future__ import annotations

import click

from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Column, Row, print_facts, print_object, print_table, state_word
from iris.cli.output.times import age
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.flags import limit_options
from iris.cli.parsing.options import NAME, connected, form_option
from iris.client.client import Client
from iris.client.http.transport import in_path


def show_tries(row: Row) -> str:
    """``PrepareSessions 2``."""
    return ", ".join(f"{handler} {count}" for handler, count in row["tries"].items())


COLUMNS = (
    Column("ID", lambda row: row["id"]),
    Column("JOB", lambda row: row["job"]),
    Column("STATUS", lambda row: row["status"].lower()),
    Column("SINCE", lambda row: age(row["since"]), right=True, gives=2),
    Column("KERNELS", lambda row: str(len(row["kernels"])), right=True, gives=1),
    Column("TRIES", show_tries, wraps=True),
)
KERNELS = (
    Column("TASK", lambda row: row["task"]),
    Column("ATTEMPT", lambda row: str(row["attempt"]), right=True, gives=1),
    Column("WORKER", lambda row: row["worker"]),
    Column("STATUS", lambda row: state_word(row["status"].lower())),
)


@click.group(cls=CliGroup)
def session() -> None:
    """List and show sessions: the units that are placed all or none."""


@session.command("list")
@click.option("--job", type=NAME, help="Only this job's.")
@click.option("--status", help="Only in this status.")
@limit_options(50)
@form_option()
@connected
def list_sessions(
    client: Client, job: str | None, status: str | None, limit: int, cursor: str | None, form: str
) -> None:
    """List sessions."""
    path = f"/v1/jobs/{in_path(job)}/sessions" if job else "/v1/sessions"
    print_page(
        read_page(client, path, {"status": status}, limit, cursor=cursor), COLUMNS, form, name="id"
    )


@session.command("show")
@click.argument("session_id", metavar="SESSION")
@form_option()
@connected
def show_session(client: Client, session_id: str, form: str) -> None:
    """Show one session with its kernels."""
    found: Row = client.get(f"/v1/sessions/{in_path(session_id)}", dict)
    if print_object(found, form, name="id"):
        return
    print_facts((column.title.lower(), column.cell(found)) for column in COLUMNS)
    click.echo()
    print_table(found["kernels"], KERNELS)
