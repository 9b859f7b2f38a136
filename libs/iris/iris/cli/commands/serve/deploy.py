"""`iris deploy`: deployments, and configuration files for external proxies."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem

from iris.cli.commands.run.run import TASK_OPTIONS, read_pairs, send_code, send_workdir
from iris.cli.commands.serve.deployment_tables import (
    DEPLOYMENTS,
    ROUTES,
    print_deployment,
    why_lines,
)
from iris.cli.commands.serve.route_deaths import RouteDeaths
from iris.cli.exit_codes import ExitCode
from iris.cli.follow import note, note_warnings, without_return
from iris.cli.output.lines import LinePrinter
from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Row, print_object
from iris.cli.output.terminal import raw_option
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.flags import flag_option, limit_options, with_options
from iris.cli.parsing.options import completions, connected, form_option
from iris.client.client import Client
from iris.client.deployments import Deployment
from iris.client.http.events import read_events
from iris.client.http.transport import UrlQuery, in_path
from iris.client.options.units import parse_duration
from iris.client.problems import ClientError, TryAgain, Unreachable
from iris_core.spec.option_table import DeployOptions, TaskOptions, rows_of
from iris_core.units import DURATION, counted
from iris_core.views.events import RouteEvent

_FILE = click.Path(dir_okay=False, path_type=Path)


class DeploymentName(click.ParamType):  # type: ignore[type-arg]
    """A deployment by name or id; completed from the gateway's list."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completions(ctx, "/v1/deployments", "status")


NAME = DeploymentName()
_MORE = {"probe_command": {"multiple": False}}
_KEYS = tuple(DeployOptions.__annotations__)
deploy_options = with_options(
    *(flag_option(row, _MORE.get(row.name)) for row in rows_of(DeployOptions, TaskOptions)),
    *TASK_OPTIONS,
)
"""Options that describe a deployment."""
waiting = with_options(
    click.option("--wait", is_flag=True, help="Wait until every route serves."),
    click.option(
        "--wait-timeout", help="Stop waiting after this, with exit code 7.", metavar=DURATION
    ),
)


def read_deploy_options(
    client: Client, given: dict[str, Any]
) -> tuple[tuple[str, ...] | None, DeployOptions]:
    """The command line, None when there is none, and the options as the SDK takes them; sends code
    along.
    """
    options: dict[str, Any] = {key: given[key] for key in _KEYS if given.get(key) is not None}
    options |= read_pairs(given)
    command = (
        send_code(client, given["command"], given["workdir"], options) if given["command"] else None
    )
    if command is None and given["workdir"] is not None:
        send_workdir(client, given["workdir"], options)
    return command, options  # type: ignore[return-value]


def finish(
    client: Client, found: Deployment, wait: bool, wait_timeout: str | None, form: str = "name"
) -> int:
    """Wait if requested, and print the deployment. Raises DeploymentFailed, WaitTimeout,
    Unreachable.
    """
    if wait or wait_timeout is not None:
        routes = counted(found.view.replicas, "route")
        note(f"{found.name}: waits for {routes} of revision {found.view.revision}")
        limit_s = None if wait_timeout is None else parse_duration(wait_timeout)
        try:
            found.wait_ready(limit_s, on_look=RouteDeaths(client, found).tell)
        except (Unreachable, TryAgain) as error:
            note(f"{found.name} goes on; come back: iris deploy show {found.name}")
            raise without_return(error) from None
        except KeyboardInterrupt:
            note(f"\n{found.name} goes on; come back: iris deploy show {found.name}")
            return ExitCode.DETACHED
        routes = counted(found.view.replicas, "route")
        note(
            f"{found.name} is ready: {found.view.ready} of {routes} {'serves' if found.view.ready == 1 else 'serve'}"
        )
    print_object(msgspec.to_builtins(found.view), form)
    return ExitCode.SUCCEEDED


def note_change(
    found: Deployment, before: int, done: str, same: str = "unchanged: that is what it has"
) -> None:
    """Say what a command has done, or that nothing changed. ``before``: the version of the
    deployment before it.
    """
    note(f"{found.name} {done if found.view.version != before else same}")


@click.group(cls=CliGroup)
def deploy() -> None:
    """Manage deployments and their routes."""


