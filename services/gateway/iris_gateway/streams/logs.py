"""Reads task output from its stream: the present output, and new output until the task or job has
ended.

Out of scope: splitting into lines (`log_lines`) and formatting (`log_formats`). Source:
docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from iris_bus.contract import Message, Reader, Streams, Unavailable
from iris_core import subjects
from iris_core.codec import Undecodable, unpack
from iris_core.messages.gateway_worker import TaskOutput
from iris_core.messages.message import AttemptRef
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams import readers
from iris_gateway.streams.completion import Completion
from iris_gateway.streams.log_lines import LogLine, Source, Splitter

_QUIET_S = 5.0
PAUSE_S = 0.2
"""How long a line may take to end before a follower gets what there is of it."""
_SILENT_S = 2.0
"""How long to wait for the next lines of unfinished output after the end; most ends are reported
after their output.
"""
_STOPPING_S = 10.0
"""The same for killed tasks, which may print while they stop."""
_GONE = "this output has expired"
INCOMPLETE = "the output may be incomplete: it cannot be read beyond this place"
_ENDS = (32, 1_000, 64_000)
"""How many messages of the stream's end are searched for last lines before all of it is."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The filter of a request for output.

    Attributes:
        job: its number. index: one task of it, or None for all.
        attempt: one attempt only. from_attempt: this attempt and later ones.
        streams: stdout, stderr. since_ms: no earlier output.
        unfinished: whether a follower gets what there is of lines that have not ended.
    """

    job: int
    index: int | None = None
    attempt: int | None = None
    from_attempt: int = 0
    streams: frozenset[str] = frozenset({"stdout", "stderr"})
    since_ms: int = 0
    unfinished: bool = False

    @property
    def subject(self) -> str:
        """The subject to read."""
        if self.index is None:
            return subjects.job_logs(self.job)
        return subjects.log(self.job, self.index)

    def wants(self, ref: AttemptRef) -> bool:
        if ref.job != self.job or self.index not in (None, ref.index):
            return False
        return (
            ref.attempt >= self.from_attempt
            if self.attempt is None
            else ref.attempt == self.attempt
        )


@dataclass(slots=True)
class Reading:
    """The progress of a reader of output.

    Attributes:
        position: last sequence read. safe: last sequence after which a reader can resume without
            missing a line.
        unfinished: sources whose end has not been read.
        whole: whether it began with the oldest output; else the first line read of a source may be
            the end of one.
    """

    query: LogQuery
    position: int = 0
    splitter: Splitter = field(default_factory=Splitter)
    unfinished: set[Source] = field(default_factory=set)
    whole: bool = True
    _begun: dict[Source, bool] = field(default_factory=dict)
    """Whether the first whole line of a source has come."""

    @property
    def safe(self) -> int:
        return self.splitter.complete_to(self.position)

    def take(self, messages: Sequence[Message]) -> list[LogLine]:
        """The matching lines that ``messages`` complete."""
        lines: list[LogLine] = []
        for message in messages:
            self.position = message.sequence
            lines.extend(self._lines(message))
        return lines

    def pieces(self, now_s: float) -> list[LogLine]:
        """What there is of lines that have not ended, where that is asked for."""
        if not self.query.unfinished:
            return []
        return self._recent(self.splitter.unfinished(now_s, PAUSE_S))

    @property
    def look_s(self) -> float:
        """After how long there may be something new without an arrival."""
        waits = self.query.unfinished and self.splitter.has_unfinished
        return PAUSE_S if waits else _QUIET_S

    def rest(self) -> list[LogLine]:
        """The incomplete lines that will not get an end."""
        return self._recent(self.splitter.rest())

    def _lines(self, message: Message) -> list[LogLine]:
        try:
            output = unpack(message.data, TaskOutput)
        except Undecodable:
            return []
        lines: list[LogLine] = []
        for chunk in output.chunks if self.query.wants(output.ref) else ():
            source = (output.ref.index, output.ref.attempt, chunk.stream)
            if chunk.stream not in self.query.streams:
                continue
            if chunk.final:
                self.unfinished.discard(source)
            else:
                self.unfinished.add(source)
            self._begun.setdefault(source, self.whole or not chunk.offset)
            lines.extend(self._recent(self.splitter.feed(source, chunk, message.sequence)))
        return lines

    def _recent(self, lines: Iterable[LogLine]) -> list[LogLine]:
        return [
            line for line in lines if self._is_whole(line) and line.at_ms >= self.query.since_ms
        ]

    def _is_whole(self, line: LogLine) -> bool:
        whole = self._begun[line.source]
        self._begun[line.source] = whole or not line.continued
        return whole


class LogReader:
    """Reads the output of all tasks.

    Args:
        silent_s: how long stored output may take to arrive. NATS delivers nothing after a message
            that its copy of the stream has lost.
    """

    def __init__(self, streams: Streams, silent_s: float = 5.0) -> None:
        self._streams = streams
        self._silent_s = silent_s

    async def last(self, query: LogQuery) -> int:
        """The sequence of the newest chunk, 0 when there is none. Raises ProblemResponse
        unavailable.
        """
        try:
            message = await self._streams.last(subjects.LOGS.name, subject=query.subject)
        except Unavailable:
            raise ProblemResponse("unavailable", "the logs cannot be read") from None
        return message.sequence if message is not None else 0

    def open(self, reading: Reading) -> AbstractContextManager[Reader]:
        """A reader behind the reading's position."""
        return readers.reading(
            self._streams, subjects.LOGS.name, reading.position, reading.query.subject
        )

    async def present(
        self, reading: Reading, reader: Reader, until: int
    ) -> AsyncIterator[list[LogLine]]:
        """Lines up to sequence ``until``. Raises ProblemResponse unavailable when they stop before
        it.
        """
        while reading.position < until:
            messages = await readers.batch(reader, self._silent_s, _GONE)
            if not messages:
                raise ProblemResponse("unavailable", INCOMPLETE)
            yield reading.take(messages)

    async def tail(self, query: LogQuery, last: deque[LogLine], until: int) -> Reading:
        """Fill ``last`` with the last lines up to sequence ``until``; returns a reading that goes
        on behind them.

        Reads ever more of the end of the stream, which other tasks share, until there are enough
        lines. Raises as `present`; ``last`` then has the lines before.
        """
        reading = Reading(query)
        for messages in (*_ENDS, until) if until else ():
            start = max(0, until - messages)
            reading = Reading(query, start, whole=not start)
            last.clear()
            with self.open(reading) as reader:
                async for lines in self.present(reading, reader, until):
                    last.extend(lines)
            if len(last) == last.maxlen or not start:
                break
        return reading

    async def coming(
        self, reading: Reading, reader: Reader, ending: Completion
    ) -> AsyncIterator[list[LogLine]]:
        """New lines until the end is known and all are read; an empty list after a silence. Raises
        as `present`.
        """
        arrival = ending.arrival
        reader.on_arrival(arrival.set)
        while not ending.known:
            await readers.arrived_within(arrival, reading.look_s)
            lines = reading.take(readers.taken(reader, _GONE))
            yield lines + reading.pieces(time.monotonic())
        if ending.cut_off:
            return
        async for lines in self.present(reading, reader, await self.last(reading.query)):
            yield lines
        silent_s = _STOPPING_S if ending.state == "killed" else _SILENT_S
        while reading.unfinished:
            arrived = await readers.arrived_within(arrival, silent_s)
            yield reading.take(readers.taken(reader, _GONE))
            if not arrived:
                return
