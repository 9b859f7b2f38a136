"""The data of each page: views of the state service.

Out of scope: rendering (`templates`), and authorization (`pages`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

import msgspec
from markupsafe import Markup

from iris_core.spec.jobs import BANDS, JobSpec
from iris_core.spec.projects import parent_of
from iris_core.units import DAY_MS
from iris_core.views import queries as q
from iris_core.views.causes import LOOKED_AT, failure_groups, last_line, last_printed
from iris_core.views.jobs import JOB_COLUMNS, JOBS_ORDERED, NEWEST_FIRST
from iris_core.views.queries import ViewQuery
from iris_core.views.spec_facts import facts_of
from iris_core.views.usage import Prices, UsageView
from iris_gateway.auth.bearer import may_read
from iris_gateway.dashboard import snippets
from iris_gateway.dashboard.drawings.bars import Axis
from iris_gateway.dashboard.drawings.last_hour import (
    ended_and_waited,
    held_over_time,
    requests_over_time,
)
from iris_gateway.dashboard.drawings.task_grid import task_grid
from iris_gateway.dashboard.notify_data import notify_rules
from iris_gateway.dashboard.page_reads import ROWS, Facts, PageData
from iris_gateway.dashboard.project_rights import settable
from iris_gateway.dashboard.render import ENDED, STATE_EVENTS, STATES
from iris_gateway.http.parameters import identifier, job_reference, task_reference
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.event import EVERYTHING, Filter, of_run
from iris_gateway.streams.event_history import BUDGET, STRETCH, newest_first
from iris_gateway.streams.log_lines import LastLines, LogLine
from iris_gateway.streams.logs import LogQuery

LOG_LINES = 200
EVENTS = 100
SLICES = 12
"""Slices drawn on the overview; the page of workers draws all."""
SINCE = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}
"""Seconds of the times that jobs are filtered by."""
LARGEST_FIRST = ("submitted", "tasks", "duration")
"""Columns that are first sorted descending."""
LASTING = frozenset({"crash_loop", "rolled_back", "update_failed", "unhealthy_together"})
"""Conditions of a deployment that end when somebody changes or resumes it."""
UNWELL = ("lost", "degraded", "draining")
GONE = ("terminated", "failed_to_start")
"""Statuses of routes that have ended."""
DEATHS = 3
"""Routes of a revision whose end is shown with its last line."""
DECISIONS_SHOWN = 100
USAGE_DAYS = 30
"""Days of the usage on the page of users."""
ATTENTION = 8
"""Jobs, hosts and deployments that need attention and are shown."""
_SEARCHED: tuple[tuple[Callable[[str], ViewQuery], str], ...] = (
    (q.TaskQuery, "/tasks"),
    (q.JobQuery, "/jobs"),
    (q.WorkerQuery, "/workers"),
    (q.DeploymentQuery, "/deployments"),
    (q.PoolQuery, "/fleet/pools"),
    (q.FleetSliceQuery, "/fleet/slices"),
)
"""Views of one thing, and where its page is."""


async def overview(look: PageData) -> Facts:
    """The overview: problems, running and pending work with reasons, usage of capacity, the last
    hour.
    """
    (
        counts,
        hour,
        slices,
        waiting,
        running,
        failed,
        unwell,
        deployments,
        pools,
    ) = await asyncio.gather(
        look.at(q.OverviewQuery()),
        look.at(q.LastHourQuery()),
        look.items_of(q.SlicesQuery(limit=SLICES)),
        look.items_of(q.QueueQuery(limit=6)),
        look.items_of(q.JobsQuery(state="running", limit=8)),
        _failed(look),
        look.items_of(*(q.WorkersQuery(state=state, limit=8) for state in UNWELL)),
        look.items_of(q.DeploymentsQuery(limit=ROWS)),
        look.items_of(q.PoolsQuery(limit=ROWS)),
    )
    hindered = [one for one in pools if is_hindered(one)]
    return {
        "overview": counts,
        "hour": ended_and_waited(hour["minutes"], look.now),
        "held": held_over_time(hour["held"], look.now),
        "slices": slices,
        "waiting": waiting,
        "running": running,
        "failed": failed,
        "unwell": unwell,
        "deployments": deployments[:ATTENTION],
        "unserved": [one for one in deployments if _needs_attention(one)][:ATTENTION],
        "pools": pools[:ATTENTION],
        "hindered": hindered[:ATTENTION],
    }


def is_hindered(pool: Mapping[str, Any]) -> bool:
    """Whether somebody has to look after a pool: something else than an admin's pause hinders it."""
    return (pool["state"] != "ok" and not pool["paused"]) or bool(pool["warnings"])


