"""The simulated NATS server and its links: streams, core messages, and their faults.

The server stores like the in-memory bus does; each process has a link that delays, loses, repeats
and shuffles what the weather says. The contract of `iris_bus.contract` is kept: appends find out
what became of them, readers miss nothing, core messages may do anything. Out of scope: who talks.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from iris_bus.contract import (
    Callback,
    Entry,
    Fenced,
    Full,
    Gap,
    Headers,
    JournalEntry,
    Message,
    NoResponders,
    Publication,
    StoreStanding,
    Unavailable,
    checked_key,
)
from iris_bus.journal import framing
from iris_bus.journal.commits import AssembledReader
from iris_bus.journal.framing import PART_BYTES, Assembler, split
from iris_bus.streams.window import Window
from iris_core import codec, subjects
from iris_core.errors import Code
from iris_core.limits import MESSAGE_BYTES
from iris_core.messages.gateway_state import BEHIND, Answer, Query
from tests.sim.process import Process
from tests.support.memory_store import MemoryStream, digest, matches

_NOTICE_S = 1.0
_FORGET_S = 2.0
_ANSWER_S = 1.5
_RETRY_FOR_S = 15.0


class Crash(BaseException):
    """The process is killed in the middle of a step."""


@dataclass
class Weather:
    """What happens on the links now.

    Attributes:
        delay_s, jitter_s: of every message. loss, repeat: chances of core messages and of calls.
        shuffle_s: how much later one message in five comes. lag_s: how late readers of streams may
            be.
    """

    delay_s: float = 0.0005
    jitter_s: float = 0.0005
    loss: float = 0.0
    repeat: float = 0.0
    shuffle_s: float = 0.0
    lag_s: float = 0.0


FAIR = Weather()


class Server:
    """The NATS server, and the world's clock.

    Args:
        rng: the only source of chance in the whole simulation.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.weather = FAIR
        self.up = True
        self.links: list[Link] = []
        self.buckets: dict[str, dict[str, tuple[bytes, str]]] = {}
        self.key_values: dict[str, dict[str, Entry]] = {}
        self.key_revision = 0
        self.streams = {row.name: MemoryStream(row, self._soon) for row in subjects.STREAMS}
        self._stored = [
            (pattern.split("."), one)
            for one in self.streams.values()
            for pattern in one.row.subjects
        ]
        self._stored_first = {tokens[0] for tokens, _ in self._stored}
        self._listening: dict[str, list[Listening]] = {}
        self._wild: dict[str, list[Listening]] = {}
        self.journal_of_all_times: list[JournalEntry] = []
        self.journalled_s: list[float] = []
        self._assembler = Assembler()
        self.faults: dict[str, int] = {}
        self.writer: Process | None = None
        self.written_s = 0.0
        self.lies: list[str] = []
        self.largest = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._inboxes = 0
        self._told_s: dict[int, float] = {}
        self.appended: list[Callable[[Link, int], None]] = []
        self.struck: Callable[[str], None] = lambda fault: None
        self.crashed: Callable[[Process], None] = lambda process: None

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def at(self, delay_s: float, call: Callable[[], None]) -> None:
        """Have ``call`` made after ``delay_s``."""
        self._order += 1
        heapq.heappush(self._events, (self.now + delay_s, self._order, call))

    @property
    def next_s(self) -> float | None:
        return self._events[0][0] if self._events else None

    def happen(self) -> None:
        """Make the next event happen."""
        when, _, call = heapq.heappop(self._events)
        self.now = max(self.now, when)
        call()

    def _soon(self, call: Callable[[], None]) -> None:
        lag_s = self.weather.lag_s
        self.at(
            0.0003 + (self.rng.random() * lag_s if lag_s and self.rng.random() < 0.3 else 0.0), call
        )

    def count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1
        self.struck(fault)

    # ── faults ────────────────────────────────────────────────────────────────────────────────────

    def crash(self, seconds: float, lazily_lost: int = 0, settle_s: float = 0.0) -> None:
        """Gone for a while; of the events, written lazily, so many are lost, as far as they are
        younger than that.
        """
        self.up = False
        events = self.streams[subjects.EVENTS.name]
        for _ in range(lazily_lost):
            if events.last < events.first or self._told_s[events.last] < self.now - settle_s:
                break
            events.discard(events.last)
            events.last -= 1
        for link in self.links:
            link.cut(seconds + self.rng.random() * 0.5, told=True)
        self.at(seconds, self._back)

    def _back(self) -> None:
        self.up = True

    # ── core messages ─────────────────────────────────────────────────────────────────────────────

    def inbox(self) -> str:
        self._inboxes += 1
        return f"_INBOX.{self._inboxes}"

    def route(self, message: Message) -> bool:
        """Hand a message to every subscription; whether there was any."""
        heard = self._hand_out(message)
        stored = self._stream_of(message.subject)
        if stored is not None:
            stored.store(message.subject, message.data, message.headers)
        return heard or stored is not None

    def listen(self, listening: Listening) -> None:
        self._among(listening).setdefault(listening.pattern, []).append(listening)

    def unlisten(self, listening: Listening) -> None:
        """Nothing happens the second time."""
        among = self._among(listening)
        found = among.get(listening.pattern, [])
        if listening in found:
            found.remove(listening)
            if not found:
                del among[listening.pattern]

    def _among(self, listening: Listening) -> dict[str, list[Listening]]:
        return (
            self._wild if "*" in listening.pattern or ">" in listening.pattern else self._listening
        )

    def _hand_out(self, message: Message) -> bool:
        """To everybody who listens and is known to do so; whether there was any."""
        found = list(self._listening.get(message.subject, ()))
        tokens = message.subject.split(".")
        for some in self._wild.values():
            if matches(some[0].tokens, tokens):
                found += some
        reached = [each for each in found if each.link.known and each.link.process.alive]
        for each in self._one_of_each_queue(reached):
            each.link.deliver(message, each.callback)
        return bool(reached)

    def _one_of_each_queue(self, reached: list[Listening]) -> Iterator[Listening]:
        """Of those in one queue group the server chooses one; it does not know which of them hear
        it.
        """
        groups: dict[str, list[Listening]] = {}
        for each in reached:
            if each.queue:
                groups.setdefault(each.queue, []).append(each)
            else:
                yield each
        yield from map(self.rng.choice, groups.values())

    def store(
        self, subject: str, data: bytes, headers: Headers, expected: int | None = None
    ) -> int:
        self.weigh(subject, data)
        stored = self._stream_of(subject)
        assert stored is not None
        sequence = stored.store(subject, data, headers, expected)
        if stored.row is subjects.EVENTS:
            self._told_s[sequence] = self.now
        self._hand_out(Message(subject, data, headers))
        return sequence

    def weigh(self, subject: str, data: bytes) -> None:
        """Refuse what no server would take, and never forget it. Raises ValueError."""
        self.largest = max(self.largest, len(data))
        if len(data) > MESSAGE_BYTES:
            self.lies.append(f"a message of {len(data)} bytes on {subject}")
            raise ValueError(f"{len(data)} bytes are more than one message may hold")

    def journalled(self, sequence: int, data: bytes) -> None:
        """A part of a commit is in the journal."""
        if self._assembler.unfinished and framing.verify(sequence, data)[0] == 0:
            self.count("commit left unfinished")
        entry = self._assembler.add(sequence, data)
        if entry is not None:
            self.journal_of_all_times.append(entry)
            self.journalled_s.append(self.now)

    @property
    def journal_end(self) -> int:
        return self.streams[subjects.JOURNAL.name].last

    def _stream_of(self, subject: str) -> MemoryStream | None:
        tokens = subject.split(".")
        if tokens[0] not in self._stored_first:
            return None
        return next((stored for pattern, stored in self._stored if matches(pattern, tokens)), None)


