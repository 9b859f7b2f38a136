"""``python -m iris_notifier``: the notifier as a process."""

from iris_notifier.service import main
from iris_notifier.settings import NotifierSettings
from iris_service.run import run_service

run_service("notifier", NotifierSettings, main)
