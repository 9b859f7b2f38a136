"""Objects of the HTTP API about notifications: targets, subscriptions, deliveries.

Stable: fields are only added. Source: docs/design/notifications.md.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from iris_core.limits import SENTENCE
from iris_core.spec.field_rules import at_most, text
from iris_core.spec.notify import NotifyWords, TargetName
from iris_core.spec.projects import ProjectPath
from iris_core.views.jobs import View
from iris_core.views.queries import DEFAULT_LIMIT, MAX_LIMIT, about

TargetState = Literal["unverified", "active", "paused"]
MessageFormat = Literal["cloudevents", "slack", "text"]
DeliveryStatus = Literal["pending", "delivered", "given_up"]
SECRET_BYTES = 16
"""The shortest secret of a webhook."""


class NotifyTargetView(View, kw_only=True):
    """Where messages go.

    Attributes:
        user: its owner. webhook, smtp: its address; null for who may not see it.
        shared: every user's jobs may name it.
        state: unverified, active or paused. detail: why, in words of the last trial.
        pending: messages that wait.
    """

    name: str
    user: str
    webhook: str | None
    smtp: str | None
    format: MessageFormat
    shared: bool
    state: TargetState
    detail: str
    pending: int
    created_at: datetime | None


class SubscriptionView(View, kw_only=True):
    """A target that is told of jobs: of one by its id, of those in a project and below it, or of all
    of its user's.
    """

    id: str
    user: str
    to: str
    on: list[str]
    job: str | None
    project: str | None
    all_mine: bool
    created_at: datetime | None


class DeliveryView(View, kw_only=True):
    """A message to one target.

    Attributes:
        id: that of the CloudEvent, at each try.
        jobs: how many jobs it tells of; more than one of a summary.
        tries: how often it was sent. error: why the last try failed. next_at: of the next try.
    """

    id: str
    type: str
    target: str
    user: str
    job: str
    job_id: str
    on: str
    jobs: int
    status: DeliveryStatus
    tries: int
    error: str
    created_at: datetime | None
    next_at: datetime | None
    ended_at: datetime | None


class NewTarget(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A target to add: either ``webhook``, with the ``secret`` that signs its messages, or ``smtp``,
    one address of mail.
    """

    name: TargetName
    webhook: Annotated[str, at_most(2048, "a URL has at most 2,048 characters", of="Length")] = ""
    smtp: Annotated[
        str,
        text(
            r"[^@\s\x00-\x1f\x7f<>,;:\"]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?",
            "bad_address",
            "is not one address of mail",
            hint="ann@example.org",
            optional=True,
        ),
    ] = ""
    secret: Annotated[
        str, at_most(SENTENCE, f"a secret has at most {SENTENCE} characters", of="Length")
    ] = ""
    format: MessageFormat = "cloudevents"
    shared: bool = False


class NewSubscription(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Tell a target of jobs: of one, by name or id, of those in a project and below it, or of all of
    the caller's.
    """

    to: TargetName
    on: NotifyWords
    job: Annotated[str, at_most(1100, "a job's name is shorter", of="Length")] = ""
    project: ProjectPath = ""
    all_mine: bool = False


class NotifyPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parameters of a listing."""

    limit: Annotated[int, about("Maximum number of items.", ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    cursor: Annotated[
        str,
        about("`next_cursor` of the page before.", max_length=1024, pattern="^[A-Za-z0-9_=-]+$"),
    ] = ""


class DeliveriesPage(NotifyPage, frozen=True, kw_only=True, omit_defaults=True):
    """Parameters of the listing of deliveries."""

    target: Annotated[str, about("Only to this target.", min_length=1, max_length=63)] = ""
    status: Annotated[
        str, about("Only with this status.", one_of=("pending", "delivered", "given_up"))
    ] = ""


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The data of ``iris.job.summary``: jobs that were not told of one by one."""

    jobs: int
    on: str
    examples: list[str]


class JobMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a message about one job. ``tasks``: how many are in each state. ``on``: the word
    that made it. ``url``: of its page; empty: the cluster has no public address.
    """

    job: str
    job_id: str
    user: str
    project: str
    state: str
    cause: str | None
    error: str | None
    exit_code: int | None
    tasks: dict[str, int]
    on: str
    url: str