@deploy.command("create")
@click.argument("name")
@deploy_options
@click.option(
    "--idempotency-key",
    help="Reusing a key returns the first deployment instead of creating another.",
    metavar="KEY",
)
@waiting
@form_option(default="name", forms=("name", "json"))
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@connected
def create(
    client: Client,
    name: str,
    idempotency_key: str | None,
    wait: bool,
    wait_timeout: str | None,
    form: str,
    **given: Any,
) -> int:
    """Keep --replicas copies of COMMAND alive behind one address, each on IRIS_PORT_HTTP."""
    command, options = read_deploy_options(client, given)
    found = client.deploy(command or (), name, idempotency_key=idempotency_key, **options)
    note(f"{found.name} created")
    note_warnings(found)
    return finish(client, found, wait, wait_timeout, form=form)


@deploy.command("update")
@click.argument("name", type=NAME)
@deploy_options
@click.option(
    "--version", type=int, help="Refuse unless it is still at this version (of show -o json)."
)
@waiting
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@connected
def update(
    client: Client,
    name: str,
    version: int | None,
    wait: bool,
    wait_timeout: str | None,
    **given: Any,
) -> int:
    """Change the given options, and keep the others. Another COMMAND, environment or resource is
    rolled out as a revision.
    """
    command, options = read_deploy_options(client, given)
    found = client.deployment(name)
    before = found.view.version
    found.update(command, version=version, **options)
    note_change(found, before, f"is at revision {found.view.revision}")
    note_warnings(found)
    return finish(client, found, wait, wait_timeout, form="")


@deploy.command("scale")
@click.argument("name", type=NAME)
@click.argument("replicas", type=click.IntRange(0))
@waiting
@connected
def scale(client: Client, name: str, replicas: int, wait: bool, wait_timeout: str | None) -> int:
    """Keep REPLICAS copies."""
    found = client.deployment(name)
    before = found.view.version
    found.scale(replicas)
    note_change(found, before, f"scales to {counted(replicas, 'route')}")
    return finish(client, found, wait, wait_timeout, form="")


@deploy.command("rollback")
@click.argument("name", type=NAME)
@click.option(
    "--to", "revision", type=click.IntRange(1), help="To this revision.  [default: the one before]"
)
@waiting
@connected
def rollback(
    client: Client, name: str, revision: int | None, wait: bool, wait_timeout: str | None
) -> int:
    """Go back to an earlier revision."""
    found = client.deployment(name)
    found.rollback(revision or 0)
    note(f"{found.name} rolls back to revision {found.view.revision}")
    return finish(client, found, wait, wait_timeout, form="")


@deploy.command("pause")
@click.argument("name", type=NAME)
@connected
def pause(client: Client, name: str) -> None:
    """Hold an update where it is."""
    found = client.deployment(name)
    before = found.view.version
    found.pause()
    note_change(found, before, "is paused", "is paused already")


@deploy.command("resume")
@click.argument("name", type=NAME)
@waiting
@connected
def resume(client: Client, name: str, wait: bool, wait_timeout: str | None) -> int:
    """Resume an update, and retry after failed starts."""
    found = client.deployment(name)
    before = found.view.version
    found.resume()
    note_change(
        found, before, "is resumed", "unchanged: no update is paused, and no start has failed"
    )
    return finish(client, found, wait, wait_timeout, form="")


@deploy.command("delete")
@click.argument("name", type=NAME)
@connected
def delete(client: Client, name: str) -> None:
    """Stop every copy, and forget the deployment."""
    note(f"{client.deployment(name).delete().name} is being deleted")


@deploy.command("list")
@click.option("--status", help="Only in this status; destroyed ones are listed with it only.")
@click.option("--user", help="Only this user's.")
@limit_options(50)
@form_option()
@connected
def list_deployments(
    client: Client, status: str | None, user: str | None, limit: int, cursor: str | None, form: str
) -> None:
    """List deployments, newest first."""
    found = read_page(
        client, "/v1/deployments", {"status": status, "user": user}, limit, cursor=cursor
    )
    print_page(found, DEPLOYMENTS, form)


