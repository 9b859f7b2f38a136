"""``python -m iris_worker``: one host's worker as a process."""

from iris_service.run import run_service
from iris_worker.service.service import main
from iris_worker.settings import WorkerSettings

run_service("worker", WorkerSettings, main)