async def _failed(look: PageData) -> list[Facts]:
    """The latest failed jobs that nothing has made good: their names have no later run, and they
    are no routes, which their deployments replace.
    """
    states = ("failed", "worker_failed", "unschedulable")
    found = await look.items_of(
        *(q.JobsQuery(state=state, limit=ROWS, without_routes=True) for state in states)
    )
    jobs = [job for job in found if not job.get("next_run")]
    jobs.sort(key=lambda job: job["finished_at"] or "", reverse=True)
    return await _with_last_lines(look, jobs[:ATTENTION])


def _needs_attention(deployment: Mapping[str, Any]) -> bool:
    """Whether somebody has to look after a deployment: it does not serve as wanted, or waits for a
    person.
    """
    serves = deployment["ready"] >= deployment["replicas"] or deployment["status"] == "destroying"
    return not serves or any(one["code"] in LASTING for one in deployment["conditions"])


async def _with_last_lines(look: PageData, jobs: list[Facts]) -> list[Facts]:
    """Jobs, those that failed with their last line."""
    failed = [job["id"] for job in jobs if job["state"] == "failed"]
    lines = dict(
        zip(
            failed, await asyncio.gather(*(_failing_line(look, id_) for id_ in failed)), strict=True
        )
    )
    return [{**job, "line": lines.get(job["id"], "")} for job in jobs]


async def _failing_line(look: PageData, job: str) -> str:
    """What the first failed task of a job printed last; empty when it is not among its first
    tasks.
    """
    with contextlib.suppress(ProblemResponse):  # the job is deleted
        tasks = (await look.at(q.TasksQuery(job=job, state="failed", limit=1)))["items"]
        return last_line(tasks[0]) if tasks else ""
    return ""


async def jobs(look: PageData) -> Facts:
    filters = ("state", "user", "band", "name_prefix", "label", "project", "order")
    query = {name: look.query.get(name, "") for name in (*filters, "since")}
    prefix = query["name_prefix"].lstrip("/")
    since_s = SINCE.get(query["since"])
    since_ms = round(1000 * (look.now.timestamp() - since_s)) if since_s else 0
    wanted = q.JobsQuery(since_ms=since_ms, name_prefix=f"/{prefix}" if prefix else "")
    shown, found = await asyncio.gather(
        look.at(q.OverviewQuery()),
        look.page_of(wanted, "state", "user", "band", "label", "project", "order"),
    )
    counts = shown["jobs"]
    total = counts.get(query["state"], 0) if query["state"] else sum(counts.values())
    return {
        "jobs": {**found, "items": await _with_last_lines(look, found["items"])},
        "memberships": await look.memberships(job["project"] for job in found["items"]),
        "query": query,
        "counts": counts,
        "since": SINCE,
        "sort": sort_links(query["order"] or NEWEST_FIRST),
        "partial": total > JOBS_ORDERED and query["order"] not in ("", NEWEST_FIRST),
    }


