"""`iris notify`: targets of messages about jobs, subscriptions, and what became of messages."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from iris.cli.errors import warn
from iris.cli.exit_codes import ExitCode
from iris.cli.output.pages import print_page, read_page
from iris.cli.output.tables import Column, Row, print_facts, print_object, state_word
from iris.cli.output.times import age, show_moment
from iris.cli.parsing.command import CliGroup
from iris.cli.parsing.flags import limit_options
from iris.cli.parsing.options import completions, connected, form_option
from iris.client.client import Client
from iris.client.http.transport import in_path
from iris_core.views.notify import MessageFormat, NotifyTargetView

_SHOWN = 20
_FORMATS: tuple[MessageFormat, ...] = ("cloudevents", "slack", "text")


class KnownTarget(click.ParamType):  # type: ignore[type-arg]
    """A target by name; completed from the gateway's list."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completions(ctx, "/v1/notify/targets", "state")


name_argument = click.argument("name", type=KnownTarget())
user_option = click.option("--user", default="", help="Whose target, for admins.", metavar="USER")


def _jobs(row: Row) -> str:
    return f"{row['jobs']:,} jobs: {row['job']}" if row["jobs"] > 1 else str(row["job"])


TARGETS = [
    Column("NAME", lambda row: row["name"]),
    Column("TO", lambda row: row["webhook"] or row["smtp"] or "-", gives=2),
    Column("STATE", lambda row: state_word(row["state"])),
    Column("WAITING", lambda row: f"{row['pending']:,}", right=True),
    Column("USER", lambda row: row["user"] + (" (shared)" if row["shared"] else ""), gives=1),
    Column("DETAIL", lambda row: row["detail"], wraps=True),
]
SUBSCRIPTIONS = [
    Column("ID", lambda row: row["id"]),
    Column("TO", lambda row: row["to"]),
    Column("ON", lambda row: ",".join(row["on"])),
    Column("OF", lambda row: row["job"] or row["project"] or f"all jobs of {row['user']}"),
    Column("USER", lambda row: row["user"], gives=1),
]
DELIVERIES = [
    Column("MADE", lambda row: age(row["created_at"]), right=True),
    Column("TARGET", lambda row: row["target"]),
    Column("ON", lambda row: row["on"]),
    Column("JOB", _jobs, gives=1),
    Column("STATUS", lambda row: state_word(row["status"])),
    Column("TRIES", lambda row: str(row["tries"]), right=True, gives=2),
    Column("ERROR", lambda row: row["error"], wraps=True),
]


def _words(context: click.Context, param: click.Parameter, value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


@click.group(cls=CliGroup)
def notify() -> None:
    """Tell people and programs of jobs: by webhook or by mail.

    A target is where messages go; a job names it (its option --notify), or a subscription
    does for one job or for all of yours.
    """


@notify.group("target", cls=CliGroup)
def target() -> None:
    """Add, test, pause and remove targets of messages."""


@target.command("add")
@click.argument("name")
@click.option("--webhook", default="", help="A URL that messages are posted to.", metavar="URL")
@click.option(
    "--secret-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="File with the secret that signs messages of a webhook, 16 bytes or more; - is stdin.",
)
@click.option("--smtp", default="", help="One address of mail.", metavar="ADDRESS")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="cloudevents",
    help="What is posted: CloudEvents, a text for Slack, or a sentence.",
)
@click.option("--shared", is_flag=True, help="Everybody's jobs may name it; for admins.")
@connected
def add_target(
    client: Client,
    name: str,
    webhook: str,
    secret_file: str | None,
    smtp: str,
    form: MessageFormat,
    shared: bool,
) -> None:
    """Add a target, which is sent a test message. Without one that is delivered it gets nothing."""
    found = client.add_notify_target(
        name,
        webhook=webhook,
        smtp=smtp,
        secret=_read_secret(secret_file),
        message_format=form,
        shared=shared,
    )
    _report_state(found)


def _read_secret(path: str | None) -> str:
    if path is None:
        return ""
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.UsageError("--secret-file: a secret is text in UTF-8") from None


def _report_state(found: NotifyTargetView) -> None:
    """Say what came of a test message; exits with TRY_AGAIN when it was not delivered."""
    if found.state == "active" and not found.detail:
        click.echo(f"{found.name} is active: a test message was delivered", err=True)
        return
    warn(f"{found.name} is {found.state}: the test message was not delivered: {found.detail}")
    sys.exit(ExitCode.TRY_AGAIN)


