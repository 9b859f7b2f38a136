"""Metrics of the gateway: the number of series depends on its routes, not on requested paths."""

from __future__ import annotations

import random

import pytest

from iris_gateway.dashboard.pages import PAGES
from tests.support.gateway import House

LETTERS = "abcXYZ019-._~%2F/"


def series(text: str) -> int:
    return sum(not line.startswith("#") for line in text.splitlines())


@pytest.mark.timeout(120)
async def test_paths_and_methods_that_are_made_up_make_no_series_of_their_own(iris: House):
    chance = random.Random(14)
    sizes = []
    for count in (100, 400):
        for _ in range(count):
            made_up = "".join(chance.choice(LETTERS) for _ in range(chance.randrange(1, 30)))
            prefix = chance.choice(
                ("/", "/v1/", "/v1/jobs/", "/v1/tasks/", "/v1/deployments/", "/d/", "/jobs/")
            )
            method = chance.choice(("GET", "HEAD", "BREW", f"X{made_up[:5].strip('/%~.') or 'Y'}"))
            await iris.http.request(method, f"http://gateway{prefix}{made_up}")
        sizes.append(series((await iris.http.get("/metrics")).text))
    # A route is seen with few methods and few statuses, and each has one histogram of 15 series.
    assert sizes[1] <= sizes[0] * 1.5
    assert sizes[1] < 100 * len(PAGES)
