"""`squeue`: the jobs that wait and run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress

from iris import Client, JobView, NotFound
from iris_slurm.commands.program import add_clusters, check_clusters, run, user
from iris_slurm.directives import Parser
from iris_slurm.records import (
    FIELDS,
    UNFINISHED,
    SlurmRow,
    name_of,
    read_states,
    rows_of,
    rows_of_number,
)
from iris_slurm.tables import format_rows

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"


def main() -> int:
    """The command."""
    return run("squeue", squeue)


def squeue(client: Client, words: list[str]) -> int:
    """Raises NotHonoured, ClientError."""
    reader = Parser("squeue")
    reader.add_argument("-h", "--noheader", action="store_true")
    reader.add_argument("-j", "--jobs", "--job", action="append", default=[])
    reader.add_argument("-u", "--user", "--users", default="")
    reader.add_argument("--me", action="store_true")
    reader.add_argument("-n", "--name", default="")
    reader.add_argument("-p", "--partition", default="")
    reader.add_argument("-t", "--states", "--state", default="")
    reader.add_argument("-o", "--format", default=DEFAULT)
    reader.add_argument("-r", "--array", action="store_true")  # each task has a line in any case
    add_clusters(reader)
    given = reader.parse_args(words)
    check_clusters(given.clusters)
    numbers = [number for text in given.jobs for number in text.split(",")]
    users = {*filter(None, given.user.split(",")), *([user()] if given.me else [])}
    states = read_states(given.states or ",".join(UNFINISHED))
    if not numbers and states - {"ALL", *UNFINISHED}:
        print(
            "squeue: warning: what has ended is not listed: sacct does, and squeue -j",
            file=sys.stderr,
        )
    rows = [
        row
        for row in (numbered(client, numbers) if numbers else unfinished(client, users))
        if ("ALL" in states or row.state in states)
        and (not users or row.job.user in users)
        and (not given.partition or FIELDS["partition"](row) in given.partition.split(","))
        and (not given.name or name_of(row.job) in given.name.split(","))
    ]
    for line in format_rows(given.format, rows, header=not given.noheader):
        print(line)
    return 0


def numbered(client: Client, numbers: list[str]) -> Iterator[SlurmRow]:
    """The rows of these jobs; of one that is not known there is none."""
    for number in numbers:
        with suppress(NotFound):
            yield from rows_of_number(client, number)


def unfinished(client: Client, users: set[str]) -> Iterator[SlurmRow]:
    """The rows of all jobs that wait and run, of these users or of all."""
    for job in open_jobs(client, users):
        yield from rows_of(client, job)


def open_jobs(client: Client, users: set[str]) -> Iterator[JobView]:
    """The jobs that wait and run, of these users or of all."""
    for state in ("running", "pending"):
        for owner in sorted(users) or [""]:
            yield from client.jobs(state=state, user=owner or None, without_routes=True)
