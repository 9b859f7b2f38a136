"""Endpoints of notifications, which are passed on to the notifier: targets, subscriptions, and what
became of messages.

Source: docs/design/notifications.md.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.responses import Response

from iris_bus.contract import NoResponders, Unavailable
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
S = TypeVar("S", bound=msgspec.Struct)


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
    try:
        message = await call.gateway.bus.request(NOTIFIER_REQUEST, pack(request), timeout=timeout_s)
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


async def _listed(call: Call, verb: NotifyVerb, kind: type[msgspec.Struct]) -> Response:
    return passed_on((await ask(call, verb, body=call.asked(kind))).body)


async def list_targets(call: Call) -> Response:
    return await _listed(call, NotifyVerb.LIST_TARGETS, NotifyPage)


async def add_target(call: Call) -> Response:
    asked = await _checked(call, NewTarget)
    answer = await ask(call, NotifyVerb.ADD_TARGET, body=asked)
    return passed_on(answer.body, 201 if answer.status == "created" else 200)


async def show_target(call: Call) -> Response:
    return await _of_target(call, NotifyVerb.SHOW_TARGET)


async def remove_target(call: Call) -> Response:
    return await _of_target(call, NotifyVerb.REMOVE_TARGET)


async def try_target(call: Call) -> Response:
    return await _of_target(call, NotifyVerb.TEST_TARGET)


async def pause_target(call: Call) -> Response:
    return await _of_target(call, NotifyVerb.PAUSE_TARGET)


async def resume_target(call: Call) -> Response:
    return await _of_target(call, NotifyVerb.RESUME_TARGET)


async def _of_target(call: Call, verb: NotifyVerb) -> Response:
    name = call.segment("name")
    return passed_on((await ask(call, verb, name, call.asked(TargetOwner))).body)


async def _checked(call: Call, kind: type[S]) -> S:
    """The request's body, whose fields keep to their limits. Raises ProblemResponse."""
    body = await json_body(call, kind)
    if mistakes := field_rules.mistakes(body):
        raise invalid(mistakes)
    return body


# ── subscriptions and deliveries ──────────────────────────────────────────────────────────────────


async def list_subscriptions(call: Call) -> Response:
    return await _listed(call, NotifyVerb.LIST_SUBSCRIPTIONS, NotifyPage)


async def subscribe(call: Call) -> Response:
    asked = await _checked(call, NewSubscription)
    answer = await ask(call, NotifyVerb.SUBSCRIBE, body=asked)
    return passed_on(answer.body, 201 if answer.status == "created" else 200)


async def unsubscribe(call: Call) -> Response:
    return passed_on((await ask(call, NotifyVerb.UNSUBSCRIBE, call.segment("id"))).body)


async def list_deliveries(call: Call) -> Response:
    return await _listed(call, NotifyVerb.LIST_DELIVERIES, DeliveriesPage)


_TARGET = Answers("The target.", NotifyTargetView)
_TARGETS = "/v1/notify/targets"
_UNAVAILABLE = ("unavailable",)


def _switch(word: str, handler: Any, summary: str) -> Endpoint:
    return Endpoint(
        "POST",
        f"{_TARGETS}/{{name}}/{word}",
        handler,
        summary,
        answers={200: _TARGET},
        parameters=TargetOwner,
        problems=("conflict",),
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        _TARGETS,
        list_targets,
        "List targets of messages: one's own, and shared ones",
        answers={200: Answers("One page.", page_of(NotifyTargetView))},
        parameters=NotifyPage,
        problems=_UNAVAILABLE,
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
    Endpoint(
        "GET",
        f"{_TARGETS}/{{name}}",
        show_target,
        "Show a target of messages",
        answers={200: _TARGET},
        parameters=TargetOwner,
        problems=_UNAVAILABLE,
    ),
    Endpoint(
        "DELETE",
        f"{_TARGETS}/{{name}}",
        remove_target,
        "Remove a target of messages, its subscriptions, and what waits for it",
        answers={200: Answers("Its name; it is gone.", dict[str, str])},
        parameters=TargetOwner,
    ),
    _switch("test", try_target, "Send a test message to a target"),
    _switch("pause", pause_target, "Send nothing to a target until it is resumed"),
    _switch("resume", resume_target, "Send messages to a paused target again"),
    Endpoint(
        "GET",
        "/v1/notify/subscriptions",
        list_subscriptions,
        "List one's subscriptions",
        answers={200: Answers("One page.", page_of(SubscriptionView))},
        parameters=NotifyPage,
        problems=_UNAVAILABLE,
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
    Endpoint(
        "GET",
        "/v1/notify/deliveries",
        list_deliveries,
        "List messages to one's targets, newest first",
        answers={200: Answers("One page.", page_of(DeliveryView))},
        parameters=DeliveriesPage,
        problems=_UNAVAILABLE,
    ),
)