def sort_links(order: str) -> dict[str, tuple[str, str]]:
    """For each column of the list of jobs the order that its heading leads to, and the value of its
    ``aria-sort``.
    """
    links = {}
    for column in JOB_COLUMNS:
        way = {column: "ascending", f"-{column}": "descending"}.get(order, "")
        down = way == "ascending" or (not way and column in LARGEST_FIRST)
        links[column] = (f"-{column}" if down else column, way)
    return links


def _has_values(spec: JobSpec) -> bool:
    """Whether tasks of an array have other values than their indexes. Both rise from task to task:
    the last tells.
    """
    last = spec.index_set[spec.replicas - 1]
    return spec.array_index(last) != last


async def job(look: PageData) -> Facts:
    """One job: its progress, what it waits for, or why it failed."""
    name = job_reference(look.segments["job"])
    shown = await look.at(q.JobQuery(job=name))
    own = of_run(EVERYTHING, shown["id"], shown["name"], shown["user"], next_run=shown["next_run"])
    failures = shown["task_counts"].get("failed", 0)
    failed = (
        (await look.at(q.TasksQuery(job=shown["id"], state="failed", limit=LOOKED_AT)))["items"]
        if failures
        else []
    )
    state = look.query.get("state") or ("failed" if failures else "all")
    spec = msgspec.convert(shown["spec"], JobSpec)
    tasks = await look.page_of(q.TasksQuery(job=shown["id"], state="" if state == "all" else state))
    return {
        "title": _title(shown),
        "job": shown,
        "membership": (await look.memberships([shown["project"]]))[shown["project"]],
        "form_key": look.gateway.new_id(),
        "bands": BANDS,
        "facts": facts_of(spec, shown.get("grace_s")),
        "value_of": spec.array_index,
        "valued": bool(spec.array) and _has_values(spec),
        "snippets": (("Command line", snippets.cli_of(spec)), ("Python", snippets.sdk_of(spec))),
        "axis": Axis(shown["submitted_at"], shown["finished_at"], look.now),
        "why": await look.at(q.WhyQuery(job=shown["id"])) if _waits(shown) else {},
        "failures": failure_groups(failed),
        "looked_at": len(failed),
        "slices": (slices := spec.coscheduling.slices if spec.coscheduling is not None else 1),
        "held": (await look.at(q.SlicesQuery(job=shown["id"], limit=SLICES)))["items"]
        if slices > 1
        else [],
        "tasks": tasks,
        "notify": await notify_rules(look, shown),
        "peak": max(
            ((peak, one["id"]) for one in tasks["items"] if (peak := _peak(one))), default=None
        ),
        "query": {"state": state},
        "grid": await _grid(look, shown, spec),
        "tree": await look.at(q.TreeQuery(job=shown["id"])),
        "history": await look.at(q.LatestHistoryQuery(job=shown["id"], count=DECISIONS_SHOWN)),
        "events": await newest_events(look, own),
        "output": await output_of(look, shown, look.number("task"), look.number("attempt")),
    }


def _waits(job: Mapping[str, Any]) -> bool:
    """Whether tasks of a job wait, for which pools may have a slice or a reason for none."""
    return job["state"] not in ENDED and bool(job["task_counts"].get("pending"))


async def _grid(look: PageData, job: Mapping[str, Any], spec: JobSpec) -> Markup | str:
    """Every task of a job of several as one glyph; empty for others."""
    if job["replicas"] < 2:
        return ""
    runs = (await look.at(q.TaskStatesQuery(job=job["id"])))["runs"]
    return task_grid(job["id"], spec.index_set, runs, spec.array_index)


def _title(job: Mapping[str, Any]) -> str:
    """The state first, so that a row of browser tabs shows it."""
    failed = job["task_counts"].get("failed", 0)
    return (
        f"{failed} of {job['replicas']} failed: {job['name']}"
        if failed
        else f"{job['state']}: {job['name']}"
    )


def _peak(task: Mapping[str, Any]) -> int:
    """The most memory that an attempt of a task has used, in bytes; 0 when none was measured."""
    return max((attempt["peak_rss_bytes"] or 0 for attempt in task["attempts"]), default=0)


