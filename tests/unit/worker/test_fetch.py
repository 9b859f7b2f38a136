"""Bundles are fetched once, and a fetch leaves no temporary files."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from iris_core import subjects
from iris_worker.attempt.bundles.bundle import BundleStore
from iris_worker.attempt.bundles.fetch import Fetcher
from iris_worker.clock import HostClock
from iris_worker.metrics import WorkerMetrics
from tests.support.memory import Memory
from tests.unit.worker.test_bundle import tar


async def test_no_lock_is_left_of_a_bundle_that_is_here(tmp_path: Path):
    blobs = Memory().connect().blobs(subjects.BUNDLES_BUCKET)
    fetcher = Fetcher(blobs, BundleStore(tmp_path / "bundles", keep=2), 4, HostClock(), WorkerMetrics(lambda: 0))
    for number in range(20):
        data = tar(("number", str(number).encode()))
        digest = hashlib.sha256(data).hexdigest()
        await blobs.put(digest, data)
        places = [tmp_path / f"{number}-{attempt}" for attempt in range(2)]
        assert await asyncio.gather(*(fetcher.fetch(digest, str(place)) for place in places)) == [None, None]
        assert [(place / "number").read_text() for place in places] == [str(number)] * 2
    assert len(fetcher._one_by_one) == 0
