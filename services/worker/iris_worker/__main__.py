"""``python -m iris_worker``: one host's worker as a process."""

import signal

from iris_bus.run import run_service
from iris_worker.service import main
from iris_worker.settings import WorkerSettings

# Before the first thread, such as one that sends spans or looks up a server: a thread that does not block SIGCHLD
# takes it from the descriptor of `ChildWatch`, and the end of a task goes unnoticed until the next one.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
run_service("worker", WorkerSettings, main)