@deploy.command("show")
@click.argument("name", type=NAME)
@form_option()
@connected
def show(client: Client, name: str, form: str) -> None:
    """Show a deployment with its routes."""
    found: Row = client.get(f"/v1/deployments/{in_path(name)}", dict)
    if not print_object(found, form):
        print_deployment(found, form)


@deploy.command("routes")
@click.argument("name", type=NAME)
@limit_options(100)
@form_option()
@connected
def routes(client: Client, name: str, limit: int, cursor: str | None, form: str) -> None:
    """List the routes of a deployment, newest first, with the last few that have ended."""
    found = read_page(client, f"/v1/deployments/{in_path(name)}/routes", None, limit, cursor=cursor)
    print_page(found, ROUTES, form, name="id")


@deploy.command("why")
@click.argument("name", type=NAME)
@form_option(forms=("table", "json"))
@connected
def why(client: Client, name: str, form: str) -> None:
    """Say why a deployment is as it is: what is wrong, which routes do not serve, what was decided
    lately.
    """
    found: Row = client.get(f"/v1/deployments/{in_path(name)}/why", dict)
    if not print_object(found, "json" if form == "json" else ""):
        for line in why_lines(found):
            click.echo(line)


@deploy.command("logs")
@click.argument("name", type=NAME)
@click.option("--route", help="Only of this route: r1-2.", metavar="ROUTE")
@click.option("-f", "--follow", is_flag=True, help="Follow their output, and that of new routes.")
@click.option("-n", "--tail", type=click.IntRange(0), help="Only the last lines of each.")
@raw_option
@connected
def logs(client: Client, name: str, route: str | None, follow: bool, tail: int | None) -> None:
    """Print what the routes of a deployment wrote, each line with its route."""
    output = RouteOutput(client, tail, follow)
    found = client.deployment(name)
    with client.stream("/v1/events", {"deployment": found.name, "type": "route"}) as news:
        if follow:
            news.open()
        for known in reversed(list(found.routes())):
            if route in (None, known.id):
                output.start(known.id, known.job)
        for event in read_events(news) if follow else ():
            if isinstance(event, RouteEvent) and event.previous and route in (None, event.route):
                output.start(event.route, event.job)


class RouteOutput:
    """Prints the output of routes, each once; followed routes are read by a thread each."""

    def __init__(self, client: Client, tail: int | None, follow: bool) -> None:
        self._client = client
        self._query: UrlQuery = {"tail": tail}
        self._follow = follow
        self._started: set[str] = set()
        self._printer = LinePrinter(prefix=True)

    def start(self, route: str, job: str) -> None:
        """Print the output of a route, or begin to follow it."""
        if job in self._started:
            return
        self._started.add(job)
        if self._follow:
            threading.Thread(target=self._print, args=(route, job), daemon=True).start()
        else:
            self._print(route, job)

    def _print(self, route: str, job: str) -> None:
        try:
            unfinished = self._follow and sys.stdout.isatty()
            for line in self._client.logs(
                job, self._query, follow=self._follow, unfinished=unfinished
            ):
                self._printer.print(line, whose=route)
        except ClientError as error:
            note(f"{route}: the output cannot be shown: {error}")


@deploy.command("watch")
@click.argument("name")
@click.option(
    "--template",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Jinja2.",
)
@click.option("--out", required=True, type=_FILE, help="The file to write.")
@click.option(
    "--then", help="Run after each change of the file, e.g. 'nginx -s reload'.", metavar="COMMAND"
)
@click.option(
    "--check",
    help="Run before --then; if it fails the file is restored, e.g. 'nginx -t'.",
    metavar="COMMAND",
)
@connected
def watch(
    client: Client, name: str, template: Path, out: Path, then: str | None, check: str | None
) -> None:
    """Keep a file up to date with the routes of NAME, for a proxy that is not ours.

    The template has: deployment, version, reason, and routes, each with id, address, host, port and
    state (healthy or stale). Changes in quick succession are one; the same bytes are not a change.
    While the gateway cannot be reached the file stays as it is. A COMMAND that fails is run again.
    The command runs until it is stopped.
    """
    from iris.cli.commands.serve.discovery_file import DiscoveryFile, follow

    follow(client, name, DiscoveryFile(template, out, then or "", check or ""))
