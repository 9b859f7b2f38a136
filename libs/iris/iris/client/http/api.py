"""The gateway's API as typed requests: objects, listings, commands and streams.

Out of scope: sending requests (`transport`), the SDK's methods (`client`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar, Unpack

import msgspec

from iris.client.decode import from_json
from iris.client.http.address import Address, find_gateway
from iris.client.http.encode import encode_json
from iris.client.http.event_stream import EventStream
from iris.client.http.events import Event, log_lines, log_query, read_events
from iris.client.http.transport import (
    ANSWER_S,
    RETRY_FOR_S,
    HttpRequest,
    Response,
    Transport,
    UrlQuery,
    in_path,
)
from iris.client.options.names import takes
from iris.client.options.updates import UpdateOptions, job_changes
from iris_core.views.jobs import JobView, QueueHoldView, TaskView
from iris_core.views.streams import LogLineView

T = TypeVar("T")

PAGE_ITEMS = 500


class GatewayApi:
    """Typed requests to one gateway; see `Client` for the arguments."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        context: str | None = None,
        timeout_s: float = ANSWER_S,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        found = find_gateway(url, context=None if url else context)
        inside_task = "IRIS_JOB" in os.environ
        self.address = found if token is None else Address(found.url, token, found.origin)
        self.transport = Transport(
            self.address,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            first_timeout_s=retry_for_s if inside_task else 0.0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the kept-alive connections. No request is repeated any more, also none that is made
        later.
        """
        self.transport.close()

    def get(self, path: str, kind: type[T], query: UrlQuery | None = None) -> T:
        """One object."""
        return decode(self.transport.send(HttpRequest("GET", path, query or {})), kind)

    def pages(
        self, path: str, kind: type[T], query: UrlQuery | None = None, limit: int | None = None
    ) -> Iterator[T]:
        """The items of a listing, at most ``limit`` of them, fetched page by page."""
        requested: dict[str, str | int | bool | None] = {
            **(query or {}),
            "limit": min(limit or PAGE_ITEMS, PAGE_ITEMS),
        }
        left = limit
        while True:
            page = self.get(path, RawPage, requested)
            for item in page.items[:left]:
                yield from_json(item, kind)
            left = None if left is None else left - len(page.items)
            if page.next_cursor is None or (left is not None and left <= 0):
                return
            requested["cursor"] = page.next_cursor

    def post(
        self,
        path: str,
        kind: type[T],
        *,
        body: object = None,
        query: UrlQuery | None = None,
        key: str | None = None,
    ) -> T:
        """Send a command; retries have no further effect."""
        return self.change(
            "POST", path, kind, body={} if body is None else body, query=query, key=key
        )

    def change(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: object = None,
        query: UrlQuery | None = None,
        key: str | None = None,
        version: int | None = None,
    ) -> T:
        """As `post`, by another method; raises Conflict when ``version`` is not the object's
        present one.
        """
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        headers |= {} if version is None else {"If-Match": f'"{version}"'}
        data = None if body is None else encode_json(body)
        return decode(
            self.transport.send(HttpRequest(method, path, query or {}, data, headers=headers)), kind
        )

    def stream(
        self, path: str, query: UrlQuery | None = None, *, timeout: float | None = None
    ) -> EventStream:
        """Server-sent events of ``path``; close it, or use it in a ``with`` block."""
        return EventStream(self.transport, HttpRequest("GET", path, query or {}), timeout_s=timeout)

    def task(self, task: str) -> TaskView:
        """A task with its attempts, by name (``/train/0``). Raises NotFound."""
        return self.get(f"/v1/tasks/{in_path(task)}", TaskView)

    def fetch(
        self,
        task: str,
        directory: str | os.PathLike[str],
        *,
        attempt: int | None = None,
        on_read: Callable[[int, int], None] | None = None,
        on_replace: Callable[[str], None] | None = None,
    ) -> int:
        """Unpack what a task has left in its output directory below another, which is made; returns
        how many files.

        ``attempt``: None: the last one. ``on_read``: called with the bytes that have arrived, and
        of all. ``on_replace``: called with each file there that differed, by its size or time, and
        has been replaced. Raises NotFound when nothing is kept, Conflict before its end,
        InvalidArchive, OSError.
        """
        from iris.client.files.artifacts import fetch  # imported only for artifacts

        return fetch(
            self.transport, task, Path(directory), attempt, on_read=on_read, on_replace=on_replace
        )

    def cancel(self, name: str, reason: str = "", *, now: bool = False) -> JobView:
        """Kill a job and everything below it, or by the name of its task one call of a map or one
        task of an array with ``keep_going``; the others go on.

        ``now``: at once, also what is being stopped already, in place of the stop signal and the
        grace period of the job.

        Returns the job. Raises Conflict for a call that has ended, and for a task of another kind
        of job.
        """
        body = {key: value for key, value in {"reason": reason, "now": now}.items() if value}
        return self.post(f"{path_of(name)}/cancel", JobView, body=body)

    def requeue(self, name: str, reason: str = "") -> JobView:
        """Stop what runs of a job or a task (by name) and return it to the queue; a gang whole.
        Raises Conflict when nothing runs.
        """
        return self.post(
            f"{path_of(name)}/requeue", JobView, body={"reason": reason} if reason else {}
        )

    def close_map(self, job: str, reason: str = "") -> JobView:
        """Let an open map take no further calls: it ends with those that it has. Raises Conflict
        for another job.
        """
        return self.post(
            f"/v1/jobs/{in_path(job)}/calls", JobView, body={"close": True, "reason": reason}
        )

    def hold(
        self, job: str, reason: str = "", *, stop: bool = False, version: int | None = None
    ) -> JobView:
        """Keep a job's pending tasks out of the queue; running ones go on, or with ``stop`` wait
        with them, uncharged. Raises Conflict.
        """
        body = {"hold": True, "reason": reason, **({"stop": True} if stop else {})}
        return self.change("PATCH", f"/v1/jobs/{in_path(job)}", JobView, body=body, version=version)

    def release(self, job: str, *, drop_after: bool = False, version: int | None = None) -> JobView:
        """End a hold; with ``drop_after`` the job waits for no other one any more either. Raises
        Conflict.
        """
        body = {"hold": False, **({"after": []} if drop_after else {})}
        return self.change("PATCH", f"/v1/jobs/{in_path(job)}", JobView, body=body, version=version)

    @takes(UpdateOptions)
    def update(
        self, job: str, *, version: int | None = None, **options: Unpack[UpdateOptions]
    ) -> JobView:
        """Change a job that waits or runs: band, timeout, limits, labels; under the limits of a
        submission.

        ``version``: of the job as it was read; any by default. Raises Conflict, InvalidOption,
        Rejected.
        """
        return self.change(
            "PATCH", f"/v1/jobs/{in_path(job)}", JobView, body=job_changes(options), version=version
        )

    def hold_queue(
        self, *, user: str = "", band: str = "", label: str = "", reason: str = ""
    ) -> QueueHoldView:
        """Keep the pending tasks of all jobs with this user, band and label (``key=value``) from
        starting, also of jobs that are submitted later; what runs goes on. Raises Conflict when
        that is held already, NotAllowed.
        """
        given = {"user": user, "band": band, "label": label, "reason": reason}
        return self.post(
            "/v1/queue/holds",
            QueueHoldView,
            body={name: text for name, text in given.items() if text},
        )

    def release_queue(self, hold: str) -> None:
        """End a hold on the queue by its id, such as ``h1``. Raises NotFound, NotAllowed."""
        self.change("DELETE", f"/v1/queue/holds/{in_path(hold)}", dict)

    def queue_holds(self) -> list[QueueHoldView]:
        """The holds on the queue, oldest first."""
        return list(self.pages("/v1/queue/holds", QueueHoldView))

    def login_link(self) -> str:
        """An address of the dashboard that signs a browser in, once, within minutes. Raises
        NotAllowed.
        """
        return self.address.url + self.post("/v1/login-links", _LoginPath).path

    def logs(
        self,
        name: str,
        query: UrlQuery | None = None,
        *,
        follow: bool = True,
        unfinished: bool = False,
    ) -> Iterator[LogLineView]:
        """The lines of a job or a task (by name); with ``follow`` until it has ended, else the
        present ones.

        ``unfinished``: also what there is of a line that has not ended, such as a progress bar:
        with ``continued``, and its rest follows as the next line of that task, attempt and stream.
        """
        with self.open_logs(name, log_query(query, follow, unfinished)) as stream:
            yield from log_lines(stream, unfinished=unfinished)

    def open_logs(self, name: str, query: UrlQuery) -> EventStream:
        """The stream behind `logs`, not connected yet."""
        return self.stream(f"{path_of(name)}/logs", query)

    def events(self, query: UrlQuery | None = None) -> Iterator[Event]:
        """Every public event from now on, without end; lost connections are resumed without losing
        an event.
        """
        with self.stream("/v1/events", query) as stream:
            yield from read_events(stream)


class _LoginPath(msgspec.Struct, frozen=True):
    """Where a browser is signed in; ``path`` is below the gateway's address."""

    path: str


class RawPage(msgspec.Struct, frozen=True):
    """A page whose items are not decoded."""

    items: list[msgspec.Raw]
    next_cursor: str | None = None


def is_task(name: str) -> bool:
    """Whether a name or id is a task's: its last part is a number; ``@ann`` of its owner may
    follow.
    """
    plain = name.partition("@")[0]
    return "/" in plain.strip("/") and plain.rpartition("/")[2].isdigit()


def path_of(name: str) -> str:
    """The path of a job or a task."""
    return f"/v1/{'tasks' if is_task(name) else 'jobs'}/{in_path(name)}"


def decode(response: Response, kind: type[T]) -> T:
    """The object in a response. Raises Undecodable."""
    return from_json(response.body, kind)
