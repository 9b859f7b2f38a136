"""`iris ls`: jobs, newest first or in another order."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click

from iris.cli.output.pages import ListedPage, print_page, read_page
from iris.cli.output.tables import Column, Row, reason_words, state_word
from iris.cli.output.times import age, show_moment, span_between, standing
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.flags import limit_options
from iris.cli.parsing.options import NAME, connected, form_option
from iris.client.client import Client
from iris.client.http.transport import UrlQuery
from iris_core.spec.jobs import BANDS
from iris_core.states import JobState, display_name
from iris_core.views.jobs import JOB_COLUMNS, JOB_ORDERS, JOBS_ORDERED, NEWEST_FIRST

_STATES = [display_name(state) for state in JobState if state]
_WATCH_S = 2.0


def show_counts(job: Row) -> str:
    """``3/8``: tasks that succeeded of all."""
    return f"{job['task_counts'].get('succeeded', 0)}/{job['replicas']}"


def show_note(job: Row) -> str:
    """Why a job does not run although its state says so, or why it is pending."""
    waits = "" if job["task_counts"].get("running") else reason_words(job)
    return "; ".join(part for part in (standing(job), waits) if part)


_ID = Column("ID", lambda job: job["id"])
COLUMNS = (
    Column("NAME", lambda job: job["name"]),
    Column("STATE", lambda job: state_word(job["state"])),
    Column("DONE", show_counts, right=True),
    Column("USER", lambda job: job["user"], gives=3),
    Column("BAND", lambda job: job["band"], gives=1),
    Column("TIME", lambda job: span_between(job["started_at"], job["finished_at"]), right=True),
    Column("AGE", lambda job: age(job["submitted_at"]), right=True, gives=2),
    Column("NOTE", show_note, wraps=True),
    Column("SUBMITTED", lambda job: show_moment(job["submitted_at"]), wide=True),
    Column("FINISHED", lambda job: show_moment(job["finished_at"]), wide=True),
    Column("ERROR", lambda job: job["error"] or "", wide=True),
)


def addressed(job: Row) -> Row:
    """A job whose name leads to it: its id, if it has been run again, or if other users have jobs
    of this name.
    """
    return {**job, "name": job["id"]} if _is_ambiguous(job) else job


def _is_ambiguous(job: Row) -> bool:
    return bool(job.get("next_run") or job.get("name_shared"))


def columns_of(jobs: Iterable[Row], form: str) -> tuple[Column, ...]:
    """The columns of a listing: with ids when a job in it has been run again, whose name is another
    job's now, or shares its name with another user's.
    """
    by_name, *others = COLUMNS
    named_twice = any(map(_is_ambiguous, jobs))
    return (by_name, *([_ID] if named_twice or form == "wide" else []), *others)


@click.command(cls=CliCommand)
@click.option("--state", type=click.Choice(_STATES), help="Only jobs in this state.")
@click.option("--user", help="Only this user's jobs.")
@click.option("--band", type=click.Choice(BANDS), help="Only this band.")
@click.option("--prefix", type=NAME, help="Only jobs whose name begins with this.", metavar="NAME")
@click.option("--label", help="Only jobs with this label.", metavar="KEY=VALUE")
@click.option("--project", help="Only jobs in this project, or one below it.", metavar="PATH")
@click.option("--parent", type=NAME, help="Only jobs right below this one.", metavar="JOB")
@click.option(
    "--order",
    type=click.Choice(JOB_ORDERS),
    default=NEWEST_FIRST,
    show_default=True,
    metavar="[-]COLUMN",
    help=f"By {', '.join(JOB_COLUMNS)}; - is descending. Any but the default lists the newest {JOBS_ORDERED:,} only.",
)
@click.option(
    "--routes", is_flag=True, help="Also the routes of deployments, as with --prefix or --parent."
)
@click.option("-a", "--all", "everything", is_flag=True, help="Every job, not only the newest.")
@limit_options(50)
@click.option("-w", "--watch", is_flag=True, help="Refresh every two seconds.")
@form_option()
@connected
def ls(
    client: Client,
    state: str | None,
    user: str | None,
    band: str | None,
    prefix: str | None,
    label: str | None,
    project: str | None,
    parent: str | None,
    order: str,
    routes: bool,
    everything: bool,
    limit: int,
    cursor: str | None,
    watch: bool,
    form: str,
) -> None:
    """List jobs, newest first unless --order says otherwise."""
    query: UrlQuery = {
        "state": state,
        "user": user,
        "band": band,
        "name_prefix": prefix,
        "label": label,
        "project": project,
        "parent": parent,
        "order": order,
        "without_routes": None if routes or prefix or parent else True,
    }
    while True:
        found = read_page(client, "/v1/jobs", query, None if everything else limit, cursor=cursor)
        if watch and form in ("table", "wide"):
            click.clear()
        shown = (
            ListedPage([addressed(job) for job in found.items], found.next_cursor)
            if form == "name"
            else found
        )
        print_page(shown, columns_of(found.items, form), form)
        if not watch:
            return
        time.sleep(_WATCH_S)
