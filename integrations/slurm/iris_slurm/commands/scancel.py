"""`scancel`: cancel jobs and tasks of arrays, or signal them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from iris import Client, ClientError
from iris.client.executions import RemoteCommand
from iris_slurm.batch import PID, number_of
from iris_slurm.commands.program import add_clusters, check_clusters, run, user
from iris_slurm.commands.squeue import open_jobs
from iris_slurm.directives import Parser
from iris_slurm.numbers import indexes, read_number
from iris_slurm.records import SlurmRow, name_of, read_states, rows_of, rows_of_number
from iris_slurm.values import NotHonoured


def main() -> int:
    """The command."""
    return run("scancel", scancel)


def scancel(client: Client, words: list[str]) -> int:
    """1 when something could not be cancelled. Raises NotHonoured, ClientError."""
    reader = Parser("scancel")
    reader.add_argument("-u", "--user", default="")
    reader.add_argument("--me", action="store_true")
    reader.add_argument("-n", "--name", "--jobname", default="")
    reader.add_argument("-t", "--state", default="")
    reader.add_argument("-s", "--signal", default="")
    reader.add_argument("-b", "--batch", action="store_true")
    reader.add_argument("-f", "--full", action="store_true")
    reader.add_argument("-Q", "--quiet", action="store_true")
    reader.add_argument("numbers", nargs="*")
    add_clusters(reader)
    given = reader.parse_intermixed_args(words)
    check_clusters(given.clusters)
    targets = list(given.numbers) if given.numbers else list(chosen(client, given))
    return max([cancelled(client, target, given) for target in targets], default=0)


def chosen(client: Client, given: argparse.Namespace) -> Iterator[str]:
    """The jobs of the options. Raises NotHonoured."""
    owner = given.user or (user() if given.me or given.name or given.state else "")
    if not owner:
        raise NotHonoured("no jobs are named")
    for job in open_jobs(client, {owner}):
        if given.name and name_of(job) not in given.name.split(","):
            continue
        if not given.state:
            yield job.id.removeprefix("j")
            continue
        rows = [row for row in rows_of(client, job) if row.state in read_states(given.state)]
        yield from (
            f"{job.id.removeprefix('j')}{'' if row.index is None else f'_[{row.index}]'}"
            for row in rows
        )


def cancelled(client: Client, target: str, given: argparse.Namespace) -> int:
    """Cancel or signal a job, or tasks of it; the exit code."""
    try:
        if given.signal:
            for row in rows_of_number(client, target):
                signal_row(client, row, given.signal, script=given.batch)
            return 0
        number, values, are_indexes = read_number(target)
        job = client.job(f"j{number}").view
        for index in indexes(job, values, are_indexes=are_indexes):
            client.cancel(f"{job.id}/{index}")
        if not values:
            client.cancel(job.id)
    except (ClientError, NotHonoured) as error:
        if not given.quiet:
            print(f"scancel: error: {target}: {error}", file=sys.stderr)
        return 1
    return 0


def signal_row(client: Client, row: SlurmRow, name: str, *, script: bool) -> None:
    """Signal a task that runs: its script alone, or what that has started too."""
    if row.state != "RUNNING":
        raise NotHonoured(f"it is {row.state.lower()}: only what runs gets a signal")
    try:
        number = number_of(name.removeprefix("SIG"))
    except KeyError:
        raise NotHonoured(f"--signal={name}: not a signal") from None
    pid = f'$(cat "$IRIS_WORKDIR/{PID}")'
    target = f"$(pgrep -P {pid})" if script else pid
    command = ["sh", "-c", f"kill -{number} {target}"]
    with RemoteCommand(client, f"{row.job.id}/{row.task.index}", command) as remote:
        for line in remote:
            sys.stderr.write(line.stderr.decode(errors="replace"))
    if remote.exit_code:
        raise NotHonoured("it has not begun its script, or was not submitted by sbatch")
