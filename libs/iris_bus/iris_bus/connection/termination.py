"""Cancels a task until it ends: nats-py, and `wait_for` of Python 3.11, sometimes swallow a
cancellation.
"""

from __future__ import annotations

import asyncio
from typing import Any

_RETRY_S = 0.1


async def end(task: asyncio.Task[Any] | None) -> None:
    """Cancel ``task`` until it has ended; its exceptions are dropped. None counts as ended."""
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_RETRY_S)
    if task is not None and not task.cancelled():
        task.exception()
