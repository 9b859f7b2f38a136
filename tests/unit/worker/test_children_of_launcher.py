"""Which processes are children of this one."""

import os
import subprocess

from iris_worker.launcher.processes.exits import is_child


def test_a_child_is_one_until_it_is_collected():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert is_child(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_child(process.pid)
    assert [is_child(pid) for pid in (process.pid, os.getppid(), os.getpid(), 0)] == [False] * 4
