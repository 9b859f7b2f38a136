"""Task output from its stream: what is there, and what comes until the task or job has ended.

Not in this room: how lines are cut out of chunks (`lines`) and written for people (`logbook`).
Source: interfaces.md sections 2 and 3; architecture.md section 2.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from iris_bus.contract import Gap, Message, Reader, Streams, Unavailable
from iris_core import subjects
from iris_core.codec import Undecodable, unpack
from iris_core.messages import AttemptRef, TaskOutput
from iris_gateway import readers
from iris_gateway.ending import Ending
from iris_gateway.lines import Line, Source, Splitter
from iris_gateway.problem import Problem

_QUIET_S = 5.0
_FLUSH_S = 2.0


@dataclass(frozen=True, slots=True)
class Wish:
    """Whose output is wanted.

    Attributes:
        job: its number. index: one task of it, or None for all.
        attempt: one attempt only. from_attempt: this attempt and later ones.
        streams: stdout, stderr. since_ms: nothing printed earlier.
    """

    job: int
    index: int | None = None
    attempt: int | None = None
    from_attempt: int = 0
    streams: frozenset[str] = frozenset({"stdout", "stderr"})
    since_ms: int = 0

    @property
    def subject(self) -> str:
        """What to read."""
        if self.index is None:
            return subjects.job_logs(self.job)
        return subjects.log(self.job, self.index)

    def wants(self, ref: AttemptRef) -> bool:
        if ref.job != self.job or self.index not in (None, ref.index):
            return False
        return ref.attempt >= self.from_attempt if self.attempt is None else ref.attempt == self.attempt


@dataclass(slots=True)
class Reading:
    """How far a reader of output has come.

    Attributes:
        position: last sequence read. safe: last sequence to resume behind without missing a line.
        unfinished: sources whose end has not been read.
    """

    wish: Wish
    position: int = 0
    splitter: Splitter = field(default_factory=Splitter)
    unfinished: set[Source] = field(default_factory=set)

    @property
    def safe(self) -> int:
        return self.splitter.complete_to(self.position)

    def take(self, messages: Sequence[Message]) -> list[Line]:
        """The wanted lines that ``messages`` complete."""
        lines: list[Line] = []
        for message in messages:
            self.position = message.sequence
            lines.extend(self._lines(message))
        return lines

    def rest(self) -> list[Line]:
        """What has no line end and will not get one."""
        return self._recent(self.splitter.rest())

    def _lines(self, message: Message) -> list[Line]:
        try:
            output = unpack(message.data, TaskOutput)
        except Undecodable:
            return []
        lines: list[Line] = []
        for chunk in output.chunks if self.wish.wants(output.ref) else ():
            source = (output.ref.index, output.ref.attempt, chunk.stream)
            if chunk.stream not in self.wish.streams:
                continue
            if chunk.final:
                self.unfinished.discard(source)
            else:
                self.unfinished.add(source)
            lines.extend(self._recent(self.splitter.feed(source, chunk, message.sequence)))
        return lines

    def _recent(self, lines: Iterable[Line]) -> list[Line]:
        return [line for line in lines if line.at_ms >= self.wish.since_ms]


class Logs:
    """The output of all tasks."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def last(self, wish: Wish) -> int:
        """The sequence of the newest chunk, 0 when there is none. Raises Problem unavailable."""
        try:
            message = await self._streams.last(subjects.LOGS.name, subject=wish.subject)
        except Unavailable:
            raise Problem("unavailable", "the logs cannot be read") from None
        return message.sequence if message is not None else 0

    def open(self, reading: Reading) -> AbstractContextManager[Reader]:
        """A reader behind the reading's position."""
        return readers.reading(self._streams, subjects.LOGS.name, reading.position, reading.wish.subject)

    async def present(self, reading: Reading, reader: Reader, until: int) -> AsyncIterator[list[Line]]:
        """Lines up to sequence ``until``."""
        while reading.position < until:
            messages = await _batch(reader)
            if not messages:
                return
            yield reading.take(messages)

    async def coming(self, reading: Reading, reader: Reader, ending: Ending) -> AsyncIterator[list[Line]]:
        """Lines as they come, until the end is known and nothing is left; an empty list after a quiet while."""
        bell = ending.bell
        reader.on_arrival(bell.set)
        while not ending.known:
            await _heard(bell, _QUIET_S)
            yield reading.take(_taken(reader))
        if ending.cut_off:
            return
        clock = asyncio.get_running_loop().time
        deadline = clock() + _FLUSH_S
        until = await self.last(reading.wish)
        while clock() < deadline and (reading.position < until or reading.unfinished):
            await _heard(bell, _FLUSH_S / 10)
            yield reading.take(_taken(reader))


async def _heard(bell: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await bell.wait()
    bell.clear()


def _taken(reader: Reader) -> Sequence[Message]:
    try:
        return reader.take()
    except Gap:
        raise Problem("gone", "this output is not kept any more") from None


async def _batch(reader: Reader) -> Sequence[Message]:
    try:
        return await reader.batch(wait=5.0)
    except Gap:
        raise Problem("gone", "this output is not kept any more") from None
