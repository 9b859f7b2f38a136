"""Endpoints of notifications, which are passed on to the notifier: targets, subscriptions, and what
became of messages.

Source: docs/design/notifications.md.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from iris_bus.contract import Bus, NoResponders, Unavailable
from iris_core.codec import Undecodable, from_json, pack, to_json, unpack
from iris_core.errors import Mistake, pointer_to
from iris_core.messages.gateway_notifier import NotifyRequest, NotifyVerb
from iris_core.messages.gateway_state import Answer
from iris_core.spec import field_rules
from iris_core.spec.jobs import JobSpec
from iris_core.subjects import NOTIFIER_REQUEST
from iris_core.views.notify import (
    DeliveriesPage,
    DeliveryView,
    NewSubscription,
    NewTarget,
    NotifyPage,
    NotifyTargetView,
    SubscriptionView,
)
from iris_core.views.queries import about
from iris_gateway.api.handling import json_body, page_of
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, passed_on
from iris_gateway.http.problem import ProblemResponse, invalid, refused

_TIMEOUT_S = 30.0
"""Longer than the test of a target."""
_CHECK_S = 2.0


class TargetOwner(msgspec.Struct, frozen=True):
    """Whose target a path means."""

    user: Annotated[
        str,
        about(
            "Whose target; without it the caller's, or a shared one.", min_length=1, max_length=128
        ),
    ] = ""


class KnownTargets(msgspec.Struct):
    """Which of some names are those of no target, and which there are."""

    unknown: list[str]
    known: list[str]


async def ask(
    call: Call, verb: NotifyVerb, name: str = "", body: Any = None, *, timeout_s: float = _TIMEOUT_S
) -> Answer:
    """The notifier's answer. Raises ProblemResponse unavailable, or as the notifier refuses."""
    sent = to_json({} if body is None else body)
    request = NotifyRequest(verb, call.caller, name, sent, key=call.idempotency_key)
    return await ask_notifier(call.gateway.bus, request, timeout_s=timeout_s)


async def ask_notifier(bus: Bus, request: NotifyRequest, *, timeout_s: float) -> Answer:
    """As `ask`, for what is no call of the API."""
    try:
        message = await bus.request(NOTIFIER_REQUEST, pack(request), timeout=timeout_s)
        answer = unpack(message.data, Answer)
    except NoResponders:
        raise ProblemResponse("unavailable", "no notifier is running") from None
    except Unavailable:
        raise ProblemResponse("unavailable", "the notifier has not answered") from None
    except Undecodable as error:
        raise ProblemResponse(
            "internal", f"the notifier's answer cannot be read: {error}"
        ) from None
    if answer.status not in ("ok", "created"):
        raise refused(answer.status, answer.body)
    return answer


async def check_targets(call: Call, spec: JobSpec) -> str:
    """That a job names targets that there are. Raises ProblemResponse invalid.

    While no notifier answers the job is taken all the same: what its caller should know of that,
    else nothing.
    """
    if not spec.notify:
        return ""
    asked = {"user": spec.user, "names": [rule.to for rule in spec.notify]}
    try:
        answer = await ask(call, NotifyVerb.CHECK, body=asked, timeout_s=_CHECK_S)
    except ProblemResponse as problem:
        if problem.code != "unavailable":
            raise
        return f"{problem.detail}: whether the targets of --notify are there was not checked"
    found = from_json(answer.body, KnownTargets)
    if not found.unknown:
        return ""
    raise invalid(
        [
            Mistake(
                pointer=pointer_to("notify", number, "to"),
                code="unknown_target",
                message=f"{spec.user} has no target {rule.to}",
                hint=_instead(rule.to, found.known),
            )
            for number, rule in enumerate(spec.notify)
            if rule.to in found.unknown
        ]
    )