async def task(look: PageData) -> Facts:
    reference = "/".join(
        look.segments[part] for part in ("job", "index", "task") if part in look.segments
    )
    shown = await look.at(q.TaskQuery(task=task_reference(reference)))
    above = await look.at(q.JobQuery(job=shown["job_id"]))
    last = shown["attempts"][-1]["number"] if shown["attempts"] else None
    attempt = look.number("attempt")
    return {
        "title": f"{shown['state']}: {shown['task']}",
        "task": shown,
        "membership": (await look.memberships([above["project"]]))[above["project"]],
        "form_key": look.gateway.new_id(),
        "why": await look.at(q.WhyQuery(task=shown["id"])),
        "output": await output_of(
            look, above, shown["index"], last if attempt is None else attempt
        ),
    }


async def queue(look: PageData) -> Facts:
    """What waits, in order, the first jobs that wait outside the queue, and the first of the
    holds.
    """
    return {
        "queue": await look.page_of(q.QueueQuery()),
        "gated": await look.at(q.GatedJobsQuery(limit=ROWS)),
        "holds": await look.at(q.QueueHoldsQuery(limit=ROWS)),
        "form_key": look.gateway.new_id(),
    }


async def deployments(look: PageData) -> Facts:
    return {
        "deployments": await look.page_of(q.DeploymentsQuery()),
        "proxy_url": look.gateway.proxy_url,
    }


async def deployment(look: PageData) -> Facts:
    """One deployment: whether it serves, its routes and its update."""
    name = identifier(look.segments["deployment"], "deployment")
    shown = await look.at(q.DeploymentQuery(deployment=name))
    minutes = (await look.at(q.DeploymentRequestsQuery(deployment=shown["name"])))["minutes"]
    return {
        "title": f"{shown['ready']} of {shown['replicas']} serve: {shown['name']}",
        "deployment": shown,
        "routes": await look.page_of(q.DeploymentRoutesQuery(deployment=shown["name"])),
        "history": await look.all_of(q.DeploymentHistoryQuery(deployment=shown["name"])),
        "decisions_shown": DECISIONS_SHOWN,
        "events": await newest_events(look, Filter(deployment=shown["name"])),
        "proxy_url": look.gateway.proxy_url,
        "form_key": look.gateway.new_id(),
        "hour": requests_over_time(minutes, look.now),
        "revisions": await _revisions(look, shown),
    }


async def _revisions(look: PageData, deployment: Mapping[str, Any]) -> list[Facts]:
    """The revisions that have routes, newest first: what lives, and what ended lately with its last
    line.
    """
    wanted = deployment["revision"]
    numbers = sorted({wanted, *(route["revision"] for route in deployment["routes"])}, reverse=True)
    found = []
    for number in numbers:
        routes = [route for route in reversed(deployment["routes"]) if route["revision"] == number]
        live = [route for route in routes if route["status"] not in GONE]
        ended = [route for route in routes if route["status"] in GONE and route["detail"]]
        deaths = [{**route, "line": await _last_line(look, route)} for route in ended[:DEATHS]]
        lacking = max(0, deployment["replicas"] - len(live)) if number == wanted else 0
        found.append({"number": number, "live": live, "lacking": lacking, "deaths": deaths})
    return [one for one in found if one["live"] or one["deaths"] or one["number"] == wanted]


async def _last_line(look: PageData, route: Mapping[str, Any]) -> str:
    """What a route printed last, as far as the caller may read it; empty when its job is not kept
    any more.
    """
    with contextlib.suppress(ProblemResponse):
        return last_printed(await look.at(q.TaskQuery(task=f"{route['job_id']}/0")))
    return ""


