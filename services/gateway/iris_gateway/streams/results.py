"""Reads the results of a map's calls from their stream: those that are there, and new ones until
the job has ended.

A worker stores a result before it reports the end of its attempt, so no result follows the end of a
job, unless it was killed. Maps that were submitted here just now share one reader of new results.
Source: docs/design/calls.md#results.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import NamedTuple

from iris_bus.contract import Gap, Message, Reader, Streams, Unavailable
from iris_core import subjects
from iris_core.codec import Undecodable, unpack
from iris_core.messages.gateway_worker import CallResult, CallResults
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams.completion import Completion
from iris_gateway.streams.feed import Lagging
from iris_gateway.streams.readers import (
    ONE,
    Turns,
    arrived_within,
    batch,
    close_soon,
    reading,
    taken,
)

log = logging.getLogger(__name__)

_QUIET_S = 5.0
_SILENT_S = 5.0
INBOX_BYTES = 4 << 20
"""Of results that a follower has not taken."""
_UNCLAIMED = 1000
"""Maps without a follower here that are known to have results."""
_REST_S = 10.0
GONE = "the results of this map are not kept any more"


class ResultBatch(NamedTuple):
    """Results of one message: its sequence, from which a reader resumes, and the token of the
    worker that sent it.
    """

    sequence: int
    worker: str
    results: tuple[CallResult, ...]


class Inbox:
    """The results of one map from now on, a `Reader`: `take` and `batch` raise Lagging once it may
    have missed some.
    """

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._is_lagging = False
        self._came = asyncio.Event()
        self._notify: Callable[[], None] = self._came.set

    def put(self, message: Message) -> None:
        self._bytes += len(message.data)
        if self._bytes > INBOX_BYTES:
            self.miss()
        else:
            self._messages.append(message)
            self._notify()

    def miss(self) -> None:
        """Get nothing from now on."""
        self._is_lagging = True
        self._messages.clear()
        self._notify()

    def on_arrival(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        if self._messages or self._is_lagging:
            notify()

    def take(self, limit: int = 2000) -> Sequence[Message]:
        if self._is_lagging:
            raise Lagging
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        self._bytes -= sum(len(message.data) for message in taken)
        return taken

    async def batch(self, *, limit: int = 2000, wait: float | None = None) -> Sequence[Message]:
        self.on_arrival(self._came.set)
        await arrived_within(self._came, wait)
        return self.take(limit)

    async def close(self) -> None:
        """Nothing: what opened it forgets it."""


class NewResults:
    """New results of all maps, for followers of some.

    It reads from the first follower on until there has been none for a rest, so calls one after
    another share it.

    Args:
        rest_s: how long it keeps reading without a follower.
    """

    def __init__(self, streams: Streams, rest_s: float = _REST_S) -> None:
        self._streams = streams
        self._rest_s = rest_s
        self._opening: asyncio.Task[None] | None = None
        self._reader: Reader | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._position = self._complete_from = 0
        self._inboxes: dict[str, list[Inbox]] = {}
        self._unclaimed: dict[str, int] = {}

    @property
    def position(self) -> int | None:
        """The sequence up to which results were passed on; None: it does not read."""
        return self._position if self._reader is not None else None

    def wake(self) -> None:
        """Read on from the present end of the stream, unless it is being read already."""
        if self._rest is not None:
            self._rest.cancel()
        self._rest = asyncio.get_running_loop().call_later(self._rest_s, self._may_rest)
        if self._reader is None and (self._opening is None or self._opening.done()):
            self._opening = asyncio.create_task(self._open())

    @contextlib.contextmanager
    def following(self, job: int, since: int) -> Iterator[Inbox | None]:
        """All results of a map behind a `position` from before its submission. None: some may have
        passed already.
        """
        key = str(job)
        inbox = Inbox()
        if self._reader is None or since < self._complete_from or key in self._unclaimed:
            yield None
            return
        inboxes = self._inboxes.setdefault(key, [])
        inboxes.append(inbox)
        try:
            yield inbox
        finally:
            inboxes.remove(inbox)
            if not inboxes:
                del self._inboxes[key]

    def close(self) -> None:
        """Stop reading; all followers lag."""
        if self._opening is not None:
            self._opening.cancel()
        if self._rest is not None:
            self._rest.cancel()
        reader = self._reader
        self._reader = None
        if reader is not None:
            close_soon(reader)
        for inboxes in self._inboxes.values():
            for inbox in inboxes:
                inbox.miss()

    async def _open(self) -> None:
        try:
            end = await self._streams.position(subjects.RESULTS.name)
        except Unavailable:
            return  # the next follower tries again
        self._position = self._complete_from = end.sequence
        self._unclaimed.clear()
        self._reader = self._streams.read(
            subjects.RESULTS.name, end.sequence, *subjects.RESULTS.subjects, made=end.made
        )
        self._reader.on_arrival(self._pass_on)

    def _pass_on(self) -> None:
        if self._reader is None:
            return
        try:
            messages = self._reader.take()
        except (Gap, Unavailable):
            self.close()
            return
        for message in messages:
            job = message.subject.rpartition(".")[2]
            for inbox in self._inboxes.get(job, ()):
                inbox.put(message)
            if job not in self._inboxes:
                self._unclaimed.pop(job, None)
                self._unclaimed[job] = message.sequence
            self._position = message.sequence
        while len(self._unclaimed) > _UNCLAIMED:
            self._complete_from = self._unclaimed.pop(next(iter(self._unclaimed)))

    def _may_rest(self) -> None:
        if self._inboxes:
            self.wake()
        else:
            self.close()


class ResultReader:
    """Reads the results of all maps."""

    def __init__(self, streams: Streams, turns: Turns | None = None) -> None:
        self._streams = streams
        self.turns = turns or Turns()
        self.new = NewResults(streams)

    async def last(self, job: int) -> int:
        """The sequence of the newest results of a job; 0: there are none. Raises ProblemResponse
        unavailable.
        """
        try:
            message = await self._streams.last(
                subjects.RESULTS.name, subject=subjects.job_results(job)
            )
        except Unavailable:
            raise ProblemResponse("unavailable", "the results cannot be read") from None
        return message.sequence if message is not None else 0

    async def follow(
        self, job: int, after: int, ending: Completion, since: int | None = None
    ) -> AsyncIterator[list[ResultBatch]]:
        """Results behind a sequence until the job has ended; an empty list after a silence.

        Args:
            since: a position of `NewResults` from before the job was submitted.

        Raises ProblemResponse unavailable, gone; Lagging.
        """
        self.new.wake()
        with contextlib.ExitStack() as stack:
            reader: Reader | None = None
            if since is not None and not after:
                reader = stack.enter_context(self.new.following(job, since))
            if reader is None:
                own = reading(
                    self._streams, subjects.RESULTS.name, after, subjects.job_results(job)
                )
                reader = stack.enter_context(own)
            reader.on_arrival(ending.arrival.set)
            position = after
            while not ending.known:
                await arrived_within(ending.arrival, _QUIET_S)
                found = taken(reader, GONE, ONE)
                if not found:
                    yield []
                while found:
                    position = found[-1].sequence
                    yield _unpacked(found)
                    await self.turns.give()
                    found = taken(reader, GONE, ONE)
            until = 0 if ending.cut_off else await self.last(job)
            while position < until:
                found = await batch(reader, _SILENT_S, GONE, ONE)
                if not found:
                    raise ProblemResponse(
                        "unavailable", "the results cannot be read beyond this place"
                    )
                position = found[-1].sequence
                yield _unpacked(found)
                await self.turns.give()


def _unpacked(messages: Sequence[Message]) -> list[ResultBatch]:
    found: list[ResultBatch] = []
    for message in messages:
        try:
            results = unpack(message.data, CallResults).results
            found.append(ResultBatch(message.sequence, subjects.sender(message.subject), results))
        except Undecodable as error:
            log.error("undecodable results at %d: %s", message.sequence, error)
    return found