def _instead(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"one of: {', '.join(known)}" if known else "add one: iris notify target add"


# ── targets ───────────────────────────────────────────────────────────────────────────────────────


def _listing(
    path: str, verb: NotifyVerb, kind: type[NotifyPage], summary: str, item: Any
) -> Endpoint:
    """An endpoint that answers with one page of the notifier's."""

    async def show(call: Call) -> Response:
        return passed_on((await ask(call, verb, body=call.asked(kind))).body)

    return Endpoint(
        "GET",
        path,
        show,
        summary,
        answers={200: Answers("One page.", page_of(item))},
        parameters=kind,
        problems=_UNAVAILABLE,
    )


def _of_target(
    method: str,
    below: str,
    verb: NotifyVerb,
    summary: str,
    *,
    answer: Answers,
    problems: tuple[str, ...] = (),
) -> Endpoint:
    """An endpoint about one target, or ``below`` one."""

    async def handle(call: Call) -> Response:
        name = call.segment("name")
        return passed_on((await ask(call, verb, name, call.asked(TargetOwner))).body)

    return Endpoint(
        method,
        f"{_TARGETS}/{{name}}{below}",
        handle,
        summary,
        answers={200: answer},
        parameters=TargetOwner,
        problems=problems,
    )


async def add_target(call: Call) -> Response:
    return await _added(call, NotifyVerb.ADD_TARGET, NewTarget)


async def subscribe(call: Call) -> Response:
    return await _added(call, NotifyVerb.SUBSCRIBE, NewSubscription)


async def _added(call: Call, verb: NotifyVerb, kind: type[msgspec.Struct]) -> Response:
    """Add what the request's body describes, whose fields keep to their limits. Raises
    ProblemResponse.
    """
    body = await json_body(call, kind)
    if mistakes := field_rules.mistakes(body):
        raise invalid(mistakes)
    answer = await ask(call, verb, body=body)
    return passed_on(answer.body, 201 if answer.status == "created" else 200)


async def unsubscribe(call: Call) -> Response:
    return passed_on((await ask(call, NotifyVerb.UNSUBSCRIBE, call.segment("id"))).body)


_TARGETS = "/v1/notify/targets"
_TARGET = Answers("The target.", NotifyTargetView)
_UNAVAILABLE = ("unavailable",)
_CONFLICT = ("conflict",)

ENDPOINTS = (
    _listing(
        _TARGETS,
        NotifyVerb.LIST_TARGETS,
        NotifyPage,
        "List targets of messages: one's own, and shared ones",
        NotifyTargetView,
    ),
    Endpoint(
        "POST",
        _TARGETS,
        add_target,
        "Add a target of messages; it is sent a test message",
        answers={
            201: Answers(
                "The target; unverified when the test message was not delivered.", NotifyTargetView
            ),
            200: Answers("The target, which was there with the same values.", NotifyTargetView),
        },
        body=NewTarget,
        problems=("conflict", "over_quota"),
    ),
    _of_target(
        "GET",
        "",
        NotifyVerb.SHOW_TARGET,
        "Show a target of messages",
        answer=_TARGET,
        problems=_UNAVAILABLE,
    ),
    _of_target(
        "DELETE",
        "",
        NotifyVerb.REMOVE_TARGET,
        "Remove a target of messages, its subscriptions, and what waits for it",
        answer=Answers("Its name; it is gone.", dict[str, str]),
    ),
    _of_target(
        "POST",
        "/test",
        NotifyVerb.TEST_TARGET,
        "Send a test message to a target",
        answer=_TARGET,
        problems=_CONFLICT,
    ),
    _of_target(
        "POST",
        "/pause",
        NotifyVerb.PAUSE_TARGET,
        "Send nothing to a target until it is resumed",
        answer=_TARGET,
        problems=_CONFLICT,
    ),
    _of_target(
        "POST",
        "/resume",
        NotifyVerb.RESUME_TARGET,
        "Send messages to a paused target again",
        answer=_TARGET,
        problems=_CONFLICT,
    ),
    _listing(
        "/v1/notify/subscriptions",
        NotifyVerb.LIST_SUBSCRIPTIONS,
        NotifyPage,
        "List one's subscriptions",
        SubscriptionView,
    ),
    Endpoint(
        "POST",
        "/v1/notify/subscriptions",
        subscribe,
        "Tell a target of a job, of the jobs of a project, or of all of one's jobs",
        answers={
            201: Answers("The subscription.", SubscriptionView),
            200: Answers("The subscription of an earlier request.", SubscriptionView),
        },
        body=NewSubscription,
        problems=("conflict", "over_quota"),
    ),
    Endpoint(
        "DELETE",
        "/v1/notify/subscriptions/{id}",
        unsubscribe,
        "End a subscription",
        answers={200: Answers("Its id.", dict[str, str])},
    ),
    _listing(
        "/v1/notify/deliveries",
        NotifyVerb.LIST_DELIVERIES,
        DeliveriesPage,
        "List messages to one's targets, newest first",
        DeliveryView,
    ),
)
