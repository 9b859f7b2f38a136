"""Reads task output from its stream: the present output, and new output until the task or job has
ended.

Out of scope: splitting into lines (`log_lines`) and formatting (`log_formats`). Source:
docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from iris_bus.contract import Message, Reader, Streams, Unavailable
from iris_core import subjects
from iris_core.codec import Undecodable, unpack
from iris_core.messages.gateway_worker import TaskOutput
from iris_core.messages.message import AttemptRef, ServiceMessage
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.streams import readers
from iris_gateway.streams.completion import Completion
from iris_gateway.streams.log_lines import EXPIRED, Block, LastLines, Source, Splitter
from iris_gateway.streams.readers import ONE, Turns

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


class _Whose(ServiceMessage, frozen=True):
    """As much of a `TaskOutput` as tells whether it is wanted; most on a shared subject are not."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The filter of a request for output.

    Attributes:
        job: its number. index: one task of it, or None for all.
        attempt: one attempt only. from_attempt: this attempt and later ones.
        streams: stdout, stderr. since_ms: no earlier output.
        unfinished: whether a follower gets what there is of lines that have not ended.
        evicted: what is said first of the output of a whole job that is not all there; empty:
            nothing. why_gone: why what is missing is not there.
    """

    job: int
    index: int | None = None
    attempt: int | None = None
    from_attempt: int = 0
    streams: frozenset[str] = frozenset({"stdout", "stderr"})
    since_ms: int = 0
    unfinished: bool = False
    evicted: str = ""
    why_gone: str = EXPIRED

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects to read: of a task one that it shares with neighbours, and one with all that
        is beyond the little which stands there.
        """
        if self.index is None:
            return (subjects.job_logs(self.job),)
        return subjects.task_logs(self.job, self.index)

    def wants(self, ref: AttemptRef) -> bool:
        if ref.job != self.job or self.index not in (None, ref.index):
            return False
        return self.wants_attempt(ref.attempt)

    def wants_attempt(self, number: int) -> bool:
        return number >= self.from_attempt if self.attempt is None else number == self.attempt


