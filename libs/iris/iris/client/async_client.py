"""`AsyncClient`: the methods of `Client` as coroutines. Its requests run on its own threads, so it needs only
the standard library; a stream occupies one thread while it is open.

Every method calls the one of `Client`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar, Unpack

from iris.client.client import Client, IfExists
from iris.client.deployment_options import DeployOptions
from iris.client.deployments import Deployment
from iris.client.event_stream import EventStream
from iris.client.events import Event, read_events, read_lines
from iris.client.job_options import CommandLine, JobOptions
from iris.client.jobs import TERMINAL, Job
from iris.client.problems import gave_up
from iris.client.transport import RETRY_FOR_S, UrlQuery
from iris_core.causes import FailureGroup
from iris_core.spec import JobSpec
from iris_core.views import (
    NEWEST_FIRST,
    AuditView,
    DemandView,
    DeploymentView,
    HistoryRow,
    JobView,
    LogLineView,
    PlanView,
    RouteView,
    TaskView,
    TreeView,
    WorkerView,
)

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")

_THREADS = 64


class AsyncClient:
    """A connection to one gateway, for asyncio. Arguments and errors as of `Client`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        context: str | None = None,
        timeout_s: float = 30.0,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        self.sync = Client(url, token=token, context=context, timeout_s=timeout_s, retry_for_s=retry_for_s)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="iris-client")

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the kept-alive connections and the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.sync.close()

    async def run(
        self,
        command: CommandLine,
        *,
        workdir: str | os.PathLike[str] | None = None,
        idempotency_key: str | None = None,
        if_exists: IfExists = "error",
        **options: Unpack[JobOptions],
    ) -> AsyncJob:
        """As `Client.run`."""
        job = await self.call(
            lambda: self.sync.run(
                command, workdir=workdir, idempotency_key=idempotency_key, if_exists=if_exists, **options
            )
        )
        return AsyncJob(self, job)

    async def map(
        self,
        function: Callable[[A], R],
        items: Iterable[A],
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[JobOptions],
    ) -> list[asyncio.Future[R]]:
        """As `Client.map`; one awaitable future per item."""
        mapped = await self.call(lambda: self.sync.map(function, items, workdir=workdir, **options))
        return [asyncio.wrap_future(future) for future in mapped]

    async def submit(
        self,
        spec: JobSpec,
        *,
        idempotency_key: str | None = None,
        if_exists: IfExists = "error",
        parent: str | None = None,
    ) -> AsyncJob:
        """As `Client.submit`."""
        job = await self.call(
            lambda: self.sync.submit(spec, idempotency_key=idempotency_key, if_exists=if_exists, parent=parent)
        )
        return AsyncJob(self, job)

    async def plan(self, spec: JobSpec) -> PlanView:
        """As `Client.plan`."""
        return await self.call(self.sync.plan, spec)

    async def job(self, job: str) -> AsyncJob:
        """As `Client.job`."""
        return AsyncJob(self, await self.call(self.sync.job, job))

    def jobs(
        self,
        *,
        state: str | None = None,
        user: str | None = None,
        band: str | None = None,
        order: str = NEWEST_FIRST,
    ) -> AsyncIterator[JobView]:
        """As `Client.jobs`."""
        return self.iterate(self.sync.jobs(state=state, user=user, band=band, order=order))

    async def tree(self, job: str) -> TreeView:
        """As `Client.tree`."""
        return await self.call(self.sync.tree, job)

    async def task(self, task: str) -> TaskView:
        """As `Client.task`."""
        return await self.call(self.sync.task, task)

    async def demand(self) -> DemandView:
        """As `Client.demand`."""
        return await self.call(self.sync.demand)

    def workers(self) -> AsyncIterator[WorkerView]:
        """As `Client.workers`."""
        return self.iterate(self.sync.workers())

    def audit(
        self, *, by: str | None = None, of: str | None = None, since: str | None = None
    ) -> AsyncIterator[AuditView]:
        """As `Client.audit`."""
        return self.iterate(self.sync.audit(by=by, of=of, since=since))

    async def cancel(self, job: str, reason: str = "") -> JobView:
        """As `Client.cancel`."""
        return await self.call(self.sync.cancel, job, reason)

    async def fetch(self, task: str, directory: str | os.PathLike[str], *, attempt: int | None = None) -> int:
        """As `Client.fetch`."""
        return await self.call(self.sync.fetch, task, directory, attempt=attempt)

    async def rerun(self, job: str, *, failed_only: bool = False) -> AsyncJob:
        """As `Client.rerun`."""
        return AsyncJob(self, await self.call(self.sync.rerun, job, failed_only=failed_only))

    async def deploy(
        self,
        command: CommandLine,
        name: str,
        *,
        workdir: str | os.PathLike[str] | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[DeployOptions],
    ) -> AsyncDeployment:
        """As `Client.deploy`."""
        made = await self.call(
            lambda: self.sync.deploy(command, name, workdir=workdir, idempotency_key=idempotency_key, **options)
        )
        return AsyncDeployment(self, made)

    async def deployment(self, name: str) -> AsyncDeployment:
        """As `Client.deployment`."""
        return AsyncDeployment(self, await self.call(self.sync.deployment, name))

    def deployments(self, *, status: str | None = None, user: str | None = None) -> AsyncIterator[DeploymentView]:
        """As `Client.deployments`."""
        return self.iterate(self.sync.deployments(status=status, user=user))

    def logs(self, name: str, query: UrlQuery | None = None, *, follow: bool = True) -> AsyncIterator[LogLineView]:
        """As `Client.logs`."""
        stream = self.sync.open_logs(name, {"follow": follow, **(query or {})})
        return self.read(stream, read_lines(stream))

    def events(self, query: UrlQuery | None = None) -> AsyncIterator[Event]:
        """As `Client.events`."""
        stream = self.sync.stream("/v1/events", query)
        return self.read(stream, read_events(stream))

    async def call(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the synchronous client on a thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: ask(*args, **kwargs))

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """The items of an iterator that may block; it must not yield None."""
        while (item := await self.call(next, items, None)) is not None:
            yield item

    async def read(self, stream: EventStream, items: Iterator[T]) -> AsyncIterator[T]:
        """The items of a stream; the reading thread ends when the iteration does."""
        try:
            async for item in self.iterate(items):
                yield item
        finally:
            stream.close()


