"""The whole machine in under a minute: `make demo`.

Starts a cluster on this machine (a NATS server, four services, a CPU host and two TPU slices, all
separate processes), counts the words of the Python standard library with a job of eight tasks whose
first task submits a child job, runs a coscheduled job on one slice, shows what became of
everything, and stops cleanly.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from iris import Client, Job
from iris.cli.commands.look.tree import draw

HERE = Path(__file__).parent
IRIS = [sys.executable, "-m", "iris.cli"]


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    root = Path(tempfile.mkdtemp(prefix="iris-demo-"))
    begun = time.monotonic()
    try:
        os.environ["IRIS_DATA"] = str(
            root / "data"
        )  # where `iris` and the SDK find the cluster and its token
        url = start()
        say(f"the cluster is up: {url}", begun)
        with Client(url) as client:
            return show(client, root, begun)
    except KeyboardInterrupt:
        return 130
    finally:
        subprocess.run([*IRIS, "down"], check=False)
        shutil.rmtree(root, ignore_errors=True)
        say("stopped; nothing is left", begun)


def start() -> str:
    """The address of a fresh cluster: one CPU host, two slices of four hosts each."""
    command = [*IRIS, "up", "--detach", "--http", "127.0.0.1:0"]
    command += ["--workers", "1", "--worker-cpu", "8", "--tpu", "v5litepod-16x2"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def show(client: Client, root: Path, begun: float) -> int:
    """Run both jobs and print what they did; the exit code says whether both succeeded."""
    for worker in client.workers():
        kind = worker.attributes.get("tpu-topology", "cpu")
        print(
            f"  {worker.id:<12} {worker.state}  {worker.total['cpu_millis'] / 1000:g} cores  {kind}"
        )
    count = count_words(client, root, begun)
    gang = run_gang(client, begun)
    return 0 if count.state == gang.state == "succeeded" else 1


def count_words(client: Client, root: Path, begun: float) -> Job:
    """The job of eight tasks, its child, its tree and its result."""
    results = root / "results"
    results.mkdir()
    say("eight tasks count the words of the standard library", begun)
    job = client.run(
        [sys.executable, "count.py"],
        name="wordcount",
        replicas=8,
        workdir=HERE / "wordcount",
        env={"RESULTS": str(results)},
    )
    follow(job)
    say(f"{job.name} {job.state}", begun)
    if job.state == "succeeded":
        print("  the ten most frequent words:")
        for word, times in json.loads((results / "words.json").read_text())[:10]:
            print(f"    {word:<10} {times:>9,}")
    print_tree(client, job)
    return job


def run_gang(client: Client, begun: float) -> Job:
    """A job that takes a whole slice at once, all tasks or none."""
    say("four tasks take a whole slice together", begun)
    job = client.run(
        [sys.executable, "reduce.py"], name="gang", tpu="v5litepod-16", workdir=HERE / "gang"
    )
    follow(job)
    say(f"{job.name} {job.state}", begun)
    print_tree(client, job)
    return job


def follow(job: Job) -> None:
    """Print a job's output until it has ended."""
    for line in job.logs():
        print(
            f"  | {line.line}",
            file=sys.stderr if line.stream == "stderr" else sys.stdout,
            flush=True,
        )
    job.wait()


def print_tree(client: Client, job: Job) -> None:
    """A job and everything below it, with states and times."""
    print("  the tree:")
    for line in draw(client.get(f"/v1/jobs/{job.id}/tree", dict)):
        click.echo(f"    {line}")


def say(words: str, begun: float) -> None:
    """One line of the story with the time since its beginning."""
    print(f"[{time.monotonic() - begun:5.1f} s] {words}", flush=True)


sys.exit(main())
