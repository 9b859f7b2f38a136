"""Memory is returned to the operating system after a burst of clients."""

import asyncio
import contextlib

from iris_gateway.http.heap import shrink_after_bursts
from iris_gateway.http.protocol import Connections


async def test_a_crowd_that_came_and_went_between_two_looks_is_noticed():
    connections = Connections(head_s=1.0)
    looking = asyncio.create_task(shrink_after_bursts(connections, look_s=0.01))
    for _ in range(100):
        connections.enter("127.0.0.1")
    for _ in range(100):
        connections.leave("127.0.0.1")
    assert connections.most == 100
    async with asyncio.timeout(60):
        while connections.most:
            await asyncio.sleep(0.01)
    looking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looking
