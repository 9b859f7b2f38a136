"""A command beside a task: what its buffers hold."""

from __future__ import annotations

import asyncio
import os
import weakref

from iris_worker.attempt.executions.execution import BUFFER_BYTES, Execution
from iris_worker.launcher.records.records import Exit


async def test_one_whose_output_nobody_reads_is_forgotten_once_it_is_closed():
    execution = Execution.of_command("ann", tty=False)
    stdout = os.dup(execution.stdio[1])
    execution.begin()
    async with asyncio.timeout(60):
        for _ in range(2 * BUFFER_BYTES // 4096):
            os.write(stdout, b"a" * 4096) if not execution._paused else None
            await asyncio.sleep(0)
        assert execution._paused
        execution.on_exit(Exit(0))
        execution.close()
        os.close(stdout)
        left = weakref.ref(execution)
        del execution
        while left() is not None:
            await asyncio.sleep(0.01)
