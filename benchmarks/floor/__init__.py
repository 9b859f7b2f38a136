"""What this machine does at most, without any of Iris: small programs in C, compiled where there is
a compiler, a loop in Python, a round trip through a server, and bare HTTP handlers.

Rows and the guard compare with them in the same run, so that a slow hour of the machine does not
count.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import urlsplit

_HERE = Path(__file__).resolve().parent


class Floor(NamedTuple):
    """What a program reached: ``rate`` a second, and CPU seconds of it and of all it started."""

    rate: float
    cpu_s: float


def spawn(
    count: int,
    at_once: int = 4,
    command: Sequence[str] = ("/bin/true",),
    directory: Path | None = None,
) -> Floor | None:
    """Processes started and awaited; None without a C compiler."""
    return _run("spawn", str(count), str(at_once), *command, directory=directory)


def isolate(count: int, at_once: int = 4) -> Floor | None:
    """The same in a mount namespace, as another user with its own groups; None without a compiler
    or the rights.
    """
    with contextlib.suppress(subprocess.CalledProcessError):
        return _run("isolate", str(count), str(at_once))
    return None


def append(count: int) -> Floor | None:
    """Appends to a file, each synced; None without a C compiler."""
    with tempfile.TemporaryDirectory(prefix="iris-floor-") as text:
        return _run("append", str(count), str(Path(text) / "file"))


def interpreted(count: int) -> Floor:
    """Rounds of what services do in Python around a start; see `benchmarks.floor.interpreted`."""
    command = [sys.executable, "-m", "benchmarks.floor.interpreted", str(count)]
    rate, cpu_s = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return Floor(float(rate), float(cpu_s))


def round_trip(nats_url: str, count: int) -> float:
    """Messages a second to a NATS server and back, one after another, on a blocking socket."""
    at = urlsplit(nats_url)
    login = f'"user":"{at.username}","pass":"{at.password}",' if at.username else ""
    with (
        socket.create_connection((at.hostname, at.port)) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(
            f'CONNECT {{{login}"verbose":false}}\r\nSUB floor 1\r\nPING\r\n'.encode()
        )
        _read_to(answers, b"PONG\r\n")
        began = time.perf_counter()
        for _ in range(count):
            connection.sendall(b"PUB floor 5\r\nhello\r\n")
            _read_to(answers, b"hello\r\n")
        return count / (time.perf_counter() - began)


def _read_to(answers: BinaryIO, wanted: bytes) -> None:
    while (line := answers.readline()) != wanted:
        if not line:
            raise RuntimeError("the server has closed the connection")


@contextlib.contextmanager
def handler(kind: str) -> Iterator[str]:
    """The address of a bare handler of ``starlette`` or ``aiohttp``, which answers every GET with 1
    KiB.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.floor.handlers", kind, str(port)])
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if process.poll() is not None:
                raise RuntimeError(f"the bare handler of {kind} ended with {process.returncode}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _run(program: str, *words: str, directory: Path | None = None) -> Floor | None:
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="iris-floor-") as text:
        binary = str(Path(text) / program)
        subprocess.run([compiler, "-O2", "-o", binary, str(_HERE / f"{program}.c")], check=True)
        before = _children_cpu_s()
        done = subprocess.run(
            [binary, *words], check=True, capture_output=True, text=True, cwd=directory
        )
        return Floor(float(done.stdout), _children_cpu_s() - before)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
