"""Counts the system calls of running processes with strace, which must be installed."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_ROW = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+(\w+)$", re.MULTILINE)


def installed() -> bool:
    """Whether strace is on PATH and may look at processes here."""
    found = shutil.which("strace")
    return (
        found is not None
        and subprocess.run([found, "-qq", "-o", "/dev/null", "true"], check=False).returncode == 0
    )


@contextmanager
def counted(pids: Iterable[int], *options: str) -> Iterator[dict[str, int]]:
    """The calls by name that the processes make meanwhile; filled when the block is left."""
    calls: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="iris-strace-") as text:
        table = Path(text) / "table"
        attach = [word for pid in pids for word in ("-p", str(pid))]
        tracer = subprocess.Popen(
            ["strace", "-c", "-o", str(table), *options, *attach], stderr=subprocess.PIPE, text=True
        )
        assert tracer.stderr is not None
        for _ in attach[::2]:
            line = tracer.stderr.readline()
            if "attached" not in line:
                tracer.kill()
                raise RuntimeError(f"strace cannot attach: {line.strip()}")
        try:
            yield calls
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=30)
            for count, name in _ROW.findall(table.read_text()):
                if name != "total":
                    calls[name] = int(count)