class Link:
    """One process' connection, as the contract has it.

    Attributes:
        up: whether messages get through. known: whether the server still counts its subscriptions.
        connected: what the process itself believes.
    """

    def __init__(self, server: Server, process: Process) -> None:
        self.server = server
        self.process = process
        self.up = self.known = self.connected = True
        self.reconnects = 0
        self.listening: set[Listening] = set()
        self.bus = SimBus(self)
        self.streams = SimStreams(self)
        self.crash_after: int | None = None
        self.crash_between_parts = False
        self.before_append: Callable[[], None] | None = None
        self._asked: dict[str, deque[float]] = {}
        self._reads: dict[str, int] = {}
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._calls = 0
        self._cuts = 0
        server.links.append(self)
        process.on_death.append(self._dead)

    # ── the contract ──────────────────────────────────────────────────────────────────────────────

    def journal(self, part_bytes: int = PART_BYTES) -> SimJournal:
        return SimJournal(self, part_bytes)

    def publisher(self) -> SimPublisher:
        return SimPublisher(self)

    def blobs(self, bucket: str) -> SimBlobs:
        return SimBlobs(self, bucket)

    def key_value(self, bucket: str) -> SimKeyValue:
        return SimKeyValue(self, bucket)

    async def close(self) -> None:
        self._dead()

    # ── weather ───────────────────────────────────────────────────────────────────────────────────

    def cut(self, seconds: float, told: bool = False) -> None:
        """Nothing gets through for a while; both ends notice after a moment, or at once when
        ``told``.
        """
        self._cuts += 1
        cut = self._cuts
        self.up = False
        self.server.at(0.0 if told else _NOTICE_S, lambda: self._notice(cut))
        self.server.at(0.0 if told else _FORGET_S, lambda: self._forgotten(cut))
        self.server.at(seconds, lambda: self._heal(cut))

    def _notice(self, cut: int) -> None:
        if cut == self._cuts and not self.up:
            self.connected = False
            waiting, self._waiting = self._waiting, {}
            for future in waiting.values():
                self.process.soon(_fail, future)

    def _forgotten(self, cut: int) -> None:
        if cut == self._cuts and not self.up:
            self.known = False

    def _heal(self, cut: int) -> None:
        if cut != self._cuts:
            return
        if not self.server.up:
            self.server.at(0.25, lambda: self._heal(cut))
            return
        self.up = self.known = self.connected = True
        self.reconnects += 1
        for stored in self.server.streams.values():
            stored.wake()

    def _dead(self) -> None:
        self.up = self.known = False
        for listening in self.listening:
            self.server.unlisten(listening)
        self.listening.clear()
        if self in self.server.links:
            self.server.links.remove(self)

    # ── messages ──────────────────────────────────────────────────────────────────────────────────

    def send(self, message: Message) -> None:
        """On its way to the server, or nowhere. Raises Crash where the weather wants it, ValueError
        for a huge one.
        """
        self.server.weigh(message.subject, message.data)
        if not self.process.alive:
            return
        self._note_answer(message)
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self._crash("killed in the middle of sending")
        if not self.up:
            return
        self.server.at(self._delay(), lambda: self._reached(message))

    def between_parts(self) -> None:
        """One part of a commit is stored and the next is not. Raises Crash where the weather wants
        it.
        """
        if self.crash_between_parts and self.process.alive:
            self._crash("killed in the middle of a commit")

    def _crash(self, fault: str) -> None:
        self.server.count(fault)
        self.process.kill()
        self.server.crashed(self.process)
        raise Crash

    def _note_answer(self, message: Message) -> None:
        """Whoever writes the journal no longer may not answer what it was asked as the leader after
        that.
        """
        if message.subject in self._reads:
            self._note_read(codec.unpack(message.data, Answer), self._reads[message.subject])
            return
        waiting = self._asked.get(message.subject)
        asked_s = (
            waiting.popleft() if waiting else None
        )  # copies of a request are answered in the order they came
        server = self.server
        deposed = self.process.name.startswith("state") and server.writer not in (
            None,
            self.process,
        )
        if (
            asked_s is not None
            and deposed
            and asked_s > server.written_s
            and not _is_unavailable(message.data)
        ):
            server.lies.append(
                f"{self.process.name} was deposed, asked at {asked_s:.3f} s, and has answered"
            )

    def _note_read(self, answer: Answer, at_least: int) -> None:
        """Whoever follows may answer a read, as of a position that is durable and as far as it was
        asked for.
        """
        end = self.server.streams[subjects.JOURNAL.name].last
        if (
            answer.status not in (BEHIND, Code.UNAVAILABLE.value)
            and not at_least <= answer.position <= end
        ):
            words = f"a read as of {at_least} at least with the journal as of {answer.position} of {end}"
            self.server.lies.append(f"{self.process.name} has answered {words}")

    def _reached(self, message: Message) -> None:
        if self.server.up and not self.server.route(message) and message.reply:
            self._no_responders(message)

    def _no_responders(self, message: Message) -> None:
        call = self.bus.calls.get(message.reply)
        if call is not None:
            self.server.at(self._delay(), lambda: self.process.soon(_fail, call, True))
        else:
            self.server.route(Message(message.reply, b""))

    def deliver(self, message: Message, callback: Callback) -> None:
        """On its way from the server; a subscriber's messages stay in order unless the weather is
        wild.
        """
        rng, weather = self.server.rng, self.server.weather
        if self._is_lost("message lost"):
            return
        copies = 1
        if weather.repeat and rng.random() < weather.repeat:
            self.server.count("message doubled")
            copies = 2
        for _ in range(copies):
            late = (
                rng.random() * weather.shuffle_s
                if weather.shuffle_s and rng.random() < 0.2
                else 0.0
            )
            if late:
                self.server.count("message late")
            self.server.at(self._delay() + late, lambda: self._arrived(message, callback))

    def _arrived(self, message: Message, callback: Callback) -> None:
        if self.up:
            if message.subject == subjects.STATE_READ:
                self._reads[message.reply] = codec.unpack(message.data, Query).at_least
            elif message.reply and message.subject != subjects.STATE_PING:
                self._asked.setdefault(message.reply, deque()).append(self.server.now)
            self.process.soon(callback, message)

    def _delay(self) -> float:
        weather = self.server.weather
        return weather.delay_s + self.server.rng.random() * weather.jitter_s

    # ── calls of the server ───────────────────────────────────────────────────────────────────────

    async def call(self, effect: Callable[[], Any], timeout: float = _ANSWER_S) -> Any:
        """Have the server do something and hear how it went. Raises Unavailable: it may or may not
        have been done.
        """
        if not self.connected:
            raise Unavailable("not connected")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls += 1
        number = self._calls
        self._waiting[number] = future
        if self.up and self.process.alive:
            self.server.at(self._delay(), lambda: self._do(effect, future))
        try:
            async with asyncio.timeout(timeout):
                outcome = await future
        except TimeoutError:
            raise Unavailable("no answer in time") from None
        finally:
            self._waiting.pop(number, None)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _do(self, effect: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        if not self.server.up or self._is_lost("call lost"):
            return
        try:
            outcome = effect()
        except (Fenced, Gap, Full) as error:
            outcome = error
        if self.up and not self._is_lost("answer lost"):
            self.server.at(self._delay(), lambda: self._answer(future, outcome))

    def _is_lost(self, what: str) -> bool:
        loss = self.server.weather.loss
        lost = bool(loss) and self.server.rng.random() < loss
        if lost:
            self.server.count(what)
        return lost

    def _answer(self, future: asyncio.Future[Any], outcome: Any) -> None:
        if self.up:
            self.process.soon(_settle, future, outcome)


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if not future.done():
        future.set_result(outcome)


def _fail(future: asyncio.Future[Any], deaf: bool = False) -> None:
    if not future.done():
        future.set_result(
            NoResponders("nobody listens") if deaf else Unavailable("the connection is gone")
        )


@dataclass(frozen=True, eq=False)
class Listening:
    """One subscription."""

    link: Link
    pattern: str
    callback: Callback
    queue: str = ""

    @cached_property
    def tokens(self) -> list[str]:
        return self.pattern.split(".")

    async def close(self) -> None:
        self.link.listening.discard(self)
        self.link.server.unlisten(self)


class SimBus:
    """Core messages of one link."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.calls: dict[str, asyncio.Future[Any]] = {}

    def publish(
        self, subject: str, data: bytes, *, reply: str = "", headers: Headers | None = None
    ) -> None:
        self._link.send(Message(subject, data, headers or {}, reply))

    async def flush(self) -> None:
        await self._link.call(lambda: None)

    async def request(
        self, subject: str, data: bytes, *, timeout: float, headers: Headers | None = None
    ) -> Message:
        if not self._link.connected:
            raise Unavailable("not connected")
        inbox = self.new_inbox()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls[inbox] = future
        listening = await self.subscribe(inbox, lambda message: _settle(future, message))
        try:
            self._link.send(Message(subject, data, headers or {}, inbox))
            async with asyncio.timeout(timeout):
                answer = await future
        except TimeoutError:
            raise Unavailable("no answer in time") from None
        finally:
            del self.calls[inbox]
            await listening.close()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def subscribe(self, subject: str, callback: Callback, *, queue: str = "") -> Listening:
        listening = Listening(self._link, subject, callback, queue)
        if self._link.process.alive:
            self._link.listening.add(listening)
            self._link.server.listen(listening)
        return listening

    def new_inbox(self) -> str:
        return self._link.server.inbox() if self._link.process.alive else "_INBOX.dead"

    async def close(self) -> None:
        await self._link.close()


class SimReader:
    """Messages of one stream in order, none missing, none twice."""

    def __init__(self, link: Link, stored: MemoryStream, after: int, strict: bool) -> None:
        self._link, self._stored = link, stored
        self._position = after if strict or after else stored.first - 1
        self._seen = stored.last
        self._notify: Callable[[], None] = lambda: None
        self._closed = False
        stored.readers.append(self)  # type: ignore[arg-type]

    def take(self, limit: int = 2000) -> Sequence[Message]:
        if self._closed or not self._link.up:
            return []
        if self._stored.first > self._position + 1:
            raise Gap(f"{self._stored.row.name} begins at {self._stored.first}")
        taken = [m for m in self._stored.behind(self._position, limit) if m.sequence <= self._seen]
        if taken:
            self._position = taken[-1].sequence
        return taken

    async def batch(self, *, limit: int = 2000, wait: float | None = None) -> Sequence[Message]:
        raise NotImplementedError

    def on_arrival(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        if self._seen > self._position:
            notify()

    def arrived(self) -> None:
        """The server has something; it gets here when the link is up."""
        if not self._closed and self._link.up and self._link.process.alive:
            self._seen = self._stored.last
            self._link.process.soon(self._notify)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stored.readers.remove(self)  # type: ignore[arg-type]


class SimStreams:
    """Stored messages."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def ensure(self) -> None:
        await _persist(lambda: self._link.call(lambda: None))

    async def publish(
        self, subject: str, data: bytes, *, headers: Headers | None = None, timeout: float = 5.0
    ) -> int:
        return int(
            await self._link.call(
                lambda: self._link.server.store(subject, data, headers or {}), timeout
            )
        )

    def read(self, stream: str, after: int, *subjects: str, made: str = "") -> SimReader:
        return SimReader(self._link, self._link.server.streams[stream], after, strict=False)

    async def last(self, stream: str, *, subject: str = "") -> Message | None:
        stored = self._link.server.streams[stream]
        found: Message | None = await _persist(
            lambda: self._link.call(lambda: stored.messages.get(stored.last))
        )
        return found

    async def end(self, stream: str) -> int:
        return int(
            await _persist(lambda: self._link.call(lambda: self._link.server.streams[stream].last))
        )

    async def trim(self, stream: str, below: int) -> None:
        await self._link.call(lambda: self._link.server.streams[stream].trim(below))

    async def standing(self, stream: str) -> StoreStanding:
        return await _persist(lambda: self._link.call(StoreStanding))  # type: ignore[no-any-return]

    async def annotate(self, stream: str, key: str, value: str) -> None:
        raise AssertionError(f"{stream} is annotated with {key}: {value}")


def _is_unavailable(data: bytes) -> bool:
    """Whether an answer says that the command was not looked at, which who was deposed may say as
    well.
    """
    try:
        return codec.unpack(data, Answer).status == Code.UNAVAILABLE.value
    except codec.Undecodable:
        return False


async def _persist(attempt: Callable[[], Any]) -> Any:
    """Again and again while the server is away."""
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        try:
            return await attempt()
        except Unavailable:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.25)


