"""How processes of an earlier launcher have ended, as far as the next one finds out."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_worker.launcher.adopt import exit_of
from iris_worker.launcher.records.process_table import StoredProcess
from iris_worker.launcher.records.records import Started


@pytest.mark.parametrize(
    ("call", "left", "known"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_a_call_whose_result_is_nowhere_is_missing(
    tmp_path: Path, call: bool, left: bool, known: bool
):
    """It has sent it to the launcher that is gone: it has not ended without a result."""
    result = tmp_path / "result"
    if left:
        result.touch()
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    with subprocess.Popen("true") as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        times = (before_s, time.clock_gettime(time.CLOCK_BOOTTIME), 0)
        entry = StoredProcess(
            Started(AttemptRef(1, 0, 0), ended.pid, 0, *times, timeout_ms=None, call=call)
        )
        exit_ = exit_of(entry, str(result))
    assert exit_ is not None
    assert (exit_.known, exit_.code) == (known, 0 if known else None)
