"""The records of the notifier, each a value of its bucket under a key. Pure.

A record of an earlier release may lack fields; they have their defaults then.
"""

from __future__ import annotations

import hashlib

import msgspec

from iris_core.names import to_token
from iris_core.spec.notify import NotifyRule
from iris_core.spec.projects import ROOT
from iris_core.subjects import NOTIFY_POSITION, NOTIFY_TARGETS, NOTIFY_WRITER
from iris_core.views.notify import DeliveryStatus, MessageFormat, TargetState


class TargetRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where messages go: as `NotifyTargetView`.

    Attributes:
        secret: signs the messages of a webhook. is_verified: a test message was delivered.
    """

    user: str
    name: str
    webhook: str = ""
    smtp: str = ""
    secret: str = ""
    format: MessageFormat = "cloudevents"
    shared: bool = False
    state: TargetState = "unverified"
    is_verified: bool = False
    detail: str = ""
    created_ms: int = 0

    @property
    def key(self) -> str:
        return target_key(self.user, self.name)


class SubscriptionRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A target of ``user`` that is told of jobs: of ``job`` by its id, of those in a ``project`` and
    below it, or if both are empty of all of the user's.
    """

    id: str
    user: str
    to: str
    on: tuple[str, ...]
    job: str = ""
    project: str = ""
    created_ms: int = 0

    @property
    def key(self) -> str:
        return f"subscription.{self.id}"


class WatchedJob(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job of which somebody is to be told, until its end.

    Attributes:
        rules: those of its specification. project: its path. submitted_ms: when it was submitted.
        has_started: it was seen running. reported: words of time that were told.
    """

    id: str
    name: str
    user: str
    project: str = ROOT
    rules: tuple[NotifyRule, ...] = ()
    submitted_ms: int = 0
    has_started: bool = False
    reported: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"job.{self.id}"


class DeliveryRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message to one target: as `DeliveryView`.

    Attributes:
        owner, target: the target's user and name. user: the job's.
        data: the message's data, JSON. job: its subject; empty of a summary and of a test.
        due_ms: of a summary, when it is complete; until then further jobs are added to it.
        next_ms: before it nothing is tried.
    """

    id: str
    type: str
    owner: str
    target: str
    user: str = ""
    job: str = ""
    job_id: str = ""
    on: str = ""
    data: bytes = b"{}"
    jobs: int = 1
    examples: tuple[str, ...] = ()
    status: DeliveryStatus = "pending"
    tries: int = 0
    error: str = ""
    created_ms: int = 0
    due_ms: int = 0
    next_ms: int = 0
    ended_ms: int = 0

    @property
    def key(self) -> str:
        return delivery_key(self.id, self.target_key)

    @property
    def target_key(self) -> str:
        return target_key(self.owner, self.target)


class EventPosition(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Up to which event of the stream everything has become records; ``made``: when that stream was
    made, empty in the record of an older release.
    """

    events: int = 0
    made: str = ""

    @property
    def key(self) -> str:
        return NOTIFY_POSITION


class StoreWriter(msgspec.Struct, kw_only=True):
    """The notifier that works, by an id of its own."""

    id: str

    @property
    def key(self) -> str:
        return NOTIFY_WRITER


NotifyRecord = (
    TargetRecord | SubscriptionRecord | WatchedJob | DeliveryRecord | EventPosition | StoreWriter
)
KINDS: dict[str, type[NotifyRecord]] = {
    NOTIFY_TARGETS: TargetRecord,
    "subscription": SubscriptionRecord,
    "job": WatchedJob,
    "delivery": DeliveryRecord,
    NOTIFY_POSITION: EventPosition,
    NOTIFY_WRITER: StoreWriter,
}
"""By the first part of the key."""


def target_key(user: str, name: str) -> str:
    return f"{NOTIFY_TARGETS}.{to_token(user)}.{to_token(name)}"


def delivery_key(delivery: str, target: str) -> str:
    """One event is one message to each target, however often it is read."""
    digest = hashlib.sha256(f"{delivery}\0{target}".encode()).hexdigest()
    return f"delivery.{digest[:32]}"
