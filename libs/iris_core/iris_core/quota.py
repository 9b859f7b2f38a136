"""Limits of users: the tables of limits, and the record of the limits that an operator sets for one
user.

A new limit is a row here, a field of its name at the end of `Quota`, and its check. `iris quota`,
HTTP, OpenAPI, pages, reasons and docs/configuration.md read the tables.
Source: docs/design/semantics.md#order, docs/design/reliability.md#security.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from iris_core.spec.resources import RESOURCE, Resource, ResourceLimits
from iris_core.units import BYTES, COUNT, DAY_MS, Unit, show_bytes


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
        "what bundles, artifacts, output and results of a day of UTC take in their stores; beyond it "
        "bundles and jobs are refused, and of running ones output is dropped but for its end, and "
        "artifacts",
        BYTES,
        alias="--stored",
    ),
)
"""The limits that an operator sets for one user with `iris quota set`, besides the best band the
user may ask for.
"""

BAND = "max_band"
LIMIT_NAMES = (*(limit.name for limit in QUOTA_LIMITS), BAND)
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


GROUP = "@"
"""Before the name of a group, where a user's name may stand: no user's name begins with it."""
DEFAULT = "default"
"""The source of a limit that is set neither for a user nor for a group of the user."""


_GROUP_NAME = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._@+:/ -]{0,127}\Z")


def is_group_name(name: str) -> bool:
    """Whether limits may be set for a group of this name."""
    return _GROUP_NAME.match(name) is not None


def is_group(name: str) -> bool:
    """Whether limits of this name are those of the members of a group."""
    return name.startswith(GROUP)


class Quota(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Limits of one user; 0 is unlimited. ``max_band`` is the best band the user may ask for (1
    production).

    Attributes:
        user: whose they are, or as ``@GROUP`` those of each member of a group.
        sources: by the name of a limit, the group that it comes from, or `DEFAULT`; a limit that is
            set for the user is not there.
    """

    user: str
    max_running_cpu: int = 0
    max_running_memory: int = 0
    max_running_accelerators: int = 0
    max_pending_tasks: int = 0
    max_band: int = 1
    max_live_bytes: int = 0
    max_stored_today: int = 0
    sources: dict[str, str] = {}

    @property
    def is_default(self) -> bool:
        """Whether none are set for the user, nor for a group of the user."""
        return DEFAULT in self.sources.values()

    def source_words(self, limit: str) -> str:
        """Where a limit comes from, as the end of a sentence; empty for one set for the user."""
        source = self.sources.get(limit, "")
        return f" (limit of {source})" if is_group(source) else " (the default)" if source else ""


def by_default(user: str, default: Quota) -> Quota:
    """The limits of a user for whom none are set."""
    sources = dict.fromkeys(LIMIT_NAMES, DEFAULT)
    return msgspec.structs.replace(default, user=user, sources=sources)


def of_groups(user: str, quotas: Sequence[Quota]) -> Quota:
    """The limits of a member of several groups: of each limit the most generous one.

    Args:
        quotas: of the groups, at least one.
    """
    limits: dict[str, int] = {}
    sources: dict[str, str] = {}
    for name in LIMIT_NAMES:
        best = max(quotas, key=lambda quota: _generosity(name, getattr(quota, name)))
        limits[name] = getattr(best, name)
        sources[name] = best.user
    return Quota(user, **limits, sources=sources)


def _generosity(name: str, limit: int) -> float:
    """How much a limit allows; 0 is unlimited, and of bands the lowest number is the best."""
    return -limit if name == BAND else limit or math.inf


def _guard() -> None:
    """Raises ValueError when a row has no field in `Quota`, or a field no row."""
    has = {*Quota.__struct_fields__} - {"user", BAND, "sources"}
    wants = {limit.name for limit in QUOTA_LIMITS}
    if has != wants:
        raise ValueError(f"Quota has the limits {has}, the table wants {wants}")
    has = {*ResourceLimits.__struct_fields__}
    wants = {resource.name for _, resource in RUNNING_LIMITS}
    if has != wants:
        raise ValueError(f"ResourceLimits has the fields {has}, the table wants {wants}")


_guard()


def stored_words(user: str, most: int, has: int, now_ms: int) -> str:
    """What a refusal says of the limit on bytes that are stored a day."""
    hours, minutes = divmod(-(-(DAY_MS - now_ms % DAY_MS) // 60_000), 60)
    return (
        f"{user} may store {show_bytes(most)} of bundles, artifacts, output and results a day and "
        f"has stored {show_bytes(has)} today; the next day, of UTC, begins in {hours} h {minutes} min"
    )
