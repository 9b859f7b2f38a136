"""`iris run` submits a job, `iris plan` is a dry run. Both take the same options, also from lines
of the script that begin with ``#IRIS``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from iris.cli.errors import warn
from iris.cli.exit_codes import PLAN_EXITS, ExitCode
from iris.cli.follow import detached, follow_to_end, note, note_warnings
from iris.cli.interactive import check_plain, default_command, use_terminal
from iris.cli.output.tables import print_json
from iris.cli.output.terminal import raw_option
from iris.cli.parsing.flags import flag_option, resource_option, with_options
from iris.cli.parsing.options import NAME, connected, form_option
from iris.cli.parsing.script import (
    ScriptedCommand,
    impossible,
    in_workdir,
    missing_script,
    to_send,
    with_uploaded_script,
)
from iris.client.client import Client
from iris.client.options.jobs import read_lines
from iris_core.placement.coscheduling import slice_of
from iris_core.spec.jobs import JobSpec
from iris_core.spec.option_table import JobOptions, TaskOptions, rows_of
from iris_core.spec.resources import REQUESTED
from iris_core.units import counted
from iris_core.views.jobs import JobView, PlanView

if TYPE_CHECKING:
    from iris.client.files.bundle import Bundle

F = TypeVar("F", bound=Callable[..., Any])

_PLACEMENTS_SHOWN = 16
_LARGE_BUNDLE = 64 << 20
"""A quarter of the largest bundle that a gateway accepts by default."""
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


_WORKDIR = click.option(
    "--workdir",
    type=_DIRECTORY,
    help="Upload this directory without what .gitignore and .irisignore name; tasks start in it, in a virtual "
    "environment when it has a uv.lock or requirements.txt.",
)
_MORE: dict[str, dict[str, Any]] = {
    "parent": {"type": NAME},
    "each_line": {"type": click.Path(exists=True, dir_okay=False)},
    "preload": {
        "callback": lambda context, option, given: [
            name for text in given for name in text.split(",")
        ]
    },
}
"""What click is told of an option besides what the table says."""
TASK_OPTIONS = (*map(resource_option, REQUESTED), *map(flag_option, rows_of(TaskOptions)), _WORKDIR)
"""Options of every task, of a job or of a deployment's routes."""
_OPTIONS = (
    *(flag_option(row, _MORE.get(row.name)) for row in rows_of(JobOptions, TaskOptions)),
    *TASK_OPTIONS,
)
_PLAIN = tuple(JobOptions.__annotations__.keys() - {"env", "labels", "bundle", "packages"})


def job_options(command: F) -> F:
    """Options that describe a job, and its command, which is a shell where it is not given for a
    terminal.
    """
    words = click.argument(
        "command", nargs=-1, callback=_needed, type=click.UNPROCESSED, metavar="COMMAND..."
    )
    return words(with_options(*_OPTIONS)(command))


def _needed(
    context: click.Context, argument: click.Parameter, command: tuple[str, ...]
) -> tuple[str, ...]:
    """The command of a job. Raises MissingParameter."""
    if command or context.resilient_parsing:
        return command
    if context.params.get("terminal"):
        return default_command()
    raise click.MissingParameter(ctx=context, param=argument)


