"""What of a submitted job can be changed: some fields of its specification, by a JSON merge patch
(RFC 7396). Pure.

Command, resources and replicas of what was admitted never change: tasks that run would differ from
those that follow, and quotas were checked for them. Out of scope: who may change a job, and what
follows from it (`iris_state`). Source: docs/adr/0084-a-job-is-changed-in-place.md.
"""

from __future__ import annotations

from typing import Any

from iris_core import codec
from iris_core.admission.jobs import validate_spec
from iris_core.admission.patches import merged
from iris_core.errors import Code, Invalid, Mistake, Refused, pointer_to
from iris_core.limits import clipped
from iris_core.spec.jobs import JobSpec

AMENDABLE = (
    *("band", "timeout_s", "max_parallel", "labels"),
    *("max_retries_failure", "max_retries_preemption", "max_requeues"),
)
"""The fields that a patch may have; ``hold`` and ``after`` are changed beside it."""


def unchangeable(field: str) -> Mistake:
    """That a field of a submitted job stays as it is."""
    message = f"{field} of a submitted job does not change"
    hint = f"cancel it and submit it with another {field}; iris rerun repeats it as it was"
    return Mistake(pointer=pointer_to(field), code="unchangeable", message=message, hint=hint)


def changes_in_words(before: JobSpec, after: JobSpec) -> list[str]:
    """What of a specification was changed, for a person: ``band batch, was interactive``."""
    pairs = ((field, getattr(before, field), getattr(after, field)) for field in AMENDABLE)
    return [f"{field} {_shown(new)}, was {_shown(old)}" for field, old, new in pairs if new != old]


def _shown(value: object) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, dict):
        return clipped(" ".join(f"{key}={text}" for key, text in value.items()))
    return f"{value:g}" if isinstance(value, float) else str(value)


def patched_job(spec: JobSpec, patch: bytes) -> JobSpec:
    """The specification with a merge patch applied, in which null stands for the default.

    Raises Refused when the patch is none, Invalid for other fields and for mistakes that were not
    there before.
    """
    try:
        wanted: dict[str, Any] = codec.from_json(patch, dict[str, Any])
        if others := [field for field in wanted if field not in AMENDABLE]:
            raise Invalid([unchangeable(field) for field in others])
        changed = codec.from_builtins(merged(codec.to_builtins(spec), wanted), JobSpec)
    except codec.Undecodable as error:
        raise Refused(Code.INVALID, f"the patch makes no specification: {error}") from None
    known = validate_spec(spec)
    mistakes = [mistake for mistake in validate_spec(changed) if mistake not in known]
    if mistakes:
        raise Invalid(mistakes)
    return changed
