"""What people submit: the job's specification, exactly the body of ``POST /v1/jobs``.

Shapes only; what values are allowed is judged by the admission rules of the gateway and again by the state
service. Unknown fields are refused by the decoder. Source: docs/design/interfaces.md#http,
docs/design/semantics.md#jobs, docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from iris_core.resources import ResourceRequest
from iris_core.states import ConstraintOp, PriorityBand

Attribute = str | int | float
BandName = Literal["production", "interactive", "batch"]
SuccessPolicy = Literal["all", "leader"]

MAX_REPLICAS = 10_000
MAX_ENV_BYTES = 256 * 1024
MAX_COMMAND_BYTES = 128 * 1024
DEFAULT_PREEMPTION_RETRIES = 100


class Constraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One condition on a worker's attributes; ``value`` for one operand, ``values`` for ``in``."""

    key: str
    op: ConstraintOp = ConstraintOp.EQ
    value: Attribute | None = None
    values: tuple[Attribute, ...] = ()
    mode: Literal["required", "preferred"] = "required"


class Coscheduling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All tasks of the job land together on workers that share this attribute's value, one per worker.

    ``success``: the job succeeds when every task has exited 0 (all), or as soon as task 0 has (leader).
    """

    group_by: str
    success: SuccessPolicy = "all"


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One job as its owner wrote it. Times in seconds; None is never."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    replicas: int = 1
    resources: ResourceRequest = ResourceRequest()
    constraints: tuple[Constraint, ...] = ()
    coscheduling: Coscheduling | None = None
    band: BandName = "interactive"
    max_retries_failure: int = 0
    max_retries_preemption: int = DEFAULT_PREEMPTION_RETRIES
    max_task_failures: int = 0
    scheduling_timeout_s: float | None = None
    timeout_s: float | None = None
    bundle: str | None = None
    ports: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    user: str = ""

    @property
    def priority_band(self) -> PriorityBand:
        return PriorityBand[self.band.upper()]

    @property
    def is_gang(self) -> bool:
        return self.coscheduling is not None
