"""`sacct`: jobs, also those that have ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from iris import Client
from iris_slurm.commands.program import add_clusters, check_clusters, run, user
from iris_slurm.commands.squeue import numbered
from iris_slurm.directives import Parser
from iris_slurm.local_time import local_now
from iris_slurm.records import SlurmRow, name_of, read_states, rows_of
from iris_slurm.tables import columns_of, parsable, table
from iris_slurm.values import read_moment

DEFAULT = "JobID,JobName%10,Partition%10,Account%10,AllocCPUS%10,State%10,ExitCode%8"


def main() -> int:
    """The command."""
    return run("sacct", sacct)


def sacct(client: Client, words: list[str]) -> int:
    """Raises NotHonoured, ClientError."""
    reader = Parser("sacct")
    reader.add_argument("-j", "--jobs", "--job", action="append", default=[])
    reader.add_argument("-o", "--format", default=DEFAULT)
    reader.add_argument("-n", "--noheader", action="store_true")
    reader.add_argument("-P", "--parsable2", action="store_true")
    reader.add_argument("-p", "--parsable", action="store_true")
    reader.add_argument("-X", "--allocations", action="store_true")  # a job has no steps here
    reader.add_argument("-u", "--user", default="")
    reader.add_argument("-a", "--allusers", action="store_true")
    reader.add_argument("-S", "--starttime", default="")
    reader.add_argument("-E", "--endtime", default="")
    reader.add_argument("-s", "--state", default="")
    reader.add_argument("--name", default="")
    add_clusters(reader)
    given = reader.parse_args(words)
    check_clusters(given.clusters)
    columns = columns_of(given.format)
    numbers = [number for text in given.jobs for number in text.split(",")]
    owners = [""] if given.allusers else (given.user or user()).split(",")
    now = local_now()
    start = None if numbers and not given.starttime else read_start(given.starttime, now)
    end = read_moment("--endtime", given.endtime, now) if given.endtime else None
    rows = (
        row
        for row in (numbered(client, numbers) if numbers else within(client, owners, start, end))
        if overlaps(row.job.submitted_at, row.finished, start, end)
        and (not given.state or row.state in read_states(given.state))
        and (not given.name or name_of(row.job) in given.name.split(","))
    )
    if given.parsable or given.parsable2:
        lines = parsable(
            columns, rows, header=not given.noheader, end="|" if given.parsable else ""
        )
    else:
        lines = table(columns, rows, header=not given.noheader)
    for line in lines:
        print(line)
    return 0


def read_start(text: str, now: datetime) -> datetime:
    """The moment; midnight by default. Raises NotHonoured."""
    return read_moment("--starttime", text or "00:00", now)


def within(
    client: Client, owners: list[str], start: datetime | None, end: datetime | None
) -> Iterator[SlurmRow]:
    """The rows of jobs that waited or ran between these moments."""
    for owner in owners:
        for job in client.jobs(user=owner or None, without_routes=True):
            if overlaps(job.submitted_at, job.finished_at, start, end):
                yield from rows_of(client, job)


def overlaps(
    submitted: datetime | None,
    finished: datetime | None,
    start: datetime | None,
    end: datetime | None,
) -> bool:
    """Whether something waited or ran between two moments; None: it has not ended, or no limit."""
    before = end is not None and submitted is not None and submitted > end
    after = start is not None and finished is not None and finished < start
    return not before and not after
