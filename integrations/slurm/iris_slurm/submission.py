"""Submits what the options of `sbatch` describe: the script and its settings in a bundle, and the
job that runs it.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from iris import Client, Job
from iris.client.http.encode import encode_json
from iris_core.spec.option_table import JobOptions
from iris_slurm.commands.program import user
from iris_slurm.local_time import local_now
from iris_slurm.translate import (
    SCRIPT,
    SETTINGS,
    BatchSettings,
    Submitter,
    job_around,
    job_options,
    settings_of,
)

BATCH = (sys.executable, "-m", "iris_slurm.batch")


def submitter() -> Submitter:
    """This process."""
    os.umask(umask := os.umask(0o077))  # it is read by setting it
    return Submitter(os.getcwd(), user(), socket.gethostname(), os.environ, local_now(), umask)


def described(
    given: argparse.Namespace, arguments: Sequence[str]
) -> tuple[BatchSettings, JobOptions]:
    """``arguments``: the script and those of it. Raises NotHonoured."""
    by = submitter()
    settings = settings_of(given, by, tuple(arguments))
    return settings, job_options(given, settings, by)


def submit(client: Client, script: bytes, settings: BatchSettings, options: JobOptions) -> Job:
    """The script of several hosts runs on the first one, and its end is the job's.

    Raises NotHonoured, Problem, Unreachable, InvalidOption.
    """
    if settings.nodes > 1:
        options["success"] = "leader"
    with tempfile.TemporaryDirectory(prefix="iris-slurm-") as directory:
        (Path(directory) / SCRIPT).write_bytes(script)
        (Path(directory) / SETTINGS).write_bytes(encode_json(settings))
        job = client.run(BATCH, workdir=directory, beside=bool(job_around(os.environ)), **options)
    for warning in job.view.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return job
