"""`iris.Executor`: `concurrent.futures.Executor` on a cluster; each call is a task.

    with iris.Executor(cpu=1) as executor:
        print(executor.submit(pow, 2, 10).result())

Calls that are submitted within a moment become one map, so a hundred submissions in a row are one job.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, Unpack

import cloudpickle

from iris.client.client import Client
from iris.client.map_options import MapOptions
from iris.client.mapping import Mapped
from iris_core.spec import MAX_REPLICAS

T = TypeVar("T")

_GATHER_S = 0.01
Submission = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Executor(concurrent.futures.Executor):
    """Runs calls as tasks of a cluster.

    A future that is cancelled before its job is submitted is never called.

    Args:
        client: left out, one of its own, as ``Client()``.
        options: of the jobs, as of `Client.map`; a ``name`` gets the number of the job behind it.
    """

    def __init__(self, client: Client | None = None, **options: Unpack[MapOptions]) -> None:
        self._client = client or Client()
        self._owns_client = client is None
        self._options = options
        self._arrival = threading.Condition()
        self._waiting: list[Submission] = []
        self._closed = False
        self._maps: list[Mapped[Any]] = []
        self._number = 0
        self._sender = threading.Thread(target=self._send, name="iris-executor", daemon=True)
        self._sender.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function on some host. Raises RuntimeError after `shutdown`, and what pickling raises."""
        cloudpickle.dumps((fn, args, kwargs))  # else one call that cannot be sent would fail those beside it
        future: Future[T] = Future()
        with self._arrival:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append((future, fn, args, kwargs))
            self._arrival.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no further calls.

        Args:
            wait: return when all calls have ended. cancel_futures: end those that have not, also what runs.
        """
        with self._arrival:
            self._closed = True
            cancelled = [future for future, *_ in self._waiting] if cancel_futures else []
            self._arrival.notify()
        for future in cancelled:  # without the lock, because its callbacks may take locks of their own
            future.cancel()
        if wait or cancel_futures:
            self._sender.join()
        for mapped in self._maps:
            if cancel_futures:
                mapped.job.cancel("its executor was shut down")
            if wait:
                concurrent.futures.wait(mapped.futures)
        if wait and self._owns_client:
            self._client.close()

    def _send(self) -> None:
        """Submit what has arrived, until the executor is shut down and nothing is left."""
        for batch in self._batches():
            live = [submission for submission in batch if submission[0].set_running_or_notify_cancel()]
            if not live:
                continue
            try:
                # a lambda travels by value, so the hosts need no package of Iris
                mapped = self._client.starmap(
                    lambda function, args, kwargs: function(*args, **kwargs), [one[1:] for one in live], **self._named()
                )
            except BaseException as error:  # noqa: BLE001 - whoever waits for one of them must learn of it
                for future, *_ in live:
                    future.set_exception(error)
                continue
            self._maps = [*(one for one in self._maps if not all(f.done() for f in one.futures)), mapped]
            for (future, *_), call in zip(live, mapped.futures, strict=True):
                call.add_done_callback(partial(_pass_on, future))

    def _batches(self) -> Iterator[list[Submission]]:
        while True:
            with self._arrival:
                self._arrival.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
            self._gather()
            with self._arrival:
                batch, self._waiting = self._waiting[:MAX_REPLICAS], self._waiting[MAX_REPLICAS:]
            yield batch

    def _gather(self) -> None:
        """Wait while submissions follow one another."""
        seen = 0
        while not self._closed and seen < len(self._waiting) < MAX_REPLICAS:
            seen = len(self._waiting)
            threading.Event().wait(_GATHER_S)

    def _named(self) -> MapOptions:
        options = self._options.copy()
        if name := options.get("name"):
            self._number += 1
            options["name"] = f"{name}-{self._number}"
        return options


def _pass_on(future: Future[Any], call: Future[Any]) -> None:
    with suppress(concurrent.futures.InvalidStateError):
        if (error := call.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(call.result())
