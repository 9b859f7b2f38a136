"""The data of each page: views of the state service.

Out of scope: rendering (`templates`), and authorization (`pages`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import msgspec

from iris_core.messages import Caller
from iris_gateway.auth import may_read
from iris_gateway.event import Filter
from iris_gateway.event_history import newest_first
from iris_gateway.gateway import Gateway
from iris_gateway.log_lines import LogLine
from iris_gateway.logs import LogQuery, Reading
from iris_gateway.parameters import identifier, job_reference, task_reference

LOG_LINES = 200
EVENTS = 100
PAGES = 20
"""Pages of a listing that are read at most for one HTML page."""
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PageData:
    """One request of a dashboard page.

    Attributes:
        segments: the parameters of the path, decoded. query: the query parameters.
    """

    gateway: Gateway
    caller: Caller
    segments: dict[str, str]
    query: dict[str, str]

    async def at(self, what: str, **arguments: object) -> Any:
        """One view. Raises Problem."""
        return msgspec.json.decode(await self.gateway.queries.ask(what, self.caller, **arguments))

    async def page_of(self, what: str, *filters: str, **arguments: object) -> Any:
        """One page of a listing, filtered and continued by the query; a few empty pages are skipped."""
        wanted = {name: self.query.get(name, "") for name in (*filters, "cursor")}
        left = PAGES
        while True:
            left -= 1
            page = await self.at(what, limit=100, **wanted, **arguments)
            wanted["cursor"] = page.get("next_cursor") or ""
            if page["items"] or not wanted["cursor"] or not left:
                return page

    async def all_of(self, what: str) -> list[Any]:
        """The items of a listing, of at most so many pages."""
        items: list[Any] = []
        cursor = ""
        for _ in range(PAGES):
            page = await self.at(what, limit=500, cursor=cursor)
            items += page["items"]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                break
        return items


async def overview(look: PageData) -> Facts:
    slices = await look.all_of("slices")
    waiting = (await look.at("queue", limit=5))["items"]
    failed = [job for state in ("failed", "worker_failed", "unschedulable") for job in await _latest(look, state)]
    workers = await look.all_of("workers")
    return {
        "overview": await look.at("overview"),
        "slices": slices,
        "waiting": waiting,
        "failed": failed[:10],
        "unwell": [worker for worker in workers if worker["state"] != "healthy"],
    }


async def _latest(look: PageData, state: str) -> list[Any]:
    items: list[Any] = (await look.at("jobs", state=state, limit=5))["items"]
    return items


async def jobs(look: PageData) -> Facts:
    filters = ("state", "user", "band", "name_prefix")
    query = {name: look.query.get(name, "") for name in filters}
    return {"jobs": await look.page_of("jobs", *filters), "query": query}


async def job(look: PageData) -> Facts:
    name = job_reference(look.segments["job"])
    shown = await look.at("job", job=name)
    events, _ = await newest_first(look.gateway.feed.streams, Filter(within=shown["name"]), 20, None)
    return {
        "job": shown,
        "tasks": await look.page_of("tasks", "state", job=shown["id"]),
        "tree": await look.at("tree", job=shown["id"]),
        "history": (await look.at("history", job=shown["id"], limit=100))["items"],
        "events": [event.shown() for event in events],
        "lines": await tail(look, shown["user"], LogQuery(int(shown["id"][1:]))),
    }


async def task(look: PageData) -> Facts:
    name = task_reference(look.segments["task"])
    shown = await look.at("task", task=name)
    above = await look.at("job", job=shown["job"])
    number = shown["attempts"][-1]["number"] if shown["attempts"] else 0
    query = LogQuery(int(above["id"][1:]), shown["index"], number)
    return {"task": shown, "why": await look.at("why", task=name), "lines": await tail(look, above["user"], query)}


async def queue(look: PageData) -> Facts:
    return {"queue": await look.page_of("queue")}


async def workers(look: PageData) -> Facts:
    return {"workers": await look.page_of("workers", "state"), "slices": await look.all_of("slices")}


async def worker(look: PageData) -> Facts:
    return {"worker": await look.at("worker", id=identifier(look.segments["worker"], "worker"))}


async def sessions(look: PageData) -> Facts:
    return {
        "sessions": await look.page_of("sessions", "status"),
        "query": {"status": look.query.get("status", "")},
    }


async def users(look: PageData) -> Facts:
    return {"quotas": await look.page_of("users")}


async def events(look: PageData) -> Facts:
    found, _ = await newest_first(look.gateway.feed.streams, Filter(), EVENTS, None)
    return {"events": [event.shown() for event in found]}


async def tail(look: PageData, owner: str, query: LogQuery) -> list[LogLine]:
    """The last lines of output, if the caller may read them. Raises Problem."""
    gateway = look.gateway
    until = await gateway.logs.last(query) if may_read(look.caller, owner) else 0
    if not until:
        return []
    reading, last = Reading(query), deque[LogLine](maxlen=LOG_LINES)
    with gateway.logs.open(reading) as reader:
        async for lines in gateway.logs.present(reading, reader, until):
            last.extend(lines)
    last.extend(reading.rest())
    return list(last)
