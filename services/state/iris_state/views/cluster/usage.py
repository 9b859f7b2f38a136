"""View of what jobs have held and used, by user, project, day or job.

Admins read all of it; others what is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec.structs import replace

from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import Caller
from iris_core.views.jobs import Page
from iris_core.views.queries import JobUsageQuery, UsageQuery
from iris_core.views.usage import NOT_BILLED, UsageView, UsedView
from iris_state.commands.targets import known_job
from iris_state.records.apply.usage import PROJECT, began_to_hold, by_day, variant_of
from iris_state.records.entities import Job
from iris_state.records.indexes.usage_days import DAY_MS, USEFUL, Outcomes, Used, count, of_outcome
from iris_state.records.ledger import Ledger
from iris_state.views.pages import behind, behind_name, cursor_of, page

_RUNNING = "running"
"""Stands among the outcomes for attempts that are open."""


def usage(ledger: Ledger, query: UsageQuery, caller: Caller) -> Page:
    """Sums ``by`` something, since the day of ``since_ms``, of one ``user`` and ``label``. Raises
    Refused.
    """
    user = query.user
    if caller.role != "admin":
        if user not in ("", caller.user):
            raise Refused(Code.FORBIDDEN, f"the usage of {user} is read by {user} and admins")
        user = caller.user
    key, _, value = query.label.partition("=")
    if query.by == "job":
        return _jobs(ledger, query, user, key, value)
    if key not in ("", PROJECT):
        raise Refused(
            Code.INVALID, f"usage is summed by the label {PROJECT}; by=job takes other labels"
        )
    owners: dict[str, set[str]] = {}
    groups = _groups(ledger, query, user, value if key else None, owners)
    last = behind_name(query.cursor)
    rows = ((cursor_of(name), name) for name in sorted(groups) if not query.cursor or name > last)
    field = {"label": PROJECT}.get(query.by, query.by)

    def view(name: str) -> UsageView:
        row = _view(groups[name], **{field: name})
        return replace(row, users=tuple(sorted(owners[name]))) if query.by == "label" else row

    return page(rows, view, query)


def job_usage(ledger: Ledger, query: JobUsageQuery, caller: Caller) -> UsageView:
    """Of one job. Raises Refused."""
    job = known_job(ledger, query.job)
    if caller.role != "admin" and caller.user != job.user:
        raise Refused(Code.FORBIDDEN, f"the usage of {job.name} is read by {job.user} and admins")
    return _of_job(job, _running(ledger))


def _of_job(job: Job, running: dict[int, Used]) -> UsageView:
    """What a job has held and used until now, since it was submitted."""
    whose = {
        "user": job.user,
        "project": job.spec.labels.get(PROJECT),
        "job": job.name,
        "job_id": job.id,
    }
    return _view(job.usage | {_RUNNING: running.get(job.number, Used())}, **whose)


def _running(ledger: Ledger) -> dict[int, Used]:
    """What the open attempts of each job have held until now."""
    running: dict[int, Used] = {}
    for number, _, used in _open(ledger):
        running.setdefault(number, Used()).add(used)
    return running


def _jobs(ledger: Ledger, query: UsageQuery, user: str, key: str, value: str) -> Page:
    """Jobs that had not ended before the first day, newest first."""
    last = behind(query.cursor)

    def wanted(job: Job) -> bool:
        if (user and job.user != user) or (job.finished_ms and job.finished_ms < query.since_ms):
            return False
        return not key or job.spec.labels.get(key) == value

    numbers = (number for number in reversed(ledger.jobs) if last is None or number < last)
    rows = ((number, ledger.jobs[number]) for number in numbers)
    running = _running(ledger)
    return page(rows, lambda job: _of_job(job, running), query, wanted)


def _groups(
    ledger: Ledger,
    query: UsageQuery,
    user: str,
    project: str | None,
    owners: dict[str, set[str]],
) -> dict[str, Outcomes]:
    """Sums by the name of the group; whose they are is added to ``owners``."""
    groups: dict[str, Outcomes] = {}

    def add(day: int, owner: str, of: str, outcome: str, used: Used) -> None:
        if day >= first and user in ("", owner) and project in (None, of):
            name = owner if query.by == "user" else of if query.by == "label" else _date(day)
            of_outcome(groups.setdefault(name, {}), outcome).add(used)
            owners.setdefault(name, set()).add(owner)

    first = query.since_ms // DAY_MS
    for day, owner, of, outcomes in ledger.usage.rows(first):
        for outcome, used in outcomes.items():
            add(day, owner, of, outcome, used)
    for number, day, used in _open(ledger):
        job = ledger.jobs[number]
        add(day, job.user, job.spec.labels.get(PROJECT, ""), _RUNNING, used)
    return groups


def _open(ledger: Ledger) -> Iterator[tuple[int, int, Used]]:
    """The job of each attempt that is open, and what it has held until now, by day."""
    for worker, presence in ledger.presence.items():
        variant = variant_of(ledger, worker)
        for (number, _, _), attempt in presence.open.items():
            began_ms, amount = began_to_hold(attempt), ledger.requested[number]
            parts = by_day(began_ms, max(ledger.now_ms, began_ms)) if began_ms else []
            for left, (day, part_ms) in zip(reversed(range(len(parts))), parts, strict=True):
                used = Used()
                count([used], part_ms, amount, variant, 0, 0, attempts=not left)
                yield number, day, used


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()


def _view(outcomes: Outcomes, **whose: str | None) -> UsageView:
    total, billed = Used(), Used()
    for outcome, used in outcomes.items():
        total.add(used)
        if outcome not in NOT_BILLED:
            billed.add(used)
    lost = {
        name: _used(used)
        for name, used in sorted(outcomes.items())
        if name not in (USEFUL, _RUNNING)
    }
    useful, running = (_used(outcomes.get(name, Used())) for name in (USEFUL, _RUNNING))
    view = UsageView(
        total=_used(total), useful=useful, lost=lost, running=running, billed=_used(billed)
    )
    return replace(view, **whose)


def _used(used: Used) -> UsedView:
    return UsedView(
        attempts=used.attempts,
        cpu_seconds=used.cpu / 1e6,
        memory_gib_seconds=used.memory / 1024e3,
        chip_seconds={variant: chip_ms / 1e3 for variant, chip_ms in sorted(used.chips.items())},
        cpu_used_seconds=used.cpu_ms / 1e3,
        memory_peak_gib_seconds=used.peak / 1024e3,
    )
