"""docs/reasons.md: every reason why a task is pending, from the table of explanations."""

from __future__ import annotations

from drawings.markdown import document
from iris_core.placement.reasons import EXPLANATIONS

EXPLAINED = """\
Why a task waits: `pending_reason` of a job and of a task, `iris why`, and the label `reason` of `iris_pending_tasks`.
In the order in which the scheduler checks them; the message of a reason has the numbers. See also
[a job waits](troubleshooting.md#a-job-waits)."""


def reasons_document() -> str:
    """One section, which is its anchor, for each reason."""
    parts = [
        text
        for code, explanation in EXPLANATIONS.items()
        for text in (f"## `{code}`", explanation.meaning, f"**What to do**: {explanation.remedy}")
    ]
    return document("Pending reasons", "iris_core.placement.reasons", EXPLAINED, *parts)
