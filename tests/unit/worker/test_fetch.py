"""Bundles are fetched once, and a fetch leaves no temporary files."""

from __future__ import annotations

import asyncio
import hashlib
import random
from pathlib import Path
from typing import cast

import pytest

from iris_bus.contract import Blobs
from iris_core import subjects
from iris_core.messages.state_worker import Ended
from iris_core.states import Cause
from iris_worker.attempt.bundles.bundle import BundleStore
from iris_worker.attempt.bundles.fetch import FETCHES, OWN_FIRST, Fetcher
from iris_worker.attempt.calls.files import CallFiles
from iris_worker.clock import HostClock
from iris_worker.launcher.starts.spawn import NOT_EXECUTABLE
from iris_worker.metrics import WorkerMetrics
from tests.support.memory import Memory
from tests.unit.worker.counting_pool import CountingPool
from tests.unit.worker.test_bundle import tar


def fetcher_of(blobs: Blobs, root: Path) -> Fetcher:
    store, calls = BundleStore(root / "bundles", keep=2), CallFiles(root / "calls")
    return Fetcher(blobs, store, calls, 4, HostClock(), WorkerMetrics(lambda: 0), lambda *_: None)


async def test_no_lock_is_left_of_a_bundle_that_is_here(tmp_path: Path):
    blobs = Memory().connect().blobs(subjects.BUNDLES_BUCKET)
    fetcher = fetcher_of(blobs, tmp_path)
    for number in range(20):
        data = tar(("number", str(number).encode()))
        digest = hashlib.sha256(data).hexdigest()
        await blobs.put(digest, data)
        places = [tmp_path / f"{number}-{attempt}" for attempt in range(2)]
        assert await asyncio.gather(*(fetcher.fetch(digest, str(place)) for place in places)) == [
            "",
            "",
        ]
        assert [(place / "number").read_text() for place in places] == [str(number)] * 2
    assert len(fetcher._one_by_one) == 0


async def test_an_attempt_gets_its_line_of_the_jobs_file(tmp_path: Path):
    blobs = Memory().connect().blobs(subjects.BUNDLES_BUCKET)
    fetcher = fetcher_of(blobs, tmp_path)
    data = tar(("seeds", b"one\ntwo words\n"), ("circle", "circle"))
    digest = hashlib.sha256(data).hexdigest()
    await blobs.put(digest, data)
    assert await fetcher.fetch(digest, str(tmp_path / "0"), "seeds", 1) == "two words"
    ends = [
        await fetcher.fetch(digest, str(tmp_path / "1"), *missing)
        for missing in (("seeds", 2), ("circle", 0))
    ]
    assert ends == [
        Ended(Cause.EXITED, NOT_EXECUTABLE, error="bundle: seeds: it has no line 3, for task 2"),
        Ended(Cause.EXITED, NOT_EXECUTABLE, error="bundle: there is no file circle in it"),
    ]


@pytest.mark.parametrize(("size", "turns"), [(5, [2, 0, 0]), (1 << 17, [2, 1, 1])])
async def test_a_small_bundle_that_was_copied_takes_no_thread(
    tmp_path: Path, size: int, turns: list[int]
):
    pool = CountingPool(1)
    asyncio.get_running_loop().set_default_executor(pool)
    blobs = Memory().connect().blobs(subjects.BUNDLES_BUCKET)
    data = tar(("x", random.randbytes(size)))
    digest = hashlib.sha256(data).hexdigest()
    await blobs.put(digest, data)
    fetcher, found = fetcher_of(blobs, tmp_path), []
    for number in range(3):
        before = pool.given
        assert await fetcher.fetch(digest, str(tmp_path / str(number))) == ""
        found.append(pool.given - before)
        assert (tmp_path / str(number) / "x").stat().st_size == size
    assert found == turns


async def test_a_small_bundle_that_is_gone_is_fetched_again(tmp_path: Path):
    blobs = Memory().connect().blobs(subjects.BUNDLES_BUCKET)
    fetcher = fetcher_of(blobs, tmp_path)
    data = [tar(("x", str(number).encode())) for number in range(4)]
    digests = [hashlib.sha256(one).hexdigest() for one in data]
    for digest, one in zip(digests, data, strict=True):
        await blobs.put(digest, one)
    for turn in range(2):  # of four bundles two are kept
        for digest in digests:
            assert await fetcher.fetch(digest, str(tmp_path / f"{digest}-{turn}")) == ""


async def test_who_waits_for_a_turn_is_told_and_also_that_it_has_come(tmp_path: Path):
    blobs, go = Memory().connect().blobs(subjects.BUNDLES_BUCKET), asyncio.Event()

    class Slow:
        async def get(self, name: str) -> bytes | None:
            await go.wait()
            return await blobs.get(name)

    digests = []
    for number in range(3):
        data = tar(("number", str(number).encode()))
        digests.append(hashlib.sha256(data).hexdigest())
        await blobs.put(digests[-1], data)
    fetcher = fetcher_of(cast(Blobs, Slow()), tmp_path)
    said: list[list[str]] = [[] for _ in digests]
    fetches = [
        asyncio.create_task(
            fetcher.fetch(digest, str(tmp_path / digest), user="eve", on_detail=told.append)
        )
        for digest, told in zip(digests, said, strict=True)
    ]
    await asyncio.sleep(0)
    assert said == [[], [], [OWN_FIRST]]
    go.set()
    assert await asyncio.gather(*fetches) == ["", "", ""]
    assert said == [[], [], [OWN_FIRST, FETCHES]]
