"""What tasks print, on its way into the log stream: whose output is looked at when, and what is sent together.

Not in this room: sending and the clock (the shell's), and reading the files (tail).
Source: architecture.md section 2 (IRIS_LOGS); reliability.md section 2 "a log flood".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from iris_core import codec, subjects
from iris_core.messages import AttemptRef
from iris_worker.budget import Budget, LogLimits
from iris_worker.slots import Slot
from iris_worker.tail import Stream

TICK_S = 0.05
_SLOW_S = 0.4
_STEADY_S = 0.5
_STEADY_EVERY = 200
_BATCH_BYTES = 4 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Tail:
    """One attempt's outputs, and when they are worth a look again."""

    ref: AttemptRef
    subject: str
    streams: tuple[Stream, Stream]
    budget: Budget
    due_s: float
    wait_s: float = TICK_S
    chunks: int = 0
    finished: bool = False

    def is_silent(self) -> bool:
        """It never printed anything."""
        return not any(s.position or s.has_more() for s in self.streams)

    def pace(self, now_s: float, printed: bool) -> None:
        """Who prints is looked at often, who prints for long in larger bites, who is silent seldom."""
        if printed:
            self.wait_s = min(_STEADY_S, TICK_S * (1 + self.chunks // _STEADY_EVERY))
        else:
            self.wait_s = min(_SLOW_S, self.wait_s * 1.5)
        self.due_s = now_s + self.wait_s


@dataclass(slots=True)
class Batch:
    """Chunks that are sent together, where each stream stands once they are stored, and which attempts that ends.

    Attributes:
        size: bytes of output in it. dropped: bytes left out before and between its chunks.
    """

    messages: list[tuple[str, bytes]] = field(default_factory=list)
    marks: list[tuple[Tail, Stream, int]] = field(default_factory=list)
    ended: list[Tail] = field(default_factory=list)
    size: int = 0
    dropped: int = 0

    @property
    def is_full(self) -> bool:
        return self.size >= _BATCH_BYTES


class Logs:
    """All outputs of this worker that are not wholly told."""

    def __init__(self, limits: LogLimits | None = None) -> None:
        self._limits = limits or LogLimits()
        self._live: dict[AttemptRef, Tail] = {}
        self._finishing: dict[AttemptRef, Tail] = {}
        self._look_s = 0.0

    def __len__(self) -> int:
        return len(self._live) + len(self._finishing)

    def follow(self, slot: Slot, now_s: float, positions: tuple[int, int] = (0, 0)) -> None:
        """Watch an attempt's output, from ``positions`` on when an earlier worker told what was before."""
        ref = slot.ref
        streams = (
            Stream("stdout", slot.out, positions[0], positions[0]),
            Stream("stderr", slot.err, positions[1], positions[1]),
        )
        subject = subjects.log(ref.job, ref.index, ref.attempt)
        self._live[ref] = Tail(ref, subject, streams, Budget.full(self._limits, now_s), now_s + TICK_S)

    def finish(self, ref: AttemptRef) -> bool:
        """Its processes are gone. True when it never printed anything: it is forgotten, and nothing is to be sent."""
        tail = self._live.pop(ref)
        if tail.is_silent():
            return True
        tail.finished = True
        self._finishing[ref] = tail
        return False

    def forget(self, ref: AttemptRef) -> None:
        """Its end is told now; what is not stored yet is lost."""
        self._finishing.pop(ref, None)

    @property
    def is_urgent(self) -> bool:
        """An attempt has ended, and its end waits until its output is stored."""
        return bool(self._finishing)

    def collect(self, now_s: float, now_ms: int) -> Batch:
        """Everything that is worth sending now; attempts that have ended come first."""
        batch = Batch()
        for tail in self._finishing.values():
            if not batch.is_full:
                self._collect(tail, now_s, now_ms, batch)
        if now_s >= self._look_s:
            for tail in self._live.values():
                if tail.due_s <= now_s and not batch.is_full:
                    tail.pace(now_s, self._collect(tail, now_s, now_ms, batch))
            if not batch.is_full:
                self._look_s = now_s + TICK_S
        return batch

    def _collect(self, tail: Tail, now_s: float, now_ms: int, batch: Batch) -> bool:
        """Add what one attempt printed; whether there was anything."""
        tail.budget.refill(now_s)
        before = tail.chunks
        for stream in tail.streams:
            chunks = list(stream.chunks(tail.budget, tail.finished, now_ms))
            for chunk in chunks:
                batch.dropped += chunk.dropped
                batch.messages.append((tail.subject, codec.pack(chunk)))
                batch.size += len(chunk.data)
            if chunks:
                tail.chunks += len(chunks)
                batch.marks.append((tail, stream, stream.position))
        if tail.finished and all(s.closed for s in tail.streams):
            batch.ended.append(tail)
        return tail.chunks > before

    def stored(self, batch: Batch) -> list[tuple[AttemptRef, int, int]]:
        """The batch is in the stream. Returns where attempts that live on stand, for a worker after this one."""
        moved = {tail.ref: tail for tail, stream, position in batch.marks if stream.confirm(position)}
        for tail in batch.ended:
            self._finishing.pop(tail.ref, None)
        return [(ref, t.streams[0].stored, t.streams[1].stored) for ref, t in moved.items() if not t.finished]

    def unsent(self, batch: Batch) -> None:
        """The batch is lost: go on from where the stream is known to stand."""
        for tail, stream, _ in batch.marks:
            tail.budget.spend(-stream.rewind())
            tail.due_s = 0.0
        self._look_s = 0.0
