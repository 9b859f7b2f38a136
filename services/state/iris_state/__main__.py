"""``python -m iris_state``: the state service as a process."""

from iris_service.run import run_service
from iris_state.policy import Policy
from iris_state.service.service import main

run_service("state", Policy, main, reads_fleet=True)
