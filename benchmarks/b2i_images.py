"""B2i: /bin/true in containers of an image, by the runtime that this machine has.

The image is made here from a static program and is present before the first task. Needs docker or
podman, and a C compiler.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.b2_processes import WINDOW, hosts, row
from benchmarks.cluster import cluster
from benchmarks.result import Row

GOAL = 10.0
IMAGE = "iris-bench-true:1"
RUNTIMES = ("docker", "podman")


def run(quick: bool = False) -> Row:
    """Containers a second, median of the jobs. Raises RuntimeError where no runtime answers."""
    runtime = _runtime()
    _make_image(runtime)
    tasks = 30 if quick else 100
    settings = [(*host, f"worker.container_runtime={runtime}") for host in hosts()]
    with cluster(workers=settings, state=WINDOW) as made:
        spec = {"command": ["/true"], "environment": {"image": IMAGE}}
        return row(
            "B2i",
            f"{tasks:,} containers by {runtime}",
            made,
            spec,
            tasks=tasks,
            repeat=2 if quick else 3,
            goal=GOAL,
        )


def _runtime() -> str:
    for name in RUNTIMES:
        if (
            shutil.which(name)
            and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0
        ):
            return name
    raise RuntimeError(f"none of {', '.join(RUNTIMES)} answers")


def _make_image(runtime: str) -> None:
    """An image that holds one static program, which ends at once."""
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        (directory / "true.c").write_text("int main(void) { return 0; }\n")
        (directory / "Dockerfile").write_text('FROM scratch\nCOPY true /true\nCMD ["/true"]\n')
        subprocess.run(["cc", "-static", "-O2", "-o", "true", "true.c"], cwd=directory, check=True)
        subprocess.run(
            [runtime, "build", "-q", "-t", IMAGE, "."],
            cwd=directory,
            check=True,
            capture_output=True,
        )