@dataclass(slots=True)
class Reading:
    """The progress of a reader of output.

    Attributes:
        position: last sequence read. safe: last sequence after which a reader can resume without
            missing a line.
        unfinished: sources whose end has not been read.
        whole: whether it began with the oldest output; else the first line read of a source may be
            the end of one.
        found: whether there was something of what is asked for, shown or not.
    """

    query: LogQuery
    position: int = 0
    splitter: Splitter = field(default_factory=Splitter)
    unfinished: set[Source] = field(default_factory=set)
    whole: bool = True
    found: bool = False
    _begun: dict[Source, bool] = field(default_factory=dict)
    """Whether the first whole line of a source has come."""
    _is_evicted_said: bool = False
    """Whether it was said that not all is there."""

    def __post_init__(self) -> None:
        self.splitter.why_gone = self.query.why_gone
        self.splitter.is_from_start = self.whole and not self.position
        self._is_evicted_said = not (self.query.evicted and self.splitter.is_from_start)

    @property
    def safe(self) -> int:
        return self.splitter.complete_to(self.position)

    def take(self, message: Message) -> list[Block]:
        """The matching lines that ``message`` completes."""
        self.position = message.sequence
        return list(self._blocks(message))

    def pieces(self, now_s: float) -> list[Block]:
        """What there is of lines that have not ended, where that is asked for."""
        if not self.query.unfinished:
            return []
        return list(self._recent(self.splitter.unfinished(now_s, PAUSE_S)))

    @property
    def look_s(self) -> float:
        """After how long there may be something new without an arrival."""
        waits = self.query.unfinished and self.splitter.has_unfinished
        return PAUSE_S if waits else _QUIET_S

    def rest(self) -> list[Block]:
        """The incomplete lines that will not get an end."""
        return list(self._recent(self.splitter.rest()))

    def _blocks(self, message: Message) -> Iterator[Block]:
        try:
            if not self.query.wants(unpack(message.data, _Whose).ref):
                return
            output = unpack(message.data, TaskOutput)
        except Undecodable:
            return
        self.found = True
        for chunk in output.chunks:
            source = (output.ref.index, output.ref.attempt, chunk.stream)
            if chunk.stream not in self.query.streams:
                continue
            if chunk.final:
                self.unfinished.discard(source)
            else:
                self.unfinished.add(source)
            self._begun.setdefault(source, self.whole or not chunk.offset)
            yield from self._recent(self.splitter.feed(source, chunk, message.sequence))

    def _recent(self, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in blocks:
            whole = self._begun[block.source]
            self._begun[block.source] = whole or b"\n" in block.data
            shown = block if whole else block.behind(1)
            if shown is not None and shown.at_ms >= self.query.since_ms:
                yield shown if self._is_evicted_said else self._with_notice(shown)

    def _with_notice(self, block: Block) -> Block:
        """The first block, with what is said before it."""
        self._is_evicted_said = True
        notices = (self.query.evicted, block.notice)
        return replace(block, notice=" ".join(notice for notice in notices if notice))


class LogReader:
    """Reads the output of all tasks.

    Args:
        silent_s: how long stored output may take to arrive. NATS delivers nothing after a message
            that its copy of the stream has lost.

    Attributes:
        turns: given to other requests between the messages of a long output.
    """

    def __init__(self, streams: Streams, silent_s: float = 5.0, turns: Turns | None = None) -> None:
        self._streams = streams
        self._silent_s = silent_s
        self.turns = turns or Turns()

    async def last(self, query: LogQuery) -> int:
        """The sequence of the newest chunk, 0 when there is none. Raises ProblemResponse
        unavailable.
        """
        name = subjects.LOGS.name
        try:
            found = [await self._streams.last(name, subject=one) for one in query.subjects]
        except Unavailable:
            raise ProblemResponse("unavailable", "the logs cannot be read") from None
        return max(message.sequence if message is not None else 0 for message in found)

    def open(self, reading: Reading) -> AbstractContextManager[Reader]:
        """A reader behind the reading's position."""
        return readers.reading(
            self._streams, subjects.LOGS.name, reading.position, *reading.query.subjects
        )

    async def present(
        self, reading: Reading, reader: Reader, until: int
    ) -> AsyncIterator[list[Block]]:
        """Lines up to sequence ``until``. Raises ProblemResponse unavailable when they stop before
        it.
        """
        while reading.position < until:
            messages = await readers.batch(reader, self._silent_s, _GONE, ONE)
            if not messages:
                raise ProblemResponse("unavailable", INCOMPLETE)
            for message in messages:
                yield reading.take(message)
                await self.turns.give()

    async def tail(self, query: LogQuery, last: LastLines, until: int) -> Reading:
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
                async for blocks in self.present(reading, reader, until):
                    last.extend(blocks)
            if last.is_full or not start:
                break
        return reading

    async def coming(
        self, reading: Reading, reader: Reader, ending: Completion
    ) -> AsyncIterator[list[Block]]:
        """New lines until the end is known and all are read; an empty list after a silence. Raises
        as `present`.
        """
        arrival = ending.arrival
        reader.on_arrival(arrival.set)
        while not ending.known:
            if not await readers.arrived_within(arrival, reading.look_s):
                yield []
            async for blocks in self._arrived(reading, reader):
                yield blocks
            if begun := reading.pieces(time.monotonic()):
                yield begun
        if ending.cut_off:
            return
        async for blocks in self.present(reading, reader, await self.last(reading.query)):
            yield blocks
        silent_s = _STOPPING_S if ending.state == "killed" else _SILENT_S
        while reading.unfinished:
            arrived = await readers.arrived_within(arrival, silent_s)
            async for blocks in self._arrived(reading, reader):
                yield blocks
            if not arrived:
                return

    async def _arrived(self, reading: Reading, reader: Reader) -> AsyncIterator[list[Block]]:
        """The lines of the messages that are there."""
        while messages := readers.taken(reader, _GONE, ONE):
            for message in messages:
                yield reading.take(message)
                await self.turns.give()
