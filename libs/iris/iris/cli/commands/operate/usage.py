"""`iris usage`: what jobs have held and used."""

from __future__ import annotations

from collections.abc import Iterator

import click

from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Column, Row, print_facts, print_object
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.flags import limit_options
from iris.cli.parsing.options import NAME, connected, form_option
from iris.client.client import Client
from iris.client.http.transport import HttpRequest, in_path
from iris_core.units import MOMENT, counted, show_bytes
from iris_core.views.queries import USAGE_BY
from iris_core.views.usage import (
    IDLE,
    cpu_share,
    memory_share,
    show_cost,
    show_devices,
    show_hours,
    show_lost,
    show_users,
)

SINCE = "30d"
_FORMS = ("table", "wide", "json", "jsonl", "csv")


def columns(by: str, priced: bool) -> tuple[Column, ...]:
    return (
        Column(by.upper(), lambda row: row[by] or f"(no {by})"),
        *((Column("USER", lambda row: row["user"]),) if by == "job" else ()),
        *((Column("USER", lambda row: row["user"] or IDLE),) if by == "pool" else ()),
        *((Column("USERS", show_users, wraps=True),) if by == "label" else ()),
        *((Column("OWN CPU HOURS", _own_hours, right=True),) if by == "project" else ()),
        Column("ATTEMPTS", lambda row: f"{row['total']['attempts']:,}", right=True, gives=2),
        Column("RUNNING", lambda row: f"{row['running']['attempts']:,}", right=True, wide=True),
        Column("CPU HOURS", lambda row: show_hours(row["total"]["cpu_seconds"]), right=True),
        Column("USED", cpu_share, right=True, gives=3),
        Column(
            "GIB HOURS",
            lambda row: show_hours(row["total"]["memory_gib_seconds"]),
            right=True,
            gives=4,
        ),
        Column("PEAK", memory_share, right=True, gives=1),
        Column("DEVICE HOURS", lambda row: show_devices(row["total"])),
        *((Column("COST", show_cost, right=True),) if priced else ()),
        Column("LOST", show_lost, wraps=True),
    )


def _own_hours(row: Row) -> str:
    """Of a project, without those below it."""
    return show_hours(row["own"]["cpu_seconds"]) if row.get("own") is not None else ""


@click.command(cls=CliCommand)
@click.argument("job", type=NAME, metavar="[JOB]", required=False)
@click.option(
    "--by", type=click.Choice(USAGE_BY), default="user", show_default=True, help="What a row sums."
)
@click.option("--user", help="Only of this user.", metavar="USER")
@click.option("--project", help="Only of this project and those below it.", metavar="PATH")
@click.option("--label", help="Only project=NAME; with --by job any label.", metavar="KEY=VALUE")
@click.option(
    "--since",
    default=SINCE,
    show_default=True,
    help="Only since this day of UTC: 7d, or a date.",
    metavar=MOMENT,
)
@click.option("--stored", is_flag=True, help="Show what is stored now of each user instead.")
@limit_options(100)
@form_option(forms=_FORMS)
@connected
def usage(
    client: Client,
    job: str | None,
    by: str,
    user: str | None,
    project: str | None,
    label: str | None,
    since: str,
    stored: bool,
    limit: int,
    cursor: str | None,
    form: str,
) -> None:
    """Show what jobs have held and used, and what of it was lost; with JOB of that one since it was
    submitted. Only admins of the cluster see what is not their own.

    USED is processor time, PEAK the peak of memory, both of what attempts that have ended had asked
    for. LOST is time of attempts that did not succeed, by why they ended. --by project sums each
    project with those below it. --by label sums by the label `project` of jobs as their submitters
    gave it: anybody may give a job any label, and USERS names who did.

    --by pool has a row for each user on the hosts of each pool, with its part of their price, and for
    admins a row "(idle)": what the pool's slices offered and nobody held, and what they cost and
    nobody is billed for. "(no pool)" is what ran on other hosts.

    --stored shows the bytes that each user's jobs hold now: records of jobs in memory, artifacts,
    output and results of calls in their stores, and the code that the user has sent (bundles; of
    what others have sent too an equal part). When one of these stores is nearly full, the oldest of
    the user who holds most there is deleted, of bundles the oldest that no job uses.
    """
    if job is not None:
        _show_job(client, job, form)
        return
    if stored:
        _show_stored(client, user, limit, cursor, form)
        return
    query = {"by": by, "user": user, "project": project, "label": label, "since": since}
    if form == "csv":
        answer = client.transport.send(
            HttpRequest("GET", "/v1/usage", query, headers={"Accept": "text/csv"})
        )
        click.echo(answer.body, nl=False)
        return
    page = read_page(client, "/v1/usage", query, limit, cursor=cursor)
    print_page(
        page,
        columns(by, any(row["cost"] is not None for row in page.items)),
        form,
        name=by,
    )


def _bytes(title: str, field: str, gives: int) -> Column:
    return Column(title, lambda row: show_bytes(row[field]), right=True, gives=gives)


STORED_COLUMNS = (
    Column("USER", lambda row: row["user"]),
    Column("JOBS", lambda row: f"{row['jobs']:,}", right=True, gives=1),
    _bytes("RECORDS", "job_bytes", 2),
    _bytes("ARTIFACTS", "artifact_bytes", 3),
    _bytes("OUTPUT", "output_bytes", 4),
    _bytes("RESULTS", "result_bytes", 5),
    _bytes("BUNDLES", "bundle_bytes", 6),
)


def _show_stored(
    client: Client, user: str | None, limit: int, cursor: str | None, form: str
) -> None:
    if form == "csv" or any(_is_given(name) for name in ("by", "project", "label", "since")):
        raise click.UsageError(
            "--stored shows what is kept now: of the other options it takes --user, --limit, "
            "--cursor and -o table, wide, json and jsonl"
        )
    page = read_page(client, "/v1/usage/stored", {"user": user}, limit, cursor=cursor)
    print_page(page, STORED_COLUMNS, form, name="user")


def _is_given(name: str) -> bool:
    """Whether an option stands in the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _show_job(client: Client, job: str, form: str) -> None:
    others = ("by", "user", "project", "label", "since", "stored", "limit", "cursor")
    if form == "csv" or any(map(_is_given, others)):
        raise click.UsageError(
            "JOB is shown whole: it takes no other options than -o table, wide, json and jsonl"
        )
    found: Row = client.get(f"/v1/jobs/{in_path(job)}/usage", dict)
    if not print_object(found, form):
        print_facts(describe(found))


def describe(found: Row) -> Iterator[tuple[str, str]]:
    """The usage of a job as lines."""
    total = found["total"]
    running = found["running"]
    yield "job", f"{found['job']} ({found['job_id']}) of {found['user']}"
    yield "project", found["project"]
    yield "label project", found.get("label") or ""
    now = f", {running['attempts']:,} of them running" if running["attempts"] else ""
    yield "attempts", counted(total["attempts"], "attempt") + now
    yield (
        "processors",
        f"{show_hours(total['cpu_seconds'])} hours held; {cpu_share(found)} of it used",
    )
    memory = f"{show_hours(total['memory_gib_seconds'])} GiB hours held; {memory_share(found)} of it at the peak"
    yield "memory", memory if total["memory_gib_seconds"] else "none was asked for"
    yield "devices", show_devices(total) and f"{show_devices(total)} hours held"
    yield "lost", show_lost(found)
    yield "cost", show_cost(found)
