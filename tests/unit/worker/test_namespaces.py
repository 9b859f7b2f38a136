"""Work in a thread of its own, on a host that has no room for one."""

import subprocess
import sys

FULL = """
import resource, threading
from iris_worker.launcher.kernel.namespaces import in_thread

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
threading.stack_size(1 << 30)
try:
    in_thread(lambda: 7, enters=False)
except OSError as error:
    print(error)
"""


def test_a_thread_that_cannot_start_is_an_error_of_the_host():
    """The launcher then says why an attempt cannot start; anything else would end it, and all tasks
    of the host.
    """
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[Errno 11] can't start new thread\n", "")
