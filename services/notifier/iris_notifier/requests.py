"""What gateways ask: targets, subscriptions, and what became of messages.

Rights are judged here, by the matrix: a target and what belongs to it are their user's, or an
admin's; of others neither name nor address is shown.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from iris_core.access.actor import actor_of, audit_line
from iris_core.access.rights import Verb, may
from iris_core.codec import Undecodable, from_json, to_json
from iris_core.errors import Code, Invalid, Mistake, Refused
from iris_core.limits import SENTENCE
from iris_core.messages.gateway_notifier import NotifyRequest, NotifyVerb
from iris_core.messages.gateway_state import Answer, Caller
from iris_core.names import to_token
from iris_core.spec import field_rules
from iris_core.spec.notify import timed
from iris_core.spec.projects import normal
from iris_core.views.notify import (
    SECRET_BYTES,
    DeliveriesPage,
    DeliveryView,
    NewSubscription,
    NewTarget,
    NotifyPage,
    NotifyTargetView,
    SubscriptionView,
)
from iris_notifier.delivering import Deliverer
from iris_notifier.facts import JobFacts, StateReader
from iris_notifier.messages import SUMMARY, TEST
from iris_notifier.outbox import MessageOutbox
from iris_notifier.records import DeliveryRecord, SubscriptionRecord, TargetRecord, target_key
from iris_notifier.senders import MessageSender
from iris_notifier.store import RecordStore
from iris_notifier.watching import ENDED, JobWatch

log = logging.getLogger(__name__)

MAX_TARGETS = 20
"""Targets of one user."""
MAX_SUBSCRIPTIONS = 100
"""Subscriptions of one user."""

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class OwnedName(msgspec.Struct, forbid_unknown_fields=True):
    """Whose target is meant; empty: the caller's."""

    user: str = ""


class NamesToCheck(msgspec.Struct, forbid_unknown_fields=True):
    """Names of targets that a job of ``user`` gives."""

    user: str
    names: tuple[str, ...]


class JobOfRules(msgspec.Struct, forbid_unknown_fields=True):
    """A job by its id, whose it is, and the path of its project."""

    job: str
    user: str
    project: str


