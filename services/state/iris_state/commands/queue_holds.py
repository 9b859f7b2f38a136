"""Executes holds on the queue and their release. Raises `Refused`.

An admin holds whatever it likes, a user only what is its own; a hold is released by who has made
it, or an admin.
Source: docs/adr/0084-a-job-is-changed-in-place.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from iris_core.access.actor import Actor, named
from iris_core.access.rights import Verb, may
from iris_core.errors import Code, Refused
from iris_core.limits import SENTENCE
from iris_core.messages.gateway_state import Caller, HoldQueue
from iris_core.spec.jobs import BandName
from iris_state.commands.execute import check_length
from iris_state.records.changes import QueueHeld, QueueReleased
from iris_state.records.claims import Step
from iris_state.records.ledger import Ledger
from iris_state.records.queue_holds import QueueHold

MAX_HOLDS = 100
"""Of those that users have made, and again of those of admins, who stop what goes wrong."""
MAX_OF_USER = 20


def on_hold_queue(ledger: Ledger, command: HoldQueue) -> Iterator[Step]:
    """Hold a part of the queue, or release it. Raises Refused."""
    if command.hold:
        yield QueueReleased(_releasable(ledger, command).number)
        return
    check_length("reason", command.reason)
    wanted = QueueHold(ledger.next_hold, command.user, command.band, command.label)
    _check_selector(command)
    if not may(command.caller, Verb.HOLD, command.user):
        words = f"only an admin holds {wanted.words} of every user; specify user={command.caller.user} for your own jobs"
        raise Refused(Code.FORBIDDEN, words)
    same = [one for one in ledger.queue_holds.values() if one.words == wanted.words]
    if same:
        raise Refused(
            Code.CONFLICT, f"{wanted.words} is held already, by {named(same[0].by)} ({same[0].id})"
        )
    _check_room(ledger, command.caller)
    yield QueueHeld(wanted.number, command.user, command.band, command.label, reason=command.reason)


def _check_room(ledger: Ledger, caller: Caller) -> None:
    """Raises Refused when there are as many holds as may be."""
    is_admin = may(caller, Verb.ADMINISTER)
    alike = [hold for hold in ledger.queue_holds.values() if _is_of_admin(hold.by) == is_admin]
    if len(alike) >= MAX_HOLDS:
        whose = "admins" if is_admin else "users"
        words = f"{whose} have {MAX_HOLDS} holds on the queue, which is the limit: release one"
        raise Refused(Code.OVER_QUOTA, words)
    own = sum(hold.by is not None and hold.by.user == caller.user for hold in alike)
    if not is_admin and own >= MAX_OF_USER:
        words = (
            f"{caller.user} has {MAX_OF_USER} holds on the queue, which is the limit for one user: "
            "release one first"
        )
        raise Refused(Code.OVER_QUOTA, words)


def _is_of_admin(by: Actor | None) -> bool:
    """Whether an admin has made a hold; without authentication everybody is one."""
    if by is None or not by.role:
        return True
    return may(Caller(user=by.user, role=by.role), Verb.ADMINISTER)


def _check_selector(command: HoldQueue) -> None:
    if not (command.user or command.band or command.label):
        raise Refused(Code.INVALID, "specify what to hold: a user, a band or a label")
    if command.band and command.band not in get_args(BandName):
        raise Refused(Code.INVALID, f"{command.band[:80]!r} is not a band")
    if command.label and not command.label.partition("=")[1]:
        raise Refused(Code.INVALID, f"{command.label[:80]!r} is not a label: write key=value")
    if max(len(command.user), len(command.label)) > SENTENCE:
        raise Refused(Code.INVALID, f"a user or label of more than {SENTENCE} characters")


def _releasable(ledger: Ledger, command: HoldQueue) -> QueueHold:
    hold = known_hold(ledger, command.hold)
    by = (hold.by.user if hold.by is not None else "") or None
    if not may(command.caller, Verb.RELEASE, by):
        words = (
            f"{hold.words} is held by {named(hold.by)}; only that user or an admin may release it"
        )
        raise Refused(Code.FORBIDDEN, words)
    return hold


def known_hold(ledger: Ledger, text: str) -> QueueHold:
    """A hold by its id. Raises Refused not_found."""
    found = next((hold for hold in ledger.queue_holds.values() if hold.id == text), None)
    if found is None:
        raise Refused(Code.NOT_FOUND, f"there is no hold {text[:80]} on the queue")
    return found
