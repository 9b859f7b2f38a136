"""What this machine does at most: a small program in C without any of Iris, compiled where there is a compiler.

The guard compares with it in the same run, so that a slow hour of the machine does not count.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).resolve().parent


class Floor(NamedTuple):
    """What a floor program reached: ``rate`` a second, and CPU seconds of it and of all it started."""

    rate: float
    cpu_s: float


def spawn(count: int, at_once: int = 4) -> Floor | None:
    """Processes of /bin/true started and awaited; None without a C compiler."""
    return _run("spawn", str(count), str(at_once))


def _run(program: str, *words: str) -> Floor | None:
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="iris-floor-") as text:
        binary = str(Path(text) / program)
        subprocess.run([compiler, "-O2", "-o", binary, str(_HERE / f"{program}.c")], check=True)
        before = _children_cpu_s()
        done = subprocess.run([binary, *words], check=True, capture_output=True, text=True)
        return Floor(float(done.stdout), _children_cpu_s() - before)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
