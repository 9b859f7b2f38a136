"""`scontrol`: show jobs and hosts; hold, release, requeue and update jobs."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

from iris import Client
from iris_slurm.commands.program import run
from iris_slurm.commands.sinfo import state_of
from iris_slurm.numbers import indexes, read_number
from iris_slurm.records import SlurmRow, rows_of_number
from iris_slurm.tables import fact
from iris_slurm.values import NotHonoured, read_minutes

EQUALS = "\\x3d"
"""In place of = in a fact, which would begin another one."""
USAGE = "hold, release, requeue, requeuehold, update, show job, show node, show hostnames"


def main() -> int:
    """The command."""
    return run("scontrol", scontrol)


def scontrol(client: Client, words: list[str]) -> int:
    """Raises NotHonoured, ClientError."""
    one_line = bool({"-o", "--oneliner"} & set(words))
    words = [word for word in words if word not in ("-o", "--oneliner")]
    match words:
        case ["show", "hostnames" | "hostname", *lists]:
            hosts = lists or [os.environ.get("SLURM_JOB_NODELIST", socket.gethostname())]
            print("\n".join(host for text in hosts for host in hosts_of(text)))
        case ["show", "job" | "jobs", number]:
            for row in rows_of_number(client, number):
                print(
                    (" " if one_line else "\n   ").join(facts_of(row)),
                    end="\n" if one_line else "\n\n",
                )
        case ["show", "node" | "nodes", *names]:
            for worker in client.workers():
                if not names or worker.id in names:
                    cpus, memory = (
                        worker.total["cpu_millis"] // 1000,
                        worker.total["memory_bytes"] >> 20,
                    )
                    print(
                        f"NodeName={worker.id} CPUTot={cpus} RealMemory={memory} State={state_of(worker).upper()}"
                    )
        case ["hold" | "release" | "requeue" | "requeuehold" as verb, *numbers] if numbers:
            for number in ",".join(numbers).split(","):
                act(client, verb, number)
        case ["update", *pairs] if pairs:
            update(client, pairs)
        case _:
            raise NotHonoured(f"{' '.join(words) or 'no command'}: use {USAGE}")
    return 0


def act(client: Client, verb: str, number: str) -> None:
    """Raises NotHonoured, Problem."""
    job, values, are_indexes = read_number(number)
    if verb == "requeue":
        signal.signal(
            signal.SIGTERM, signal.SIG_IGN
        )  # which stops the task, of which this may be a process
        for target in tasks_of(client, job, values, are_indexes=are_indexes):
            client.requeue(target)
        return
    if values:
        raise NotHonoured(f"{verb} {number}: a task of an array is not held alone; write {job}")
    actions: dict[str, Callable[[], Any]] = {
        "hold": lambda: client.hold(f"j{job}"),
        "requeuehold": lambda: client.hold(f"j{job}", stop=True),
        "release": lambda: client.release(f"j{job}"),
    }
    actions[verb]()


def tasks_of(
    client: Client, job: int, values: tuple[int, ...], *, are_indexes: bool
) -> Iterator[str]:
    """What is requeued: the job, or tasks of it."""
    if not values:
        yield f"j{job}"
        return
    view = client.job(f"j{job}").view
    yield from (f"{view.id}/{index}" for index in indexes(view, values, are_indexes=are_indexes))


def update(client: Client, pairs: list[str]) -> None:
    """``JobId=12 TimeLimit=2:00:00 ArrayTaskThrottle=4``. Raises NotHonoured, Problem."""
    given = {name.lower(): text for name, _, text in (pair.partition("=") for pair in pairs)}
    number, _, _ = read_number(given.pop("jobid", ""))
    if unknown := given.keys() - {"timelimit", "arraytaskthrottle"}:
        raise NotHonoured(
            f"update {min(unknown)}: only TimeLimit and ArrayTaskThrottle of a job can be changed"
        )
    if "timelimit" in given:
        client.update(f"j{number}", timeout=read_minutes(given["timelimit"]))
    if "arraytaskthrottle" in given:
        client.update(f"j{number}", max_parallel=int(given["arraytaskthrottle"]) or None)


_SHOWN = {
    "JobId": "jobidraw",
    "JobName": "jobname",
    "UserId": "user",
    "Account": "account",
    "QOS": "qos",
    "JobState": "state",
    "Reason": "reason",
    "Restarts": "restarts",
    "ExitCode": "exitcode",
    "RunTime": "elapsed",
    "TimeLimit": "timelimit",
    "SubmitTime": "submit",
    "StartTime": "start",
    "EndTime": "end",
    "Partition": "partition",
    "NodeList": "nodelist",
    "NumNodes": "nnodes",
    "NumCPUs": "ncpus",
}


def facts_of(row: SlurmRow) -> list[str]:
    """``JobId=12`` and so on."""
    array = (
        {"ArrayJobId": "arrayjobid", "ArrayTaskId": "arraytaskid"} if row.index is not None else {}
    )
    return [
        f"{title}={fact(field, row).replace('=', EQUALS)}"
        for title, field in {**_SHOWN, **array}.items()
    ]


def hosts_of(text: str) -> Iterator[str]:
    """The hosts of ``n[1-3,7],m``."""
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)?", text):
        prefix, bracket, rest = part.partition("[")
        inside, _, suffix = rest.partition("]")
        for piece in inside.split(",") if bracket else [""]:
            low, _, high = piece.partition("-")
            numbers = range(int(low), int(high or low) + 1) if bracket else [None]
            yield from (
                prefix if n is None else f"{prefix}{str(n).zfill(len(low))}{suffix}"
                for n in numbers
            )