async def found(look: PageData) -> str:
    """The path of the task, job, worker or deployment with this name, else of the jobs with this
    prefix.
    """
    text = look.query.get("q", "").strip()
    if not text:
        return "/jobs"
    for query, path in _SEARCHED:
        with contextlib.suppress(ProblemResponse):
            await look.at(query(text))
            return f"{path}/{quote(text, safe='')}"
    return f"/jobs?name_prefix={quote('/' + text.lstrip('/'), safe='')}"


async def workers(look: PageData) -> Facts:
    """The slices and other hosts as tiles, then one page of all hosts, or of those in one state."""
    return {
        "workers": await look.page_of(q.WorkersQuery(), "state"),
        "slices": await look.all_of(q.SlicesQuery()),
        "others": await look.all_of(q.WorkersQuery(without_slice=True)),
        "counts": (await look.at(q.OverviewQuery()))["workers"],
        "query": {"state": look.query.get("state", "")},
    }


async def worker(look: PageData) -> Facts:
    shown = await look.at(q.WorkerQuery(worker=identifier(look.segments["worker"], "worker")))
    hour = await look.at(q.LastHourQuery(worker=shown["id"]))
    return {
        "worker": shown,
        "held": held_over_time(hour["held"], look.now),
        "events": await newest_events(look, Filter(worker=shown["id"])),
        "lost": await _lost_with(look, shown["id"]) if shown["state"] == "lost" else None,
    }


async def newest_events(
    look: PageData, wanted: Filter, most: int = 20, budget: int = STRETCH
) -> list[Facts]:
    """The newest events that are wanted, of the last ``budget``."""
    found, _ = await newest_first(look.gateway.feed, wanted, most, None, budget)
    return [event.shown() for event in found]


async def _lost_with(look: PageData, worker: str) -> list[Facts]:
    """The tasks that a host ran when it was lost, as far as events are kept: what each was then,
    and what it is now.
    """
    on_it = Filter(("task",), worker=worker)
    events = await newest_events(look, on_it, EVENTS, BUDGET)
    then = {
        event["task_id"]: event
        for event in events
        if event.get("cause") == "worker_lost" and event.get("task_id")
    }
    found = []
    for id_, event in islice(then.items(), ROWS):
        with contextlib.suppress(ProblemResponse):  # its job is deleted
            found.append({"then": event, "now": await look.at(q.TaskQuery(task=id_))})
    return found


async def sessions(look: PageData) -> Facts:
    return {
        "sessions": await look.page_of(q.SessionsQuery(gangs=True), "status"),
        "query": {"status": look.query.get("status", "")},
    }


async def users(look: PageData) -> Facts:
    since_ms = round(1000 * look.now.timestamp()) - USAGE_DAYS * DAY_MS
    usage = await look.at(q.UsageQuery(since_ms=since_ms, limit=q.MAX_LIMIT))
    return {
        "quotas": await look.page_of(q.UsersQuery()),
        "overview": await look.at(q.OverviewQuery()),
        "usage": usage["items"],
        "usage_continues": usage["next_cursor"] is not None,
        "usage_days": USAGE_DAYS,
        **await _of_pools(look, since_ms),
        "stored": await look.at(q.StoredUsageQuery(limit=q.MAX_LIMIT)),
    }


async def _of_pools(look: PageData, since_ms: int) -> Facts:
    """What was used and what idled by pool, where there are pools."""
    found = await look.at(q.UsageQuery(by="pool", since_ms=since_ms, limit=q.MAX_LIMIT))
    rows = [msgspec.convert(row, UsageView) for row in found["items"]]
    prices = Prices(look.gateway.settings.prices)
    for row in rows:
        row.price(prices)
    has_pools = any(row.pool is not None for row in rows)
    return {
        "usage_of_pools": [msgspec.to_builtins(row) for row in rows] if has_pools else [],
        "usage_of_pools_continues": found["next_cursor"] is not None,
    }


