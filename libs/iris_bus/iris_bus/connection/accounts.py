"""Renders the accounts and users of a NATS server for its configuration. Pure.

See also: `iris_core.access.roles` has the permissions, `keys` the seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from iris_bus.connection.conf_strings import quoted
from iris_core.access.roles import (
    ACCOUNT,
    BY_NAME,
    ROLES,
    SERVER_STORAGE,
    SYSTEM,
    Login,
    bound,
    exported,
    login_of,
    permissions,
)

_ANSWER_ONCE = 'allow_responses: { max: 1, expires: "2m" }'


def inbox(public_key: str) -> str:
    """The prefix of a user's inboxes; no other user of the account may subscribe there."""
    return f"_INBOX.{public_key[:16]}"


def accounts(keys: Mapping[str, str]) -> str:
    """The blocks ``accounts`` and ``system_account``, for these public keys by label."""
    logins = [
        (found, key)
        for label, key in sorted(keys.items())
        if (found := login_of(label)) is not None
    ]
    services = [(login, key) for login, key in logins if not login.token]
    loners = [(login, key) for login, key in logins if login.token]
    lines = [
        "accounts {",
        "  SYS: {",
        f"    users: [ {{ nkey: {keys[SYSTEM]} }} ]",
        f"    exports: [ {{ service: {quoted(SERVER_STORAGE)}, response_type: stream, accounts: [{ACCOUNT}] }} ]",
        "  }",
        f"  {ACCOUNT}: {{",
        "    jetstream: enabled",
    ]
    lines += _list("users", [_user(login, key, inbox(key)) for login, key in services])
    lines += _list("exports", _shared())
    storage = _import("service", "SYS", SERVER_STORAGE)
    lines += _list(
        "imports",
        [storage, *(_taken(subject, login) for login, _ in loners for subject in _asked(login))],
    )
    lines.append("  }")
    for login, key in loners:
        lines += _alone(login, key)
    return "\n".join([*lines, "}", "system_account: SYS", ""])


def _alone(login: Login, key: str) -> list[str]:
    """The account of one user, with its imports from the services and exports to them."""
    requests, _, watched = exported(login.role)
    imports = [_import("service", ACCOUNT, bound(subject, login)) for subject in requests]
    imports += [_import("stream", ACCOUNT, subject) for subject in watched]
    lines = [f"  {quoted(login.label)}: {{", *_list("users", [_user(login, key, "_INBOX")])]
    lines += _list(
        "exports",
        [f"{{ service: {quoted(subject)}, accounts: [{ACCOUNT}] }}" for subject in _asked(login)],
    )
    return [*lines, *_list("imports", imports), "  }"]


def _shared() -> list[str]:
    """The exports and imports of the services' account for users with their own account."""
    roles = [exported(role.name) for role in ROLES if role.alone]
    services = sorted({subject for requests, _, _ in roles for subject in requests})
    streams = sorted({subject for _, _, watched in roles for subject in watched})
    return [
        *(f"{{ service: {quoted(subject)} }}" for subject in services),
        *(f"{{ stream: {quoted(subject)} }}" for subject in streams),
    ]


def _asked(login: Login) -> list[str]:
    """Requests that services make of this user."""
    _, requests, _ = exported(login.role)
    return [bound(subject, login) for subject in requests]


def _taken(subject: str, login: Login) -> str:
    return _import("service", login.label, subject)


def _import(kind: str, account: str, subject: str) -> str:
    return f"{{ {kind}: {{ account: {quoted(account)}, subject: {quoted(subject)} }} }}"


def _user(login: Login, key: str, inboxes: str) -> str:
    may = permissions(login)
    publish = _subjects(may.publish)
    subscribe = _subjects([*may.subscribe, f"{inboxes}.>"])
    once = f", {_ANSWER_ONCE}" if may.answers == "once" else ""
    comment = BY_NAME[login.role].why
    rights = f"publish: {{ allow: [{publish}] }}, subscribe: {{ allow: [{subscribe}] }}{once}"
    return f"{{ nkey: {key}, permissions: {{ {rights} }} }} # {login.label}: {comment}"


def _subjects(patterns: Iterable[str]) -> str:
    return ", ".join(map(quoted, patterns))


def _list(name: str, entries: list[str]) -> list[str]:
    return [f"    {name}: [", *(f"      {entry}" for entry in entries), "    ]"] if entries else []
