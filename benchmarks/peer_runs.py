"""Runs the peers: each in its own environment, with the server it needs, on the same machine.

``python -m benchmarks.peer_runs`` (`make bench-peers`) makes the environments; a peer whose
environment or server is missing is left out of the table and named. Out of scope: what a peer does
    (`peers/`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.support.nats import OpenServer

HOME = Path(__file__).resolve().parent.parent / ".venv-peers"
PROGRAMS = Path(__file__).resolve().parent / "peers"
PACKAGES = {
    "ray": ("ray[serve]", "numpy"),
    "dask": ("distributed", "numpy"),
    "hyperqueue": ("hyperqueue",),
    "celery": ("celery", "redis", "packaging"),
    "dramatiq": ("dramatiq[redis]",),
    "taskiq": ("taskiq", "taskiq-nats", "uvloop"),
}
PEERED = {"B1", "B2", "B3", "B12"}
"""Rows that a peer can run."""
WITH_REDIS = ("celery", "dramatiq")
TIMEOUT_S = 400


def install() -> None:
    """Make every environment that is missing."""
    for name, packages in PACKAGES.items():
        python = HOME / name / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(HOME / name)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)


def measure(rows: set[str], quick: bool) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Figures of every peer there is: ``{row: {peer: value}}``, and sentences about those left out.

    A row's name, ``_`` and words name a further figure of it.
    """
    found: dict[str, dict[str, float]] = {}
    left_out: list[str] = []
    if not rows & PEERED:
        return found, left_out
    missing = [name for name in PACKAGES if not (HOME / name / "bin" / "python").exists()]
    if missing:
        left_out.append(f"not installed (make bench-peers): {', '.join(missing)}")
    for name in PACKAGES:
        if name in missing:
            continue
        try:
            for row, value in _run(name, quick).items():
                if row.partition("_")[0] in rows:
                    found.setdefault(row, {})[name] = round(value, 2)
        except (subprocess.SubprocessError, msgspec.DecodeError, OSError, IndexError) as error:
            left_out.append(f"{name}: {str(error)[:200]}")
    return found, left_out


def _run(name: str, quick: bool) -> dict[str, float]:
    command = [str(HOME / name / "bin" / "python"), str(PROGRAMS / f"{name}_peer.py")]
    with _server(name) as environment:
        done = subprocess.run(
            command + (["--quick"] if quick else []),
            env={**os.environ, **environment},
            cwd=PROGRAMS,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
    figures: dict[str, float] = msgspec.json.decode(done.stdout.splitlines()[-1])
    return figures


@contextlib.contextmanager
def _server(name: str) -> Iterator[dict[str, str]]:
    """The broker a bare queue needs, and how it is told where that is."""
    with tempfile.TemporaryDirectory(prefix="iris-peer-") as directory:
        if name in WITH_REDIS:
            with _redis(Path(directory)) as url:
                yield {"PEER_REDIS_URL": url}
        elif name == "taskiq":
            server = OpenServer(
                Path(directory) / "nats", sync="2m"
            )  # as Redis below, it need not sync
            server.start()
            try:
                yield {"PEER_NATS_URL": server.url}
            finally:
                server.stop()
        else:
            yield {}


@contextlib.contextmanager
def _redis(directory: Path) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        raise FileNotFoundError("needs redis-server on PATH")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            program,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(directory),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    install()
