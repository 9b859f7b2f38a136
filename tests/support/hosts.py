"""Workers on the kinds of host that confine tasks differently."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
from _pytest.mark.structures import ParameterSet

from tests.support.escapes import MODES
from tests.support.state import FakeState
from tests.support.worker import WorkerProcess, until

USER = 4321
"""Whom an ordinary user's worker runs as."""
SANDBOXED = (MODES[0], MODES[2])


def on_hosts(cases: Iterable[str | tuple[object, ...]]) -> list[ParameterSet]:
    """Cases of a test as its parameters, the first of each a kind of host: what has a sandbox needs
    bubblewrap.
    """
    listed = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*case, marks=[pytest.mark.needs("bwrap")] if case[0] in SANDBOXED else [])
        for case in listed
    ]


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every user can pass."""
    made = Path(tempfile.mkdtemp(dir="/tmp", prefix="iris-place-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as made:
        yield made


@pytest.fixture
def mark() -> str:
    """Seconds that only this test's processes sleep."""
    return f"1000.{int.from_bytes(os.urandom(4))}"


def command(process: psutil.Process) -> str:
    """Its words; empty when it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


async def until_gone(mark: str) -> None:
    everything = partial(psutil.process_iter, ["cmdline"])
    await until(
        lambda: not any(mark in " ".join(process.info["cmdline"] or []) for process in everything())
    )


@asynccontextmanager
async def worker_of(
    mode: str, state: FakeState, url: str, place: Path, **settings: object
) -> AsyncIterator[WorkerProcess]:
    data, shown = place / "w0", place / "shown"
    shown.mkdir(exist_ok=True)
    user = USER if mode.startswith("ordinary") else None
    if user is not None:
        data.mkdir()
        os.chown(data, user, user)
    given = {
        "run_as": "",
        "sandbox": "auto",
        "binds": f"{shown}:ro",
        "heartbeat_interval_s": 0.2,
        **settings,
    }
    if mode not in SANDBOXED:
        given["bubblewrap"] = "no-such-program"
    async with WorkerProcess(url, data, user=user, **given) as process:
        register = await state.registration()
        wanted = {MODES[0]: "sandbox", MODES[1]: "users", MODES[2]: "sandbox", MODES[3]: "user"}[
            mode
        ]
        isolation = register.attributes["isolation"]
        assert isolation == wanted, f"{mode}: isolation is {isolation}, see what the worker says"
        yield process
