"""`iris.Executor`: `concurrent.futures.Executor` on a cluster; each call is a task.

    with iris.Executor(cpu=1) as executor:
        print(executor.submit(pow, 2, 10).result())

Its calls are one job, which is open until the executor is shut down or the process ends. When that
job takes no further calls, because it is full or was ended by somebody, the next calls are a job of
their own.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar, Unpack

import cloudpickle

from iris.client.client import Client
from iris.client.maps.calls import explaining
from iris.client.maps.future import CallFuture
from iris.client.maps.open_map import OpenMap
from iris.client.maps.process_end import before_the_end
from iris.client.options.maps import MapOptions, check_options
from iris.client.options.names import refuse_unknown
from iris.client.problems import Conflict, InvalidOption
from iris_core.spec.jobs import MAX_REPLICAS

P = ParamSpec("P")
T = TypeVar("T")

_GATHER_S = 0.01
_OF_ITEMS = {"kwargs", "chunksize", "lookahead", "order", "return_exceptions"}
Submission = tuple[CallFuture[Any], bytes]


class Executor(concurrent.futures.Executor):
    """Runs calls as tasks of a cluster.

    A future that is cancelled is never called, or its task is killed if it runs.

    Args:
        client: left out, one of its own, as ``Client()``, which `shutdown` closes.
        options: of the job, as of `Client.map`, but those of its items and results; the name of a
            second job gets its number. Raises TypeError for an unknown option, InvalidOption.
    """

    def __init__(self, client: Client | None = None, **options: Unpack[MapOptions]) -> None:
        if client is not None and not isinstance(client, Client):
            raise TypeError(
                f"client is a Client, not {client!r}; how many calls run at a time is max_parallel="
            )
        if "max_workers" in options:
            raise TypeError("Executor() has no option 'max_workers'; use 'max_parallel'")
        refuse_unknown("Executor", options, MapOptions.__annotations__)
        if wrong := sorted(_OF_ITEMS & options.keys()):
            raise InvalidOption(
                f"an executor takes no {' and no '.join(wrong)}: each of its calls is a task"
            )
        check_options(options)
        self._client = client or Client()
        self._owns_client = client is None
        self._options = options
        self._arrival = threading.Condition()
        self._waiting: list[Submission] = []
        self._sending: list[Submission] = []
        self._process = os.getpid()
        self._closed = self._closes_client = False
        self._maps: list[OpenMap] = []
        self._number = 0
        self._sender = threading.Thread(target=self._send, name="iris-executor", daemon=True)
        self._sender.start()
        _EXECUTORS.add(self)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on some host. Raises RuntimeError after `shutdown` and in a fork of the
        process that has made the executor, and what pickling raises.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                f"this executor is of process {self._process}, of which this is a fork; make another"
            )
        with explaining(fn):
            arguments = cloudpickle.dumps((fn, args, kwargs))
        future: CallFuture[T] = CallFuture()
        with self._arrival:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append((future, arguments))
            self._arrival.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no further calls.

        Args:
            wait: return when all calls have ended. cancel_futures: cancel those that have not, also
                what runs.
        """
        with self._arrival:
            self._closed = True
            self._closes_client = self._owns_client and not (wait or cancel_futures)
            cancelled = [future for future, _ in self._waiting] if cancel_futures else []
            self._arrival.notify()
        for (
            future
        ) in cancelled:  # without the lock, because its callbacks may take locks of their own
            future.cancel()
        if wait or cancel_futures:
            self._sender.join()
        for one in self._maps:
            if cancel_futures:
                for future in one.mapped.futures:
                    future.expect_kill()
                one.mapped.job.cancel("its executor was shut down")
            if wait:
                concurrent.futures.wait(one.mapped.futures)
        if self._owns_client and not self._sender.is_alive():
            self._client.close()

    def flush(self, until_s: float) -> list[str]:
        """At the end of the process: submit what has arrived until then, on the monotonic clock,
        and take no further calls. Returns a sentence for each kind of loss.
        """
        with suppress(KeyboardInterrupt):  # whoever sent it does not want to wait
            self.shutdown(wait=False)
            self._sender.join(max(0.0, until_s - time.monotonic()))
        late = [future for future, _ in [*self._sending, *self._waiting]]
        left = sum(not future.is_submitted and not future.done() for future in late)
        return _losses({"the cluster has not confirmed them before the process ended": left})

    def _send(self) -> None:
        """Submit what has arrived, until the executor is shut down and nothing is left; then close
        its job.
        """
        for batch in self._batches():
            live = [one for one in batch if not one[0].done()]
            while live:
                live = self._submitted(live)
        if self._maps:
            self._maps[-1].close()
        if self._closes_client:  # what is sent later closes its connection
            self._client.close()

    def _submitted(self, batch: list[Submission]) -> list[Submission]:
        """Submit calls, as far as the job takes them; those that are left."""
        current = self._maps[-1] if self._maps else None
        if current is None or current.closed or not current.room:
            return self._begin(batch)
        now = batch[: current.room]
        left = batch[current.room :]
        try:
            current.add([arguments for _, arguments in now], [future for future, _ in now])
        except Conflict:  # it has ended, or was closed
            current.close()
            return batch
        except BaseException as error:  # noqa: BLE001 - whoever waits for one of them must learn of it
            self._fail(now, error)
        return left

    def _begin(self, batch: list[Submission]) -> list[Submission]:
        """Submit calls as a new job; those that are left."""
        if self._maps:
            self._maps[-1].close()
        now = batch[:MAX_REPLICAS]
        left = batch[MAX_REPLICAS:]
        try:
            # a lambda travels by value, so the hosts need no package of Iris
            mapped = self._client._submit_calls(
                lambda function, args, kwargs: function(*args, **kwargs),
                [arguments for _, arguments in now],
                len(now),
                self._named(),
                open_=True,
                futures=[future for future, _ in now],
            )
        except BaseException as error:  # noqa: BLE001 - whoever waits for one of them must learn of it
            self._fail(now, error)
        else:
            going_on = [
                one for one in self._maps if not all(future.done() for future in one.mapped.futures)
            ]
            self._maps = [*going_on, OpenMap(self._client, mapped)]
        return left

    def _batches(self) -> Iterator[list[Submission]]:
        while True:
            with self._arrival:
                came = self._arrival.wait_for(lambda: self._waiting or self._closed, self._keep_s())
                if came and not self._waiting:
                    return
            if not came:
                self._maps[-1].keep()
                continue
            self._gather()
            with self._arrival:
                batch = self._waiting[:MAX_REPLICAS]
                self._waiting = self._waiting[MAX_REPLICAS:]
                self._sending = batch
            yield batch

    def _keep_s(self) -> float | None:
        """After which time without calls its job wants to hear of it."""
        return self._maps[-1].keep_s if self._maps and not self._maps[-1].closed else None

    def _gather(self) -> None:
        """Wait while submissions follow one another."""
        seen = 0
        while not self._closed and seen < len(self._waiting) < MAX_REPLICAS:
            seen = len(self._waiting)
            threading.Event().wait(_GATHER_S)

    def _named(self) -> MapOptions:
        options = self._options.copy()
        self._number += 1
        if (name := options.get("name")) and self._number > 1:
            options["name"] = f"{name}-{self._number}"
        return options

    def _fail(self, batch: list[Submission], error: BaseException) -> None:
        _forget_known()
        for future, _ in batch:
            with suppress(concurrent.futures.InvalidStateError):  # it was cancelled meanwhile
                future.set_exception(error)
                _REFUSED.append(UnsentCall(future, id(self), f"{type(error).__name__}: {error}"))


