"""`salloc`: hold hosts, and run a command or a shell here whose `srun` reaches them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import chain

from iris import Client, Job
from iris.client.http.events import read_events
from iris_slurm import mail, submission
from iris_slurm.commands.program import run
from iris_slurm.directives import ignored_options, options_of
from iris_slurm.environment import variables
from iris_slurm.numbers import number_of
from iris_slurm.values import NotHonoured

HOLD = (sys.executable, "-m", "iris_slurm.hold")


def main() -> int:
    """The command."""
    return run("salloc", salloc)


def salloc(client: Client, words: list[str]) -> int:
    """The exit code of the command. Raises NotHonoured, ClientError."""
    given = options_of("salloc", words, ignored=ignored_options(os.environ))
    if given.array or given.signal:
        raise NotHonoured(f"{'--array' if given.array else '--signal'} is for sbatch")
    settings, options = submission.described(given, ["interactive"])
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    mail.add_rules("salloc", client, given, options)
    job = client.run(HOLD, **options)
    number = number_of(job.view)
    try:
        print(f"salloc: Pending job allocation {number}", file=sys.stderr)
        hosts = wait_for_hosts(job)
        print(f"salloc: Granted job allocation {number}", file=sys.stderr)
        place = {"IRIS_TASK_INDEX": "0", "IRIS_ATTEMPT": "0", "IRIS_GANG_HOSTS": ",".join(hosts)}
        environ = {**os.environ, **variables(settings, job.view, place)}
        signal.signal(signal.SIGINT, lambda *_: None)  # the command gets it too, and decides
        command = given.words or [os.environ.get("SHELL", "/bin/sh")]
        return subprocess.run(command, env=environ, check=False).returncode
    finally:
        print(f"salloc: Relinquishing job allocation {number}", file=sys.stderr)
        job.cancel("salloc has ended")


def wait_for_hosts(job: Job) -> list[str]:
    """The hosts, once all of them run. Raises JobEnded."""
    with job.stream() as stream:
        for _ in chain([None], read_events(stream)):
            if job.refresh().task_counts.get("running") == job.view.replicas or job.ended:
                break
    if job.ended:
        raise job.ending()
    return [task.worker or "" for task in job.tasks()]
