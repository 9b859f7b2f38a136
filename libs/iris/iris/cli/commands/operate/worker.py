"""`iris worker`: list and show hosts; drain, mark as lost and forget them (admins)."""

from __future__ import annotations

from collections.abc import Sequence

import click

from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Column, Row, print_facts, print_object, state_word
from iris.cli.output.times import age
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.options import connected, form_option
from iris.client.client import Client
from iris.client.http.transport import in_path
from iris_core.spec.resources import RESOURCES, Resource
from iris_core.states import WorkerState


def show_used(resource: Resource, rows: Sequence[Row]) -> str:
    """``1GiB/16GiB`` of some hosts, empty where they have none."""
    committed, total = (
        sum(row[part].get(resource.name, 0) for row in rows) for part in ("committed", "total")
    )
    return f"{resource.unit.show(committed)}/{resource.unit.show(total)}" if total else ""


def used_column(resource: Resource) -> Column:
    return Column(
        resource.words.upper(),
        lambda row: show_used(resource, [row]),
        wide=resource.wide,
        right=True,
    )


def show_attributes(row: Row) -> str:
    """``device-type=tpu tpu-name=slice-0 ...``."""
    return " ".join(f"{key}={value}" for key, value in row["attributes"].items())


reason_option = click.option(
    "--reason", default="", help="Why; shown with the host, and in the audit.", metavar="TEXT"
)

COLUMNS = (
    Column("ID", lambda row: row["id"]),
    Column("STATE", lambda row: state_word(row["state"])),
    Column("POOL", lambda row: row.get("pool") or "", gives=3),
    Column("SLICE", lambda row: row.get("slice") or "", gives=4),
    *map(used_column, RESOURCES),
    Column("TASKS", lambda row: str(len(row["tasks"])), right=True),
    Column("HEARTBEAT", lambda row: age(row["last_heartbeat_at"]), right=True, gives=2),
    Column("REGISTERED", lambda row: age(row.get("registered_at")), right=True, gives=1),
    Column("DETAIL", lambda row: row["detail"], wraps=True),
    Column("ATTRIBUTES", show_attributes, wide=True, wraps=True),
)
OUTSIDE = tuple(column for column in COLUMNS if column.title not in ("POOL", "SLICE"))
"""Those of hosts that no pool has made."""


@click.group(cls=CliGroup)
def worker() -> None:
    """List, drain and decommission hosts."""


@worker.command("list")
@click.option(
    "--state",
    type=click.Choice([state.value for state in WorkerState]),
    help="Only workers in this state.",
)
@form_option()
@connected
def list_workers(client: Client, state: str | None, form: str) -> None:
    """List hosts with what they have and what is committed."""
    page = read_page(client, "/v1/workers", {"state": state})
    columns = COLUMNS if any(row.get("pool") for row in page.items) else OUTSIDE
    print_page(page, columns, form, name="id")


@worker.command("show")
@click.argument("worker_id", metavar="WORKER")
@form_option()
@connected
def show_worker(client: Client, worker_id: str, form: str) -> None:
    """Show one host with its attributes and tasks."""
    found: Row = client.get(f"/v1/workers/{in_path(worker_id)}", dict)
    if print_object(found, form, name="id"):
        return
    print_facts((column.title.lower(), column.cell(found)) for column in COLUMNS if not column.wide)
    print_facts((key, str(value)) for key, value in found["attributes"].items())
    for task_id, task in zip(found["task_ids"], found["tasks"], strict=True):
        click.echo(f"{task_id}  {task}")


def act(client: Client, workers: tuple[str, ...], action: str, reason: str) -> None:
    """Apply one action to each host."""
    for one in workers:
        found: Row = client.post(
            f"/v1/workers/{in_path(one)}/{action}", dict, body={"reason": reason}
        )
        click.echo(f"{one} {found.get('state', action)}", err=True)


@worker.command()
@click.argument("workers", nargs=-1, required=True, metavar="WORKER...")
@reason_option
@connected
def drain(client: Client, workers: tuple[str, ...], reason: str) -> None:
    """Give hosts no new work; running tasks continue."""
    act(client, workers, "drain", reason)


@worker.command()
@click.argument("workers", nargs=-1, required=True, metavar="WORKER...")
@reason_option
@connected
def undrain(client: Client, workers: tuple[str, ...], reason: str) -> None:
    """Give drained hosts work again."""
    act(client, workers, "undrain", reason)


@worker.command()
@click.argument("workers", nargs=-1, required=True, metavar="WORKER...")
@reason_option
@connected
def forget(client: Client, workers: tuple[str, ...], reason: str) -> None:
    """Forget lost hosts that do not come back; what they ran keeps their names."""
    act(client, workers, "forget", reason)


@worker.command("mark-lost")
@click.argument("workers", nargs=-1, required=True, metavar="WORKER...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_option
@connected
def mark_lost(client: Client, workers: tuple[str, ...], yes: bool, reason: str) -> None:
    """Give hosts up at once: their tasks are taken for lost and go elsewhere."""
    if not yes:
        click.confirm(
            f"Declare {', '.join(workers)} lost, with everything that runs there?",
            abort=True,
            err=True,
        )
    act(client, workers, "mark-lost", reason)
