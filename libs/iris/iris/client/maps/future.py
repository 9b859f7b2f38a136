"""The future of one call of a map. Out of scope: what sets its outcome (`mapping`)."""

from __future__ import annotations

import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from iris.client.jobs import Job
from iris.client.problems import JobKilled

R = TypeVar("R")
_CHANGING = threading.Lock()


class Owner(Protocol):
    """The map that a call belongs to."""

    @property
    def job(self) -> Job: ...

    def kill(self, index: int) -> bool:
        """Kill one call, by the index of its task; False when it has ended, or shares its task with
        others.
        """


class CallFuture(Future[R], Generic[R]):
    """The future of one call.

    Attributes:
        index: of its task, once that is submitted.
        is_read: whether somebody has asked for its outcome once it had one.
    """

    index = -1
    is_read = False
    _mapped: Owner | None = None
    _kills = 0
    _is_notified = False

    @property
    def task(self) -> str:
        """The name of its task. Raises ValueError before that is submitted."""
        if self._mapped is None:
            raise ValueError("this call is not submitted yet")
        return f"{self._mapped.job.name}/{self.index}"

    @property
    def is_submitted(self) -> bool:
        return self._mapped is not None

    def result(self, timeout: float | None = None) -> R:
        """As of any future. Raises what the call has raised."""
        try:
            return super().result(timeout)
        finally:
            self.is_read = self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of any future."""
        try:
            return super().exception(timeout)
        finally:
            self.is_read = self.done()

    def bind(self, mapped: Owner, index: int) -> None:
        """The call is submitted; if it was cancelled meanwhile, it is killed."""
        self.index = index
        self._mapped = mapped
        if self.cancelled():
            mapped.kill(index)

    def running(self) -> bool:
        """Whether its task is submitted and has not ended; the cluster decides when it runs."""
        return self._mapped is not None and not self.done()

    def cancel(self) -> bool:
        """Kill this call, also when it runs; the others go on.

        False when it has ended, or shares its task with others (``chunksize``). Raises Problem,
        Unreachable.
        """
        if self.done():
            return self.cancelled()
        if (mapped := self._mapped) is not None:
            self._count_kill(1)  # before the end of its task is heard
            if not mapped.kill(self.index):
                self._count_kill(-1)
                return self.cancelled()
        self._end_cancelled()
        if mapped is None and self._mapped is not None and self.cancelled():
            self._mapped.kill(self.index)
        return self.cancelled()

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Set the outcome, unless another thread has. One that this process has killed is
        cancelled.
        """
        with suppress(InvalidStateError):
            if error is None:
                self.set_result(value)
            elif self._kills and isinstance(error, JobKilled):
                self._end_cancelled()
            else:
                self.set_exception(error)

    def expect_kill(self) -> None:
        """This process kills its job: if that ends it, it is cancelled."""
        self._count_kill(1)

    def _count_kill(self, more: int) -> None:
        """Another thread may be killing it too, and be told that it had ended."""
        with _CHANGING:
            self._kills += more

    def _end_cancelled(self) -> None:
        """Cancel it, unless it has ended, and wake whoever waits for it once."""
        if super().cancel():
            with _CHANGING:
                first = not self._is_notified
                self._is_notified = True
            if first:
                self.set_running_or_notify_cancel()
