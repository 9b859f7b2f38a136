"""The worker's shell: state kept per attempt is removed with the attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, ReportTaken, Stage
from iris_core.states import Cause, KernelStatus
from iris_worker.service import WorkerService
from iris_worker.settings import WorkerSettings
from tests.support.memory import Memory

DAY_S = 86_400.0


def timers() -> int:
    """Calls that the loop still has to make."""
    return sum(not call.cancelled() for call in cast(Any, asyncio.get_running_loop())._scheduled)


async def test_an_attempt_that_ends_long_before_its_timeout_leaves_no_timer(tmp_path: Path):
    worker = WorkerService(WorkerSettings(id="w0", data=str(tmp_path)), Memory().connect(), "", asyncio.Event())
    refs, before = [AttemptRef(job, 0, 0) for job in range(1000)], timers()
    for ref in refs:
        worker._timeouts.begin(ref, DAY_S)
    assert timers() == before + 1000
    worker._taken([Stage(ref, KernelStatus.TERMINATED, 1, Ended(Cause.EXITED, 0)) for ref in refs], ReportTaken())
    assert timers() == before
    worker._tasks.close()
    worker._executor.close()
