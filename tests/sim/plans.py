"""Changes plans of simulated storms: what is asked of the cluster, and when."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from iris_core.messages.gateway_state import SubmitJob
from iris_core.spec.jobs import JobSpec


def respecified(
    plan: list[tuple[float, object]], other: Callable[[JobSpec], JobSpec]
) -> list[tuple[float, object]]:
    """The same plan with other specifications of jobs; a repeated submission has the same one."""
    chosen: dict[str, JobSpec] = {}
    made: list[tuple[float, object]] = []
    for at, command in plan:
        if isinstance(command, SubmitJob):
            number = command.request_id[1:]
            if number not in chosen:
                chosen[number] = other(command.spec)
            command = msgspec.structs.replace(command, spec=chosen[number])
        made.append((at, command))
    return made