class NotifyRequests:
    """Answers requests about the records of one store.

    Args:
        now_ms: the wall clock.
    """

    def __init__(
        self,
        store: RecordStore,
        outbox: MessageOutbox,
        watch: JobWatch,
        deliverer: Deliverer,
        reader: StateReader,
        sender: MessageSender,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._watch = watch
        self._deliverer = deliverer
        self._reader = reader
        self._sender = sender
        self._now_ms = now_ms
        self._handlers: dict[NotifyVerb, Callable[[NotifyRequest], Awaitable[Answer]]] = {
            NotifyVerb.PING: self._ping,
            NotifyVerb.CHECK: self._check,
            NotifyVerb.LIST_TARGETS: self._list_targets,
            NotifyVerb.SHOW_TARGET: self._show_target,
            NotifyVerb.ADD_TARGET: self._add_target,
            NotifyVerb.REMOVE_TARGET: self._remove_target,
            NotifyVerb.TEST_TARGET: self._test_target,
            NotifyVerb.PAUSE_TARGET: self._pause_target,
            NotifyVerb.RESUME_TARGET: self._resume_target,
            NotifyVerb.LIST_SUBSCRIPTIONS: self._list_subscriptions,
            NotifyVerb.SUBSCRIBE: self._subscribe,
            NotifyVerb.UNSUBSCRIBE: self._unsubscribe,
            NotifyVerb.LIST_DELIVERIES: self._list_deliveries,
            NotifyVerb.LIST_RULES: self._list_rules,
        }

    async def answer(self, request: NotifyRequest) -> Answer:
        """The answer, once what it says is stored. Raises Fenced, Unavailable of the store."""
        try:
            return await self._handlers[request.verb](request)
        except Invalid as error:
            body = {"detail": error.detail, "errors": list(error.mistakes)}
            return Answer(Code.INVALID, to_json(body))
        except Refused as error:
            return Answer(error.code, to_json({"detail": error.detail}))
        except Undecodable as error:
            return Answer(Code.INVALID, to_json({"detail": str(error)}))

    # ── targets ───────────────────────────────────────────────────────────────────────────────────

    async def _ping(self, request: NotifyRequest) -> Answer:
        return Answer("ok")

    async def _check(self, request: NotifyRequest) -> Answer:
        asked = from_json(request.body, NamesToCheck)
        unknown = [
            name for name in asked.names if self._watch.matching.target(asked.user, name) is None
        ]
        known = [] if not unknown else self._names(asked.user)
        return _ok({"unknown": unknown, "known": known})

    async def _list_targets(self, request: NotifyRequest) -> Answer:
        caller = request.caller
        shown = [
            one for one in self._store.all(TargetRecord) if one.shared or _may(caller, one.user)
        ]
        return _page(
            from_json(request.body, NotifyPage), shown, lambda one: self._view(one, caller)
        )

    async def _show_target(self, request: NotifyRequest) -> Answer:
        return _ok(self._view(self._target(request), request.caller))

    async def _add_target(self, request: NotifyRequest) -> Answer:
        asked = from_json(request.body, NewTarget)
        caller = request.caller
        if mistakes := [*field_rules.mistakes(asked), *await self._wrong(asked)]:
            raise Invalid(mistakes)
        if asked.shared and not may(caller, Verb.ADMINISTER):
            raise Refused(Code.FORBIDDEN, "only an admin shares a target with everybody")
        known = self._store.find(target_key(caller.user, asked.name), TargetRecord)
        if known is not None and _is_same(known, asked):
            return _ok(self._view(known, caller))
        if known is not None:
            raise Refused(Code.CONFLICT, f"you have a target {asked.name} already")
        own = sum(one.user == caller.user for one in self._store.all(TargetRecord))
        if own >= MAX_TARGETS:
            raise Refused(Code.OVER_QUOTA, f"you have {own} targets, which is the limit")
        target = TargetRecord(
            user=caller.user,
            created_ms=self._now_ms(),
            **msgspec.structs.asdict(asked),
        )
        self._store.save(target)
        await self._try(target)
        _log(caller, "set", target, "shared" if target.shared else "")
        return Answer("created", to_json(self._view(target, caller)))

    async def _wrong(self, asked: NewTarget) -> list[Mistake]:
        if bool(asked.webhook) == bool(asked.smtp):
            message = "a target has either a webhook or an address of mail"
            return [Mistake(pointer="", code="unexpected", message=message)]
        found = []
        if asked.smtp and not self._sender.sends_mail:
            message = "this cluster has no mail server ([notifier] smtp)"
            found.append(Mistake(pointer="/smtp", code="no_mail", message=message))
        if asked.webhook and (why := await self._sender.refusal(asked.webhook)):
            found.append(Mistake(pointer="/webhook", code="bad_webhook", message=why))
        if asked.webhook and len(asked.secret.encode()) < SECRET_BYTES:
            message = (
                f"the messages of a webhook are signed: a secret has {SECRET_BYTES} bytes or more"
            )
            found.append(Mistake(pointer="/secret", code="too_short", message=message))
        if asked.smtp and asked.secret:
            message = "a mail is not signed: leave the secret out"
            found.append(Mistake(pointer="/secret", code="unexpected", message=message))
        return found

    async def _try(self, target: TargetRecord) -> None:
        """Send a test message, and note what came of it."""
        now_ms = self._now_ms()
        test = DeliveryRecord(
            id=f"test.{uuid.uuid4().hex[:16]}",
            type=TEST,
            owner=target.user,
            target=target.name,
            user=target.user,
            on="test",
            created_ms=now_ms,
        )
        if await self._deliverer.try_once(target, test):
            target.state = "active"
            target.is_verified = True
            target.detail = ""
            self._deliverer.forgive(target.key)
        else:
            target.detail = test.error
        self._store.save(target)
        await self._store.flush()

    async def _remove_target(self, request: NotifyRequest) -> Answer:
        target = self._owned(request)
        for one in self._store.all(SubscriptionRecord):
            if one.user == target.user and one.to == target.name:
                self._store.remove(one)
        self._outbox.forget(target.key)
        self._store.remove(target)
        await self._store.flush()
        _log(request.caller, "remove", target)
        return _ok({"name": target.name})

    async def _test_target(self, request: NotifyRequest) -> Answer:
        target = self._owned(request)
        await self._try(target)
        _log(request.caller, "test", target)
        return _ok(self._view(target, request.caller))

    async def _pause_target(self, request: NotifyRequest) -> Answer:
        target = self._owned(request)
        if target.state == "active":
            target.state = "paused"
            target.detail = f"by {request.caller.user}"
            self._store.save(target)
            await self._store.flush()
            _log(request.caller, "pause", target)
        return _ok(self._view(target, request.caller))

    async def _resume_target(self, request: NotifyRequest) -> Answer:
        target = self._owned(request)
        if not target.is_verified:
            message = f"no test message of {target.name} was delivered yet: {target.detail}"
            raise Refused(Code.CONFLICT, message)
        if target.state != "active":
            target.state = "active"
            target.detail = ""
            self._store.save(target)
            await self._store.flush()
            self._deliverer.forgive(target.key)
            _log(request.caller, "resume", target)
        return _ok(self._view(target, request.caller))

    def _target(self, request: NotifyRequest) -> TargetRecord:
        """The target in a path. Raises Refused."""
        caller = request.caller
        user = from_json(request.body, OwnedName).user
        if user and user != caller.user and not _may(caller, user):
            raise Refused(Code.NOT_FOUND, f"there is no target {request.name[:80]}")
        found = (
            self._store.find(target_key(user, request.name), TargetRecord)
            if user
            else self._watch.matching.target(caller.user, request.name)
        )
        if found is None:
            known = ", ".join(self._names(caller.user)) or "none"
            message = f"there is no target {request.name[:80]}; there are: {known}"
            raise Refused(Code.NOT_FOUND, message)
        return found

    def _owned(self, request: NotifyRequest) -> TargetRecord:
        """The target in a path, if it is the caller's to change. Raises Refused."""
        found = self._target(request)
        if not _may(request.caller, found.user):
            raise Refused(Code.FORBIDDEN, f"{found.name} is a shared target of an admin")
        return found

    def _names(self, user: str) -> list[str]:
        """The targets that a user's jobs may name."""
        found = {
            one.name for one in self._store.all(TargetRecord) if one.shared or one.user == user
        }
        return sorted(found)

    def _view(self, target: TargetRecord, caller: Caller) -> NotifyTargetView:
        is_seen = _may(caller, target.user)
        return NotifyTargetView(
            name=target.name,
            user=target.user,
            webhook=(target.webhook or None) if is_seen else None,
            smtp=(target.smtp or None) if is_seen else None,
            format=target.format,
            shared=target.shared,
            state=target.state,
            detail=target.detail if is_seen else "",
            pending=self._outbox.count(target.key) if is_seen else 0,
            created_at=_moment(target.created_ms),
        )

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────

    async def _list_subscriptions(self, request: NotifyRequest) -> Answer:
        shown = [
            one for one in self._store.all(SubscriptionRecord) if _may(request.caller, one.user)
        ]
        return _page(from_json(request.body, NotifyPage), shown, _subscription_view)

    async def _subscribe(self, request: NotifyRequest) -> Answer:
        asked = from_json(request.body, NewSubscription)
        caller = request.caller
        if mistakes := [*field_rules.mistakes(asked), *self._misdirected(asked, caller)]:
            raise Invalid(mistakes)
        number = _subscription_id(caller.user, request.key)
        known = self._store.find(f"subscription.{number}", SubscriptionRecord)
        if known is not None:
            return _ok(_subscription_view(known))
        own = sum(one.user == caller.user for one in self._store.all(SubscriptionRecord))
        if own >= MAX_SUBSCRIPTIONS:
            raise Refused(Code.OVER_QUOTA, f"you have {own} subscriptions, which is the limit")
        job = await self._job(asked, caller) if asked.job else None
        made = SubscriptionRecord(
            id=number,
            user=caller.user,
            to=asked.to,
            on=asked.on,
            job="" if job is None else job.id,
            project=await self._project(asked, caller) if asked.project else "",
            created_ms=self._now_ms(),
        )
        self._store.save(made)
        if job is not None:
            await self._watch.watch(job)
        await self._store.flush()
        _log(caller, "set", made)
        return Answer("created", to_json(_subscription_view(made)))

    def _misdirected(self, asked: NewSubscription, caller: Caller) -> Iterable[Mistake]:
        if [bool(asked.job), bool(asked.project), asked.all_mine].count(True) != 1:
            message = "a subscription is to one job, to a project, or to all of your jobs"
            hint = "job, project or all_mine"
            yield Mistake(pointer="", code="unexpected", message=message, hint=hint)
        if self._watch.matching.target(caller.user, asked.to) is None:
            hint = ", ".join(self._names(caller.user)) or "add one: iris notify target add"
            message = f"there is no target {asked.to[:80]}"
            yield Mistake(pointer="/to", code="unknown_target", message=message, hint=hint)
        if not asked.on:
            message = "it is told of nothing"
            yield Mistake(pointer="/on", code="empty", message=message, hint="for example failed")

    async def _project(self, asked: NewSubscription, caller: Caller) -> str:
        try:
            path = normal(asked.project)
        except Refused as error:
            mistake = Mistake(pointer="/project", code="bad_project", message=error.detail)
            raise Invalid([mistake]) from None
        if not await self._reader.has_project(path, caller.user):
            message = f"there is no project {path}"
            raise Invalid([Mistake(pointer="/project", code="unknown_project", message=message)])
        return path

    async def _job(self, asked: NewSubscription, caller: Caller) -> JobFacts:
        job = await self._reader.job(asked.job, caller.user)
        if job is None:
            message = f"there is no job {asked.job[:80]}"
            raise Invalid([Mistake(pointer="/job", code="unknown_job", message=message)])
        if job.state in ENDED:
            raise Refused(Code.CONFLICT, f"{job.name} has ended: it is {job.state}")
        if job.spec.timeout_s is None and any(one.percent for one in timed(asked.on)):
            message = f"{job.name} has no time limit of which a part could be used"
            raise Invalid([Mistake(pointer="/on", code="unexpected", message=message)])
        return job

    async def _unsubscribe(self, request: NotifyRequest) -> Answer:
        found = self._store.find(f"subscription.{request.name}", SubscriptionRecord)
        if found is None or not _may(request.caller, found.user):
            raise Refused(Code.NOT_FOUND, f"there is no subscription {request.name[:80]}")
        self._store.remove(found)
        await self._store.flush()
        _log(request.caller, "remove", found)
        return _ok({"id": found.id})

    async def _list_rules(self, request: NotifyRequest) -> Answer:
        """Who is told of a job by subscriptions that the caller may see."""
        asked = from_json(request.body, JobOfRules)
        rules = self._watch.matching.rules(asked.job, asked.user, asked.project, None)
        shown = [one._asdict() for one in rules if _may(request.caller, one.owner)]
        return _ok({"rules": shown})

    # ── deliveries ────────────────────────────────────────────────────────────────────────────────

    async def _list_deliveries(self, request: NotifyRequest) -> Answer:
        asked = from_json(request.body, DeliveriesPage)
        shown = [
            one
            for one in self._store.all(DeliveryRecord)
            if _may(request.caller, one.owner)
            and asked.target in ("", one.target)
            and asked.status in ("", one.status)
        ]
        page = NotifyPage(limit=asked.limit, cursor=asked.cursor)
        return _page(page, shown, _delivery_view, newest_first=True)


def _is_same(target: TargetRecord, asked: NewTarget) -> bool:
    """Whether a target is what a request adds: a request may arrive twice."""
    wanted = msgspec.structs.asdict(asked)
    return all(getattr(target, name) == value for name, value in wanted.items())


def _subscription_id(user: str, key: str) -> str:
    """The same one for a request that arrives twice."""
    if not key:
        return uuid.uuid4().hex[:12]
    return hashlib.sha256(f"{user}\0{key}".encode()).hexdigest()[:12]


def _log(
    caller: Caller, action: str, record: TargetRecord | SubscriptionRecord, detail: str = ""
) -> None:
    """One line for each change, once it is stored, as the leader of the state service logs commands;
    names only.
    """
    if isinstance(record, TargetRecord):
        kind = "target"
        name = record.name
    else:
        kind = "subscription"
        name = record.id
        detail = f"{record.to} of {record.job or record.project or 'all jobs'}"
    line = audit_line(actor_of(caller), action, kind, name, owner=record.user, detail=detail)
    log.info("%s", line)


def _may(caller: Caller, owner: str) -> bool:
    return may(caller, Verb.NOTIFY, owner)


def _ok(value: Any) -> Answer:
    return Answer("ok", to_json(value))


def _page(
    asked: NotifyPage,
    shown: Sequence[Any],
    view: Callable[[Any], Any],
    *,
    newest_first: bool = False,
) -> Answer:
    """One page, by key or from the newest one on."""
    place = _moment_and_key if newest_first else _key_of
    ordered = sorted(((place(one), one) for one in shown), key=_first, reverse=newest_first)
    if asked.cursor:
        ordered = [
            (at, one)
            for at, one in ordered
            if (at < asked.cursor if newest_first else at > asked.cursor)
        ]
    page = ordered[: asked.limit]
    cursor = page[-1][0] if len(ordered) > len(page) else None
    return _ok({"items": [view(one) for _, one in page], "next_cursor": cursor})


def _key_of(record: Any) -> str:
    return to_token(record.key)


def _moment_and_key(record: Any) -> str:
    return f"{record.created_ms:015d}{to_token(record.key)}"


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def _subscription_view(one: SubscriptionRecord) -> SubscriptionView:
    return SubscriptionView(
        id=one.id,
        user=one.user,
        to=one.to,
        on=list(one.on),
        job=one.job or None,
        project=one.project or None,
        all_mine=not (one.job or one.project),
        created_at=_moment(one.created_ms),
    )


def _delivery_view(one: DeliveryRecord) -> DeliveryView:
    is_summary = one.type == SUMMARY
    return DeliveryView(
        id=one.id,
        type=one.type,
        target=one.target,
        user=one.user,
        job=", ".join(one.examples)[:SENTENCE] if is_summary else one.job,
        job_id="" if is_summary else one.job_id,
        on=one.on,
        jobs=one.jobs,
        status=one.status,
        tries=one.tries,
        error=one.error,
        created_at=_moment(one.created_ms),
        next_at=_moment(max(one.next_ms, one.due_ms)) if one.status == "pending" else None,
        ended_at=_moment(one.ended_ms),
    )


def _moment(at_ms: int) -> datetime | None:
    return datetime.fromtimestamp(at_ms / 1000, UTC) if at_ms else None