def read_options(given: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> JobOptions:
    """Parsed options as the SDK takes them. Raises UsageError."""
    options: dict[str, Any] = {key: given[key] for key in _PLAIN if given.get(key) is not None}
    return options | read_pairs(given, environ)  # type: ignore[return-value]


def read_pairs(
    given: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> dict[str, dict[str, str]]:
    """The environment and the labels. Raises UsageError with every mistake."""
    found: dict[str, dict[str, str]] = {"env": {}, "labels": {}}
    mistakes = []
    for name, pairs in found.items():
        for text in given[name]:
            try:
                key, value = read_pair(text, environ if name == "env" else None)
                pairs[key] = value
            except click.UsageError as mistake:
                mistakes.append(mistake.message)
    if mistakes:
        raise click.UsageError("\n".join(mistakes))
    return found


def read_pair(text: str, environ: Mapping[str, str] | None) -> tuple[str, str]:
    """``KEY=VALUE``, or a lone ``KEY`` looked up in ``environ``. Raises UsageError."""
    key, equals, value = text.partition("=")
    if not key or (not equals and environ is None):
        raise click.UsageError(f"{text!r} is not KEY=VALUE")
    if equals:
        return key, value
    if environ is None or key not in environ:
        raise click.UsageError(f"-e {key}: there is no such variable here; write {key}=VALUE")
    return key, environ[key]


_CONTEXT = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}


@click.command(cls=ScriptedCommand, context_settings=_CONTEXT)
@job_options
@click.option(
    "--idempotency-key",
    help="Reusing a key returns the first job instead of creating another.",
    metavar="KEY",
)
@click.option(
    "--if-exists",
    type=click.Choice(["error", "keep", "replace"]),
    default="error",
    show_default=True,
    help="When a job of this name has not ended: refuse, use that one, or cancel it first.",
)
@click.option(
    "--wait-for-capacity",
    is_flag=True,
    help="Do not warn when no registered host could ever take it.",
)
@click.option("-d", "--detach", is_flag=True, help="Do not follow; print only the job's name.")
@click.option(
    "--exit-code",
    "of_task",
    is_flag=True,
    help="End with the exit code of COMMAND where that failed: the highest of several tasks, 128+N of signal N.",
)
@raw_option
@connected
def run(
    client: Client,
    detach: bool,
    of_task: bool,
    idempotency_key: str | None,
    if_exists: Any,
    wait_for_capacity: bool,
    **given: Any,
) -> int:
    """Submit COMMAND as a job, show its output, and end as it ends. A script of this machine is
    sent along.

    With --interactive this terminal is that of its task; the exit code is that of COMMAND, and the
    job ends when the terminal is closed, or nobody has been connected to it for a minute.

    Exit codes: 0 succeeded, 3 failed, 4 unschedulable, 5 killed, 6 worker failed; 130 after Ctrl-C,
    which only detaches. With --exit-code a job that failed gives that of COMMAND, also one of these.
    """
    if of_task and detach:
        raise click.UsageError("--exit-code is that of a job that has ended: leave out --detach")
    options = read_options(given)
    if given["terminal"]:
        check_plain(detach=detach)
        options["env"] = {"TERM": os.environ.get("TERM", "dumb"), **options["env"]}
    if not (given["image"] or given["setup"]):
        check_command(given["command"], given["workdir"])
    command = send_code(client, given["command"], given["workdir"], options)
    spec = client.spec(command, options, idempotency_key)
    try:
        job = client.submit(
            spec, idempotency_key=idempotency_key, if_exists=if_exists, parent=given["parent"]
        )
    except KeyboardInterrupt:
        note("interrupted before an answer: the job may have been submitted; `iris ls` shows it")
        return ExitCode.DETACHED
    try:
        if not wait_for_capacity:
            note_warnings(job)
        note_first_failure(job.view, given["max_task_failures"])
        if detach:
            click.echo(job.name)
            return ExitCode.SUCCEEDED
        note(f"{job.name} {f'is {job.view.state}' if if_exists == 'keep' else 'submitted'}")
        if sys.stderr.isatty():
            note(f"  {client.address.url.rstrip('/')}/jobs/{job.id}")
    except KeyboardInterrupt:
        if given["terminal"]:
            job.cancel("it was interrupted before it ran")
        else:
            detached(job)
        return ExitCode.DETACHED
    return (
        use_terminal(client, job)
        if given["terminal"]
        else follow_to_end(client, job, of_task=of_task)
    )


def check_command(command: tuple[str, ...], workdir: Path | None) -> None:
    """Refuse a command that no host can run; warn of a script that is not here. Raises
    UsageError.
    """
    if mistake := impossible(command, workdir or Path()):
        raise click.UsageError(mistake)
    if script := missing_script(command, workdir or Path()):
        where = f"{workdir} has no {script}" if workdir else f"there is no {script} here"
        how = "" if workdir else "; --workdir DIR uploads a directory"
        warn(f"{where}, so the hosts must have it{how}")


def note_first_failure(job: JobView, given: int | None) -> None:
    """Say what the first failed task of several ends, unless the user has said how many may
    fail.
    """
    if (
        job.replicas > 1
        and not job.coscheduled
        and given is None
        and not job.spec.max_task_failures
    ):
        note(
            f"when one of the {job.replicas} tasks has failed, the others are killed; "
            "--keep-going lets them end, --max-task-failures N lets N fail"
        )


def send_code(
    client: Client,
    command: tuple[str, ...],
    workdir: Path | None,
    options: JobOptions | dict[str, Any],
) -> tuple[str, ...]:
    """Store the directory or script that a command needs; returns the command as tasks run it."""
    script = to_send(command) if workdir is None else None
    lines = options.get("each_line")
    if script is not None:
        options["bundle"] = send_script(client, script, lines)
        return with_uploaded_script(command, script)
    if workdir is not None:
        bundle = send_workdir(client, workdir, options)
        return in_workdir(command, workdir, bundle.left_out)
    if lines:
        options["bundle"] = client.send_lines(lines).digest
    return command


def send_workdir(client: Client, workdir: Path, options: JobOptions | dict[str, Any]) -> Bundle:
    """Store a directory, and say what it holds."""
    bundle = client.send_bundle(
        workdir, lines=options.get("each_line"), on_packed=partial(note_bundle, workdir)
    )
    options["bundle"], options["packages"] = bundle.digest, bundle.packages
    return bundle


def note_bundle(workdir: Path, bundle: Bundle) -> None:
    note(f"{workdir}: {bundle}")
    if bundle.packed_bytes > _LARGE_BUNDLE:
        note(f"  biggest: {bundle.biggest_files}; name in .irisignore what tasks do not need")


def send_script(client: Client, script: Path, lines: str | os.PathLike[str] | None = None) -> str:
    """Store a script as a bundle of one executable file; returns its digest."""
    with tempfile.TemporaryDirectory(prefix="iris-script-") as made:
        copy = Path(made) / script.name
        shutil.copyfile(script, copy)
        copy.chmod(0o755)
        return client.send_bundle(Path(made), everything=True, lines=lines).digest


@click.command(cls=ScriptedCommand, context_settings=_CONTEXT)
@job_options
@form_option(forms=("table", "json"), names=("-o",))
@connected
def plan(client: Client, form: str, **given: Any) -> int:
    """Dry run: where and when COMMAND would be placed as a job: now, after preempting what, not
    now, never.

    Exit codes: 0 it would start, 12 not now, 13 never.
    """
    options = read_options(given)
    if lines := options.pop("each_line", None):
        options["replicas"] = len(read_lines(lines))
    spec = client.spec(given["command"], options)
    found = client.plan(spec)
    if form == "json":
        print_json(found)
    else:
        for line in plan_lines(found, spec):
            click.echo(line)
    sys.stdout.flush()
    return PLAN_EXITS.get(found.verdict, ExitCode.UNEXPECTED)


def plan_lines(found: PlanView, spec: JobSpec) -> list[str]:
    """The dry run in sentences."""
    words = {
        "now": "it would start now",
        "after_preemption": f"it would start after preempting {', '.join(found.victims)}",
        "not_now": "it would wait",
        "never": "it would never start here",
    }
    lines = [words.get(found.verdict, found.verdict)]
    lines += slice_lines(found, spec) or placement_lines(found)
    workers = len({placed.worker for placed in found.placements})
    if len(found.placements) > 1:
        lines.append(f"  {len(found.placements)} tasks on {counted(workers, 'worker')}")
    lines += level_lines(found, spec)
    lines += [
        f"  with {variant} alone: {words.get(one, one)}" for variant, one in found.variants.items()
    ]
    if found.reason is not None:
        lines.append(f"  {found.reason.message}  ({found.reason.code})")
    if found.ahead:
        lines.append(f"  behind {counted(found.ahead, 'task')}")
    return lines


def level_lines(found: PlanView, spec: JobSpec) -> list[str]:
    """Over how many domains of each level a gang would be; nothing for one without levels."""
    levels = spec.coscheduling.several if spec.coscheduling is not None else ()
    return [
        f"  {level.key}: {found.levels[level.key]} ({level.mode})"
        for level in levels
        if level.key in found.levels
    ]


def slice_lines(found: PlanView, spec: JobSpec) -> list[str]:
    """The workers of each slice; nothing for a job without several."""
    slices = spec.coscheduling.slices if spec.coscheduling is not None else 1
    workers: dict[int, list[str]] = {}
    for placed in found.placements if slices > 1 else ():
        workers.setdefault(slice_of(placed.index, spec.replicas, slices), []).append(placed.worker)
    return [
        f"  slice {number} on {', '.join(names[:_PLACEMENTS_SHOWN])}"
        + (f" and {len(names) - _PLACEMENTS_SHOWN} more" if len(names) > _PLACEMENTS_SHOWN else "")
        for number, names in workers.items()
    ]


def placement_lines(found: PlanView) -> list[str]:
    """The worker of each task; for many tasks, the number of tasks per worker."""
    if len(found.placements) <= _PLACEMENTS_SHOWN:
        return [f"  task {placed.index} on {placed.worker}" for placed in found.placements]
    counts = Counter(placed.worker for placed in found.placements)
    return [f"  {counted(count, 'task')} on {worker}" for worker, count in counts.items()]
