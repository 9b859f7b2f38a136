"""`Client.map`: one function over many items, each a task, each result a future.

Results come back through a stream of their own; large ones are artifacts. Out of scope: packing (`calls`), the task's
side (`call_runner`), what a result means (`outcomes`). Source: docs/design/interfaces.md#sdk;
docs/adr/0076-results-are-a-stream-of-their-own.md.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar, cast

from iris.client.api import GatewayApi
from iris.client.decode import from_json
from iris.client.jobs import Job
from iris.client.map_options import ResultOrder
from iris.client.outcomes import death_of, ending_of, outcomes_of, payload_of
from iris.client.problems import ClientError, Conflict
from iris_core.spec import Calls
from iris_core.states import TERMINAL, display_name
from iris_core.views import CallResultView, ResultsView

R = TypeVar("R")
_LOOK_S = 5.0
_FETCHED_AT_ONCE = 4
_ENDED = frozenset(display_name(state) for state in TERMINAL)


class CallFuture(Future[R], Generic[R]):
    """The future of one call. ``index``: of its task."""

    def __init__(self, mapped: Mapped[R], index: int) -> None:
        super().__init__()
        self.index = index
        self._mapped = mapped

    @property
    def task(self) -> str:
        """The name of its task."""
        return f"{self._mapped.job.name}/{self.index}"

    def cancel(self) -> bool:
        """Kill this call, also when it runs; the others go on.

        False when it has ended, and for a map with ``chunksize``, whose tasks make other calls too. Raises Problem,
        Unreachable.
        """
        if self.cancelled():
            return True
        if self.done() or not self._mapped.kill(self.index):
            return False
        if super().cancel():
            self.set_running_or_notify_cancel()
        return self.cancelled()


class Mapped(list[CallFuture[R]]):
    """The result of a map: ``job``, and one future per item, in order; empty and without a job for no items.

    Iterating yields futures in the order of the items, or with ``order="done"`` as they end.
    """

    def __init__(
        self,
        job: Job | None,
        api: GatewayApi,
        calls: Calls | None,
        *,
        retries: int = 0,
        order: ResultOrder = "items",
        return_exceptions: bool = False,
    ) -> None:
        count, self._chunksize = (0, 1) if calls is None else (calls.count, calls.chunksize)
        super().__init__(CallFuture(self, number // self._chunksize) for number in range(count))
        self._job = job
        self._api = api
        self._retries = retries
        self._order = order
        self._return_exceptions = return_exceptions
        self._failures: dict[int, set[int]] = {}
        self._suspects: set[int] = set()
        self._ended = threading.Event()
        self._arrival = threading.Condition()
        self._done: list[CallFuture[R]] = []
        for future in list.__iter__(self):
            future.add_done_callback(self._note)
        if job is not None:
            threading.Thread(target=self._collect, name=f"iris-map {job.name}", daemon=True).start()
            threading.Thread(target=self._watch, name=f"iris-map-watch {job.name}", daemon=True).start()

    __hash__ = object.__hash__  # type: ignore[assignment]

    @property
    def job(self) -> Job:
        """The job of the calls. Raises ValueError for a map over nothing."""
        if self._job is None:
            raise ValueError("a map over nothing has no job")
        return self._job

    @property
    def futures(self) -> list[CallFuture[R]]:
        """The futures in the order of the items."""
        return list(list.__iter__(self))

    def __iter__(self) -> Iterator[CallFuture[R]]:
        return list.__iter__(self) if self._order == "items" else self.as_completed()

    def kill(self, index: int) -> bool:
        """Kill one call, by the index of its task; False when it has ended, or shares its task with others."""
        if self._chunksize > 1:
            return False
        try:
            self._api.cancel(f"{self.job.id}/{index}")
        except Conflict:
            return False
        return True

    def as_completed(self, timeout: float | None = None) -> Iterator[CallFuture[R]]:
        """The futures in the order in which they end. Raises TimeoutError when some have not ended by then."""
        until_s = None if timeout is None else time.monotonic() + timeout
        for number in range(len(self)):
            with self._arrival:
                left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
                if not self._arrival.wait_for(partial(self._has_ended, number), left_s):
                    raise TimeoutError(f"{len(self) - number} of {len(self)} calls have not ended")
                future = self._done[number]
            yield future

    def results(self, timeout: float | None = None) -> list[Any]:
        """Every result, in the order in which the futures are iterated.

        Raises the exception of the first call that failed, as soon as one has, unless the map returns exceptions;
        TimeoutError when calls have not ended by then.
        """
        ended, left = concurrent.futures.wait(
            self.futures,
            timeout,
            concurrent.futures.ALL_COMPLETED if self._return_exceptions else concurrent.futures.FIRST_EXCEPTION,
        )
        raises = not self._return_exceptions and any(_error(future) is not None for future in ended)
        if left and not raises:
            raise TimeoutError(f"{len(left)} of {len(self)} calls have not ended")
        found = []
        for future in self.as_completed() if self._order == "done" else filter(ended.__contains__, self.futures):
            error = _error(future)
            if error is not None and raises:
                raise error
            found.append(future.result() if error is None else error)
        return found

    def _has_ended(self, number: int) -> bool:
        return len(self._done) > number

    def _note(self, future: Future[R]) -> None:
        with self._arrival:
            self._done.append(cast("CallFuture[R]", future))
            self._arrival.notify_all()

    # ── collecting ──────────────────────────────────────────────────────────────────────────────────────────────

    def _collect(self) -> None:
        """Set every future; whatever ends the reading of results is the error of those that are left."""
        try:
            with ThreadPoolExecutor(_FETCHED_AT_ONCE, "iris-map-fetch") as fetching:
                for result in self._arriving():
                    if result.stored:
                        fetching.submit(self._guarded, result)
                    else:
                        self._guarded(result)
            self.job.refresh()
            self._finish()
        except BaseException as error:  # noqa: BLE001 - nobody else would learn of it
            self._fail(self.futures, error)
        finally:
            self._ended.set()

    def _arriving(self) -> Iterator[CallResultView]:
        with self._api.stream(f"/v1/jobs/{self.job.id}/results") as stream:
            for event in stream:
                yield from from_json(event.data, ResultsView).results

    def _guarded(self, result: CallResultView) -> None:
        try:
            self._take(result)
        except BaseException as error:  # noqa: BLE001 - of this call only
            self._fail(self._of(result.index), error)

    def _take(self, result: CallResultView) -> None:
        futures = self._of(result.index)
        if all(future.done() for future in futures):
            return
        if result.kind != "died":
            outcomes = outcomes_of(result, payload_of(self._api, self.job.id, result))
            if all(error is None for _, error in outcomes) or self._is_last(result):
                for future, (value, error) in zip(futures, outcomes, strict=True):
                    _settle(future, value, error)
        elif self._is_last(result):
            self._fail(futures, death_of(f"{self.job.name}/{result.index}", result))

    def _is_last(self, result: CallResultView) -> bool:
        """Whether no attempt follows a failed one, as far as its result shows; else the job's record does."""
        if result.cause == "timeout":
            return True
        if result.cause != "exited":
            return False
        failed = self._failures.setdefault(result.index, set())
        failed.add(result.attempt)
        return len(failed) > self._retries

    def _of(self, index: int) -> list[CallFuture[R]]:
        """The futures of a task."""
        return self.futures[index * self._chunksize : (index + 1) * self._chunksize]

    # ── calls that leave no result ──────────────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        """Look at intervals for tasks that ended without a result: on a lost host, or before they started.

        Two looks must find it, because a result may be on its way when the record of its end is read.
        """
        while not self._ended.wait(_LOOK_S):
            with suppress(ClientError):
                self._look()

    def _look(self) -> None:
        counts = self.job.refresh().task_counts
        ended = sum(count for state, count in counts.items() if state in _ENDED and state != "succeeded")
        failed = {future.index for future in self.futures if future.done() and _error(future) is not None}
        if ended <= len(failed):
            return
        found = {
            task.index: task
            for state in counts
            if state in _ENDED and state != "succeeded"
            for task in self.job.tasks(state=state)
            if task.index not in failed
        }
        for index in self._suspects & found.keys():
            self._fail(self._of(index), ending_of(found[index].task, found[index]))
        self._suspects = set(found)

    def _finish(self) -> None:
        """Fail the remaining futures with the end of their tasks."""
        left = {future.index for future in self.futures if not future.done()}
        for task in self.job.tasks() if left else ():
            if task.index in left:
                self._fail(self._of(task.index), ending_of(task.task, task))
        self._fail(self.futures, ClientError(f"{self.job.name} ended, and nothing is known of this call"))

    def _fail(self, futures: Iterable[CallFuture[R]], error: BaseException) -> None:
        for future in futures:
            _settle(future, None, error)


def _error(future: Future[Any]) -> BaseException | None:
    """What a future that has ended raises."""
    return CancelledError() if future.cancelled() else future.exception()


def _settle(future: CallFuture[Any], value: object, error: BaseException | None) -> None:
    """Set a future, unless another thread has."""
    with suppress(concurrent.futures.InvalidStateError):
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
