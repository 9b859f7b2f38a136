"""``python -m iris_scheduler``: the scheduler as a process."""

from iris_bus.run import run_service
from iris_scheduler.service import main
from iris_scheduler.settings import SchedulerSettings

run_service("scheduler", SchedulerSettings, main)