class UnsentCall(NamedTuple):
    """A call that was not submitted: of which executor, and why."""

    future: CallFuture[Any]
    executor: int
    why: str


_EXECUTORS: weakref.WeakSet[Executor] = weakref.WeakSet()
_REFUSED: list[UnsentCall] = []
"""Calls that were not submitted. Who has read the outcome of one knows of all that an executor could
not submit for the same reason.
"""
_KNOWN: set[tuple[int, str]] = set()


def _forget_known() -> None:
    _KNOWN.update((one.executor, one.why) for one in _REFUSED if one.future.is_read)
    _REFUSED[:] = [one for one in _REFUSED if (one.executor, one.why) not in _KNOWN]


def _flush_all(until_s: float) -> list[str]:
    late = [loss for one in list(_EXECUTORS) for loss in one.flush(until_s)]
    _forget_known()
    return _losses(Counter(one.why for one in _REFUSED)) + late


def _losses(counts: Mapping[str, int]) -> list[str]:
    """A sentence for each reason why calls were not submitted, and how many it holds for."""
    return [
        f"calls of an executor that were not submitted: {count:,}; {why}"
        for why, count in counts.items()
        if count
    ]


def _forget_all() -> None:
    """In a fork: the threads of these executors run in the other process, which will tell."""
    _EXECUTORS.clear()
    _REFUSED.clear()
    _KNOWN.clear()


before_the_end(_flush_all)
os.register_at_fork(after_in_child=_forget_all)
