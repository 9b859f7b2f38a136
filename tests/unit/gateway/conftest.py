"""Fixtures: a gateway on an in-memory bus."""

from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import House, house


@pytest.fixture
async def iris() -> AsyncIterator[House]:
    async with house() as made:
        yield made


@pytest.fixture
async def impatient() -> AsyncIterator[House]:
    """One that soon gives up; only for what nobody answers, for a busy machine may be slower than
    it waits.
    """
    async with house(command_timeout_s=0.5, query_timeout_s=0.2) as made:
        yield made
