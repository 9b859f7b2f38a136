"""Waits for conditions within the next turns of the event loop, without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def rounds_until(condition: Callable[[], object], at_most: int = 100_000) -> None:
    """Let the loop turn until ``condition`` holds. Fails when it never does."""
    for _ in range(at_most):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")
