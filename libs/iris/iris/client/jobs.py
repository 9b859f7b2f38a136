"""The handle of a submitted job: wait for it, follow it, read its output, cancel it.

Out of scope: sending requests (`http.transport`), other requests (`client`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from iris.client.causes import cause_lines, causes_of
from iris.client.http.api import GatewayApi
from iris.client.http.event_stream import EventStream
from iris.client.http.events import Event, read_events
from iris.client.http.transport import UrlQuery
from iris.client.problems import ClientError, JobEnded, following, gave_up, job_ended
from iris_core.states import JOB_TERMINAL, display_name
from iris_core.views.causes import FailureGroup
from iris_core.views.events import JobEvent
from iris_core.views.jobs import JobView, TaskView
from iris_core.views.streams import LogLineView
from iris_core.views.usage import UsageView

TERMINAL = frozenset(display_name(state) for state in JOB_TERMINAL)
"""The names of terminal states."""


def resumable(job: Job) -> AbstractContextManager[None]:
    """Within it, the error of a gateway that is away for too long says how to return to the job."""
    return following(
        job.name, f"`client.job({job.id!r})` returns to it, `iris wait {job.id}` waits for it"
    )


class Job:
    """One job. ``id`` is unique forever; ``name`` may be reused after the job has ended."""

    def __init__(self, api: GatewayApi, job: JobView) -> None:
        self._api = api
        self.id = job.id
        self.name = job.name
        self._seen = job
        self._causes: list[FailureGroup] | None = None

    def __repr__(self) -> str:
        return f"<Job {self.name} {self._seen.state}>"

    @property
    def state(self) -> str:
        """Lower case, as last read; `refresh` reads it again."""
        return self._seen.state

    @property
    def view(self) -> JobView:
        """The whole object, as last read."""
        return self._seen

    @property
    def ended(self) -> bool:
        """Whether it had ended when last read."""
        return self.state in TERMINAL

    def refresh(self) -> JobView:
        """Read it again. Raises Problem, Unreachable.

        An answer from before its end, which another thread had asked for, replaces no later one.
        """
        found = self._api.get(f"/v1/jobs/{self.id}", JobView)
        if found.state in TERMINAL or not self.ended:
            self._seen = found
        return self._seen

    def wait(self, timeout: float | None = None) -> JobView:
        """Wait until the job has ended, in any state; see `raise_for_state`.

        Args:
            timeout: seconds; None waits for ever.

        Raises WaitTimeout (the job continues), Problem, Unreachable.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with resumable(self):
            while self.refresh().state not in TERMINAL:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise gave_up(self.name, self.state, timeout)
                self._watch(left)
        return self._seen

    def causes(self) -> list[FailureGroup]:
        """Why it failed: its failed tasks by their last line, then those of the child jobs that
        failed below it.

        Read once after its end. Raises Problem, Unreachable.
        """
        if self._causes is None or not self.ended:
            self._causes = causes_of(self._api, self._seen)
        return self._causes

    def raise_for_state(self) -> None:
        """Raise the `JobEnded` subclass of its state, with its causes, unless it succeeded or has
        not ended.
        """
        if self.ended and self.state != "succeeded":
            with suppress(ClientError):
                self.causes()
            raise self.ending()

    def result(self, timeout: float | None = None) -> JobView:
        """`wait`, then `raise_for_state`."""
        self.wait(timeout)
        self.raise_for_state()
        return self._seen

    def follow(self) -> Iterator[Event]:
        """The events of the job, its tasks and its descendants from this call on, until the job has
        ended.

        Survives lost connections. Nothing is yielded when the job has ended already.
        """
        with resumable(self):
            stream = self.stream()
            try:
                if self.refresh().state not in TERMINAL:
                    return self._changes(stream)
            except BaseException:
                stream.close()
                raise
        stream.close()
        return iter(())

    def _changes(self, stream: EventStream) -> Iterator[Event]:
        with stream, resumable(self):
            for event in read_events(stream):
                yield event
                if self.is_end(event) and self.refresh().state in TERMINAL:
                    break

    def tasks(self, *, state: str | None = None, retried: bool = False) -> Iterator[TaskView]:
        """Its tasks by index, page by page. ``retried``: those of which an attempt ended and
        another followed, or follows.
        """
        query: UrlQuery = {"state": state, "retried": retried or None}
        return self._api.pages(f"/v1/jobs/{self.id}/tasks", TaskView, query)

    def task(self, index: int) -> TaskView:
        """One of its tasks. Raises NotFound."""
        return self._api.task(f"{self.id}/{index}")

    def usage(self) -> UsageView:
        """What it has held and used; its owner and admins read it."""
        return self._api.get(f"/v1/jobs/{self.id}/usage", UsageView)

    def logs(self, *, follow: bool = True, unfinished: bool = False) -> Iterator[LogLineView]:
        """The lines of its tasks in order of arrival; with ``follow`` until the job has ended.
        ``unfinished``: as `Client.logs`.
        """
        return self._api.logs(self.id, follow=follow, unfinished=unfinished)

    def cancel(self, reason: str = "", *, now: bool = False) -> JobView:
        """Cancel it and its descendants; cancelling an ended job changes nothing, but that ``now``
        kills at once what is being stopped of it. Raises Problem.
        """
        self._seen = self._api.cancel(self.id, reason, now=now)
        return self._seen

    def stream(self, timeout: float | None = None) -> EventStream:
        """Its events from now on; close it. ``timeout``: seconds after which it ends."""
        return self.unopened_stream(timeout).open()

    def unopened_stream(self, timeout: float | None = None) -> EventStream:
        """As `http.event_stream`, not connected yet."""
        return self._api.stream(f"/v1/jobs/{self.id}/events", timeout=timeout)

    def _watch(self, timeout: float | None) -> None:
        """Return when the job may have ended, or the time has passed."""
        with self.stream(timeout) as stream:
            if self.refresh().state not in TERMINAL:
                any(self.is_end(event) for event in read_events(stream))

    def is_end(self, event: Event) -> bool:
        """Whether the event is the end of this job."""
        return isinstance(event, JobEvent) and event.job_id == self.id and event.state in TERMINAL

    def ending(self) -> JobEnded:
        """The exception of its state, with the causes that have been read."""
        causes = tuple(self._causes or ())
        facts: dict[str, Any] = {"name": self.name, "state": self.state, "error": self._seen.error}
        return job_ended(facts, causes, cause_lines(self.name, list(causes)))
