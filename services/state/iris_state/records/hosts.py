"""The records of hosts, and what the leader knows of each in memory only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from iris_core.access.actor import Actor
from iris_core.limits import ATTEMPTS
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import HeartbeatMessage, LiveUsage
from iris_core.spec.jobs import Attribute
from iris_core.spec.resources import NOTHING, Amount
from iris_core.states import (
    WorkerState,
)
from iris_state.records.entities import Attempt, AttemptKey, HeldAmount
from iris_state.records.indexes.chains import Chains


class Worker(msgspec.Struct, array_like=True):
    """One host.

    Its open attempts and what they hold are rebuilt from the attempts, never stored.
    ``monotonic_ms`` is the time of its registration by its own clock since ``boot``; ``drained``
    stays true while a drained host is lost. ``lost_ms`` is when it last became LOST. ``held``:
    samples of the last hour, oldest first, one where the amount had changed. ``by``: whose command
        set its state. ``chains``: as of `Register`. ``since_ms``: when its state began. ``last_end_ms``: when
        an attempt there ended last. ``notice_ms``: when its machine is taken away; 0: not told.
    """

    id: str
    incarnation: str
    attributes: dict[str, Attribute]
    total: Amount
    state: WorkerState = WorkerState.HEALTHY
    reason: str = ""
    address: str = ""
    version: str = ""
    registered_ms: int = 0
    monotonic_ms: int = 0
    drained: bool = False
    lost_ms: int = 0
    max_attempts: int = ATTEMPTS
    boot: str = ""
    held: list[HeldAmount] = []
    by: Actor | None = None
    chains: bool = False
    since_ms: int = 0
    last_end_ms: int = 0
    notice_ms: int = 0


class Ordered(NamedTuple):
    """What a leader knows of its orders to start one attempt.

    Attributes:
        expires_ms: by the host's monotonic clock: an order that arrives later is refused. 0: it
            never expires.
        once: no leader has sent another order for it.
        inherited: the previous leader may have sent orders for it too.
    """

    expires_ms: int
    once: bool = False
    inherited: bool = False


def running_output(hosts: Iterable[Presence]) -> Counter[int]:
    """What running attempts have stored of output, by job, as hosts have told last."""
    found: Counter[int] = Counter()
    for host in hosts:
        found.update(host.output_bytes)
    return found


class Presence:
    """The unrecorded state of a host: open attempts, what they hold, and the time of its last
    message.

    Attributes:
        sequence: its newest heartbeat's. reported_ms: its monotonic clock in its newest report.
        listed_ms: when its newest heartbeat was reconciled with the records; 0: this leader has had
            none.
        answered: it has registered with this leader or accepted an order of it, which
            ``reported_ms`` includes.
        heard: it has sent a message since this leader leads. clock_ms: upper bound of its monotonic
            clock less the leader's time, from its last message; None: unknown. clock_ahead_ms: its
            time of day less the leader's.
        orders: the orders to start its open attempts. undelivered: consecutive orders that did not
            reach it.
        renew_ms: when this leader next renews the tokens of its attempts.
        chains: those of its open attempts.
        usage: what its running attempts use, output_bytes: what those of each job have stored, and
            warnings: what is misconfigured there, from its newest heartbeat.
    """

    __slots__ = (
        "answered",
        "building",
        "chains",
        "clock_ahead_ms",
        "clock_ms",
        "committed",
        "detail",
        "heard",
        "heartbeat_ms",
        "listed_ms",
        "open",
        "orders",
        "output_bytes",
        "renew_ms",
        "reported_ms",
        "sequence",
        "undelivered",
        "usage",
        "warnings",
    )

    def __init__(self, heartbeat_ms: int) -> None:
        self.heartbeat_ms = heartbeat_ms
        self.listed_ms = 0
        self.heard = False
        self.clock_ms: int | None = None
        self.clock_ahead_ms = 0
        self.orders: dict[AttemptKey, Ordered] = {}
        self.undelivered = 0
        self.renew_ms = 0
        self.sequence = -1
        self.answered = False
        self.reported_ms = 0
        self.open: dict[AttemptKey, Attempt] = {}
        self.building = 0
        self.chains = Chains()
        self.committed = NOTHING
        self.detail = ""
        self.usage: dict[AttemptRef, LiveUsage] = {}
        self.output_bytes: dict[int, int] = {}
        self.warnings: dict[str, str] = {}

    def begin(self) -> None:
        """The host has restarted: its heartbeat numbers, and possibly its clock, start again."""
        self.sequence = -1
        self.answered = True
        self.reported_ms = 0
        self.orders.clear()
        self.undelivered = self.renew_ms = 0

    def note(self, heartbeat: HeartbeatMessage, now_ms: int) -> None:
        """Keep what a heartbeat tells of its host."""
        self.detail = heartbeat.detail
        self.clock_ahead_ms = heartbeat.at_ms - now_ms
        self.usage = {live.ref: live for live in heartbeat.usage}
        if self.output_bytes or heartbeat.output_bytes:
            here = {job for job, _, _ in self.open}
            reported = heartbeat.output_bytes.items()
            self.output_bytes = {job: size for job, size in reported if job in here}
        self.warnings = heartbeat.warnings

    def hear(self, monotonic_ms: int, at_ms: int) -> None:
        """The host has sent a message, with its monotonic clock at that time."""
        self.heard = True
        self.clock_ms = monotonic_ms - at_ms if monotonic_ms else None
