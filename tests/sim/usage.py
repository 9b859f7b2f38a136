"""What users have used, by the sums of days: what their jobs have, and those that were deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from iris_state.records.ledger import Ledger
from tests.support.usage import usage_rows


def wrong_sums(ledger: Ledger) -> Iterator[str]:
    """Every user whose days have less than its jobs, or more although no job was deleted."""
    days: Counter[tuple[str, str]] = Counter()
    jobs: Counter[tuple[str, str]] = Counter()
    for _, user, _, outcomes in usage_rows(ledger.usage):
        days.update({(user, outcome): used.cpu for outcome, used in outcomes.items()})
    for job in ledger.jobs.values():
        jobs.update({(job.user, outcome): used.cpu for outcome, used in job.usage.items()})
    for key in {*days, *jobs}:
        if days[key] < jobs[key] or (not ledger.totals.pruned and days[key] != jobs[key]):
            yield f"{key} has used {days[key]} by its days, {jobs[key]} by its jobs"