@target.command("ls")
@form_option()
@connected
def list_targets(client: Client, form: str) -> None:
    """List the targets that your jobs may name: your own, and shared ones."""
    print_page(read_page(client, "/v1/notify/targets"), TARGETS, form)


@target.command("show")
@name_argument
@user_option
@form_option()
@connected
def show_target(client: Client, name: str, user: str, form: str) -> None:
    """Show a target."""
    query = {"user": user or None}
    found: Row = client.get(f"/v1/notify/targets/{in_path(name)}", dict, query)
    if print_object(found, form):
        return
    facts = [
        ("name", found["name"]),
        ("user", found["user"] + (" (shared)" if found["shared"] else "")),
        ("to", found["webhook"] or found["smtp"] or "not shown"),
        ("format", found["format"]),
        ("state", state_word(found["state"])),
        ("detail", found["detail"]),
        ("waiting", f"{found['pending']:,}"),
        ("added", show_moment(found["created_at"])),
    ]
    print_facts([(word, text) for word, text in facts if text])


@target.command("test")
@name_argument
@user_option
@connected
def try_target(client: Client, name: str, user: str) -> None:
    """Send a test message; a target that takes it is active."""
    _report_state(client.test_notify_target(name, user=user))


@target.command("pause")
@name_argument
@user_option
@connected
def pause_target(client: Client, name: str, user: str) -> None:
    """Send nothing to a target until it is resumed; messages wait for a day."""
    client.pause_notify_target(name, user=user)
    click.echo(f"{name} is paused", err=True)


@target.command("resume")
@name_argument
@user_option
@connected
def resume_target(client: Client, name: str, user: str) -> None:
    """Send messages to a target again."""
    client.resume_notify_target(name, user=user)
    click.echo(f"{name} is resumed", err=True)


@target.command("rm")
@name_argument
@user_option
@connected
def remove_target(client: Client, name: str, user: str) -> None:
    """Remove a target, its subscriptions, and what waits for it."""
    client.remove_notify_target(name, user=user)
    click.echo(f"{name} is removed", err=True)


@notify.command("add")
@click.option("--to", required=True, type=KnownTarget(), help="The target.", metavar="NAME")
@click.option(
    "--on",
    required=True,
    callback=_words,
    help="What is told: started, succeeded, failed, ended, waiting_1h, time_80.",
    metavar="WORDS",
)
@click.option("--job", default="", help="A job that has not ended.", metavar="JOB")
@click.option("--project", default="", help="Jobs in a project and below it.", metavar="PATH")
@click.option("--all-mine", is_flag=True, help="All of your jobs.")
@connected
def add(client: Client, to: str, on: list[str], job: str, project: str, all_mine: bool) -> None:
    """Tell a target of a job, of the jobs of a project, or of all of your jobs."""
    if [bool(job), bool(project), all_mine].count(True) != 1:
        raise click.UsageError("give one of --job, --project and --all-mine")
    made = client.subscribe(to, on, job=job, project=project, all_mine=all_mine)
    click.echo(made.id)


@notify.command("ls")
@form_option()
@connected
def list_subscriptions(client: Client, form: str) -> None:
    """List your subscriptions."""
    print_page(read_page(client, "/v1/notify/subscriptions"), SUBSCRIPTIONS, form, name="id")


@notify.command("rm")
@click.argument("id")
@connected
def remove(client: Client, id: str) -> None:  # noqa: A002 - click passes the argument by its name
    """End a subscription."""
    client.unsubscribe(id)
    click.echo(f"{id} is removed", err=True)


@notify.command("log")
@click.option("--target", "to", type=KnownTarget(), help="Only to this target.", metavar="NAME")
@click.option(
    "--status",
    type=click.Choice(["pending", "delivered", "given_up"]),
    help="Only with this status.",
)
@limit_options(_SHOWN)
@form_option(forms=("table", "wide", "json", "jsonl"))
@connected
def log(
    client: Client, to: str | None, status: str | None, limit: int, cursor: str | None, form: str
) -> None:
    """List messages to your targets, newest first, and what became of them."""
    query = {"target": to, "status": status}
    page = read_page(client, "/v1/notify/deliveries", query, limit, cursor=cursor)
    print_page(page, DELIVERIES, form, name="id")