class SimJournal:
    """The record; an append whose answer is lost is looked into, as on JetStream."""

    def __init__(self, link: Link, part_bytes: int) -> None:
        self._link = link
        self._part_bytes = part_bytes
        self._stored = link.server.streams[subjects.JOURNAL.name]

    async def append(self, data: bytes, *, expected: int) -> int:
        before, self._link.before_append = self._link.before_append, None
        if before is not None:
            before()
            await asyncio.sleep(0)
        for part, message in enumerate(split(data, self._part_bytes)):
            if part:
                self._link.between_parts()
            expected = await self._append(message, expected)
        return expected

    async def _append(self, data: bytes, expected: int) -> int:
        clock = asyncio.get_running_loop().time
        deadline = clock() + _RETRY_FOR_S
        while True:
            try:
                return int(await self._link.call(lambda: self._store(data, expected)))
            except (Fenced, Unavailable) as error:
                with contextlib.suppress(Unavailable):
                    if await self._link.call(lambda: self._stands(data, expected + 1)):
                        return expected + 1
                    if isinstance(error, Fenced):
                        raise
                if clock() > deadline:
                    raise Unavailable("unknown whether it is stored") from error
            await asyncio.sleep(0.1)

    def _store(self, data: bytes, expected: int) -> int:
        server = self._link.server
        sequence = server.store(subjects.JOURNAL_SUBJECT, data, {}, expected)
        server.journalled(sequence, data)
        if server.writer is not self._link.process:
            server.writer, server.written_s = self._link.process, server.now
        for told in server.appended:
            told(self._link, sequence)
        return sequence

    def _stands(self, data: bytes, sequence: int) -> bool:
        """Whether ``data`` is the entry at ``sequence``; False when nothing is. Raises Fenced."""
        if self._stored.last < sequence:
            return False
        found = self._stored.messages.get(sequence)
        if found is not None and found.data == data:
            return True
        raise Fenced("another writer's entry stands there")

    async def replay(self, after: int) -> AsyncIterator[JournalEntry]:
        def entries() -> list[JournalEntry]:
            if self._stored.first > after + 1:
                raise Gap(f"the journal begins at {self._stored.first}")
            assembler = Assembler()
            found = (
                assembler.add(m.sequence, m.data)
                for m in self._stored.behind(after, self._stored.last)
            )
            return [entry for entry in found if entry is not None]

        return self._entries(await _persist(lambda: self._link.call(entries)))

    async def _entries(self, found: list[JournalEntry]) -> AsyncIterator[JournalEntry]:
        for entry in found:
            yield entry

    async def end(self) -> int:
        return int(await self._link.call(lambda: self._stored.last))

    async def tail(self, after: int) -> AssembledReader:
        first = await _persist(lambda: self._link.call(lambda: self._stored.first))
        if first > after + 1:
            raise Gap(f"the journal begins at {first}")
        return AssembledReader(SimReader(self._link, self._stored, after, strict=True))


