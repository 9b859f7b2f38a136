"""What `squeue`, `sacct` and `scontrol` show: the rows of jobs, and the fields of a row. Pure, but
for what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from iris import Client, JobView
from iris_core.views.jobs import AttemptView, TaskView
from iris_slurm.numbers import indexes, number_of, own_number, read_number, shown_number
from iris_slurm.translate import ACCOUNT, COMMENT, DEFAULT_PARTITION, NAME, PARTITION

STATES = {
    "pending": "PENDING",
    "assigned": "PENDING",
    "building": "PENDING",
    "running": "RUNNING",
    "succeeded": "COMPLETED",
    "failed": "FAILED",
    "killed": "CANCELLED",
    "worker_failed": "NODE_FAIL",
    "preempted": "PREEMPTED",
    "unschedulable": "DEADLINE",
}
CODES = {
    "PENDING": "PD",
    "RUNNING": "R",
    "COMPLETED": "CD",
    "FAILED": "F",
    "CANCELLED": "CA",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "DEADLINE": "DL",
    "TIMEOUT": "TO",
    "OUT_OF_MEMORY": "OOM",
}
UNFINISHED = ("PENDING", "RUNNING")
_REASONS = {
    "dependency": "Dependency",
    "held": "JobHeldUser",
    "not_before": "BeginTime",
    "singleton": "Dependency",
}
_REASONS |= {"array_limit": "JobArrayTaskLimit"}


@dataclass(frozen=True)
class SlurmRow:
    """A job, or one of several tasks that are none of a gang. ``index``: None of a job that is one
    row.
    """

    job: JobView
    task: TaskView
    index: int | None

    @property
    def last(self) -> AttemptView | None:
        return self.task.attempts[-1] if self.task.attempts else None

    @property
    def state(self) -> str:
        last = self.last
        found = STATES[
            self.task.state
            if self.index is not None or not self.job.coscheduled
            else self.job.state
        ]
        if found == "FAILED" and last is not None and last.memory_limit_reached_bytes:
            return "OUT_OF_MEMORY"
        return (
            "TIMEOUT"
            if found == "CANCELLED" and last is not None and last.cause == "timeout"
            else found
        )

    @property
    def started(self) -> datetime | None:
        return self.last.started_at if self.last is not None and self.state != "PENDING" else None

    @property
    def finished(self) -> datetime | None:
        if self.state in UNFINISHED:
            return None
        return self.last.finished_at if self.last is not None else self.job.finished_at

    @property
    def elapsed(self) -> timedelta:
        return (self.finished or datetime.now(UTC)) - self.started if self.started else timedelta()

    @property
    def nodes(self) -> int:
        return self.job.replicas if self.job.coscheduled else 1

    @property
    def reason(self) -> str:
        if self.state != "PENDING":
            return "None"
        found = self.task.pending_reason or self.job.pending_reason
        return "None" if found is None else _REASONS.get(found.code, "Resources")

    @property
    def exit_code(self) -> str:
        """``0:15`` of what a signal has ended."""
        last = self.last
        return f"{(last and last.exit_code) or 0}:{(last and last.signal) or 0}"


def show_time(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%dT%H:%M:%S") if moment else "Unknown"


def show_length(length: timedelta | None) -> str:
    """``1-02:03:04``."""
    if length is None:
        return "UNLIMITED"
    minutes, seconds = divmod(int(length.total_seconds()), 60)
    days, hours = divmod(minutes // 60, 24)
    return f"{f'{days}-' if days else ''}{hours:02}:{minutes % 60:02}:{seconds:02}"


def _limit(row: SlurmRow) -> str:
    limit = row.job.spec.timeout_s
    return show_length(None if limit is None else timedelta(seconds=limit))


def _label(name: str, otherwise: str) -> Callable[[SlurmRow], str]:
    return lambda row: row.job.spec.labels.get(name, otherwise)


def _cpus(row: SlurmRow) -> str:
    return str(max(1, -(-row.job.spec.resources.cpu_millis // 1000)) * row.nodes)


def _number(row: SlurmRow) -> str:
    number = number_of(row.job)
    return str(number if row.index is None else own_number(number, row.index))


def _value(row: SlurmRow) -> str:
    return "N/A" if row.index is None else shown_number(row.job, row.index).partition("_")[2]


def name_of(job: JobView) -> str:
    """The name that was asked for; that in Iris of a job that was not submitted by `sbatch`."""
    return job.spec.labels.get(NAME, job.name)


FIELDS: dict[str, Callable[[SlurmRow], str]] = {
    "jobid": lambda row: shown_number(row.job, row.index),
    "jobidraw": _number,
    "arrayjobid": lambda row: str(number_of(row.job)),
    "arraytaskid": _value,
    "jobname": lambda row: name_of(row.job),
    "user": lambda row: row.job.user,
    "account": lambda row: row.job.spec.labels.get(ACCOUNT) or row.job.spec.project,
    "comment": _label(COMMENT, ""),
    "partition": _label(PARTITION, DEFAULT_PARTITION),
    "qos": lambda row: row.job.band,
    "state": lambda row: row.state,
    "statecompact": lambda row: CODES[row.state],
    "exitcode": lambda row: row.exit_code,
    "nodelist": lambda row: (row.last.worker if row.last is not None else "") or "None assigned",
    "reason": lambda row: row.reason,
    "submit": lambda row: show_time(row.job.submitted_at),
    "start": lambda row: show_time(row.started),
    "end": lambda row: show_time(row.finished),
    "elapsed": lambda row: show_length(row.elapsed),
    "timelimit": _limit,
    "ncpus": _cpus,
    "alloccpus": _cpus,
    "reqcpus": _cpus,
    "nnodes": lambda row: str(row.nodes),
    "reqmem": lambda row: f"{row.job.spec.resources.memory_bytes >> 20}M",
    "maxrss": lambda row: f"{((row.last and row.last.peak_rss_bytes) or 0) >> 10}K",
    "restarts": lambda row: str(max(0, len(row.task.attempts) - 1)),
}


def rows_of(client: Client, job: JobView, wanted: Iterable[int] = ()) -> Iterator[SlurmRow]:
    """The rows of a job, or those of its tasks that are wanted. Raises Problem, Unreachable."""
    several = bool(job.spec.array) or (job.replicas > 1 and not job.coscheduled)
    if wanted := tuple(wanted):
        tasks: Iterable[TaskView] = (client.task(f"{job.id}/{index}") for index in wanted)
    elif several:
        tasks = client.job(job.id).tasks()
    else:
        tasks = [client.task(f"{job.id}/0")]
    for task in tasks:
        yield SlurmRow(job, task, task.index if several else None)


def code_of(rows: Iterable[SlurmRow]) -> int:
    """The exit code of `sbatch --wait`: the highest of the tasks; 1 of what did not end with one."""

    def code(row: SlurmRow) -> int:
        found = row.last.exit_code if row.last is not None else None
        return 0 if row.state == "COMPLETED" else (found or 1)

    return max(map(code, rows), default=0)


def rows_of_number(client: Client, text: str) -> Iterator[SlurmRow]:
    """The rows of ``12``, or of ``12_3``. Raises NotHonoured, NotFound."""
    number, values, are_indexes = read_number(text)
    job = client.job(f"j{number}").view
    yield from rows_of(client, job, indexes(job, values, are_indexes=are_indexes))


def read_states(text: str) -> set[str]:
    """States by their names or codes, of a list."""
    names = {code: name for name, code in CODES.items()}
    return {names.get(word.upper(), word.upper()) for word in text.split(",")}
