"""``python -m benchmarks.flame ROW [SERVICE ...]``: profiles a row and prints the summary of a
flame graph.

py-spy, which must be installed, samples every process of the named services while the row runs, and
counts only threads that execute Python; nats-server and child processes show in the row's own CPU
figures. Shares say where to look, not how long it takes: a thread in a system call may be waiting.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks import cluster
from benchmarks.__main__ import ROWS

SERVICES = ("state", "scheduler", "worker", "gateway")
SHOWN = 16


def main() -> int:
    """Run a row under the sampler and print a summary for each service; 1 when py-spy is
    missing.
    """
    options = _options()
    sampler = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if sampler is None:
        print("py-spy is not installed: .venv/bin/python -m pip install py-spy", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="iris-flame-") as text:
        running = _attach(sampler, Path(text), options.services or SERVICES)
        row = importlib.import_module(f"benchmarks.{ROWS[options.row]}").run(quick=True)
        for process in running:
            process.send_signal(signal.SIGINT)
            process.wait(30)
        print(
            f"{row.row} {row.value:g} {row.unit} under the sampler; CPU: {row.detail.get('cpu_us_per_task', '')}"
        )
        for service in options.services or SERVICES:
            stacks = [path.read_text() for path in Path(text).glob(f"{service}-*.raw")]
            _print(service, (line for stack in stacks for line in stack.splitlines()))
    return 0


def _attach(
    sampler: str, directory: Path, services: Iterable[str]
) -> list[subprocess.Popen[bytes]]:
    """Have each process of these services sampled from its start to its end."""
    running: list[subprocess.Popen[bytes]] = []

    def attach(service: str, pid: int) -> None:
        if service in services:
            output = directory / f"{service}-{pid}.raw"
            command = [sampler, "record", "--gil", "--rate", "400", "--format", "raw"]
            command += ["--duration", "100000", "--output", str(output), "--pid", str(pid)]
            running.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )

    cluster.on_start.append(attach)
    return running


def _print(service: str, lines: Iterable[str]) -> None:
    """The functions most samples were in, themselves and with what they call; the loop around them
    is left out.
    """
    itself: Counter[str] = Counter()
    below: Counter[str] = Counter()
    samples = 0
    for line in lines:
        stack, _, count = line.rpartition(" ")
        frames = [frame.rpartition(":")[0] or frame for frame in stack.split(";")]
        if not any("_run_once" in frame for frame in frames):
            continue  # its start and its end
        samples += int(count)
        itself[frames[-1]] += int(count)
        for frame in set(frames[frames.index(next(f for f in frames if "_run_once" in f)) + 1 :]):
            below[frame] += int(count)
    print(f"\n{service}: {samples} samples")
    for title, counts, shown in (
        ("itself", itself, SHOWN),
        ("with what it calls", below, 2 * SHOWN),
    ):
        print(f"  {title}")
        for name, count in counts.most_common(shown):
            print(f"  {count / samples:6.1%} {name}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flame", description=__doc__)
    parser.add_argument("row", choices=[*ROWS])
    parser.add_argument(
        "services", nargs="*", help=f"of {', '.join(SERVICES)}; all when none is named"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
