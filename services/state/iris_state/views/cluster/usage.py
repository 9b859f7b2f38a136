"""View of what jobs have held and used, by user, project, label, day, job or pool.

Admins read all of it; others what is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace
from sortedcontainers import SortedSet

from iris_core.access.rights import Verb, may
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import Caller
from iris_core.spec.projects import ROOT, is_below, normal, order_of, parent_of
from iris_core.units import DAY_MS
from iris_core.views.jobs import Page
from iris_core.views.queries import JobUsageQuery, UsageQuery
from iris_core.views.usage import NOT_BILLED, UsageView, UsedView
from iris_state.records.apply.usage import slice_days, variant_of
from iris_state.records.entities import Job
from iris_state.records.indexes.index import has
from iris_state.records.indexes.running_usage import RunningUsage
from iris_state.records.indexes.usage_days import (
    COST,
    KEPT_DAYS,
    PROJECT,
    USEFUL,
    Outcomes,
    UsageDays,
    UsageGroup,
    Used,
)
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_job, known_project
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
    path = normal(query.project)
    if path != ROOT and path not in ledger.project_usage.users.get(None, ()):
        known_project(ledger, path)  # a removed one keeps its usage
    key, _, value = query.label.partition("=")
    if query.by == "job":
        return _jobs(ledger, query, user, path, label=(key, value))
    if key not in ("", PROJECT):
        raise Refused(
            Code.INVALID, f"usage is summed by the label {PROJECT}; by=job takes other labels"
        )
    if query.by == "pool":
        return _pools(ledger, query, user)
    if key and (path != ROOT or query.by == "project"):
        raise Refused(Code.INVALID, "usage is summed by label or by project; by=job takes both")
    if path != ROOT and query.by == "label":
        raise Refused(Code.INVALID, "usage of a project is not summed by label; by=job lists jobs")
    if query.by == "project":
        return _projects(ledger, query, user or None, path)
    sums = _of_labels(ledger)
    group = user or None, value if key else None
    if path != ROOT:
        sums = _of_projects(ledger)
        group = f"{path}/", user or None
    if query.by == "day":
        return _days(ledger, query, sums, group)
    return _groups(ledger, query, sums, group)


class _Sums(NamedTuple):
    """Of attempts that have ended, and of those that run."""

    usage: UsageDays
    running: RunningUsage


def _of_labels(ledger: Ledger) -> _Sums:
    """By user and label."""
    return _Sums(ledger.usage, ledger.running_usage)


def _of_projects(ledger: Ledger) -> _Sums:
    """By project, see `names_of_project`, and user."""
    return _Sums(ledger.project_usage, ledger.running_in_projects)


def _of_pools(ledger: Ledger) -> _Sums:
    """By user and pool."""
    return _Sums(ledger.pool_usage, ledger.running_in_pools)


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
        "project": job.spec.project_path,
        "label": job.spec.labels.get(PROJECT),
        "job": job.name,
        "job_id": job.id,
    }
    running = _held(ledger, ledger.running_usage, job.number, 0)
    return _view(job.usage | {_RUNNING: running}, **whose)


def _held(ledger: Ledger, running: RunningUsage, what: int | UsageGroup, first: int) -> Used:
    """What the open attempts of a job or a group have held since a day."""
    return running.since(what, first, ledger.now_ms, partial(variant_of, ledger))


def _with_running(ledger: Ledger, sums: _Sums, group: UsageGroup, first: int) -> Outcomes:
    """The sums of a group since a day, with those of what runs."""
    found = sums.usage.since(group, first)
    running = _held(ledger, sums.running, group, first)
    return found | {_RUNNING: running} if running != Used() else found


def _jobs(ledger: Ledger, query: UsageQuery, user: str, path: str, label: tuple[str, str]) -> Page:
    """Jobs that had not ended before the first day, newest first."""
    last = behind(query.cursor)

    def wanted(job: Job) -> bool:
        if (user and job.user != user) or (job.finished_ms and job.finished_ms < query.since_ms):
            return False
        if path != ROOT and not has(job, ("project", path)):
            return False
        return not key or job.spec.labels.get(key) == value

    key, value = label
    fields = [("user", user)] if user else []
    fields += [("label", f"{key}={value}")] if key else []
    fields += [("project", path)] if path != ROOT else []
    lists = [ledger.index.of(field) for field in fields] or [ledger.index.all]
    below = min(lists, key=len).irange(maximum=last, inclusive=(True, False), reverse=True)
    rows = ((number, ledger.jobs[number]) for number in below)
    return page(rows, partial(_of_job, ledger), query, wanted)


def _groups(ledger: Ledger, query: UsageQuery, sums: _Sums, group: UsageGroup) -> Page:
    """The sums of each user, or of each label, in the order of names; of a project those of its
    users.
    """
    of_project = sums.running is ledger.running_in_projects
    user, label = (group[1], None) if of_project else group
    by_user = query.by == "user"
    if of_project:
        names = ledger.project_usage.projects.get(group[0])
    else:
        names = ledger.usage.users.get(label) if by_user else ledger.usage.projects.get(user)
    only = user if by_user else label
    if names is not None and only is not None:
        names = SortedSet([only] if only in names else [])
    first = query.since_ms // DAY_MS
    last = behind_name(query.cursor)

    def read(name: str) -> tuple[str, Outcomes]:
        of = (group[0], name) if of_project else (name, label) if by_user else (user, name)
        return name, _with_running(ledger, sums, of, first)

    rest: Iterable[str] = ()
    if names is not None:
        rest = names.irange(last, inclusive=(not query.cursor, True))
    rows = ((cursor_of(name), read(name)) for name in rest)

    def view(row: tuple[str, Outcomes]) -> UsageView:
        name, found = row
        if by_user:
            return _view(found, user=name)
        owners = [user] if user is not None else list(ledger.usage.users[name][:MOST_ROWS])
        return replace(_view(found, label=name), users=tuple(owners))

    return page(rows, view, query, lambda row: bool(row[1]))


def _projects(ledger: Ledger, query: UsageQuery, user: str | None, path: str) -> Page:
    """Each project in and below one, right before those below it: the sums with those below it, and
    its own.
    """
    first = query.since_ms // DAY_MS
    sums = _of_projects(ledger)
    known = {one.path for one in ledger.projects}
    used = {name for name in ledger.project_usage.users.get(None, ()) if not name.endswith("/")}
    paths = sorted({ROOT, *known, *used}, key=order_of)
    last = order_of(behind_name(query.cursor)) if query.cursor else None
    wanted = (one for one in paths if one == path or is_below(one, path))

    def read(one: str) -> tuple[str, Outcomes, Outcomes]:
        if one != ROOT:
            total, own = (
                _with_running(ledger, sums, (name, user), first) for name in (f"{one}/", one)
            )
            return one, total, own
        total = _with_running(ledger, _of_labels(ledger), (user, None), first)
        tops = [name for name in used | known if parent_of(name) == ROOT and name != ROOT]
        below = [_with_running(ledger, sums, (f"{name}/", user), first) for name in tops]
        return ROOT, total, _without(total, below)

    rows = ((cursor_of(one), read(one)) for one in wanted if last is None or order_of(one) > last)

    def view(row: tuple[str, Outcomes, Outcomes]) -> UsageView:
        one, total, own = row
        return replace(_view(total, project=one), own=_used(_all_of(own)))

    return page(rows, view, query, lambda row: bool(row[1]))


def _pools(ledger: Ledger, query: UsageQuery, user: str) -> Page:
    """What each user, or one ``user``, has held on hosts of each pool, after it what idled there; last
    what was outside of pools. Raises Refused.
    """
    if query.label or normal(query.project) != ROOT:
        raise Refused(
            Code.INVALID, "usage by pool is not of one label or project; by=job takes both"
        )
    last = _PoolRow.behind(query.cursor)
    rows = (
        (cursor_of("/".join(row)), row)
        for row in _pool_rows(ledger, user)
        if last is None or row > last
    )
    first = query.since_ms // DAY_MS

    def read(row: _PoolRow) -> tuple[_PoolRow, Outcomes]:
        if row.kind == _IDLE:
            return row, _offered(ledger, row.pool, first)
        found = _with_running(ledger, _of_pools(ledger), (row.user, row.pool or None), first)
        if row.kind == _USED:
            return row, found
        whole = _with_running(ledger, _of_labels(ledger), (row.user, None), first)
        left = _without(whole, [found])
        return row, {outcome: used for outcome, used in left.items() if used != Used()}

    def view(found: tuple[_PoolRow, Outcomes]) -> UsageView:
        row, outcomes = found
        if row.kind == _IDLE:
            held = _with_running(ledger, _of_pools(ledger), (None, row.pool), first)
            return _idle_view(row.pool, _all_of(outcomes), held)
        return replace(_view(outcomes, user=row.user), pool=row.pool or None)

    return page(
        ((cursor, read(row)) for cursor, row in rows), view, query, lambda found: bool(found[1])
    )


_USED, _IDLE, _OUTSIDE = "1", "2", "3"


class _PoolRow(NamedTuple):
    """A row by pool, in their order: what is ``outside`` of pools has the last place and no name."""

    place: str
    pool: str
    kind: str
    user: str

    @classmethod
    def behind(cls, cursor: str) -> _PoolRow | None:
        """The row after which a page continues. Raises Refused."""
        if not cursor:
            return None
        parts = behind_name(cursor).split("/", 3)
        if len(parts) != 4:
            raise Refused(Code.INVALID, "not a cursor of this listing")
        return cls(*parts)


def _pool_rows(ledger: Ledger, user: str) -> Iterator[_PoolRow]:
    """Every row that there may be, of all users or of one."""
    used = ledger.pool_usage.projects.get(None, ())
    offered = ledger.slice_usage.users.get(None, ())
    for pool in sorted({*used, *offered, *ledger.fleet.pools}):
        known = ledger.pool_usage.users.get(pool, ())
        for name in [user] if user else known:
            if name in known:
                yield _PoolRow("1", pool, _USED, name)
        if not user:
            yield _PoolRow("1", pool, _IDLE, "")
    known = ledger.usage.users.get(None, ())
    for name in [user] if user else known:
        if name in known:
            yield _PoolRow("2", "", _OUTSIDE, name)


def _offered(ledger: Ledger, pool: str, first: int) -> Outcomes:
    """What the slices of a pool have offered since a day, with those that there are now."""
    first = max(first, ledger.now_ms // DAY_MS - KEPT_DAYS + 1)
    found = ledger.slice_usage.since((pool, None), first)
    total = _all_of(found)
    for one in ledger.fleet.of_pool(pool):
        if one.asked_ms and not one.is_over:
            for day, used in slice_days(one, ledger.now_ms):
                if day >= first:
                    total.add(used)
    return {USEFUL: total} if total != Used() else {}


def _idle_view(pool: str, offered: Used, held: Outcomes) -> UsageView:
    """What the slices of a pool offered, without what attempts held there, and what they cost without
    what is billed.
    """
    billed_cost = sum(used.cost for outcome, used in held.items() if outcome not in NOT_BILLED)
    left = offered.less(_all_of(held))
    idle = Used(
        cpu=max(left.cpu, 0),
        memory=max(left.memory, 0),
        chips={variant: max(chip_ms, 0) for variant, chip_ms in left.chips.items()},
    )
    cost = max(offered.cost - billed_cost, 0) / COST
    nothing = UsedView()
    return UsageView(
        pool=pool,
        total=_used(idle),
        useful=nothing,
        lost={},
        running=nothing,
        billed=nothing,
        outside=nothing,
        pools_cost=cost if offered.cost else None,
    )


def _without(total: Outcomes, parts: Iterable[Outcomes]) -> Outcomes:
    """What is left of sums without those of parts."""
    left = dict(total)
    for part in parts:
        for outcome, used in part.items():
            left[outcome] = left.get(outcome, Used()).less(used)
    return left


def _days(ledger: Ledger, query: UsageQuery, sums: _Sums, group: UsageGroup) -> Page:
    """The sums of each day, oldest first."""
    first = query.since_ms // DAY_MS
    last = behind_name(query.cursor)
    days = sums.usage.days(group, first)
    running = sums.running.days(group, first, ledger.now_ms, partial(variant_of, ledger))
    for day, used in running:
        if used != Used():
            days.setdefault(day, {})[_RUNNING] = used
    names = {_date(day): days[day] for day in sorted(days)}
    rows = ((cursor_of(day), day) for day in names if not query.cursor or day > last)
    return page(rows, lambda day: _view(names[day], day=day), query)


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()


def _all_of(outcomes: Outcomes) -> Used:
    """The sum over what came of them."""
    total = Used()
    for used in outcomes.values():
        total.add(used)
    return total


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
        total=_used(total),
        useful=useful,
        lost=lost,
        running=running,
        billed=_used(billed),
        outside=_used(billed.less(billed.pooled)),
        pools_cost=billed.cost / COST if billed.cost else None,
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
