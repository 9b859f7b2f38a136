"""A follower: tails the journal and pings the leader until the leader does not answer.

"No responders" means dead, detected at once; two pings without an answer mean hung. A wrong
conclusion costs only a change of leader: the fence of the journal decides who may write. Out of
    scope: the change itself.
Source: docs/ARCHITECTURE.md#storage; docs/design/nats.md#features-used.
"""

from __future__ import annotations

import asyncio
import logging

from iris_bus.contract import NoResponders, Unavailable
from iris_core import codec, subjects
from iris_core.messages.processes import Ping
from iris_state.processors import Processors
from iris_state.replication.follower import LAG, Follower
from iris_state.replication.replica import Replica

log = logging.getLogger(__name__)

_AT_ONCE = 64
_SILENT = 2
_STALL_S = 0.1
_SOMEBODY = "somebody"


class Standby:
    """Waits until there is no leader.

    Attributes:
        leader: the last known leader, empty: none.
        epoch: the newest one at the last ping.
    """

    def __init__(self, replica: Replica, stop: asyncio.Event) -> None:
        self._replica = replica
        self._stop = stop
        self._arrived = asyncio.Event()
        processors = Processors(asyncio.get_running_loop().time)
        self._follower = Follower(replica, self._arrived.set, processors.are_short)
        self.epoch = replica.machine.ledger.epoch
        self.leader = _SOMEBODY if self._written_to_lately() else ""

    @property
    def behind(self) -> int:
        """Commits of the leader that are not applied here, as of its last sign of life."""
        return max(0, self._follower.leader_at - self._replica.machine.sequence)

    @property
    def ready(self) -> bool:
        """Whether it follows a leader closely enough to answer reads and to take over."""
        return bool(self._follower.leader_at) and self.behind <= LAG

    def _written_to_lately(self) -> bool:
        """Whether the last writer may be about to subscribe: replicas that start together detect
        one another by that.
        """
        age_ms = self._replica.clock.now_ms() - self._replica.machine.last_ms
        return age_ms < self._replica.policy.election_timeout_s * 1000

    async def wait(self) -> None:
        """Return when there is no leader, or the process should end. Raises Gap when needed commits
        were trimmed.
        """
        watching = asyncio.create_task(self._watch())
        stopping = asyncio.create_task(self._stop.wait())
        for each in (watching, stopping):
            each.add_done_callback(lambda _: self._arrived.set())
        try:
            await self._follow(watching)
            if watching.done():
                watching.result()
        finally:
            for each in (watching, stopping):
                each.cancel()
            await asyncio.wait((watching, stopping))

    async def _follow(self, watching: asyncio.Task[None]) -> None:
        reader = await self._replica.journal.tail(self._replica.machine.sequence)
        reader.on_arrival(self._arrived.set)
        try:
            await self._follower.start()
            while not watching.done() and not self._stop.is_set():
                await self._arrived.wait()
                self._arrived.clear()
                more = True
                while more:
                    commits = reader.take(_AT_ONCE)
                    self._replica.follow(commits)
                    more = self._follower.answer() or bool(commits)
                    await asyncio.sleep(0)
        finally:
            await self._follower.close()
            await reader.close()

    async def _watch(self) -> None:
        """Return when there is no leader."""
        clock = asyncio.get_running_loop().time
        policy = self._replica.policy
        silent = 0
        unreachable_since = 0.0
        while True:
            began = clock()
            sequence = self._replica.machine.sequence
            if self._new_epoch():
                silent = 0
                unreachable_since = 0.0
            try:
                await self._ping(policy.ping_timeout_s)
                silent = 0
                unreachable_since = 0.0
            except NoResponders:
                silent = 0
                unreachable_since = unreachable_since or began
                if not self.leader or began - unreachable_since >= policy.election_timeout_s:
                    log.info("nobody leads", extra={"before": self.leader})
                    return
            except Unavailable:
                unreachable_since = 0.0
                if not self._replica.connection.connected:
                    silent = 0
                elif self._replica.machine.sequence != sequence:
                    silent = 0  # an appended commit shows that the leader is alive, too
                elif (
                    clock() - began < policy.ping_timeout_s + _STALL_S
                ):  # otherwise this process itself was suspended
                    silent += 1
                if silent >= _SILENT:
                    log.info("the leader is silent", extra={"leader": self.leader})
                    return
            await asyncio.sleep(policy.ping_interval_s)

    def _new_epoch(self) -> bool:
        """Whether a new leader has begun that may not answer pings yet."""
        epoch = self._replica.machine.ledger.epoch
        if epoch == self.epoch:
            return False
        self.epoch = epoch
        self.leader = self.leader or _SOMEBODY
        return True

    async def _ping(self, timeout: float) -> None:
        """Raises NoResponders when there is no leader, or only a deposed one that does not know it
        yet; Unavailable.
        """
        replica = self._replica
        question = self._follower.missing_reasons()
        answer = await replica.connection.bus.request(
            subjects.STATE_PING, question, timeout=timeout
        )
        try:
            pong = codec.unpack(answer.data, Ping)
        except codec.Undecodable as error:
            raise NoResponders("nobody who leads answers") from error
        if pong.epoch < replica.machine.ledger.epoch:
            raise NoResponders(f"{pong.leader} led in epoch {pong.epoch}")
        if pong.leader != self.leader:
            log.info("following", extra={"leader": pong.leader, "epoch": pong.epoch})
        self.leader = pong.leader
        self._follower.leader_at = pong.sequence
        replica.clock.follow(pong.now_ms)
        known = replica.machine.ledger.reasons  # newer ones may have come before this answer
        self._follower.keep_reasons(one for one in pong.reasons if one.job not in known)
        replica.unpublished.note_published(pong.last_published)
