"""`iris queue`: pending jobs in scheduling order, and holds on parts of the queue."""

from __future__ import annotations

import click

from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Column, reason_words
from iris.cli.output.times import age
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.flags import limit_options, with_options
from iris.cli.parsing.options import connect, connected, form_option
from iris.client.client import Client
from iris_core.spec.jobs import BANDS
from iris_core.units import counted
from iris_core.views.jobs import QueueHoldView

COLUMNS = (
    Column("POS", lambda row: str(row["position"]), right=True),
    Column("JOB", lambda row: row["job"]),
    Column("TASKS", lambda row: str(row["tasks"]), right=True),
    Column("BAND", lambda row: row["band"], gives=5),
    Column("SIDE", lambda row: row.get("side", ""), gives=7, wide=True),
    Column("DEPTH", lambda row: str(row["depth"]), right=True, gives=2),
    Column("STEPS", lambda row: "/".join(map(str, row.get("step", ()))), wide=True),
    Column("ROOT AGE", lambda row: age(row["root_submitted_at"]), right=True, gives=3),
    Column("AGE", lambda row: age(row["submitted_at"]), right=True, gives=6),
    Column("SEQ", lambda row: str(row["sequence"]), right=True, gives=1),
    Column("USER", lambda row: row["user"], gives=4),
    Column("WHY", reason_words, wraps=True),
)

GATED_COLUMNS = (
    Column("JOB", lambda row: row["job"]),
    Column("ID", lambda row: row["job_id"], gives=3),
    Column("TASKS", lambda row: str(row["tasks"]), right=True),
    Column("BAND", lambda row: row["band"], gives=2),
    Column("AGE", lambda row: age(row["submitted_at"]), right=True, gives=4),
    Column("USER", lambda row: row["user"], gives=1),
    Column("WHY", reason_words, wraps=True),
)
_GATED_SHOWN = 10


@click.group(cls=CliGroup, invoke_without_command=True)
@limit_options(50)
@click.option("-a", "--all", "everything", is_flag=True, help="The whole queue.")
@click.option(
    "--gated",
    is_flag=True,
    help="Instead jobs that wait outside it: for a job, a time, a retry, a release, or an earlier attempt's end.",
)
@form_option()
@click.option("--url", help="Address of the gateway.", metavar="URL")
@click.option("--context", help="Use this named gateway.", metavar="NAME")
@click.pass_context
def queue(
    ctx: click.Context,
    url: str | None,
    context: str | None,
    limit: int,
    cursor: str | None,
    everything: bool,
    gated: bool,
    form: str,
) -> None:
    """Show what waits, in the order of its key, with the columns of the key; what of the queue is
    held, and which jobs wait outside it.

    In a band, work within a guarantee of its project (the near side, see -o wide) goes before what
    borrows, and that before what is over a limit. Rows are not sorted by this, which follows from
    what runs.
    """
    if ctx.invoked_subcommand is None:
        most = None if everything else limit
        with connect(ctx, url, context) as client:
            if gated:
                found = read_page(client, "/v1/queue/gated", None, most, cursor=cursor)
                print_page(found, GATED_COLUMNS, form, name="job")
            else:
                show(client, most, cursor, form)


def show(client: Client, limit: int | None, cursor: str | None, form: str) -> None:
    """Print the queue, and before it, for people, what of it is held and the first jobs that wait
    outside it.
    """
    if form in ("table", "wide"):
        for hold in client.queue_holds():
            click.echo(f"held: {described(hold)}", err=True)
        outside = list(client.pages("/v1/queue/gated", dict, None, _GATED_SHOWN + 1))
        for row in outside[:_GATED_SHOWN]:
            tasks = counted(row["tasks"], "task")
            click.echo(
                f"not in the queue: {row['job']} ({row['job_id']}, {tasks}): {reason_words(row)}",
                err=True,
            )
        if len(outside) > _GATED_SHOWN:
            click.echo("not in the queue: further jobs; list them: iris queue --gated", err=True)
    print_page(
        read_page(client, "/v1/queue", None, limit, cursor=cursor), COLUMNS, form, name="job"
    )


selectors = with_options(
    click.option("--user", default="", help="Jobs of this user.", metavar="USER"),
    click.option("--band", type=click.Choice(BANDS), default=None, help="Jobs of this band."),
    click.option("--label", default="", help="Jobs with this label.", metavar="KEY=VALUE"),
)
"""The options that say which part of the queue is meant."""


@queue.command("hold")
@selectors
@click.option("--reason", default="", help="Reason shown with the jobs.")
@connected
def hold_queue(client: Client, user: str, band: str | None, label: str, reason: str) -> None:
    """Start no pending task of jobs that match every option, also of jobs that come later; what
    runs goes on.

    A user who is not an admin holds only their own jobs (--user). Routes of deployments go on.
    """
    if not (user or band or label):
        raise click.UsageError("specify what to hold: --user, --band or --label")
    click.echo(
        f"held: {described(client.hold_queue(user=user, band=band or '', label=label, reason=reason))}",
        err=True,
    )


@queue.command("release")
@selectors
@connected
def release_queue(client: Client, user: str, band: str | None, label: str) -> None:
    """End the hold of exactly these options; only who has made it, or an admin, may."""
    wanted = (user or None, band, label or None)
    holds = client.queue_holds()
    found = next((hold for hold in holds if (hold.user, hold.band, hold.label) == wanted), None)
    if found is None:
        there = "; ".join(map(described, holds)) or "nothing"
        raise click.UsageError(f"no hold has exactly these options; held: {there}")
    client.release_queue(found.id)
    click.echo(f"released: {selected(found)}", err=True)


def selected(hold: QueueHoldView) -> str:
    """``user mia, band batch``."""
    parts = {"user": hold.user, "band": hold.band, "label": hold.label}
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


def described(hold: QueueHoldView) -> str:
    """``user mia by root: maintenance (2 jobs, 30 pending)``."""
    by = f" by {hold.by.name}" if hold.by is not None else ""
    why = f": {hold.reason}" if hold.reason else ""
    return f"{selected(hold)}{by}{why} ({counted(hold.jobs, 'job')}, {hold.tasks} pending)"
