"""``python -m iris_scheduler``: the scheduler as a process."""

from iris_scheduler.service import main
from iris_scheduler.settings import SchedulerSettings
from iris_service.run import run_service

run_service("scheduler", SchedulerSettings, main)
