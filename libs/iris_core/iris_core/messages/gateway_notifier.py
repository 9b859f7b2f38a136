"""Between gateways and the notifier: targets, subscriptions, and what became of messages.

The answer is an `Answer`, as of the state service.
"""

from __future__ import annotations

from enum import StrEnum

from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import ServiceMessage


class NotifyVerb(StrEnum):
    """What a gateway asks of the notifier."""

    PING = "ping"
    CHECK = "check"
    LIST_TARGETS = "list_targets"
    SHOW_TARGET = "show_target"
    ADD_TARGET = "add_target"
    REMOVE_TARGET = "remove_target"
    TEST_TARGET = "test_target"
    PAUSE_TARGET = "pause_target"
    RESUME_TARGET = "resume_target"
    LIST_SUBSCRIPTIONS = "list_subscriptions"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    LIST_DELIVERIES = "list_deliveries"
    LIST_RULES = "list_rules"


class NotifyRequest(ServiceMessage, frozen=True):
    """One request.

    Attributes:
        name: of the target, or the id of the subscription.
        body: JSON: what is added, or the parameters of a listing; of CHECK the names of targets, of
            LIST_RULES the job.
        key: of a request that may arrive twice; empty: none.
    """

    verb: NotifyVerb
    caller: Caller = Caller()
    name: str = ""
    body: bytes = b"{}"
    key: str = ""
