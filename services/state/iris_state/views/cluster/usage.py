"""View of what jobs have held and used, by user, project, day or job.

Admins read all of it; others what is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial

from msgspec.structs import replace
from sortedcontainers import SortedSet

from iris_core.access.rights import Verb, may
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import Caller
from iris_core.units import DAY_MS
from iris_core.views.jobs import Page
from iris_core.views.queries import JobUsageQuery, UsageQuery
from iris_core.views.usage import NOT_BILLED, UsageView, UsedView
from iris_state.records.apply.usage import variant_of
from iris_state.records.entities import Job
from iris_state.records.indexes.usage_days import (
    PROJECT,
    USEFUL,
    Outcomes,
    UsageGroup,
    Used,
)
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_job
from iris_state.views.pages import behind, behind_name, cursor_of, page

MOST_ROWS = 100
"""Rows of a page, at most, whatever is asked for: a few milliseconds."""
_RUNNING = "running"
"""Stands among the outcomes for attempts that are open."""


def usage(ledger: Ledger, query: UsageQuery, caller: Caller) -> Page:
    """Sums ``by`` something, since the day of ``since_ms``, of one ``user`` and ``label``. Raises
    Refused.
    """
    user = query.user
    if not may(caller, Verb.READ_USAGE):
        if user not in ("", caller.user):
            raise Refused(Code.FORBIDDEN, f"the usage of {user} is read by {user} and admins")
        user = caller.user
    query = replace(query, limit=min(query.limit, MOST_ROWS))
    key, _, value = query.label.partition("=")
    if query.by == "job":
        return _jobs(ledger, query, user, key, value=value)
    if key not in ("", PROJECT):
        raise Refused(
            Code.INVALID, f"usage is summed by the label {PROJECT}; by=job takes other labels"
        )
    group = user or None, value if key else None
    if query.by == "day":
        return _days(ledger, query, group)
    return _groups(ledger, query, group)


def job_usage(ledger: Ledger, query: JobUsageQuery, caller: Caller) -> UsageView:
    """Of one job. Raises Refused."""
    job = known_job(ledger, query.job)
    if not may(caller, Verb.READ_USAGE, job.user):
        raise Refused(Code.FORBIDDEN, f"the usage of {job.name} is read by {job.user} and admins")
    return _of_job(ledger, job)


def _of_job(ledger: Ledger, job: Job) -> UsageView:
    """What a job has held and used until now, since it was submitted."""
    whose = {
        "user": job.user,
        "project": job.spec.labels.get(PROJECT),
        "job": job.name,
        "job_id": job.id,
    }
    return _view(job.usage | {_RUNNING: _held(ledger, job.number, 0)}, **whose)


def _held(ledger: Ledger, what: int | UsageGroup, first: int) -> Used:
    """What the open attempts of a job or a group have held since a day."""
    return ledger.running_usage.since(what, first, ledger.now_ms, partial(variant_of, ledger))


def _jobs(ledger: Ledger, query: UsageQuery, user: str, key: str, value: str) -> Page:
    """Jobs that had not ended before the first day, newest first."""
    last = behind(query.cursor)

    def wanted(job: Job) -> bool:
        if (user and job.user != user) or (job.finished_ms and job.finished_ms < query.since_ms):
            return False
        return not key or job.spec.labels.get(key) == value

    fields = [("user", user)] if user else []
    fields += [("label", f"{key}={value}")] if key else []
    lists = [ledger.index.of(field) for field in fields] or [ledger.index.all]
    below = min(lists, key=len).irange(maximum=last, inclusive=(True, False), reverse=True)
    rows = ((number, ledger.jobs[number]) for number in below)
    return page(rows, partial(_of_job, ledger), query, wanted)


def _groups(ledger: Ledger, query: UsageQuery, group: UsageGroup) -> Page:
    """The sums of each user, or of each project, in the order of names."""
    user, project = group
    by_user = query.by == "user"
    names = ledger.usage.users.get(project) if by_user else ledger.usage.projects.get(user)
    only = user if by_user else project
    if names is not None and only is not None:
        names = SortedSet([only] if only in names else [])
    first = query.since_ms // DAY_MS
    last = behind_name(query.cursor)

    def read(name: str) -> tuple[str, Outcomes]:
        of = (name, project) if by_user else (user, name)
        sums = ledger.usage.since(of, first)
        running = _held(ledger, of, first)
        return name, sums | {_RUNNING: running} if running != Used() else sums

    rest: Iterable[str] = ()
    if names is not None:
        rest = names.irange(last, inclusive=(not query.cursor, True))
    rows = ((cursor_of(name), read(name)) for name in rest)

    def view(row: tuple[str, Outcomes]) -> UsageView:
        name, sums = row
        if by_user:
            return _view(sums, user=name)
        owners = [user] if user is not None else list(ledger.usage.users[name][:MOST_ROWS])
        return replace(_view(sums, project=name), users=tuple(owners))

    return page(rows, view, query, lambda row: bool(row[1]))


def _days(ledger: Ledger, query: UsageQuery, group: UsageGroup) -> Page:
    """The sums of each day, oldest first."""
    first = query.since_ms // DAY_MS
    last = behind_name(query.cursor)
    days = ledger.usage.days(group, first)
    running = ledger.running_usage.days(group, first, ledger.now_ms, partial(variant_of, ledger))
    for day, used in running:
        if used != Used():
            days.setdefault(day, {})[_RUNNING] = used
    names = {_date(day): days[day] for day in sorted(days)}
    rows = ((cursor_of(day), day) for day in names if not query.cursor or day > last)
    return page(rows, lambda day: _view(names[day], day=day), query)


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()


def _view(outcomes: Outcomes, **whose: str | None) -> UsageView:
    total = Used()
    billed = Used()
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
