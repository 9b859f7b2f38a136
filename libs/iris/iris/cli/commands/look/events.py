"""`iris events`: public events as they are published."""

from __future__ import annotations

import click
import msgspec

from iris.cli.output.pages import note_rest, read_page
from iris.cli.output.tables import Column, Row, print_json, state_word, table_lines, terminal_width
from iris.cli.output.times import show_millis
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.flags import limit_options
from iris.cli.parsing.options import NAME, connected, form_option
from iris.client.client import Client
from iris.client.http.transport import UrlQuery

DETAILS = (
    "attempt",
    "worker",
    "cause",
    "exit_code",
    "user",
    "band",
    "label",
    "reason",
    "until",
    "changes",
    "by",
)


@click.command(cls=CliCommand)
@click.option("-f", "--follow", is_flag=True, help="Follow until Ctrl-C.")
@click.option("--within", type=NAME, help="Only this job and everything below it.", metavar="JOB")
@click.option("--deployment", help="Only this deployment and its routes.", metavar="NAME")
@click.option(
    "--type", "kind", help="Only these: task, task.state, task.state.running.", metavar="TYPE"
)
@limit_options(100)
@form_option()
@connected
def events(
    client: Client,
    follow: bool,
    within: str | None,
    deployment: str | None,
    kind: str | None,
    limit: int,
    cursor: str | None,
    form: str,
) -> None:
    """Print public events, one per line; without -f the newest that are kept."""
    query: UrlQuery = {"within": within, "deployment": deployment, "type": kind}
    if follow:
        if cursor is not None:
            raise click.UsageError("--follow begins now; it takes no --cursor")
        for message in client.stream("/v1/events", query):
            print_event(
                {"id": message.id, "type": message.name, **msgspec.json.decode(message.data)}, form
            )
        return
    found = read_page(client, "/v1/events", query, limit, cursor=cursor)
    if form == "json":
        print_json(found)
    else:
        for event in reversed(found.items):
            print_event(event, form)
    note_rest(found)


def print_event(event: Row, form: str) -> None:
    """Print one event as a line."""
    if form in ("json", "jsonl"):
        print_json(event, indent=0)
        return
    if form == "name":
        click.echo(whose(event))
        return
    for line in lines_of(event, terminal_width()):
        click.echo(line)


def whose(event: Row) -> str:
    """The name of what an event is about."""
    return (
        event.get("task")
        or event.get("session")
        or event.get("job")
        or event.get("deployment")
        or event.get("hold")
        or event.get("slice")
        or event.get("pool")
        or ""
    )


def details(event: Row) -> str:
    """``attempt=0  worker=w0``."""
    if event.get("deadline_ms"):
        event = {**event, "until": show_millis(event["deadline_ms"])}
    found = {name: event[name] for name in DETAILS if event.get(name) not in (None, "")}
    return "  ".join(
        f"{name}={'; '.join(v) if isinstance(v, list) else v}" for name, v in found.items()
    )


def id_of(event: Row) -> str:
    """``id=j7``; empty where there is none."""
    found = event.get("task_id") or event.get("job_id")
    return f"id={found}" if found else ""


COLUMNS = (
    Column("", lambda event: show_millis(event["at_ms"]), gives=3),
    Column("", lambda event: event["type"]),
    Column("", whose),
    Column("", lambda event: state_word(event.get("state") or ""), gives=2),
    Column("", details, wraps=True),
    Column("", id_of, gives=1),
)
"""The parts of a line. The id gives way first, then the state, with which the type ends, then the
time.
"""


def lines_of(event: Row, width: int) -> list[str]:
    """An event as a line; as more where its details wrap. ``width``: of the terminal, 0 for no
    limit.
    """
    return table_lines([event], [column for column in COLUMNS if column.cell(event)], width)[1:]
