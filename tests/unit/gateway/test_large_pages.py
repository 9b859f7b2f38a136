"""Every page of a large cluster is made within its budget of CPU, and none grows with the number of
records.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from benchmarks import floor
from iris_core.codec import to_json
from iris_core.subjects import event
from iris_core.views.events import JobEvent
from tests.support.gateway import House, house
from tests.support.large import LARGE_PATHS, large, show

pytestmark = pytest.mark.soak  # making the records takes longer than all other tests of pages

ROUNDS = 100
"""Of the floor in Python, in whose CPU a page is made at most: 0.15 s. The slowest page takes 0.6
of it.
"""
BYTES = 400_000
EVENTS = 25_000


@pytest.fixture(scope="module")
def ledger():
    return large(time.time_ns() // 1_000_000)


@pytest.fixture
async def iris(ledger) -> AsyncIterator[House]:
    async with house() as made:
        show(made, ledger)
        for number in range(EVENTS):
            told = JobEvent(
                job=f"/x{number}",
                job_id=f"j{number + 1}",
                state="running",
                previous=None,
                cause=None,
                at_ms=1,
                seq=1,
            )
            await made.state.streams.publish(event("job", "running"), to_json(told))
        yield made


async def test_each_page_takes_bounded_cpu_and_is_of_bounded_size(iris: House):
    of_floor, sizes = {}, {}
    for path in LARGE_PATHS:
        turns = []
        for _ in range(3):
            began = time.process_time()
            response = await iris.http.get(path)
            turns.append((time.process_time() - began) / floor.interpreted(ROUNDS).cpu_s)
            assert response.status_code == 200, response.text
        of_floor[path], sizes[path] = min(turns), len(response.content)
    assert {path: ratio for path, ratio in of_floor.items() if ratio > 1} == {}
    assert {path: size for path, size in sizes.items() if size > BYTES} == {}
