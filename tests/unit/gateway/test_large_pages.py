"""Every page of a large cluster is made within its budget of server time, and none grows with the number of records."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from iris_core.codec import to_json
from iris_core.subjects import event
from iris_core.views.events import JobEvent
from tests.support.gateway import House, house
from tests.support.large import LARGE_PATHS, large, show

pytestmark = pytest.mark.soak  # making the records takes longer than all other tests of pages

BUDGET_S = 0.150
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
            told = JobEvent(job=f"/x{number}", state="running", previous=None, cause=None, at_ms=1, seq=1)
            await made.state.streams.publish(event("job", "running"), to_json(told))
        yield made


async def test_each_page_is_made_in_time_and_of_bounded_size(iris: House):
    took, sizes = {}, {}
    for path in LARGE_PATHS:
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            response = await iris.http.get(path)
            best = min(best, time.process_time() - began)
            assert response.status_code == 200, response.text
        took[path], sizes[path] = best, len(response.content)
    assert {path: seconds for path, seconds in took.items() if seconds > BUDGET_S} == {}
    assert {path: size for path, size in sizes.items() if size > BYTES} == {}