class SimPublisher:
    """The outbox over a chain of expected sequences; see `iris_bus.streams.publisher`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._stored = link.server.streams[subjects.EVENTS.name]
        self._window = Window(200)
        self._failure: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def last_published(self) -> str:
        return self._window.last_published

    @property
    def backlog(self) -> int:
        return self._window.backlog

    async def resume(self) -> str:
        if self._task is not None:
            self._task.cancel()
        self._window.start(*await _persist(lambda: self._link.call(self._last)))
        self._failure = None
        return self.last_published

    def publish(self, events: Sequence[Publication]) -> None:
        if self._failure is not None:
            raise self._failure
        self._window.add(events)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._pump())

    async def drain(self, timeout: float) -> None:
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _pump(self) -> None:
        while self.backlog and self._failure is None:
            after, events = self._window.next(20)
            try:
                self._window.confirm(await self._link.call(lambda: self._store(after, events)))  # noqa: B023
            except (Fenced, Unavailable):
                await self._find_place()

    def _store(self, after: int, events: Sequence[Publication]) -> int:
        for at, event in enumerate(events):
            known = {**event.headers, "Nats-Msg-Id": event.message_id}
            self._link.server.store(event.subject, event.data, known, after + at)
        return after + len(events)

    async def _find_place(self) -> None:
        place = await _persist(lambda: self._link.call(self._last))
        try:
            self._window.go_on(*place)
        except (Fenced, Unavailable) as error:
            self._failure = error

    def _last(self) -> tuple[int, str]:
        end = self._stored.last
        stored = self._stored.messages.get(end)
        return end, stored.headers.get("Nats-Msg-Id", "") if stored is not None else ""


class SimBlobs:
    """Whole objects with a digest."""

    def __init__(self, link: Link, bucket: str) -> None:
        self._link = link
        self._objects = link.server.buckets.setdefault(bucket, {})

    async def put(self, name: str, data: bytes) -> None:
        def store() -> None:
            self._objects.pop(name, None)
            self._objects[name] = (data, digest(data))

        await self._link.call(store)

    async def get(self, name: str) -> bytes | None:
        found = await _persist(lambda: self._link.call(lambda: self._objects.get(name)))
        if found is not None and digest(found[0]) != found[1]:
            raise ValueError(f"{name} is damaged")
        return found[0] if found is not None else None

    async def names(self) -> Sequence[str]:
        return list(await _persist(lambda: self._link.call(lambda: list(self._objects))))

    async def delete(self, name: str) -> None:
        await self._link.call(lambda: self._objects.pop(name, None) and None)


class SimKeyValue:
    """Small values by key; nobody watches them here."""

    def __init__(self, link: Link, bucket: str) -> None:
        self._link = link
        self._values = link.server.key_values.setdefault(bucket, {})

    async def put(self, key: str, value: bytes, *, expected: int) -> int:
        return int(await self._link.call(lambda: self._change(checked_key(key), value, expected)))

    async def delete(self, key: str, *, expected: int) -> None:
        await self._link.call(lambda: self._change(checked_key(key), None, expected))

    async def all(self) -> Mapping[str, Entry]:
        return dict(await self._link.call(lambda: dict(self._values)))

    def _change(self, key: str, value: bytes | None, expected: int) -> int:
        present = self._values.get(key)
        if (present.revision if present is not None else 0) != expected:
            raise Fenced(f"{key} has been changed")
        self._link.server.key_revision += 1
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = Entry(value, self._link.server.key_revision)
        return self._link.server.key_revision
