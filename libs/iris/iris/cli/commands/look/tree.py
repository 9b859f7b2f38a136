"""`iris tree`: a job and everything below it, drawn."""

from __future__ import annotations

from collections.abc import Iterator

import click

from iris.cli.output.tables import Row, print_object, state_word
from iris.cli.output.times import span_between, standing
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import NAME, connected, form_option
from iris.client.client import Client
from iris.client.http.transport import in_path
from iris_core.units import counted


@click.command(cls=CliCommand)
@click.argument("job", type=NAME, metavar="JOB")
@form_option()
@connected
def tree(client: Client, job: str, form: str) -> None:
    """Show JOB and everything below it with states, tasks and times."""
    found: Row = client.get(f"/v1/jobs/{in_path(job)}/tree", dict)
    if form == "name":
        for node in walk(found):
            click.echo(node["job"]["name"])
    elif not print_object(found, form):
        for line in draw(found):
            click.echo(line)


def walk(node: Row) -> Iterator[Row]:
    """A node and its descendants, parents first."""
    yield node
    for child in node["children"]:
        yield from walk(child)


def draw(node: Row, indent: str = "", branch: str = "") -> Iterator[str]:
    """One line per job; children below their parent, joined by branches."""
    yield indent + branch + job_line(node["job"], short=bool(branch))
    below = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    children = node["children"]
    for place, child in enumerate(children):
        yield from draw(child, below, "└─ " if place == len(children) - 1 else "├─ ")


def job_line(job: Row, *, short: bool) -> str:
    """``merge  succeeded  1 task (1 succeeded)  0.3s``."""
    name = job["name"].rpartition("/")[2] if short else job["name"]
    counts = ", ".join(
        f"{count} {state_word(state)}" for state, count in job["task_counts"].items() if count
    )
    tasks = f"{counted(job['replicas'], 'task')} ({counts})"
    time = span_between(job["started_at"], job["finished_at"])
    return "  ".join(
        part for part in (name, state_word(job["state"]), tasks, time, standing(job)) if part
    )
