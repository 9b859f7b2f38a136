"""Limits of users: the tables of limits, and the record of the limits that an operator sets for one
user.

A new limit is a row here, a field of its name at the end of `Quota`, and its check. `iris quota`,
HTTP, OpenAPI, pages, reasons and docs/configuration.md read the tables.
Source: docs/design/semantics.md#order, docs/design/reliability.md#security.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from iris_core.spec.resources import RESOURCE, Resource
from iris_core.units import BYTES, COUNT, Unit


@dataclass(frozen=True, slots=True)
class UserLimit:
    """One limit. 0 is unlimited, except for limits on open streams and uploads, where 0 allows
    none.

    Attributes:
        name: the field of `Quota` or the key of ``[gateway]``; in JSON it has the same name.
        words: the limited quantity, as shown to users. about: the limit as a sentence, and what
            happens beyond it.
        resource: the resource whose sum over the user's open attempts is limited.
        alias: another option of `iris quota set` for it, beside that of its name.
    """

    name: str
    words: str
    about: str
    unit: Unit = COUNT
    resource: Resource | None = None
    alias: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """Its options of `iris quota set`, the one to show first."""
        named = f"--{self.name.replace('_', '-')}"
        return (self.alias, named) if self.alias else (named,)

    @property
    def used(self) -> str:
        """The field of `views.jobs.QuotaView` with the amount in use."""
        return self.name.removeprefix("max_")

    def show(self, used: int, limit: int) -> str:
        """``3 of 8``, or ``3 of unlimited``."""
        return f"{self.unit.show(used)} of {self.unit.show(limit) if limit else 'unlimited'}"

    def show_alone(self, limit: int) -> str:
        """``2000`` for a rate per second, else ``at most 7``."""
        if self.name.endswith("_per_s"):
            return self.unit.show(limit) if limit else "unlimited"
        return f"at most {self.unit.show(limit)}"


def _running(name: str, resource: str) -> UserLimit:
    row = RESOURCE[resource]
    about = f"what running tasks hold of {row.words}; beyond it others of the band go first"
    return UserLimit(
        name, name.removeprefix("max_").replace("_", " "), about, row.unit, resource=row
    )


QUOTA_LIMITS = (
    _running("max_running_cpu", "cpu_millis"),
    _running("max_running_memory", "memory_bytes"),
    _running("max_running_accelerators", "chips"),
    UserLimit(
        "max_pending_tasks", "pending tasks", "tasks that wait; a job that would pass it is refused"
    ),
    UserLimit(
        "max_live_bytes",
        "live bytes",
        "memory of what jobs that have not ended say; a job that would pass it is refused",
        BYTES,
    ),
    UserLimit(
        "max_stored_today",
        "stored today",
        "what artifacts, output and results of a day of UTC take in their stores; beyond it jobs are "
        "refused, and of running ones output is dropped but for its end, and artifacts",
        BYTES,
        alias="--stored",
    ),
)
"""The limits that an operator sets for one user with `iris quota set`, besides the best band the
user may ask for.
"""

RUNNING_LIMITS = tuple(
    (limit, limit.resource) for limit in QUOTA_LIMITS if limit.resource is not None
)
"""The limits on resources, each with its resource."""

GATEWAY_LIMITS = (
    UserLimit(
        "requests_per_s", "requests a second", "the next is answered 429 with the time to wait"
    ),
    UserLimit(
        "intake_per_s",
        "bytes sent a second",
        "the next is answered 429 with the time to wait",
        BYTES,
    ),
    UserLimit("watchers_per_user", "open streams", "one more is answered 429"),
    UserLimit("uploads_per_user", "uploads at once", "one more is answered 429"),
)
"""The limits that are the same for every user: keys of ``[gateway]``, also in ``GET /v1/meta``."""


class Quota(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Limits of one user; 0 is unlimited. ``max_band`` is the best band the user may ask for (1
    production).
    """

    user: str
    max_running_cpu: int = 0
    max_running_memory: int = 0
    max_running_accelerators: int = 0
    max_pending_tasks: int = 0
    max_band: int = 1
    max_live_bytes: int = 0
    max_stored_today: int = 0


def _guard() -> None:
    """Raises ValueError when a row has no field in `Quota`, or a field no row."""
    has = {*Quota.__struct_fields__} - {"user", "max_band"}
    wants = {limit.name for limit in QUOTA_LIMITS}
    if has != wants:
        raise ValueError(f"Quota has the limits {has}, the table wants {wants}")


_guard()
