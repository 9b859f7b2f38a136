"""`Client.map`: one function over many items, each a task, each result a future.

Results come back through a stream of their own; large ones are artifacts. Out of scope: packing
(`calls`), the task's side (`call_runner`), what a result means (`outcomes`). Source:
docs/design/calls.md#results.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from iris.client.decode import from_json
from iris.client.http.api import GatewayApi
from iris.client.jobs import Job
from iris.client.maps.future import CallFuture
from iris.client.maps.outcomes import (
    CallOutcome,
    Superseded,
    death_of,
    ending_of,
    outcomes_of,
    payload_of,
)
from iris.client.options.maps import ResultOrder
from iris.client.problems import ClientError, Conflict, TryAgain, Unreachable, away
from iris_core.spec.calls import Calls
from iris_core.states import TERMINAL, display_name
from iris_core.views.jobs import JobView, TaskView
from iris_core.views.streams import CallResultView, ResultsView

R = TypeVar("R")
_LOOK_S = 5.0
_STORED_S = 60.0
"""So long the result of an attempt whose exit was reported may take to come here: its worker has
stored it before that, and a server, the leader of its stream or a gateway may be away.
"""
_FETCHED_AT_ONCE = 4
_LOOKS_S = (0.1, 0.3, 1.0)
"""Before each look at a task whose result does not tell whether it is tried again: stopped, it was
cancelled or preempted.
"""
_ENDED = frozenset(display_name(state) for state in TERMINAL)


class _Undecided(NamedTuple):
    """The result of an attempt of which is not known yet whether its task has ended with it.

    ``stored``: it is not read yet. ``needs_record``: the task's record says why it was stopped.
    ``settle``: set the futures of its calls, from the record of their task if there is one.
    """

    attempt: int
    stored: bool
    needs_record: bool
    settle: Callable[[TaskView | None], None]


class Mapped(list[CallFuture[R]]):
    """The result of a map: ``job``, and one future per item, in order; empty and without a job for
    no items.

    Iterating yields futures in the order of the items, or with ``order="done"`` as they end. An
    open map gets futures as calls are added; iterating it ends once it is closed, with the
    exception that reading its items has raised.

    Attributes:
        is_end_heard: whether that exception was raised.
    """

    is_end_heard = False

    def __init__(
        self,
        job: Job | None,
        api: GatewayApi,
        calls: Calls | None,
        *,
        order: ResultOrder = "items",
        return_exceptions: bool = False,
        futures: Sequence[CallFuture[R]] = (),
        fed: bool = False,
        of_user: str | None = None,
        counts_from: Mapping[int, int] | None = None,
    ) -> None:
        """``futures``: of the calls, one for each task, which their owner keeps; left out, new
        ones, which are kept. ``fed``: this process adds the calls of an open map. ``of_user``: the
        owner of the job, when it was named; the gateway gives results of another user's map to
        nobody who does not name that. ``counts_from``: of tasks that were tried again, the first
        attempt whose result counts.
        """
        super().__init__()
        count, self._chunksize = (0, 1) if calls is None else (calls.count, calls.chunksize)
        self._job = job
        self._api = api
        self._order = order
        self._return_exceptions = return_exceptions
        self._suspects: dict[int, float] = {}
        self._fetched: set[int] = set()
        self._counts_from = counts_from or {}
        self._ends: dict[int, int] = {}
        self._undecided: dict[int, _Undecided] = {}
        self._look_soon = threading.Event()
        self._ended = threading.Event()
        self._arrival = threading.Condition()
        self._done: list[CallFuture[R]] = []
        self._failed = False
        self._keeps = not futures
        self._fed = fed
        self._of_user = of_user
        self._open = job is not None and job.view.open
        self._end_error: BaseException | None = None
        self._listeners: list[Callable[[CallFuture[R]], object]] = []
        self.adopt(futures or [CallFuture() for _ in range(count)])
        if job is not None:
            self._start_collecting(job)

    def _start_collecting(self, job: Job) -> None:
        """Start the threads that set the futures; an interpreter that ends may refuse to."""
        try:
            threading.Thread(target=self._collect, name=f"iris-map {job.name}", daemon=True).start()
            threading.Thread(
                target=self._watch, name=f"iris-map-watch {job.name}", daemon=True
            ).start()
        except RuntimeError as error:
            words = (
                f"{job.name} is submitted, but this process ends and cannot wait for it ({error}); "
            )
            self._fail(self.futures, ClientError(words + f"client.map_of({job.id!r}) does"))

    def adopt(self, futures: Sequence[CallFuture[R]]) -> None:
        """Take the futures of calls that were added."""
        with self._arrival:
            first = len(self)
            self += futures
            self._arrival.notify_all()
        for number, future in enumerate(futures, first):
            future.bind(self, number // self._chunksize)
            future.add_done_callback(self._note)

    def listen(self, on_done: Callable[[CallFuture[R]], object]) -> None:
        """Call this with each future that has ended."""
        with self._arrival:
            self._listeners.append(on_done)
            ended = list(self._done)
        for future in ended:
            on_done(future)

    def end(self, error: BaseException | None = None) -> None:
        """No further calls are added by this process; ``error``: what ended that."""
        with self._arrival:
            self._fed = self._open = False
            self._end_error = error
            self._arrival.notify_all()

    def wait_closed(self) -> None:
        """Return once no further calls come. Raises what reading the items has raised."""
        with self._arrival:
            self._arrival.wait_for(lambda: not self._open)
        self._raise_end()

    @property
    def is_open(self) -> bool:
        """Whether further calls may come."""
        return self._open

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
        return self._in_order() if self._order == "items" else self.as_completed()

    def _in_order(self) -> Iterator[CallFuture[R]]:
        for number in itertools.count():
            with self._arrival:
                self._arrival.wait_for(lambda: len(self) > number or not self._open)  # noqa: B023 - called at once
                if number == len(self):
                    break
            yield self[number]
        self._raise_end()

    def kill(self, index: int) -> bool:
        """Kill one call, by the index of its task; False when it has ended, or shares its task with
        others.
        """
        if self._chunksize > 1:
            return False
        try:
            self._api.cancel(f"{self.job.id}/{index}")
        except Conflict:
            return False
        return True

    def as_completed(self, timeout: float | None = None) -> Iterator[CallFuture[R]]:
        """The futures in the order in which they end. Raises TimeoutError when some have not ended
        by then.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        for number in itertools.count():
            with self._arrival:
                left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
                if not self._arrival.wait_for(partial(self._is_settled, number), left_s):
                    raise self._late()
                if number == len(self._done):
                    break
                future = self._done[number]
            yield future
        self._raise_end()

    def results(self, timeout: float | None = None) -> list[R]:
        """Every result, in the order in which the futures are iterated.

        Raises the exception of the first call that failed, as soon as one has, unless the map
        returns exceptions; then what reading the items has raised; TimeoutError when calls have not
        ended by then.
        """
        with self._arrival:
            try:
                settled = self._arrival.wait_for(
                    lambda: self._raises() or self._is_settled(len(self)), timeout
                )
            except KeyboardInterrupt as stop:
                stop.add_note(
                    f"{self.job.name} goes on: client.map_of({self.job.id!r}), or iris cancel {self.job.id}"
                )
                raise
            if not settled:
                raise self._late()
            raises = self._raises()
            ended = list(self._done)
        if self._order == "items":
            known = set(ended)
            ended = [future for future in self.futures if future in known]
        found: list[Any] = []  # a map that returns exceptions has them in the type of its results
        for future in ended:
            error = _error(future)
            if error is not None and raises:
                raise error
            found.append(future.result() if error is None else error)
        self._raise_end()
        return found

    def _raises(self) -> bool:
        """Whether `results` raises the exception of a call."""
        return self._failed and not self._return_exceptions

    def _is_settled(self, number: int) -> bool:
        """Whether so many calls and one more have ended, or no other ones can."""
        return len(self._done) > number or (not self._open and len(self._done) == len(self))

    def _late(self) -> TimeoutError:
        left = len(self) - len(self._done)
        if not left:
            return TimeoutError("the map is open and waits for further items")
        return TimeoutError(f"{left} of {len(self)} calls have not ended")

    def _raise_end(self) -> None:
        if self._end_error is not None:
            self.is_end_heard = True
            raise self._end_error

    def _note(self, future: Future[R]) -> None:
        call = cast("CallFuture[R]", future)
        with self._arrival:
            self._failed |= _error(call) is not None
            if not self._keeps:  # their owner may drop them, and their results
                self[call.index] = _DROPPED
            self._done.append(self[call.index] if not self._keeps else call)
            listeners = list(self._listeners)
            self._arrival.notify_all()
        for on_done in listeners:
            on_done(call)

    # ── collecting ────────────────────────────────────────────────────────────────────────────────

    def _collect(self) -> None:
        """Set every future; whatever ends the reading of results is the error of those that are
        left.
        """
        try:
            with (
                ThreadPoolExecutor(_FETCHED_AT_ONCE, "iris-map-fetch") as fetching,
                closing(self._arriving()) as found,
            ):
                for result in found:
                    if result.stored:
                        self._fetched.add(result.index)
                        try:
                            fetching.submit(self._guarded, result)
                        except RuntimeError:  # an interpreter that ends starts no thread
                            self._guarded(result)
                    else:
                        self._guarded(result)
                    if self._is_settled(len(self)):
                        break  # nothing that follows is of a call
            if self._open or not all(future.done() for future in self.futures):
                self._learn()
                self._finish()
        except BaseException as error:  # noqa: BLE001 - nobody else would learn of it
            self._fail(self.futures, error)
        finally:
            self._ended.set()
            self._look_soon.set()
            with self._arrival:
                self._open = self._fed
                self._arrival.notify_all()

    def _arriving(self) -> Generator[CallResultView, None, None]:
        owner = {"user": self._of_user}
        with self._api.stream(f"/v1/jobs/{self.job.id}/results", owner) as stream:
            for event in stream:
                found = from_json(event.data, ResultsView)
                yield from found.results
                for index, attempt in zip(found.ended, found.ended_attempts, strict=False):
                    self._ends[index] = attempt
                    self._settle_reported(index)
                if not all(map(self._has_ended, found.ended)):
                    self._look_soon.set()

    def _has_ended(self, index: int) -> bool:
        """Whether the futures of a task are here and have ended."""
        futures = self[index * self._chunksize : (index + 1) * self._chunksize]
        return bool(futures) and all(future.done() for future in futures)

    def _guarded(self, result: CallResultView) -> None:
        try:
            self._take(result)
        except BaseException as error:  # noqa: BLE001 - of this call only
            self._fail(self._of(result.index), error)
        finally:
            self._fetched.discard(result.index)

    def _take(self, result: CallResultView) -> None:
        """Settle the futures of a task with the value that it has returned; anything else waits
        until the record says that the task has ended with this attempt.
        """
        futures = self._of(result.index)
        index = result.index
        if all(future.done() for future in futures) or not self._may_count(result):
            return
        outcomes: list[CallOutcome] | None
        try:
            outcomes = self._outcomes(result, len(futures))
        except Superseded:
            return
        except Conflict:  # its end is not recorded yet, nor that it is lost
            outcomes = None
        settle = partial(self._settle, result, outcomes)
        if outcomes is not None and all(error is None for _, error in outcomes):
            settle(None)
            return
        is_cancelled = result.cause == "cancelled"
        self._undecided[index] = _Undecided(
            result.attempt, outcomes is None, needs_record=is_cancelled, settle=settle
        )
        self._settle_reported(index)
        if is_cancelled:
            self._look_soon.set()  # its end may have been told before it was followed

    def _outcomes(self, result: CallResultView, calls: int) -> list[CallOutcome]:
        """What the calls of a task have left. Raises what `payload_of` raises."""
        name = f"{self.job.name}/{result.index}"
        if result.kind == "died":
            return [(None, death_of(name, result, calls))] * calls
        return outcomes_of(name, result, payload_of(self._api, self.job.id, result))

    def _settle(
        self, result: CallResultView, outcomes: list[CallOutcome] | None, task: TaskView | None
    ) -> None:
        """Set the futures of a task to what its calls have left; None: that is to be read.

        ``task``: its record, which says why it was stopped. Raises Conflict, Superseded.
        """
        futures = self._of(result.index)
        if task is not None and result.kind == "died" and result.cause == "cancelled":
            self._fail(futures, ending_of(task.task, task, len(futures), result))
        try:
            found = outcomes or self._outcomes(result, len(futures))
        except (Conflict, Superseded):
            raise
        except BaseException as error:  # noqa: BLE001 - of this call only
            self._fail(futures, error)
            return
        for future, outcome in zip(futures, found, strict=True):
            future.settle(*outcome)

    def _may_count(self, result: CallResultView) -> bool:
        """Whether no later attempt of its task is known of."""
        later = self._undecided.get(result.index)
        first = self._counts_from.get(result.index, 0) if later is None else later.attempt
        return result.attempt >= first

    def _settle_reported(self, index: int) -> None:
        """Settle the futures of a task whose end was told, with the result of its last attempt if
        that is here; one that has to be read, or its record, is looked at.
        """
        known = self._undecided.get(index)
        if known is None or self._ends.get(index) != known.attempt:
            return
        if known.stored or known.needs_record:
            self._look_soon.set()
        else:
            known.settle(None)

    def _of(self, index: int) -> list[CallFuture[R]]:
        """The futures of a task. One that was added a moment ago may have ended before that is
        known here.
        """
        first = index * self._chunksize
        if first >= len(self):
            with self._arrival:  # the answer to the request that added it is on its way
                self._arrival.wait_for(lambda: first < len(self) or not self._fed)
        if first >= len(self):
            self._learn()
        return self[first : first + self._chunksize]

    def _learn(self) -> JobView:
        """Read the job, and take calls that others have added."""
        found = self.job.refresh()
        calls = found.spec.calls
        if not self._fed and calls is not None:
            count = calls.count
            with self._arrival:  # another thread may learn of the same ones
                self.adopt([CallFuture() for _ in range(len(self), count)])
                self._open = found.open
                self._arrival.notify_all()
        return found

    # ── calls that leave no result ────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        """Look at intervals for tasks that ended without a result: on a lost host, or before they
        started.

        Two looks must find it, because a result may be on its way when the record of its end is
        read, unless it was never placed, or the result of its last attempt is here. How far apart
        they are is `_rest_s`: what others raised may be one of many results, or a large one.
        """
        while not self._ended.is_set():
            self._look_soon.wait(_LOOK_S)
            looks_s = _LOOKS_S if self._look_soon.is_set() else (0.0,)
            self._look_soon.clear()
            for pause_s in looks_s:
                if not self._ended.wait(pause_s):
                    with suppress(ClientError):
                        self._look()

    def _look(self) -> None:
        counts = self._learn().task_counts
        ended = sum(
            count for state, count in counts.items() if state in _ENDED and state != "succeeded"
        )
        failed = {
            future.index for future in self.futures if future.done() and _error(future) is not None
        }
        self._look_at_stored()
        if ended <= len(failed):
            return
        found = {
            task.index: task
            for state in counts
            if state in _ENDED and state != "succeeded"
            for task in self.job.tasks(state=state)
            if task.index not in failed and task.index not in self._fetched
        }
        now_s = time.monotonic()
        for index, task in found.items():
            since_s = self._suspects.get(index, math.inf)
            is_lost = not task.attempts or now_s - since_s >= _rest_s(task)
            if not self._decide(task) and is_lost:
                self._fail_lost(task)
        self._suspects = {index: self._suspects.get(index, now_s) for index in found}

    def _look_at_stored(self) -> None:
        """Read large results whose attempts had not ended when they were first asked for."""
        for index, known in list(self._undecided.items()):
            if known.stored and not self._has_ended(index):
                task = self.job.task(index)
                if task.state in _ENDED:
                    self._decide(task)

    def _decide(self, task: TaskView) -> bool:
        """Settle the futures of a task that has ended with the result of its last attempt; False
        without one.
        """
        known = self._undecided.get(task.index)
        if known is None or not task.attempts or task.attempts[-1].number != known.attempt:
            return False
        try:
            known.settle(task)
        except (Conflict, Superseded):
            return False
        return True

    def _finish(self) -> None:
        """Fail the remaining futures with the end of their tasks."""
        left = {future.index for future in self.futures if not future.done()}
        for task in self.job.tasks() if left else ():
            if task.index in left and not self._decide(task):
                self._fail_lost(task)
        self._fail(
            self.futures, ClientError(f"{self.job.name} ended, and nothing is known of this call")
        )

    def _fail_lost(self, task: TaskView) -> None:
        """Fail the futures of a task that left no result."""
        futures = self._of(task.index)
        self._fail(futures, ending_of(task.task, task, len(futures)))

    def _fail(self, futures: Iterable[CallFuture[R]], error: BaseException) -> None:
        if isinstance(error, Unreachable | TryAgain):
            job = self.job.id
            how = f"`client.map_of({job!r})` resumes it, `iris wait {job}` waits for it"
            error = away(error, self.job.name, how)
        for future in futures:
            future.settle(None, error)


def _rest_s(task: TaskView) -> float:
    """How long the result of a task that has ended is waited for until it has none."""
    if task.state == "killed":
        return 0.0
    last = task.attempts[-1]
    return _LOOK_S if last.exit_code is None and last.signal is None else _STORED_S


_DROPPED: CallFuture[Any] = CallFuture()
"""In place of a future that has ended and is not kept."""
_DROPPED.set_result(None)


def _error(future: Future[Any]) -> BaseException | None:
    """What a future that has ended raises."""
    return CancelledError() if future.cancelled() else future.exception()
