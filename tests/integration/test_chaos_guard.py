"""A run of the chaos test leaves no process and no directory, however it ends."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.house.repository import ROOT
from tests.support.cluster import owns

pytestmark = pytest.mark.integration

RUN = """
import os, signal, subprocess, sys
from tests.chaos.guard import guarded
with guarded() as directory:
    frozen = subprocess.Popen(["sleep", "600"], env={**os.environ, "PLACE": str(directory)}, start_new_session=True)
    os.kill(frozen.pid, signal.SIGSTOP)
    print(directory, frozen.pid, flush=True)
"""
ENDS = {
    "return": "",
    "exception": "raise OSError",
    "exit": "os._exit(1)",
    "signal": "os.killpg(0, signal.SIGTERM)",
    "kill": "os.killpg(0, signal.SIGKILL)",
}


@pytest.mark.parametrize("how", ENDS)
def test_what_a_run_has_frozen_and_written_goes_with_it(how: str):
    words = [sys.executable, "-c", f"{RUN}    {ENDS[how]}\n"]
    run = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    said, _ = run.communicate()  # until the last process that has its output has ended
    directory, pid = said.split()
    assert int(pid)
    assert not Path(directory).exists()
    assert [each for each in psutil.process_iter() if owns(Path(directory), each)] == []
