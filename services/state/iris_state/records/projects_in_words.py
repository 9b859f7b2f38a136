"""What another specification of a project changes, for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.projects import ProjectSpec
from iris_core.spec.resources import ResourceLimits


def limits_in_words(limits: ResourceLimits) -> str:
    """``cpu 500, chips 64``; ``none``."""
    amounts = [(row, getattr(limits, row.name)) for _, row in RUNNING_LIMITS]
    return ", ".join(f"{row.word} {row.unit.show(n)}" for row, n in amounts if n) or "none"


def changes_in_words(before: ProjectSpec, after: ProjectSpec) -> Iterator[str]:
    """``limit chips 64, was none``."""
    for field in ("guarantee", "limit"):
        old, new = (getattr(one, field) for one in (before, after))
        if old != new:
            yield f"{field} {limits_in_words(new)}, was {limits_in_words(old)}"
    if before.weight != after.weight:
        new_weight, old_weight = (
            "unset" if one.weight is None else f"{one.weight:g}" for one in (after, before)
        )
        yield f"weight {new_weight}, was {old_weight}"
    if before.max_pending_tasks != after.max_pending_tasks:
        was, now = (one.max_pending_tasks or "unlimited" for one in (before, after))
        yield f"max pending tasks {now}, was {was}"
    for field in ("members", "admins", "default_for"):
        old_names, new_names = (", ".join(getattr(one, field)) for one in (before, after))
        if old_names != new_names:
            yield f"{field.replace('_', ' ')} {new_names or 'nobody'}, was {old_names or 'nobody'}"
