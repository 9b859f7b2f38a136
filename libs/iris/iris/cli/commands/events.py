"""`iris events`: public events as they are published."""

from __future__ import annotations

import click
import msgspec

from iris.cli.options import NAME, connected, form_option
from iris.cli.parsing import CliCommand
from iris.cli.tables import Row, print_json, state_word
from iris.cli.times import show_millis
from iris.client.client import Client
from iris.client.transport import UrlQuery

DETAILS = ("attempt", "worker", "cause", "exit_code", "by")


@click.command(cls=CliCommand)
@click.option("-f", "--follow", is_flag=True, help="Follow until Ctrl-C.")
@click.option("--within", type=NAME, help="Only this job and everything below it.", metavar="JOB")
@click.option("--deployment", help="Only this deployment and its routes.", metavar="NAME")
@click.option("--type", "kind", help="Only these: task, task.state, task.state.running.", metavar="TYPE")
@click.option("-n", "--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of rows.")
@form_option()
@connected
def events(
    client: Client, follow: bool, within: str | None, deployment: str | None, kind: str | None, limit: int, form: str
) -> None:
    """Print public events, one per line; without -f the newest that are kept."""
    query: UrlQuery = {"within": within, "deployment": deployment, "type": kind}
    if follow:
        for message in client.stream("/v1/events", query):
            print_event({"id": message.id, "type": message.name, **msgspec.json.decode(message.data)}, form)
        return
    found = list(client.pages("/v1/events", dict, query, limit))
    if form == "json":
        print_json({"items": found, "next_cursor": None})
        return
    for event in reversed(found):
        print_event(event, form)


def print_event(event: Row, form: str) -> None:
    """Print one event as a line."""
    if form in ("json", "jsonl"):
        print_json(event, indent=0)
        return
    whose = event.get("task") or event.get("session") or event.get("job") or event.get("deployment") or ""
    if form == "name":
        click.echo(whose)
        return
    words = [show_millis(event["at_ms"]), event["type"], whose, state_word(event.get("state") or "")]
    words += [f"{name}={event[name]}" for name in DETAILS if event.get(name) is not None]
    words += [f"id={id_}" for id_ in (event.get("task_id") or event.get("job_id"),) if id_]
    click.echo("  ".join(words))
