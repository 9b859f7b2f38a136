"""The table of commands, and the execution of a command line: parsing, error messages, exit codes.

A command's module is imported when the command is called, so `iris --help` loads none of them. Out
of scope: the commands (`commands`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module

import click

from iris.cli.exit_codes import ExitCode
from iris.cli.output.terminal import guarded, replace_letters
from iris.cli.parsing.command import CliGroup
from iris_core import DISTRIBUTION
from iris_core.units import DURATION
from iris_service.version import VERSION

SECTIONS = {
    "Run": {
        "run": ("Submit a job and follow it to its end.", "run:run"),
        "plan": ("Dry run: where and when a job would be placed.", "run:plan"),
        "rerun": ("Submit a job again.", "rerun:rerun"),
        "wait": ("Wait for jobs to end.", "wait:wait"),
        "notebook": ("Run Jupyter as a job, and use it from here.", "notebook:notebook"),
    },
    "Look": {
        "ls": ("List jobs.", "ls:ls"),
        "show": ("Show a job or a task with its attempts.", "show:show"),
        "why": ("Explain why something waits or how it ended.", "why:why"),
        "logs": ("Print what tasks wrote.", "logs:logs"),
        "tree": ("Show a job and everything below it.", "tree:tree"),
        "events": ("Print public events.", "events:events"),
        "queue": ("Show the queue in its order.", "queue:queue"),
        "top": ("Watch the cluster.", "top:top"),
        "open": ("Open the dashboard in a browser, signed in.", "open:open_"),
    },
    "Control": {
        "cancel": ("Kill jobs and everything below them.", "cancel:cancel"),
        "hold": ("Keep pending tasks of jobs from starting.", "hold:hold"),
        "close": ("Close open maps: they take no further calls.", "hold:close"),
        "release": ("Let tasks of held jobs start.", "hold:release"),
        "update": ("Change band, timeout, limits or labels of jobs.", "update:update"),
        "requeue": ("Stop running tasks and return them to the queue.", "requeue:requeue"),
        "attach": ("Use the terminal of a job.", "attach:attach"),
        "exec": ("Execute a command beside a running task.", "exec:exec_"),
        "cp": ("Copy a file or directory of a running task.", "cp:cp"),
        "port-forward": ("Forward a local port to a port of a task.", "port_forward:port_forward"),
        "fetch": ("Fetch what tasks left in their output directories.", "fetch:fetch"),
    },
    "Serve": {
        "deploy": ("Manage deployments and their routes.", "deploy:deploy"),
    },
    "Operate": {
        "up": ("Start a whole cluster on this machine.", "up:up"),
        "down": ("Stop the cluster on this machine; its data stays.", "down:down"),
        "worker": ("List, drain and decommission hosts.", "worker:worker"),
        "pool": ("Set pools of hosts that the cluster makes itself.", "pool:pool"),
        "project": ("Set projects and who is in them.", "project:project"),
        "share": ("Show who has had less than is just.", "share:share"),
        "notify": ("Tell people and programs of jobs.", "notify:notify"),
        "quota": ("Show and set limits of users.", "quota:quota"),
        "usage": ("Show what jobs have held and used.", "usage:usage"),
        "audit": ("Show who did what.", "audit:audit"),
        "session": ("List and show sessions.", "session:session"),
        "doctor": ("Check this machine and the way to the gateway.", "doctor:doctor"),
        "login": ("Sign in at the gateway's issuer.", "login:login"),
        "context": ("Name gateways and choose one.", "context:context"),
        "admin": ("Verify, repair, back up and restore what is stored.", "admin.admin:admin"),
        "server": ("Run one service.", "server:server"),
        "completion": ("Print completion for a shell.", "completion:completion"),
    },
}
"""What people do → name → (one line of help, ``module:attribute`` in the folder of the section
below `commands`).
"""
COMMANDS = {
    name: (help_line, f"{title.lower()}.{place}")
    for title, section in SECTIONS.items()
    for name, (help_line, place) in section.items()
}


class LazyGroup(CliGroup):
    """A group that knows its commands by name and imports one when it is called."""

    def __init__(self, *, table: Mapping[str, tuple[str, str]], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name][1].partition(":")
        command: click.Command = getattr(import_module(f"iris.cli.commands.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, words) for name, (words, _) in commands.items()])


@click.command(
    cls=LazyGroup,
    table=COMMANDS,
    name="iris",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--url", help="Address of the gateway.", metavar="URL")
@click.option("--context", help="Use this named gateway.", metavar="NAME")
@click.option(
    "--retry-for",
    help="How long to retry while nothing answers: 5m, 0s.  [default: 90s, once the gateway has answered]",
    metavar=DURATION,
)
@click.version_option(VERSION, prog_name=DISTRIBUTION)
@click.pass_context
def root(ctx: click.Context, url: str | None, context: str | None, retry_for: str | None) -> None:
    """Jobs on clusters of CPUs, GPUs and TPU slices.

    The gateway is found through --url, IRIS_URL, the context, or the local cluster that is up.
    """
    ctx.obj = {"url": url, "context": context, "retry_for": retry_for}


def invoke(arguments: list[str]) -> int:
    """Run one command line; control characters from others are not sent to the terminal, nor
    colours where ``NO_COLOR`` is set.
    """
    _open_closed()
    replace_letters(sys.stdout, sys.stderr)
    colour = False if os.environ.get("NO_COLOR") else None
    with guarded(), click.Context(root, color=colour).scope():
        return run(arguments, colour)


def _open_closed() -> None:
    """Give a process without stdin, stdout or stderr an empty one, whose number no socket then
    gets.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)


def run(arguments: list[str], colour: bool | None = None) -> int:
    """Run one command line; every end has an exit code, and only bugs print a traceback."""
    from iris.cli.errors import complain, explain

    try:
        result = root.main(arguments, prog_name="iris", standalone_mode=False, color=colour)
        sys.stdout.flush()
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as mistake:
        mistake.show(sys.stderr)
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.DETACHED
    except BrokenPipeError:
        return _unwritten()
    except Exception as error:
        code = explain(error)
        if code is not None:
            return code
        if not isinstance(error, OSError):
            raise
        complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        return _unwritten()
    return result if isinstance(result, int) else ExitCode.SUCCEEDED


def _unwritten() -> ExitCode:
    """The end of a command whose output nobody takes: what is left of it is dropped."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.UNEXPECTED
