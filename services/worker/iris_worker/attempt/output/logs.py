"""Schedules the reading of tasks' output, and batches it and the results of calls for their
streams.

See also: `shipper` sends and keeps the time, `tail` reads the files.
Source: docs/ARCHITECTURE.md#storage (IRIS_LOGS); docs/design/reliability.md#faults; ADR 18.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from iris_core import codec, subjects
from iris_core.messages.gateway_worker import CallResult, CallResults, TaskOutput
from iris_core.messages.message import AttemptRef
from iris_core.subjects import SHARED_OUTPUT_BYTES, STORED_MESSAGE_BYTES
from iris_worker.attempt.output.quota import LogQuota
from iris_worker.attempt.output.tail import OutputStream
from iris_worker.attempt.slots.workspaces import Workspace
from iris_worker.limits import LogLimits

TICK_S = 0.05
GATHER_S = 0.02
"""For how long the ends of attempts in whose place others run are gathered."""
_SLOW_S = 0.4
_STEADY_S = 0.5
_STEADY_EVERY = 200
_BATCH_BYTES = 4 * 1024 * 1024
_RESULTS_BYTES = 256 * 1024
QUOTA = "max_stored_today of the quota"
"""By which output of a muted job is dropped."""


@dataclass(slots=True, eq=False)
class Tail:
    """The output files of one attempt, and when to read them again.

    ``output_bytes``: what its messages take in the stream of output.
    """

    ref: AttemptRef
    streams: tuple[OutputStream, ...]
    budget: LogQuota
    due_s: float
    wait_s: float = TICK_S
    chunks: int = 0
    finished: bool = False
    replaced: bool = False
    result: CallResult | None = None
    output_bytes: int = 0

    def is_silent(self) -> bool:
        """Whether the attempt has printed and left nothing."""
        return self.result is None and not self.has_printed()

    def has_printed(self) -> bool:
        return any(stream.position or stream.has_more() for stream in self.streams)

    @property
    def printed(self) -> int:
        """Bytes of its output that have been read, or dropped."""
        return sum(stream.position for stream in self.streams)

    @property
    def dropped(self) -> int:
        """Bytes of its output that were dropped."""
        return sum(stream.dropped for stream in self.streams)

    @property
    def result_bytes(self) -> int:
        """What its result takes in the stream of results."""
        return 0 if self.result is None else len(self.result.data) + STORED_MESSAGE_BYTES

    def accept(self) -> int:
        """Count new output toward the quota; returns how many bytes were dropped instead."""
        return sum(stream.accept(self.budget) for stream in self.streams)

    def pace(self, now_s: float, printed: bool) -> None:
        """Adapt the interval of reads: short while the attempt prints, larger reads when it prints
        much, long while it is silent.
        """
        if printed:
            self.wait_s = min(_STEADY_S, TICK_S * (1 + self.chunks // _STEADY_EVERY))
        else:
            self.wait_s = min(_SLOW_S, self.wait_s * 1.5)
        self.due_s = now_s + self.wait_s


@dataclass(slots=True)
class Batch:
    """Messages that are sent together, the position of each stream once they are stored, and the
    attempts that are then complete.

    An attempt has one message in a batch, and the next batch is made when this one is stored: so
    each attempt's output is stored in order, even when part of it is sent twice.

    Attributes:
        size: bytes of output in it.
    """

    messages: list[tuple[str, bytes]] = field(default_factory=list)
    marks: list[tuple[Tail, OutputStream, int]] = field(default_factory=list)
    ended: list[Tail] = field(default_factory=list)
    size: int = 0

    @property
    def is_full(self) -> bool:
        return self.size >= _BATCH_BYTES


class OutputLogs:
    """The outputs of all attempts of ``worker`` that are not stored completely.

    Attributes:
        muted: the jobs of which nothing more is stored but the end of what they print.
    """

    def __init__(self, worker: str, limits: LogLimits | None = None) -> None:
        self._worker = worker
        self._limits = limits or LogLimits()
        self._live: dict[AttemptRef, Tail] = {}
        self._finishing: dict[AttemptRef, Tail] = {}
        self._look_s = 0.0
        self._dropped = 0
        self.muted: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self._live) + len(self._finishing)

    def follows(self, ref: AttemptRef) -> bool:
        """Whether the output of an attempt is read that has not ended."""
        return ref in self._live

    def follow(self, slot: Workspace, now_s: float, positions: tuple[int, int] = (0, 0)) -> None:
        """Read an attempt's output, from ``positions`` on when an earlier worker process stored the
        rest.
        """
        ref = slot.ref
        budget = LogQuota.full(self._limits, now_s, sum(positions))
        streams: tuple[OutputStream, ...] = ()
        if any(positions):
            streams = (
                OutputStream.resumed("stdout", slot.out, positions[0]),
                OutputStream.resumed("stderr", slot.err, positions[1]),
            )
            budget.ever = 0 if any(stream.dropped for stream in streams) else budget.ever
        elif not slot.reusable:
            streams = (OutputStream("stdout", slot.out), OutputStream("stderr", slot.err))
        self._live[ref] = Tail(ref, streams, budget, now_s + TICK_S, output_bytes=sum(positions))

    def output_bytes(self) -> dict[int, int]:
        """By job, what messages of running attempts take in their stream, where it is more than
        neighbours share a subject for.
        """
        found: dict[int, int] = {}
        for ref, tail in self._live.items():
            if tail.output_bytes > SHARED_OUTPUT_BYTES:
                found[ref.job] = found.get(ref.job, 0) + tail.output_bytes
        return found

    def is_silent(self, ref: AttemptRef) -> bool:
        """Whether an attempt has printed nothing."""
        return not (self._live.get(ref) or self._finishing[ref]).has_printed()

    def pass_on(self, ref: AttemptRef) -> None:
        """Another attempt has the files of one that has finished and has printed nothing."""
        self._finishing[ref].streams = ()

    def finish(
        self,
        ref: AttemptRef,
        result: CallResult | None = None,
        *,
        replaced: bool = False,
        silent: bool = False,
    ) -> bool:
        """Its processes have ended. True when it never printed anything; then nothing of it will be
        sent.

        ``result``: of a call, sent behind its output. ``replaced``: another attempt runs in its
        place already. ``silent``: it has printed nothing, and another one has its files.
        """
        tail = self._live.pop(ref)
        if silent:
            tail.streams = ()
        tail.result = result
        tail.replaced = replaced
        if tail.is_silent():
            return True
        tail.finished = True
        self._finishing[ref] = tail
        return False

    def forget(self, ref: AttemptRef) -> Tail:
        """Drop an attempt whose end is reported now. What was not stored of its output counts as
        dropped.
        """
        tail = self._finishing.pop(ref)
        for stream in tail.streams:
            stream.kept, stream.cut = stream.stored, stream.end
        return tail

    @property
    def is_urgent(self) -> bool:
        """Whether an attempt has ended and its end waits for its output."""
        return bool(self._finishing)

    @property
    def is_hurried(self) -> bool:
        """Whether the place of one of them is empty until its end is reported."""
        return any(not tail.replaced for tail in self._finishing.values())

    def dropped(self) -> int:
        """How many bytes were dropped since the last call."""
        dropped = self._dropped
        self._dropped = 0
        return dropped

    def accept(self) -> None:
        """Drop output over the quotas, so that the disk does not fill while the log stream is
        unreachable.
        """
        for tail in self._live.values():
            self._dropped += self._accept(tail)

    def collect(self, now_s: float, now_ms: int) -> Batch:
        """The output to send now; attempts that have ended come first."""
        batch = Batch()
        for tail in self._finishing.values():
            if not batch.is_full:
                self._collect(tail, now_s, now_ms, batch)
        if now_s >= self._look_s:
            for tail in self._live.values():
                if tail.due_s <= now_s and not batch.is_full:
                    tail.pace(
                        now_s, tail.has_printed() and self._collect(tail, now_s, now_ms, batch)
                    )
            if not batch.is_full:
                self._look_s = now_s + TICK_S
        batch.messages += self._results(batch.ended)
        return batch

    def _results(self, ended: Iterable[Tail]) -> Iterator[tuple[str, bytes]]:
        """The results of calls, many in one message."""
        by_job: dict[int, list[CallResult]] = {}
        for tail in ended:
            if tail.result is not None:
                by_job.setdefault(tail.ref.job, []).append(tail.result)
        for job, results in by_job.items():
            subject = subjects.results(self._worker, job)
            yield from ((subject, codec.pack(CallResults(job, part))) for part in _parts(results))

    def _collect(self, tail: Tail, now_s: float, now_ms: int, batch: Batch) -> bool:
        """Add one attempt's output; whether there was any."""
        tail.budget.refill(now_s)
        dropped = self._accept(tail)
        self._dropped += dropped
        found = []
        for stream in tail.streams:
            chunks = list(stream.chunks(tail.budget, tail.finished, now_ms))
            if chunks:
                found += chunks
                batch.marks.append((tail, stream, stream.position))
        if found:
            subject = subjects.output(self._worker, tail.ref.job, tail.ref.index, tail.printed)
            packed = codec.pack(TaskOutput(tail.ref, tuple(found)))
            batch.messages.append((subject, packed))
            tail.output_bytes += len(packed) + STORED_MESSAGE_BYTES
            batch.size += sum(len(chunk.data) for chunk in found)
            tail.chunks += len(found)
        if tail.finished and all(s.closed for s in tail.streams):
            batch.ended.append(tail)
        return bool(found or dropped)

    def _accept(self, tail: Tail) -> int:
        """Count the new output of an attempt; returns how many bytes were dropped instead."""
        if tail.ref.job in self.muted and tail.has_printed():
            tail.budget.end(QUOTA)
        return tail.accept()

    def stored(self, batch: Batch) -> list[tuple[AttemptRef, int, int]]:
        """The batch is stored. Returns the positions of the attempts that are not complete, for the
        process store.
        """
        for tail in batch.ended:
            self._finishing.pop(tail.ref, None)
        marks = [mark for mark in batch.marks if self._has(mark[0])]
        moved = {tail.ref: tail for tail, stream, position in marks if stream.confirm(position)}
        return [(ref, t.streams[0].stored, t.streams[1].stored) for ref, t in moved.items()]

    def _has(self, tail: Tail) -> bool:
        """Whether the files of a tail still belong to its attempt."""
        return self._live.get(tail.ref) is tail or self._finishing.get(tail.ref) is tail


def _parts(results: Iterable[CallResult]) -> Iterator[tuple[CallResult, ...]]:
    """Results in messages of about `_RESULTS_BYTES`."""
    part: list[CallResult] = []
    size = 0
    for result in results:
        if part and size + len(result.data) > _RESULTS_BYTES:
            yield tuple(part)
            part = []
            size = 0
        part.append(result)
        size += len(result.data)
    if part:
        yield tuple(part)