async def projects(look: PageData) -> Facts:
    """The tree of projects, with what is used of each."""
    found = await look.page_of(q.ProjectsQuery())
    paths = [project["path"] for project in found["items"]]
    memberships = await look.memberships({*paths, *map(parent_of, paths)})
    return {
        "projects": found,
        "overview": await look.at(q.OverviewQuery()),
        "settable": {path for path in paths if settable(look.caller, path, memberships)},
    }


async def audit(look: PageData) -> Facts:
    """What a caller may read of the audit: by a user, of a record."""
    return {
        "audit": await look.page_of(q.AuditQuery(), "by", "of"),
        "query": {name: look.query.get(name, "") for name in ("by", "of")},
    }


async def events(look: PageData) -> Facts:
    """Events, newest first, of one kind, state, job or worker; continued by the query."""
    query = {name: look.query.get(name, "") for name in ("kind", "state", "within", "worker")}
    kinds = [query["kind"]] if query["kind"] in STATES else [*STATES] if query["state"] else []
    types = tuple(_type_of(kind, query["state"]) for kind in kinds)
    wanted = Filter(types, query["within"], worker=query["worker"])
    found, onward = await newest_first(look.gateway.feed, wanted, EVENTS, look.number("cursor"))
    return {
        "events": {"items": [event.shown() for event in found], "next_cursor": onward},
        "query": query,
    }


def _type_of(kind: str, state: str) -> str:
    """The type of events of a kind, of those of one state or of all."""
    prefix = STATE_EVENTS[kind]
    return f"{prefix}.{state}" if state else prefix.removesuffix(".state")


async def system(look: PageData) -> Facts:
    """Whether Iris itself works: its processes, the leader, what is stored, commands set aside,
    configuration.
    """
    processes, letters, counts = await asyncio.gather(
        look.gateway.processes.all(), look.page_of(q.DeadLettersQuery()), look.at(q.OverviewQuery())
    )
    replicas = [one for one in processes if one.info.replica is not None and not one.silent_s]
    leader = next(
        (one.info for one in replicas if one.info.replica and one.info.replica.leads), None
    )
    return {
        "processes": processes,
        "leader": leader,
        "versions": sorted({one.info.version for one in processes if not one.silent_s}),
        "stores": leader.replica.stored_bytes
        if leader is not None and leader.replica is not None
        else {},
        "letters": letters,
        "workers": counts["workers"],
    }


async def output_of(
    look: PageData, job: Mapping[str, Any], index: int | None, attempt: int | None
) -> Facts:
    """The last lines of a job's output, or of one task or attempt of it, and where a page reads on.

    ``lines`` is None when the caller may not read them. Raises Problem.
    """
    query = LogQuery(int(job["id"][1:]), index, attempt)
    whole = (
        f"/v1/jobs/{job['id']}/logs" if index is None else f"/v1/tasks/{job['id']}%2F{index}/logs"
    )
    chosen = f"attempt={'all' if attempt is None else attempt}"
    shown: Facts = {
        "index": index,
        "attempt": attempt,
        "source": f"{whole}?{chosen}",
        "lines": None,
    }
    shown["ended"] = job["state"] if job["state"] in ENDED else ""
    shown["file"] = "-".join(
        str(part) for part in (job["name"], index, attempt) if part is not None
    )
    if may_read(look.caller, job["user"]):
        shown["lines"] = [] if look.again else await _last_lines(look, query)
    return shown


async def _last_lines(look: PageData, query: LogQuery) -> list[LogLine]:
    last = LastLines(LOG_LINES)
    until = await look.gateway.logs.last(query)
    broken: list[LogLine] = []
    try:
        last.extend((await look.gateway.logs.tail(query, last, until)).rest())
    except ProblemResponse as problem:
        source = (query.index or 0, query.attempt or 0, "stderr")
        broken.append(LogLine(source, 0, 0, b"", dropped=0, notice=problem.detail))
    shown = [line for block in last.blocks() for line in block.lines()]
    return [*shown, *broken][-LOG_LINES:]
