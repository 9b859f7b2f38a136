"""`iris notebook`: Jupyter as a job, at a port of this machine.

It listens on loopback of its host only, with a token that its task makes, and is reached as `iris
port-forward` reaches a port. Source: docs/adr/0044-commands-beside-tasks-are-read-by-requests.md.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import click

from iris.cli.commands.control.port_forward import open_port, until_it_ends
from iris.cli.commands.run.run import TASK_OPTIONS, read_options, send_workdir
from iris.cli.errors import warn
from iris.cli.exit_codes import JOB_EXITS, ExitCode
from iris.cli.follow import note, note_warnings, summarise
from iris.cli.interactive import running
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.flags import job_flags, with_options
from iris.cli.parsing.options import NAME, connected
from iris.client.client import Client
from iris.client.executions import RemoteCommand, RemotePort
from iris.client.jobs import Job
from iris.client.options.units import parse_duration
from iris.client.problems import Conflict, ExecutionLost
from iris.client.tunnels import PortForward
from iris_core.units import DURATION

PORT = "notebook"
_LOCAL = 8888
_FILE = ".iris-notebook"
_LOOK_S = 0.3
_NONE_THERE = (
    "the Python of the task has neither jupyterlab nor notebook; name jupyterlab in the requirements.txt of a "
    "directory that --workdir sends, or choose an --image that has it"
)
_SERVE = r"""
set -eu
umask 077
token=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
export JUPYTER_TOKEN="$token"
home=$PWD
state() {
  printf '%s %s %s\n' "$IRIS_PORT_NOTEBOOK" "$token" "$1" > .iris-notebook.new
  mv .iris-notebook.new .iris-notebook
}
idle=$1; shift
if [ $# -gt 0 ]; then state /; exec "$@"; fi
for python in python python3; do
  for module in jupyterlab notebook; do
    if "$python" -c "import $module" 2>/dev/null; then
      root=; [ "$(id -u)" != 0 ] || root=--allow-root
      [ "$module" = jupyterlab ] && state /lab || state /tree
      exec "$python" -m "$module" $root --no-browser --ServerApp.ip=127.0.0.1 \
        --ServerApp.port="$IRIS_PORT_NOTEBOOK" --ServerApp.port_retries=0 --ServerApp.root_dir="$home" \
        --ServerApp.shutdown_no_activity_timeout="$idle" --MappingKernelManager.cull_idle_timeout="$idle"
    fi
  done
done
echo "NONE" > "$IRIS_ERROR_FILE"
echo "iris: NONE" >&2
exit 127
""".replace("NONE", _NONE_THERE)


_OF_JOB = {
    "name": {},
    "scheduling_timeout": {},
    "timeout": {"help": "Kill it when it runs longer: 8h."},
}


@click.command(cls=CliCommand, context_settings={"allow_interspersed_args": False})
@with_options(*TASK_OPTIONS, *job_flags(_OF_JOB))
@click.option(
    "--port", "local", type=int, help="Local port.  [default: 8888, or a free one]", metavar="LOCAL"
)
@click.option(
    "--idle",
    default="2h",
    show_default=True,
    help="End it after this time without use.",
    metavar=DURATION,
)
@click.option("--attach", type=NAME, help="Connect to this running notebook.", metavar="JOB")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
@connected
def notebook(
    client: Client,
    command: tuple[str, ...],
    local: int | None,
    idle: str,
    attach: str | None,
    **given: Any,
) -> int:
    """Run Jupyter as a job, and use it from here: prints the URL, with a token of its own.

    Ctrl-C ends the job, after a question on a terminal. When this command is ended otherwise the
    job goes on: come back with --attach. COMMAND: another server, which listens on 127.0.0.1 and
    port IRIS_PORT_NOTEBOOK, and asks for JUPYTER_TOKEN.
    """
    job = _attached(client, attach) if attach else _submit(client, command, idle, given)
    try:
        while (task := running(client, job)) is not None:
            attempt = client.task(task).attempts[-1].number
            place = _served(client, task)
            if place is None:
                continue
            number, token, path = place
            with (
                open_port(client, task, number, local)
                if local
                else _default_port(client, task, number) as forward
            ):
                click.echo(f"http://{forward.address[0]}:{forward.address[1]}{path}?token={token}")
                sys.stdout.flush()
                note(
                    f"{job.name} runs; come back: iris notebook --attach {job.id}    end it: Ctrl-C"
                )
                until_it_ends(client, task, attempt)
        return _ended(job)
    except KeyboardInterrupt:
        return _interrupted(job)


def _attached(client: Client, name: str) -> Job:
    """Raises UsageError for a job that is not a notebook."""
    job = client.job(name)
    if PORT not in job.view.spec.ports:
        raise click.UsageError(
            f"{job.name} is not a notebook; iris port-forward reaches ports of any job"
        )
    return job


def _submit(client: Client, command: tuple[str, ...], idle: str, given: dict[str, Any]) -> Job:
    """Submit the job. Raises UsageError."""
    if (idle_s := parse_duration(idle)) < 1:
        raise click.UsageError("--idle is at least 1s")
    options = read_options(given)
    options["ports"] = (PORT,)
    options["labels"] = {"iris/notebook": "true", **options["labels"]}
    workdir = given["workdir"]
    if workdir is not None:
        send_workdir(client, workdir, options)
    if (
        not command
        and not given["image"]
        and not given["setup"]
        and (doubt := lacks_jupyter(workdir))
    ):
        warn(doubt)
    job = client.submit(
        client.spec(("/bin/sh", "-c", _SERVE, "notebook", str(round(idle_s)), *command), options)
    )
    note_warnings(job)
    note(f"{job.name} submitted")
    return job


def lacks_jupyter(workdir: Path | None) -> str:
    """Why the environment of a notebook may have no Jupyter, as far as this can be seen here;
    empty: it may.
    """
    if workdir is None:
        return "it runs with its host's Python, which must have jupyterlab or notebook; --workdir DIR brings one along"
    lists = [
        workdir / name for name in ("uv.lock", "requirements.txt") if (workdir / name).is_file()
    ]
    if not lists:
        return f"{workdir} has no uv.lock or requirements.txt, so Jupyter must be on the host"
    text = lists[0].read_text(errors="replace").lower()
    return (
        ""
        if "jupyter" in text or "notebook" in text
        else f"{lists[0]} names neither jupyterlab nor notebook"
    )


def _served(client: Client, task: str) -> tuple[int, str, str] | None:
    """The port, the token and the path of a server that answers; None when its task has ended
    before.
    """
    place: tuple[int, str, str] | None = None
    while True:
        try:
            place = place or _place(client, task)
            if place is not None:
                with contextlib.closing(RemotePort(client, task, place[0])):
                    return place
        except (Conflict, ExecutionLost):  # it does not listen yet, or ends
            pass
        if client.task(task).state != "running":
            return None
        time.sleep(_LOOK_S)


def _place(client: Client, task: str) -> tuple[int, str, str] | None:
    """What its task has written down; None: nothing yet."""
    with RemoteCommand(client, task, ("cat", _FILE)) as remote:
        text = b"".join(line.stdout for line in remote).decode(errors="replace")
    words = text.split(" ")
    if remote.exit_code or len(words) != len(("port", "token", "path")) or not words[0].isdigit():
        return None
    return int(words[0]), words[1], words[2].strip()


def _default_port(client: Client, task: str, number: int) -> PortForward:
    """Port 8888 of this machine, or a free one."""
    try:
        return open_port(client, task, number, _LOCAL)
    except click.UsageError:
        return open_port(client, task, number, 0)


def _ended(job: Job) -> int:
    job.wait()
    summarise(job)
    return JOB_EXITS.get(job.state, ExitCode.UNEXPECTED)


def _interrupted(job: Job) -> int:
    """Ctrl-C: end the job, unless its user wants it to go on."""
    note("")
    if sys.stdin.isatty() and not click.confirm(f"End {job.name}?", default=True, err=True):
        note(f"{job.name} goes on; come back: iris notebook --attach {job.id}")
        return ExitCode.DETACHED
    job.cancel("its notebook was ended by Ctrl-C")
    note(f"{job.name} is cancelled")
    return ExitCode.DETACHED
