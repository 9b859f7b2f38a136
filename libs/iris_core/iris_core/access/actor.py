"""Who caused a change: one value from the gateway's authentication to the records, the events and
the audit. Pure.

Only `iris_state.machine.round` attaches it to changes. Source:
    docs/adr/0055-changes-record-their-actor.md.
"""

from __future__ import annotations

import msgspec

from iris_core.messages.gateway_state import Caller


class Actor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The person or task whose command caused a change. New fields go last, with a default.

    Attributes:
        user: empty without authentication. token: the name of the token, never the token.
        address: the client's, as the gateway saw it. task: ``j7/0`` when a task sent it with the
            token of its attempt.
    """

    user: str = ""
    role: str = ""
    token: str = ""
    address: str = ""
    task: str = ""


def actor_of(caller: Caller) -> Actor:
    """The actor of a command; a name that was claimed without authentication is dropped."""
    ref = caller.attempt
    task = f"j{ref.job}/{ref.index}" if ref is not None else ""
    user, role = ("", "") if caller.claimed else (caller.user, caller.role)
    return Actor(user, role, caller.token, caller.address, task=task)


def named(actor: Actor | None) -> str:
    """``mia``, ``task j7/0 of mia``, ``anonymous at 127.0.0.1``; empty for None, which is Iris
    itself.
    """
    if actor is None:
        return ""
    if actor.task:
        return f"task {actor.task} of {actor.user}"
    return actor.user or (f"anonymous at {actor.address}" if actor.address else "anonymous")


def described(actor: Actor) -> str:
    """``mia (admin, token laptop, 10.0.0.3)``, for the log."""
    token = f"token {actor.token}" if actor.token else ""
    facts = ", ".join(filter(None, (actor.role, token, actor.address)))
    return f"{named(actor)} ({facts})" if facts else named(actor)


def audit_line(
    by: Actor, action: str, kind: str, name: str, *, owner: str = "", detail: str = ""
) -> str:
    """``audit: mia (admin): drain worker w0: a new disk``, of something that was done."""
    whose = f" of {owner}" if owner else ""
    why = f": {detail}" if detail else ""
    return f"audit: {described(by)}: {action} {kind} {name}{whose}{why}"
