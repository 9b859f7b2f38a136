"""The sums of usage, as the views read them."""

from __future__ import annotations

from iris_state.records.indexes.usage_days import Outcomes, UsageDays


def usage_rows(usage: UsageDays) -> list[tuple[int, str, str, Outcomes]]:
    """Every sum of what has ended: day, user, project, and its outcomes."""
    return sorted(
        (day, user, project, outcomes)
        for user, project in usage.names()
        for day, outcomes in usage.days((user, project), 0).items()
    )
