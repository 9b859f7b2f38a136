"""Output directories are stored in the fewest steps, and who waits for a slow one is told."""

import asyncio
import os
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Artifact
from iris_worker.attempt.artifacts.directory import PIECE_BYTES
from iris_worker.attempt.artifacts.uploader import Uploader
from iris_worker.limits import ArtifactLimits
from tests.support.memory import Memory
from tests.unit.worker.counting_pool import CountingPool

SIZES = [(5, 0, []), (PIECE_BYTES // 2, 1, []), (3 * PIECE_BYTES, 3, [3 * PIECE_BYTES])]


@pytest.mark.parametrize(("size", "turns", "told"), SIZES)
async def test_a_small_directory_takes_no_turn_of_a_thread_and_no_note(
    tmp_path: Path, size: int, turns: int, told: list[int]
):
    loop, pool = asyncio.get_running_loop(), CountingPool(1)
    loop.set_default_executor(pool)
    tasks: list[asyncio.Task[None]] = []
    uploader = Uploader(
        "w0",
        Memory().connect().streams,
        ArtifactLimits(),
        60.0,
        1,
        lambda work: tasks.append(loop.create_task(work)),
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_bytes(os.urandom(size))
    ended: list[Artifact] = []
    measured: list[int] = []
    uploader.begin(AttemptRef(1, 0, 0), str(tmp_path), "out", measured.append, ended.append)
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    assert (ended[0].files, measured, pool.given) == (1, told, turns)


@pytest.mark.parametrize(
    ("limits", "note"),
    [
        (
            ArtifactLimits(bytes=4),
            "its files have more than 4B, the limit of this worker (artifact_bytes)",
        ),
        (ArtifactLimits(entries=0), "it has more than 0 entries"),
    ],
)
async def test_a_small_directory_obeys_the_limits(
    tmp_path: Path, limits: ArtifactLimits, note: str
):
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()
    uploader = Uploader(
        "w0",
        Memory().connect().streams,
        limits,
        60.0,
        1,
        lambda work: tasks.append(loop.create_task(work)),
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_bytes(b"12345")
    ended: list[Artifact] = []
    uploader.begin(AttemptRef(1, 0, 0), str(tmp_path), "out", lambda _: None, ended.append)
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    assert ended == [Artifact(note=note)]
