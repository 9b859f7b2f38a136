"""What `AsyncClient` and its handles do otherwise than by one call of the synchronous client on a
thread.

Threads of a pool send requests, and nothing else is run there: all waits for jobs share one stream
(`client.job_ends`), and whatever else waits long has a thread of its own. So a request is sent
however many waits and streams are open. Waits and streams end when their coroutine is cancelled.
Everything else of `client.async_client` is drawn from `Client`, `Job` and `Deployment`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from typing import Any, ParamSpec, Self, TypeVar, Unpack, cast, overload

from iris.client import deployments
from iris.client.client import Client
from iris.client.deployments import Deployment
from iris.client.http.event_stream import EventStream
from iris.client.http.events import Event, log_lines, log_query, read_events
from iris.client.http.transport import RETRY_FOR_S, UrlQuery
from iris.client.job_ends import JobEnds
from iris.client.jobs import TERMINAL, Job, resumable
from iris.client.maps.future import CallFuture
from iris.client.maps.mapping import Mapped
from iris.client.options.maps import KeywordSettings, MapOptions, MapSettings
from iris.client.problems import gave_up
from iris_core.views.deployments import DeploymentView
from iris_core.views.jobs import JobView
from iris_core.views.streams import LogLineView

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")

_THREADS = 64


class AsyncCalls:
    """Runs the calls of a synchronous client on threads of its own."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        context: str | None = None,
        timeout_s: float = 30.0,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        self.sync = Client(
            url, token=token, context=context, timeout_s=timeout_s, retry_for_s=retry_for_s
        )
        self.job_ends = JobEnds(self.sync)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="iris-client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the kept-alive connections and the threads."""
        self.job_ends.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.sync.close()

    @overload
    async def map(
        self,
        function: Callable[[A], R],
        first: Iterable[A],
        /,
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> AsyncMapped[R]: ...

    @overload
    async def map(
        self,
        function: Callable[[A, B], R],
        first: Iterable[A],
        second: Iterable[B],
        /,
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> AsyncMapped[R]: ...

    @overload
    async def map(
        self,
        function: Callable[[A, B, C], R],
        first: Iterable[A],
        second: Iterable[B],
        third: Iterable[C],
        /,
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> AsyncMapped[R]: ...

    @overload
    async def map(
        self,
        function: Callable[..., R],
        first: Iterable[Any],
        second: Iterable[Any],
        third: Iterable[Any],
        fourth: Iterable[Any],
        /,
        *more: Iterable[Any],
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> AsyncMapped[R]: ...

    @overload
    async def map(
        self,
        function: Callable[..., R],
        /,
        *iterables: Iterable[Any],
        kwargs: Mapping[str, Any] | None,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapSettings],
    ) -> AsyncMapped[R]: ...

    @overload
    async def map(
        self,
        function: Callable[..., R],
        /,
        *iterables: Iterable[Any],
        return_exceptions: bool,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[KeywordSettings],
    ) -> AsyncMapped[R | BaseException]: ...

    async def map(
        self,
        function: Callable[..., R],
        *iterables: Iterable[Any],
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapOptions],
    ) -> AsyncMapped[R]:
        """As `Client.map`, once all items of an iterator are submitted."""
        sync = cast("Any", self.sync)  # its overloads do not take what may be any of them
        mapped: Mapped[R] = await self.call(
            lambda: sync.map(function, *iterables, workdir=workdir, **options)
        )
        return await self._awaitable(mapped)

    async def starmap(
        self,
        function: Callable[..., R],
        items: Iterable[Iterable[Any]],
        *,
        workdir: str | os.PathLike[str] | None = None,
        **options: Unpack[MapOptions],
    ) -> AsyncMapped[R]:
        """As `Client.starmap`, once all items of an iterator are submitted."""
        mapped = await self.call(
            lambda: self.sync.starmap(function, items, workdir=workdir, **options)
        )
        return await self._awaitable(mapped)

    async def map_of(
        self, job: str, *, of_user: str | None = None, **options: Unpack[MapOptions]
    ) -> AsyncMapped[Any]:
        """As `Client.map_of`, once an open map is closed."""
        mapped = await self.call(lambda: self.sync.map_of(job, of_user=of_user, **options))
        return await self._awaitable(mapped)

    async def _awaitable(self, mapped: Mapped[R]) -> AsyncMapped[R]:
        """Raises what reading the items has raised."""
        await call_apart(mapped.wait_closed)
        return AsyncMapped(self, mapped)

    def logs(
        self,
        name: str,
        query: UrlQuery | None = None,
        *,
        follow: bool = True,
        unfinished: bool = False,
    ) -> AsyncIterator[LogLineView]:
        """As `Client.logs`."""
        stream = self.sync.open_logs(name, log_query(query, follow, unfinished))
        return self.read(stream, log_lines(stream, unfinished=unfinished))

    def events(self, query: UrlQuery | None = None) -> AsyncIterator[Event]:
        """As `Client.events`."""
        stream = self.sync.stream("/v1/events", query)
        return self.read(stream, read_events(stream))

    async def call(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the synchronous client on a thread and return its result. It sends requests
        and waits for nothing else.
        """
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: ask(*args, **kwargs)
        )

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """The items of a listing, of which each takes a request at most; it must not yield None."""
        while (item := await self.call(next, items, None)) is not None:
            yield item

    async def read(self, stream: EventStream, items: Iterator[T]) -> AsyncIterator[T]:
        """The items of a stream; the reading thread ends when the iteration does."""
        try:
            async for item in iterate_apart(items):
                yield item
        finally:
            stream.close()


@asynccontextmanager
async def own_thread() -> AsyncIterator[Callable[[Callable[[], T]], asyncio.Future[T]]]:
    """A thread for what may wait long: a function that runs another one there."""
    threads = ThreadPoolExecutor(1, thread_name_prefix="iris-wait")
    loop = asyncio.get_running_loop()
    try:
        yield lambda wait: loop.run_in_executor(threads, wait)
    finally:
        threads.shutdown(wait=False)


async def call_apart(wait: Callable[[], T]) -> T:
    """The result of what may wait long."""
    async with own_thread() as run:
        return await run(wait)


async def iterate_apart(items: Iterator[T]) -> AsyncIterator[T]:
    """The items of an iterator that may wait long for each; it must not yield None."""
    async with own_thread() as run:
        while (item := await run(lambda: next(items, None))) is not None:
            yield item


class AsyncMapped(list[asyncio.Future[R]]):
    """The result of a map, for asyncio: ``job``, and one awaitable future per item, in the order of
    the items.
    """

    def __init__(self, client: AsyncCalls, mapped: Mapped[R]) -> None:
        super().__init__(asyncio.wrap_future(future) for future in mapped.futures)
        self._client = client
        self.sync = mapped
        for future in self:
            future.add_done_callback(_heed)

    @property
    def job(self) -> JobWaits:
        """As `Mapped.job`: its name and id, its waits, and `cancel`."""
        return JobWaits(self._client, self.sync.job)

    async def as_completed(self, timeout: float | None = None) -> AsyncIterator[CallFuture[R]]:
        """As `Mapped.as_completed`: futures that have ended, whose results are there."""
        async for future in iterate_apart(self.sync.as_completed(timeout)):
            yield future

    async def results(self, timeout: float | None = None) -> list[R]:
        """As `Mapped.results`."""
        return await call_apart(lambda: self.sync.results(timeout))


def _heed(future: asyncio.Future[Any]) -> None:
    """Take note of an exception: `AsyncMapped.results` may be what raises it, and asyncio would log
    that nobody has.
    """
    if not future.cancelled():
        future.exception()


class JobWaits:
    """The waits of a job's handle, and its `cancel`: what the job of a map has too."""

    def __init__(self, client: AsyncCalls, job: Job) -> None:
        self._client = client
        self.sync = job

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"

    @property
    def id(self) -> str:
        return self.sync.id

    @property
    def name(self) -> str:
        return self.sync.name

    async def wait(self, timeout: float | None = None) -> JobView:
        """As `Job.wait`."""
        try:
            async with asyncio.timeout(timeout):
                with resumable(self.sync), self._client.job_ends.expect(self.sync) as news:
                    await news.next()
                    while (await self._client.call(self.sync.refresh)).state not in TERMINAL:
                        await news.next()
        except TimeoutError:
            raise gave_up(self.name, self.sync.state, timeout) from None
        return self.sync.view

    async def cancel(self, reason: str = "", *, now: bool = False) -> JobView:
        """As `Job.cancel`."""
        return await self._client.call(lambda: self.sync.cancel(reason, now=now))

    def raise_for_state(self) -> None:
        """As `Job.raise_for_state`, with the causes that have been read."""
        if self.sync.ended and self.sync.state != "succeeded":
            raise self.sync.ending()

    async def result(self, timeout: float | None = None) -> JobView:
        """As `Job.result`."""
        await self.wait(timeout)
        await self._client.call(self.sync.raise_for_state)
        return self.sync.view

    async def follow(self) -> AsyncIterator[Event]:
        """As `Job.follow`."""
        stream = self.sync.unopened_stream()
        with resumable(self.sync), closing(stream):
            await call_apart(stream.open)
            if (await self._client.call(self.sync.refresh)).state in TERMINAL:
                return
            async for event in iterate_apart(read_events(stream)):
                yield event
                if (
                    self.sync.is_end(event)
                    and (await self._client.call(self.sync.refresh)).state in TERMINAL
                ):
                    break

    def logs(self, *, follow: bool = True, unfinished: bool = False) -> AsyncIterator[LogLineView]:
        """As `Job.logs`."""
        return self._client.logs(self.id, follow=follow, unfinished=unfinished)


class DeploymentWaits:
    """The waits of a deployment's handle."""

    def __init__(self, client: AsyncCalls, deployment: Deployment) -> None:
        self._client = client
        self.sync = deployment

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"

    @property
    def id(self) -> str:
        return self.sync.id

    @property
    def name(self) -> str:
        return self.sync.name

    async def wait_ready(self, timeout: float | None = None) -> DeploymentView:
        """As `Deployment.wait_ready`."""
        try:
            async with asyncio.timeout(timeout):
                with deployments.resumable(self.sync):
                    while not await call_apart(self.sync.is_ready_within):
                        pass
        except TimeoutError:
            raise self.sync.gave_up(timeout) from None
        return self.sync.view
