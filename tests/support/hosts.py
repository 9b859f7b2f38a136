"""Workers on the kinds of host that confine tasks differently."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.support.escapes import MODES
from tests.support.state import FakeState
from tests.support.worker import WorkerProcess

USER = 4321
"""Whom an ordinary user's worker runs as."""
SANDBOXED = (MODES[0], MODES[2])


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
    given = {"run_as": "", "sandbox": "auto", "binds": f"{shown}:ro", "heartbeat_interval_s": 0.2, **settings}
    if mode not in SANDBOXED:
        given["bubblewrap"] = "no-such-program"
    async with WorkerProcess(url, data, user=user, **given) as process:
        register = await state.registration()
        wanted = {MODES[0]: "sandbox", MODES[1]: "users", MODES[2]: "sandbox", MODES[3]: "user"}[mode]
        assert register.attributes["isolation"] == wanted
        yield process