class AsyncJob:
    """One job, for asyncio; the names of `Job`."""

    def __init__(self, client: AsyncClient, job: Job) -> None:
        self._client = client
        self.sync = job

    def __repr__(self) -> str:
        return f"<AsyncJob {self.name} {self.state}>"

    @property
    def id(self) -> str:
        return self.sync.id

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def state(self) -> str:
        """Lower case, as last seen."""
        return self.sync.state

    @property
    def view(self) -> JobView:
        """The whole object, as last seen."""
        return self.sync.view

    @property
    def ended(self) -> bool:
        """Whether it had ended when last seen."""
        return self.sync.ended

    async def refresh(self) -> JobView:
        """As `Job.refresh`."""
        return await self._client.call(self.sync.refresh)

    async def wait(self, timeout: float | None = None) -> JobView:
        """As `Job.wait`."""
        try:
            async with asyncio.timeout(timeout):
                async for _ in self.follow():
                    pass
        except TimeoutError:
            raise gave_up(self.name, self.state, timeout) from None
        return self.view

    async def causes(self) -> list[FailureGroup]:
        """As `Job.causes`."""
        return await self._client.call(self.sync.causes)

    def raise_for_state(self) -> None:
        """As `Job.raise_for_state`, with the causes that have been read."""
        if self.ended and self.state != "succeeded":
            raise self.sync.ending()

    async def result(self, timeout: float | None = None) -> JobView:
        """As `Job.result`."""
        await self.wait(timeout)
        await self._client.call(self.sync.raise_for_state)
        return self.view

    async def follow(self) -> AsyncIterator[Event]:
        """As `Job.follow`."""
        stream = self.sync.unopened_stream()
        try:
            await self._client.call(stream.open)
            if (await self.refresh()).state in TERMINAL:
                return
            async for event in self._client.iterate(read_events(stream)):
                yield event
                if self.sync.is_end(event) and (await self.refresh()).state in TERMINAL:
                    break
        finally:
            stream.close()

    def tasks(self, *, state: str | None = None) -> AsyncIterator[TaskView]:
        """As `Job.tasks`."""
        return self._client.iterate(self.sync.tasks(state=state))

    def logs(self, *, follow: bool = True) -> AsyncIterator[LogLineView]:
        """As `Job.logs`."""
        return self._client.logs(self.id, follow=follow)

    async def cancel(self, reason: str = "") -> JobView:
        """As `Job.cancel`."""
        return await self._client.call(self.sync.cancel, reason)


class AsyncDeployment:
    """One deployment, for asyncio; every method is `Deployment`'s."""

    def __init__(self, client: AsyncClient, deployment: Deployment) -> None:
        self._client = client
        self.sync = deployment

    def __repr__(self) -> str:
        return f"<AsyncDeployment {self.name} {self.status}>"

    @property
    def id(self) -> str:
        return self.sync.id

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def status(self) -> str:
        """Lower case, as last seen."""
        return self.sync.status

    @property
    def view(self) -> DeploymentView:
        """The whole object, as last seen."""
        return self.sync.view

    @property
    def is_ready(self) -> bool:
        """As `Deployment.is_ready`."""
        return self.sync.is_ready

    async def refresh(self) -> DeploymentView:
        """As `Deployment.refresh`."""
        return await self._client.call(self.sync.refresh)

    async def wait_ready(self, timeout: float | None = None) -> DeploymentView:
        """As `Deployment.wait_ready`."""
        try:
            async with asyncio.timeout(timeout):
                while not await self._client.call(self.sync.is_ready_within):
                    pass
        except TimeoutError:
            raise self.sync.gave_up(timeout) from None
        return self.view

    async def scale(self, replicas: int) -> DeploymentView:
        """As `Deployment.scale`."""
        return await self._client.call(self.sync.scale, replicas)

    async def update(
        self, command: CommandLine | None = None, *, version: int | None = None, **options: Unpack[DeployOptions]
    ) -> DeploymentView:
        """As `Deployment.update`."""
        return await self._client.call(lambda: self.sync.update(command, version=version, **options))

    async def rollback(self, revision: int = 0) -> DeploymentView:
        """As `Deployment.rollback`."""
        return await self._client.call(self.sync.rollback, revision)

    async def pause(self) -> DeploymentView:
        """As `Deployment.pause`."""
        return await self._client.call(self.sync.pause)

    async def resume(self) -> DeploymentView:
        """As `Deployment.resume`."""
        return await self._client.call(self.sync.resume)

    async def delete(self) -> DeploymentView:
        """As `Deployment.delete`."""
        return await self._client.call(self.sync.delete)

    def routes(self) -> AsyncIterator[RouteView]:
        """As `Deployment.routes`."""
        return self._client.iterate(self.sync.routes())

    def history(self) -> AsyncIterator[HistoryRow]:
        """As `Deployment.history`."""
        return self._client.iterate(self.sync.history())

    async def why(self) -> dict[str, Any]:
        """As `Deployment.why`."""
        return await self._client.call(self.sync.why)
