"""A gateway over the in-memory bus."""

from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import House, house


@pytest.fixture
async def iris() -> AsyncIterator[House]:
    async with house() as made:
        yield made
