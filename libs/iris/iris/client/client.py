"""`Client`: everything the gateway offers, for programs; the CLI is its first user.

    with Client() as c:
        job = c.run(["python", "train.py"], name="train", tpu="v5litepod-16")
        job.wait()
        job.raise_for_state()

Needs the standard library, click's package aside, and msgspec only. Threads may share a client. Out of scope: the
asynchronous twin (`client.async_client`), jobs in the caller's hand (`jobs`), how a job is worded
(`client.job_options`). Source: docs/design/interfaces.md#http, docs/design/interfaces.md#sdk.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack

import msgspec

from iris.client.address import Address, find_gateway
from iris.client.decode import from_json
from iris.client.event_stream import EventStream
from iris.client.events import Event, read_events, read_lines
from iris.client.job_options import CommandLine, JobOptions, job_spec
from iris.client.jobs import Job
from iris.client.problems import InvalidOption, NotFound
from iris.client.transport import HttpRequest, Response, Transport, UrlQuery, in_path
from iris_core.spec import JobSpec
from iris_core.views import JobView, LogLineView, PlanView, TaskView, TreeView, WorkerView

if TYPE_CHECKING:
    from iris.client.mapping import Mapped

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")
IfExists = Literal["error", "keep", "replace"]

PAGE_ITEMS = 500
_INSIDE_RETRY_FOR_S = 30.0


class Client:
    """A connection to one gateway.

    Args:
        url: its address; left out, the first of ``IRIS_URL``, ``IRIS_GATEWAY_URL``, the context, the local cluster.
        token: bearer token; left out, ``IRIS_TOKEN`` or the context's. context: a named gateway.
        timeout_s: how long one answer may take. retry_for_s: how long a request is repeated while the gateway restarts.

    Raises NoGateway when nothing says where the gateway is. Every method may raise Problem and Unreachable.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        context: str | None = None,
        timeout_s: float = 30.0,
        retry_for_s: float = 30.0,
    ) -> None:
        found = find_gateway(url, context=None if url else context)
        inside_task = "IRIS_JOB" in os.environ
        self.address = Address(found.url, found.token if token is None else token, found.origin)
        self.transport = Transport(
            self.address,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            first_timeout_s=_INSIDE_RETRY_FOR_S if inside_task else 0.0,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the kept connections."""
        self.transport.close()

    def run(
        self,
        command: CommandLine,
        *,
        workdir: str | os.PathLike[str] | None = None,
        idempotency_key: str | None = None,
        if_exists: IfExists = "error",
        **options: Unpack[JobOptions],
    ) -> Job:
        """Submit a job and return at once;

        options as in ``iris run``. Raises InvalidOption, Conflict, NotFound, Rejected.

        ``workdir``: a directory sent along, the tasks' working directory.
        """
        if workdir is not None:
            options["bundle"] = self.send_bundle(Path(workdir))
        spec = job_spec(command, options, seed=self.seed(idempotency_key))
        parent = options.get("parent")
        return self.submit(spec, idempotency_key=idempotency_key, if_exists=if_exists, parent=parent)

    def seed(self, idempotency_key: str | None) -> str:
        """What a nameless job is named by, so that one key words the same job each time, and for nobody else."""
        return f"{self.transport.address.token}\0{idempotency_key}" if idempotency_key else ""

    def map(
        self,
        function: Callable[[A], R],
        items: Iterable[A],
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[JobOptions],
    ) -> Mapped[R]:
        """Call a function once per item, each call a task of one job; see `mapping` for what can be sent.

        Returns one future per item. A call that raises fails only its own future; the others go on. Raises
        InvalidOption for no items, and what pickling raises.
        """
        from iris.client.mapping import COMMAND, Mapped, packed_call  # only those who map need it

        calls = list(items)
        if not calls:
            raise InvalidOption("there is nothing to map: no items")
        options.setdefault("max_task_failures", len(calls))
        with packed_call(function, calls, Path(workdir) if workdir is not None else None) as packed:
            options["bundle"] = self.send_bundle(packed)
        options["replicas"] = len(calls)
        return Mapped(self.submit(job_spec(COMMAND, options), parent=options.get("parent")), len(calls))

    def submit(
        self,
        spec: JobSpec,
        *,
        idempotency_key: str | None = None,
        if_exists: IfExists = "error",
        parent: str | None = None,
    ) -> Job:
        """Submit a job that is already worded. The same idempotency key twice is one job, ever.

        Raises Conflict for a key that has made another job, NotFound for a ``parent`` that is not there.
        """
        query: UrlQuery = {"if_exists": None if if_exists == "error" else if_exists, "parent": parent or None}
        return Job(self, self.post("/v1/jobs", JobView, body=spec, query=query, key=idempotency_key))

    def plan(self, spec: JobSpec) -> PlanView:
        """What would become of it if it were submitted now; creates nothing."""
        return self.post("/v1/jobs:plan", PlanView, body=spec)

    def job(self, job: str) -> Job:
        """A job by name or id. Raises NotFound."""
        return Job(self, self.get(f"/v1/jobs/{in_path(job)}", JobView))

    def jobs(self, *, state: str | None = None, user: str | None = None, band: str | None = None) -> Iterator[JobView]:
        """Every job that fits, page by page."""
        return self.pages("/v1/jobs", JobView, {"state": state, "user": user, "band": band})

    def tree(self, job: str) -> TreeView:
        """A job and everything below it."""
        return self.get(f"/v1/jobs/{in_path(job)}/tree", TreeView)

    def task(self, task: str) -> TaskView:
        """A task with its attempts, by name (``/train/0``). Raises NotFound."""
        return self.get(f"/v1/tasks/{in_path(task)}", TaskView)

    def workers(self) -> Iterator[WorkerView]:
        """Every host."""
        return self.pages("/v1/workers", WorkerView)

    def cancel(self, job: str, reason: str = "") -> JobView:
        """Kill a job and everything below it."""
        return self.post(f"/v1/jobs/{in_path(job)}/cancel", JobView, body={"reason": reason} if reason else {})

    def rerun(self, job: str, *, failed_only: bool = False) -> Job:
        """Submit again what a job was, or only its tasks that did not succeed."""
        return Job(self, self.post(f"/v1/jobs/{in_path(job)}/rerun", JobView, body={"failed_only": failed_only}))

    def logs(self, name: str, query: UrlQuery | None = None, *, follow: bool = True) -> Iterator[LogLineView]:
        """The lines a job or a task (by name) printed; with ``follow`` until it has ended, else those there now."""
        with self.open_logs(name, {"follow": follow, **(query or {})}) as stream:
            yield from read_lines(stream)

    def open_logs(self, name: str, query: UrlQuery) -> EventStream:
        """The stream behind `logs`, not connected yet."""
        kind = "tasks" if is_task(name) else "jobs"
        return self.stream(f"/v1/{kind}/{in_path(name)}/logs", query)

    def events(self, query: UrlQuery | None = None) -> Iterator[Event]:
        """Every public event from now on, for ever; survives lost connections without losing one."""
        with self.stream("/v1/events", query) as stream:
            yield from read_events(stream)

    def send_bundle(self, directory: Path) -> str:
        """Store a directory's files and return the digest a job names them by; what is stored is not sent again."""
        from iris.client.bundle import pack_directory  # archives are needed by those who send one only

        with tempfile.TemporaryFile() as file:
            digest = pack_directory(directory, file)
            path = f"/v1/bundles/{digest}"
            try:
                self.transport.send(HttpRequest("HEAD", path))
            except NotFound:
                length = file.seek(0, os.SEEK_END)
                headers = {"Content-Type": "application/gzip", "Content-Length": str(length)}
                self.transport.send(HttpRequest("PUT", path, body=file, headers=headers))
            return digest

    def get(self, path: str, kind: type[T], query: UrlQuery | None = None) -> T:
        """One object."""
        return decode(self.transport.send(HttpRequest("GET", path, query or {})), kind)

    def pages(self, path: str, kind: type[T], query: UrlQuery | None = None, limit: int | None = None) -> Iterator[T]:
        """The items of a listing, at most ``limit`` of them, fetched page by page."""
        requested: dict[str, str | int | bool | None] = {**(query or {}), "limit": min(limit or PAGE_ITEMS, PAGE_ITEMS)}
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
        """Ask for something to be done, once however often it has to be sent."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key or uuid.uuid4().hex}
        data = msgspec.json.encode({} if body is None else body)
        return decode(self.transport.send(HttpRequest("POST", path, query or {}, data, headers)), kind)

    def stream(self, path: str, query: UrlQuery | None = None, *, timeout: float | None = None) -> EventStream:
        """Server-sent events of ``path``; close it, or use it in a ``with`` block."""
        return EventStream(self.transport, HttpRequest("GET", path, query or {}), timeout_s=timeout)


class RawPage(msgspec.Struct, frozen=True):
    """A page whose items are still JSON."""

    items: list[msgspec.Raw]
    next_cursor: str | None = None


def is_task(name: str) -> bool:
    """Whether a name or id is a task's: its last part is a number."""
    return "/" in name.strip("/") and name.rpartition("/")[2].isdigit()


def decode(response: Response, kind: type[T]) -> T:
    """The object in an answer. Raises Undecodable."""
    return from_json(response.body, kind)
