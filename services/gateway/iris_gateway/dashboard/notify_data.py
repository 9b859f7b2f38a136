"""The data of the page of notifications, which the notifier has: targets, subscriptions, deliveries.

While no notifier answers the page says so. Out of scope: rendering (`templates`), and who may see
what (the notifier).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from iris_core.codec import to_json
from iris_core.messages.gateway_notifier import NotifyRequest, NotifyVerb
from iris_core.views.notify import DeliveriesPage, DeliveryStatus, NotifyPage
from iris_gateway.api.notify import ask_notifier
from iris_gateway.dashboard.page_reads import ROWS, Facts, PageData
from iris_gateway.http.problem import ProblemResponse

ANSWER_S = 2.0
"""How long the page waits for the notifier."""
_BESIDE_S = 0.5
"""How long a page does that is about something else."""
STATUSES: tuple[str, ...] = get_args(DeliveryStatus)


async def notifications(look: PageData) -> Facts:
    """Targets, subscriptions and deliveries, each a page of its own; deliveries of a target and a
    status.
    """
    query = {name: look.query.get(name, "") for name in ("target", "status")}
    shared: Facts = {"query": query, "statuses": STATUSES}
    cursors = {name: look.query.get(name, "") for name in ("targets", "subscriptions", "cursor")}
    try:
        targets, subscriptions, deliveries = await asyncio.gather(
            ask(look, NotifyVerb.LIST_TARGETS, _rows(cursors["targets"])),
            ask(look, NotifyVerb.LIST_SUBSCRIPTIONS, _rows(cursors["subscriptions"])),
            ask(
                look,
                NotifyVerb.LIST_DELIVERIES,
                DeliveriesPage(limit=ROWS, cursor=cursors["cursor"], **query),
            ),
        )
    except ProblemResponse as problem:
        if problem.code != "unavailable":
            raise
        return {**shared, "unavailable": problem.detail}
    return {
        **shared,
        "unavailable": "",
        "targets": targets,
        "subscriptions": subscriptions,
        "deliveries": deliveries,
    }


def _rows(cursor: str) -> NotifyPage:
    return NotifyPage(limit=ROWS, cursor=cursor)


async def notify_rules(look: PageData, job: Mapping[str, Any]) -> Facts:
    """Who is told of a job: the rules of its specification, and those of subscriptions that the
    caller may see; ``unknown``: why these are not known.
    """
    asked = {"job": job["id"], "user": job["user"], "project": job["project"]}
    own = [{"owner": job["user"], **rule} for rule in job["spec"].get("notify", ())]
    try:
        found = await ask(look, NotifyVerb.LIST_RULES, asked, timeout_s=_BESIDE_S)
    except ProblemResponse as problem:
        return {"rules": own, "unknown": problem.detail}
    return {"rules": [*own, *found["rules"]], "unknown": ""}


async def ask(look: PageData, verb: NotifyVerb, body: Any, *, timeout_s: float = ANSWER_S) -> Any:
    """What the notifier answers, soon. Raises ProblemResponse."""
    request = NotifyRequest(verb, look.caller, body=to_json(body))
    answer = await ask_notifier(look.gateway.bus, request, timeout_s=timeout_s)
    return msgspec.json.decode(answer.body)
