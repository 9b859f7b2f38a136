"""Options and arguments shared by commands: gateway, output format, job."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from iris.cli.parsing.option_pointers import option_of
from iris.cli.parsing.suggestions import nearest_name
from iris.client.client import Client
from iris.client.http.transport import ANSWER_S, ANSWERED, RETRY_FOR_S, UrlQuery, in_path, wait_text
from iris.client.options.units import parse_duration
from iris.client.problems import ClientError, NotFound, Rejected

F = TypeVar("F", bound=Callable[..., Any])

FORMS = ("table", "wide", "json", "jsonl", "name")
FROM_FILE = "iris.from_file"
"""In `click.Context.meta`: the request's fields are those of a file."""
_NAMES_SEARCHED = 500
_NO_JOB = re.compile(r"there is no job (?P<name>\S+)\Z")
_ID = re.compile(r"j\d+(/\d+)?(@.*)?\Z")


def connected(command: F) -> F:
    """Give a command ``--url`` and ``--context``, and a `Client` as its first argument."""

    @click.option("--url", help="Address of the gateway.", metavar="URL")
    @click.option("--context", help="Use this named gateway.", metavar="NAME")
    @click.pass_context
    @functools.wraps(command)
    def with_client(
        ctx: click.Context, /, url: str | None, context: str | None, **given: Any
    ) -> Any:
        with connect(ctx, url, context) as client:
            try:
                return command(client, **given)
            except NotFound as problem:
                raise with_nearest(client, problem) from None
            except Rejected as problem:
                raise with_options(ctx, problem) from None

    return with_client  # type: ignore[return-value]


def connect(
    ctx: click.Context,
    url: str | None = None,
    context: str | None = None,
    *,
    retry_for_s: float = RETRY_FOR_S,
    answer_s: float = ANSWER_S,
) -> Client:
    """A client of the gateway in this command's options, else in those before its name; it prints
    why it waits. ``answer_s``: how long one answer may take.
    """
    above = ctx.find_root().obj or {}
    given_s = parse_duration(above["retry_for"]) if above.get("retry_for") else None
    retry_for_s = retry_for_s if given_s is None else given_s
    client = Client(
        url or above.get("url"),
        context=context or above.get("context"),
        retry_for_s=retry_for_s,
        timeout_s=answer_s,
    )
    if given_s is not None:  # who says how long also waits for a gateway that has not answered yet
        client.transport.first_timeout_s = given_s
    client.transport.on_wait = say_wait
    client.transport.on_back = say_back
    return client


def say_wait(why: str, seconds: float) -> None:
    click.echo(f"waiting: {wait_text(why, seconds)}", err=True)


def say_back() -> None:
    click.echo(ANSWERED, err=True)


def form_option(
    default: str = "table", forms: Sequence[str] = FORMS, names: Sequence[str] = ("-o", "--output")
) -> Callable[[F], F]:
    """``-o``: how results are written to stdout."""
    return click.option(
        *names,
        "form",
        type=click.Choice(list(forms)),
        default=default,
        show_default=True,
        help="Output format.",
    )


def full(name: str) -> str:
    """A job or task as the API knows it: an id (``j7``, ``j7/0``) as it is, a name with its leading
    slash.
    """
    return name if name.startswith("/") or _ID.match(name) else f"/{name}"


def with_options(ctx: click.Context, problem: Rejected) -> Rejected:
    """The same problem, whose mistakes name the options that were given instead of the fields of a
    request, unless a file has given them.
    """
    if FROM_FILE in ctx.meta:
        return problem
    given = {name for name, value in ctx.params.items() if value}
    named = (
        msgspec.structs.replace(one, pointer=option_of(one.pointer, ctx.command, given))
        for one in problem.mistakes
    )
    return problem.explained(problem.document.detail, tuple(named))


def with_nearest(client: Client, problem: NotFound) -> NotFound:
    """The same problem; that of a job which does not exist says that it is a deployment, or names
    the job that was meant by ``OWNER/NAME``, or the one with the most similar name.
    """
    missing = _NO_JOB.match(problem.document.detail)
    if missing is None:
        return problem
    name = missing["name"].strip("/")
    with contextlib.suppress(ClientError):
        client.get(f"/v1/deployments/{in_path(name)}", dict)
        return problem.explained(
            f"{problem.document.detail}; {name} is a deployment, see `iris deploy --help`"
        )
    try:
        near = _by_owner(client, name) or _most_similar(client, name)
    except ClientError:
        return problem
    return (
        problem.explained(f"{problem.document.detail}; did you mean {near}?") if near else problem
    )


def _by_owner(client: Client, name: str) -> str:
    """``/train@ann`` for ``ann/train``; empty when there is no such job."""
    owner, _, rest = name.partition("/")
    if not rest or "@" in rest:
        return ""
    meant = f"{full(rest)}@{owner}"
    try:
        client.get(f"/v1/jobs/{in_path(meant)}", dict)
    except NotFound:
        return ""
    return meant


def _most_similar(client: Client, name: str) -> str:
    """The most similar name of a job; empty when none is similar."""
    names = [job["name"] for job in client.pages("/v1/jobs", dict, {}, _NAMES_SEARCHED)]
    return nearest_name(full(name), names)


def completions(
    ctx: click.Context,
    path: str,
    state: str,
    query: UrlQuery | None = None,
    name: str = "name",
) -> list[CompletionItem]:
    """The names of what is at ``path``, each with its ``state``; none when the gateway does not
    answer. ``name``: the field with the name.
    """
    try:
        with connect(ctx, retry_for_s=0.0) as client:
            return [
                CompletionItem(one[name], help=str(one[state]))
                for one in client.pages(path, dict, query, 50)
            ]
    except ClientError:
        return []


class Name(click.ParamType):  # type: ignore[type-arg]
    """A job or task by name or id; completed from the gateway's list of jobs."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip("/"):
            self.fail("a name must not be empty", param, ctx)
        return full(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completions(
            ctx, "/v1/jobs", "state", {"name_prefix": full(incomplete) if incomplete else None}
        )


NAME = Name()
