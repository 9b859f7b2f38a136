"""Output directories are stored in the fewest steps, and who waits for a slow one is told."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Artifact
from iris_worker.attempt.artifacts.directory import PIECE_BYTES, ArtifactLimits
from iris_worker.attempt.artifacts.uploader import Uploader
from tests.support.memory import Memory


class CountingPool(ThreadPoolExecutor):
    """Counts what is given to a thread."""

    given = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given += 1
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize(("size", "turns", "told"), [(5, 1, []), (3 * PIECE_BYTES, 3, [3 * PIECE_BYTES])])
async def test_a_small_directory_takes_one_turn_of_a_thread_and_no_note(
    tmp_path: Path, size: int, turns: int, told: list[int]
):
    loop, pool = asyncio.get_running_loop(), CountingPool(1)
    loop.set_default_executor(pool)
    tasks: list[asyncio.Task[None]] = []
    uploader = Uploader(
        "w0", Memory().connect().streams, ArtifactLimits(), 60.0, 1, lambda work: tasks.append(loop.create_task(work))
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_bytes(os.urandom(size))
    ended: list[Artifact] = []
    measured: list[int] = []
    uploader.begin(AttemptRef(1, 0, 0), str(tmp_path), "out", measured.append, ended.append)
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    assert (ended[0].files, measured, pool.given) == (1, told, turns)
