"""Between gateways and schedulers: dry runs."""

from __future__ import annotations

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import ServiceMessage
from iris_core.placement.reasons import Reason
from iris_core.spec.jobs import JobSpec


class PlanRequest(ServiceMessage, frozen=True):
    """A dry run: whether a job would be placed now, after which preemptions, or never.

    ``steps``: of fair share in the key of its order, as `ClosedGate` says; schedulers know those of
    users who have jobs.
    """

    spec: JobSpec
    caller: Caller
    at_ms: int
    steps: int = 0


class PlanPreview(ServiceMessage, frozen=True):
    """The dry run's answer.

    Attributes:
        verdict: "now", "after_preemption", "not_now" (would wait) or "never" (no registered worker
            could ever).
        placements: worker id per task index for the tasks that would start.
        victims: task names that would be evicted.
        reason: why it would wait, None when verdict is now.
        ahead: tasks that come before it in the queue.
        variants: the verdict on each of several variants alone.
        levels: of a gang by levels of the topology, the key of each and over how many domains it
            would be.
    """

    verdict: str
    placements: tuple[tuple[int, str], ...] = ()
    victims: tuple[str, ...] = ()
    reason: Reason | None = None
    ahead: int = 0
    version: int = 0
    variants: tuple[tuple[str, str], ...] = ()
    levels: tuple[tuple[str, int], ...] = ()
