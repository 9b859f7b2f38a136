"""`srun`: start a step in a job, or a job that is followed."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shlex import join
from threading import Thread

import msgspec
from msgspec.structs import replace

from iris import Client, ClientError
from iris.cli.output.terminal import takes_bytes, write_bytes
from iris.cli.remote_terminal import write_all
from iris.client.executions import RemoteCommand
from iris_slurm import submission
from iris_slurm.commands.program import run
from iris_slurm.directives import (
    HONOURED,
    Parser,
    dest,
    ignored_options,
    ignored_warning,
    options_of,
    takes_value,
    without,
)
from iris_slurm.files import check_pattern
from iris_slurm.hold import STOPPED
from iris_slurm.numbers import number_of, read_number
from iris_slurm.steps import SrunStep, hosts_of_job
from iris_slurm.steps import run as run_step
from iris_slurm.translate import environment
from iris_slurm.values import NotHonoured, read_count, read_nodes

OF_STEPS = ("output", "error", "open_mode", "ntasks", "nodes", "ntasks_per_node", "chdir", "export")
"""Honoured within a job."""
PART = (
    "job_name",
    "cpus_per_task",
    "mem",
    "mem_per_cpu",
    "gres",
    "gpus",
    "gpus_per_node",
    "gpus_per_task",
    "time",
)
"""Accepted within a job with a warning: a step has what its job has on the host."""
STEP_FLAGS = (
    "-u --unbuffered",
    "--exact",
    "--overlap",
    "-K --kill-on-bad-exit",
    "-l --label",
    "--mpi",
)
"""Of steps only: they have no effect. `--mpi` may be ``none``."""


STEP = (sys.executable, "-m", "iris_slurm.steps")


def main() -> int:
    """The command."""
    return run("srun", srun)


def srun(client: Client, words: list[str]) -> int:
    """Raises NotHonoured, ClientError."""
    given = read(words)
    if "SLURM_JOB_ID" not in os.environ:
        return follow(client, given)
    refused = [
        f"--{name.replace('_', '-')}" for name in others() if getattr(given, name) is not None
    ]
    if refused:
        raise NotHonoured(f"{refused[0]} is for a job, not for a step of it")
    if spare := [
        f"--{name.replace('_', '-')}" for name in PART if getattr(given, name) is not None
    ]:
        print(
            f"srun: warning: {', '.join(spare)}: a step has what its job has on the host",
            file=sys.stderr,
        )
    return run_steps(client, steps_of(given))


def read(words: list[str]) -> argparse.Namespace:
    """The options of `sbatch`, and those that only steps have."""
    own = Parser("srun")
    own.add_argument("--mpi")
    for flags in STEP_FLAGS[:-1]:
        own.add_argument(*flags.split(), action="store_true")
    words, dropped = without(words, ignored_options(os.environ))
    for flag in dict.fromkeys(dropped):
        print(f"srun: warning: {ignored_warning(flag)}", file=sys.stderr)
    end = command_at(words)
    found, rest = own.parse_known_args(words[:end])
    if found.label:
        print("srun: warning: --label has no effect: lines are not numbered", file=sys.stderr)
    if found.mpi not in (None, "none"):
        raise NotHonoured(
            f"--mpi={found.mpi} is refused: start the processes with the launcher of your MPI"
        )
    given = options_of("srun", rest)
    given.words = words[end:]
    if not given.words:
        raise NotHonoured("no command")
    return given


def command_at(words: list[str]) -> int:
    """Where the command begins."""
    takes = takes_value() | {"--mpi"}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in takes else 1
    return min(at, len(words))


def others() -> list[str]:
    """Options of `sbatch` that a step has not."""
    names = [dest(flags) for flags, _, _ in HONOURED]
    return [name for name in names if name not in (*OF_STEPS, *PART, "quiet", "wait")]


def steps_of(given: argparse.Namespace) -> list[SrunStep]:
    """One for each host. Raises NotHonoured."""
    for option in ("output", "error"):
        check_pattern(f"--{option}", getattr(given, option) or "")
    held = len(hosts_of_job(os.environ))
    nodes = read_nodes(given.nodes) if given.nodes else held
    if nodes > held:
        raise NotHonoured(f"--nodes={nodes}: the job has {held}")
    per_node = read_count(
        "--ntasks-per-node", given.ntasks_per_node or os.environ.get("SLURM_NTASKS_PER_NODE", "1")
    )
    tasks = read_count("--ntasks", given.ntasks) if given.ntasks else nodes * per_node
    nodes = min(nodes, tasks)
    share, more = divmod(tasks, nodes)
    counts = [share + (node < more) for node in range(nodes)]
    shared = SrunStep(
        command=tuple(given.words),
        tasks=tasks,
        nodes=nodes,
        chdir=given.chdir or os.getcwd(),
        output=given.output or "",
        error=given.error or "",
        append=given.open_mode == "append" or bool(os.environ.get("IRIS_SLURM_APPEND")),
        signal=int(os.environ.get("IRIS_SLURM_SIGNAL") or 0),
        env=environment_of(given.export or "ALL"),
    )
    return [
        replace(shared, first=sum(counts[:node]), count=count, node=node)
        for node, count in enumerate(counts)
    ]


def environment_of(export: str) -> dict[str, str]:
    """The variables of the script, with those that --export adds, and Slurm's. Raises
    NotHonoured.
    """
    if "ALL" not in export.split(","):
        raise NotHonoured(
            f"--export={export}: a step has the variables of its script: write ALL,{export}"
        )
    kept = {
        name: text for name, text in os.environ.items() if name.startswith(("SLURM", "IRIS_SLURM_"))
    }
    return {**environment(export, os.environ), **kept}


def run_steps(client: Client, steps: list[SrunStep]) -> int:
    """Run the processes of all hosts; the exit code of the first host that failed."""
    here = "IRIS_TASK" in os.environ
    if here and len(steps) == 1:
        os.environ.update(steps[0].env)
        return run_step(steps[0])
    parts = Parts(client)
    if steps[0].signal:
        signal.signal(steps[0].signal, lambda number, _: parts.tell(number))
    signal.signal(signal.SIGTERM, lambda *_: parts.end())
    with ThreadPoolExecutor(len(steps)) as pool:
        codes = [
            pool.submit(parts.run_here if here and not step.node else parts.run_there, step)
            for step in steps
        ]
        return next((code for future in codes if (code := future.result())), 0)


class Parts:
    """The processes of a step, on several hosts."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._here: list[subprocess.Popen[bytes]] = []
        self._there: list[RemoteCommand] = []

    def run_here(self, step: SrunStep) -> int:
        """On the host of the script."""
        with subprocess.Popen(STEP, stdin=subprocess.PIPE) as process:
            self._here.append(process)
            process.communicate(msgspec.json.encode(step))
        return process.returncode if process.returncode >= 0 else 128 - process.returncode

    def run_there(self, step: SrunStep) -> int:
        """On another host, beside the task that holds it. Raises ClientError."""
        job, _, _ = read_number(os.environ["SLURM_JOB_ID"])
        with RemoteCommand(self._client, f"j{job}/{step.node}", STEP) as command:
            command.write(msgspec.json.encode(step), end=True)
            self._there.append(command)
            for line in command:
                write_all(1, line.stdout)
                write_all(2, line.stderr)
        return command.exit_code or 0

    def end(self) -> None:
        """Pass TERM on, and wait; when the whole job is told to end, each host has been itself."""
        work = os.environ.get("IRIS_WORKDIR")
        if work is None or not (Path(work) / STOPPED).exists():
            for process in self._here:
                process.terminate()
            self.tell(signal.SIGTERM)

    def tell(self, number: int) -> None:
        """Send a signal that this process gets to the processes on other hosts too."""
        name = signal.Signals(number).name.removeprefix("SIG")
        Thread(target=self._tell, args=(name,)).start()

    def _tell(self, name: str) -> None:
        for command in list(self._there):
            try:
                command.signal(name)
            except ClientError as error:  # the command may have ended
                print(f"srun: warning: {name} did not reach another host: {error}", file=sys.stderr)


def follow(client: Client, given: argparse.Namespace) -> int:
    """Submit a job of one step, print its output, and end with its exit code."""
    settings, options = submission.described(given, given.words[:1])
    settings = replace(settings, output=given.output or "")
    job = submission.submit(
        client,
        os.fsencode(f"#!/bin/sh\nexec srun {join(given.words)}\n"),
        settings,
        options,
    )
    try:
        for line in job.logs(unfinished=job.view.replicas == 1):
            out = sys.stderr if line.stream == "stderr" else sys.stdout
            end = "" if line.continued else "\n"
            if takes_bytes(out, raw=False):
                write_bytes(out, line.printed + end.encode())
            else:
                out.write(line.line + end)
            out.flush()
        ended = job.wait()
    except KeyboardInterrupt:
        job.cancel("srun was interrupted")
        raise
    if ended.state == "succeeded":
        return 0
    print(
        f"srun: error: job {number_of(ended)} has ended: {ended.state}: {ended.error}",
        file=sys.stderr,
    )
    task = job.task(0)
    return task.exit_code or (128 + task.signal if task.signal else 1)
