"""The journal in `IRIS_JOURNAL`: fenced appends whose outcome is always determined, fast replay, a
tail to follow.

An append names the sequence it follows; the server refuses it when another writer was first. When
the answer is lost, the journal's end is read back from the stream's leader: our bytes after
``expected`` mean committed, other bytes mean fenced, nothing means the append is sent again with
the same expected sequence, and at most one of them succeeds. Out of scope: what an entry means.
    Source: docs/ARCHITECTURE.md#storage; docs/design/nats.md#features-used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from iris_bus.connection.connection import Link
from iris_bus.connection.requests import Forbidden
from iris_bus.contract import (
    DamagedCommit,
    Fenced,
    Gap,
    JournalEntry,
    Message,
    NoResponders,
    Unavailable,
)
from iris_bus.journal.commits import AssembledReader
from iris_bus.journal.framing import PART_BYTES, Assembler, split
from iris_bus.streams.api import Api
from iris_bus.streams.reader import JetReader
from iris_core.subjects import JOURNAL, JOURNAL_SUBJECT

_ANSWER_S = 1.5
_RETRY_FOR_S = 15.0
_SETTLED_S = 0.25
_SILENT_S = 2.0
_LOOKED_UP = 1000

log = logging.getLogger(__name__)


class JetJournal:
    """The journal of one installation.

    Args:
        part_bytes: a larger commit is stored in several messages.
        retry_for_s: seconds to determine the outcome of an unanswered append before Unavailable; an
            unclean change of the stream's leader takes 4 to 9 seconds.
    """

    def __init__(
        self,
        link: Link,
        api: Api,
        *,
        part_bytes: int = PART_BYTES,
        retry_for_s: float = _RETRY_FOR_S,
    ) -> None:
        self._link = link
        self._part_bytes = part_bytes
        self._api = api
        self._retry_for_s = retry_for_s
        self._retrying = api.retrying(retry_for_s)
        self._made = ""

    async def append(self, data: bytes, *, expected: int) -> int:
        """Store ``data``, which is unique among commits, durably after sequence ``expected``;
        returns its last sequence.

        Parts are sent one after the other: with two in flight the second could follow another
        writer's entry. Raises Fenced when another writer has appended, Full, and Unavailable when
        the outcome stays unknown.
        """
        for part in split(data, self._part_bytes):
            expected = await self._append(part, expected)
        return expected

    async def _append(self, data: bytes, expected: int) -> int:
        headers = {"Nats-Expected-Last-Sequence": str(expected)}
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._retry_for_s
        pause = 0.02
        while True:
            try:
                return (await self._api.store(JOURNAL_SUBJECT, data, _ANSWER_S, headers)).seq
            except (Fenced, Unavailable) as error:
                # "No responders" means that the stream has no leader: nothing was stored.
                if not isinstance(error, NoResponders) and await self._is_ours(
                    data, expected + 1, deadline
                ):
                    return expected + 1
                if isinstance(error, Fenced | Forbidden) or clock() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _SETTLED_S)

    async def _is_ours(self, data: bytes, sequence: int, deadline: float) -> bool:
        """Whether the message at ``sequence`` is ``data``; False when there is none. Raises Fenced,
        Unavailable.
        """
        clock = asyncio.get_running_loop().time
        while True:
            try:
                return await self._stands_at(sequence, data)
            except Unavailable:
                if clock() > deadline:
                    raise
            await asyncio.sleep(_SETTLED_S)

    async def _stands_at(self, sequence: int, data: bytes) -> bool:
        end = (await self._api.info(JOURNAL.name)).state.last_seq
        if end < sequence:
            return False
        stored = await self._api.message(JOURNAL.name, seq=sequence)
        if stored is not None and stored.data == data:
            return True
        raise Fenced(f"another writer's entry stands at {sequence}, the journal ends at {end}")

    async def replay(self, after: int) -> AsyncIterator[JournalEntry]:
        """Entries after ``after`` up to the present end. Raises Gap when they were trimmed,
        Unavailable.
        """
        info = await self._retrying.info(JOURNAL.name)
        state = info.state
        if state.first_seq > after + 1:
            raise Gap(f"the journal begins at {state.first_seq}, {after + 1} is needed")
        self._made = info.created
        return self._entries(after, state.last_seq)

    async def _entries(self, after: int, end: int) -> AsyncIterator[JournalEntry]:
        assembler = Assembler()
        async for message in self._messages(after, end):
            entry = assembler.add(message.sequence, message.data)
            if entry is not None:
                yield entry

    async def _messages(self, after: int, end: int) -> AsyncIterator[Message]:
        """Every message after ``after`` up to ``end``. Raises DamagedCommit when one is missing,
        Gap, Unavailable.

        A server delivers nothing in place of a message it cannot read. So when the reader skips a
        sequence or stalls, the next messages are looked up one by one.
        """
        while after < end:
            reader = self._reader(after)
            try:
                while after < end and (messages := await _arrived(reader)):
                    for message in messages:
                        after = message.sequence
                        if after <= end:
                            yield message
            finally:
                await reader.close()
            for sequence in range(after + 1, min(end, after + _LOOKED_UP) + 1):
                yield await self._look_up(sequence)
                after = sequence

    async def _look_up(self, sequence: int) -> Message:
        """One message from any server that has it. Raises DamagedCommit, Gap when it was trimmed,
        Unavailable.

        Each server in turn is made the stream's leader and asked, because only the leader's answer
        shows whether a message is missing. A direct get may be answered by a lagging replica, and
        does not name it.
        """
        without: set[str] = set()
        deadline = asyncio.get_running_loop().time() + self._retry_for_s
        while True:
            before = await self._retrying.info(JOURNAL.name)
            found = await self._retrying.message(JOURNAL.name, seq=sequence)
            if found is not None:
                return found
            info = await self._retrying.info(JOURNAL.name)
            if info.state.first_seq > sequence:
                raise Gap(f"the journal begins at {info.state.first_seq}, {sequence} is needed")
            leader = info.cluster.leader
            if leader == before.cluster.leader:
                without.add(leader)
            left = [peer for peer in info.cluster.replicas if peer.name not in without]
            if leader in without and not left:
                raise DamagedCommit(sequence, "no server can read this message")
            if asyncio.get_running_loop().time() > deadline:
                names = ", ".join(sorted(peer.name for peer in left))
                raise Unavailable(
                    f"message {sequence} of the journal may be on {names}, which cannot be asked"
                )
            await self._ask_to_lead(sequence, [peer.name for peer in left if not peer.offline])

    async def _ask_to_lead(self, sequence: int, servers: Sequence[str]) -> None:
        """Make the first of ``servers`` the journal's leader, if there is one."""
        if servers:
            log.warning(
                "the leader of the journal has lost message %d, asking %s to lead",
                sequence,
                servers[0],
            )
            with contextlib.suppress(Unavailable):
                await self._api.lead(JOURNAL.name, servers[0])
        await asyncio.sleep(_SETTLED_S)

    async def end(self) -> int:
        return (await self._retrying.info(JOURNAL.name)).state.last_seq

    async def tail(self, after: int) -> AssembledReader:
        """Follow the journal that was replayed. Raises Gap when ``after`` + 1 was trimmed,
        Unavailable.
        """
        first = (await self._retrying.info(JOURNAL.name)).state.first_seq
        if first > after + 1:
            raise Gap(f"the journal begins at {first}, {after + 1} is needed")
        return AssembledReader(self._reader(after))

    def _reader(self, after: int) -> JetReader:
        return JetReader(
            self._link,
            self._api,
            JOURNAL.name,
            after,
            dense=True,
            strict=True,
            bare=True,
            made=self._made,
        )


async def _arrived(reader: JetReader) -> Sequence[Message]:
    """The available messages; none when a message is missing or none arrived for a while."""
    try:
        return await reader.batch(limit=1 << 20, wait=_SILENT_S)
    except Gap:
        return []
