"""Authenticates callers by bearer tokens, each with a user and a role, stored only as SHA-256.

Out of scope: the lines of the token file (`iris_core.access.token_file`), reading it (`service`),
and what a role may do with a job (the state service). Source: docs/access.md#tokens-and-roles,
    docs/design/reliability.md#security.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from iris_core.access import token_file
from iris_core.access.rights import Membership, Verb, may
from iris_core.access.token_file import Token, digest_of, is_user_name
from iris_core.addresses import is_loopback
from iris_core.messages.gateway_state import Caller, UserCommand
from iris_gateway.http.problem import ProblemResponse

ANONYMOUS = "anonymous"
"""The user of requests without authentication."""

_FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
_BEYOND_FORMS = ("authorization", "idempotency-key", "x-iris-user")


@dataclass(frozen=True, slots=True)
class Keyring:
    """All tokens of the token file."""

    tokens: tuple[Token, ...] = ()

    def identify(self, secret: str, now_ms: int) -> Caller:
        """The caller whose token this is. Raises ProblemResponse unauthenticated."""
        return self.token_of(secret, now_ms).caller

    def token_of(self, secret: str, now_ms: int) -> Token:
        """The valid token. Raises ProblemResponse unauthenticated.

        Every token is compared, each in constant time.
        """
        digest = digest_of(secret)
        found = None
        for token in self.tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        if found is None:
            raise unauthenticated("unknown token: it was revoked, or belongs to another cluster")
        if found.has_expired(now_ms):
            raise unauthenticated(
                f"the token {found.name} of {found.caller.user} has expired; ask for a new one"
            )
        return found

    def accepts(self, token: Token, now_ms: int) -> bool:
        """Whether a token that was valid before still is."""
        return token in self.tokens and not token.has_expired(now_ms)


def bearer_of(authorization: str) -> str:
    """The token in an ``Authorization`` header. Raises ProblemResponse unauthenticated."""
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise unauthenticated(
            "a bearer token is required: set IRIS_TOKEN to yours, or IRIS_DATA to the data directory of a local cluster"
        )
    return secret.strip()


def unauthenticated(detail: str) -> ProblemResponse:
    """The response 401."""
    return ProblemResponse(
        "unauthenticated", detail, headers={"www-authenticate": 'Bearer realm="iris"'}
    )


def checked_user(name: str) -> str:
    """``name`` if it is a valid user name, or empty. Raises ProblemResponse."""
    if name and not is_user_name(name):
        raise ProblemResponse(
            "malformed", f"a user's name holds letters, digits and '._@+-': {name[:80]!r}"
        )
    return name


def parse_tokens(text: str) -> Keyring:
    """The keyring of a token file's text; an empty file permits nobody. Raises BadTokenFile."""
    return Keyring(token_file.parse_tokens(text))


def require_admin(caller: Caller) -> None:
    """Raises ProblemResponse forbidden unless the caller is an admin."""
    if not may_administer(caller):
        raise ProblemResponse("forbidden", "only an admin may do this")


def may_administer(caller: Caller) -> bool:
    """Whether a caller may do, and read, what concerns the whole cluster."""
    return may(caller, Verb.ADMINISTER)


def refuse_worker(caller: Caller, command: type[UserCommand]) -> None:
    """Raises ProblemResponse forbidden when the token of a worker would send a command of this
    kind.
    """
    if not may(caller, Verb.COMMAND):
        raise ProblemResponse("forbidden", f"worker tokens may not {command.does}")


def may_read(caller: Caller, owner: str) -> bool:
    """Whether a caller may read the output of tasks of ``owner``."""
    return may(caller, Verb.READ_OUTPUT, owner)


def require_reader(caller: Caller, owner: str, what: str) -> None:
    """Raises ProblemResponse forbidden unless the caller may read the output of a record of
    ``owner``.
    """
    if not may_read(caller, owner):
        raise ProblemResponse(
            "forbidden",
            f"{what} belongs to {owner}; only its owner or an admin may read what it prints",
        )


def require_named(caller: Caller, owner: str, what: str, named: str) -> None:
    """Raises ProblemResponse forbidden for results of calls of another user whom the request does
    not name, or of another one than it names.

    Clients unpickle results, which runs code of the record's owner with the rights of whoever
    reads them: an admin, who may read everything, asks for them by the owner's name. A user whom
    nothing proves (``claimed``) is asked for nothing.
    """
    if named and named != owner:
        raise ProblemResponse("forbidden", f"{what} belongs to {owner}, not to {named}")
    if not named and not caller.claimed and caller.user != owner:
        raise ProblemResponse(
            "forbidden",
            f"{what} belongs to {owner}, and unpickling its results runs code of {owner}; "
            f"user={owner} asks for them, in the SDK of_user={owner!r}",
        )


def may_act(caller: Caller, owner: str, membership: Membership = Membership.NONE) -> bool:
    """Whether a caller is offered to cancel, hold, change and requeue jobs of ``owner``, which the
    state service decides. ``membership``: the caller's in the project of the job.
    """
    return may(caller, Verb.CHANGE, owner, membership)


def may_repeat(caller: Caller, owner: str) -> bool:
    """Whether a caller is offered to rerun jobs of ``owner``, and to change and delete
    deployments.
    """
    return may(caller, Verb.REPEAT, owner)


def may_set_below(caller: Caller, membership: Membership) -> bool:
    """Whether a caller is offered to set what is below a project."""
    return may(caller, Verb.SET_BELOW, membership=membership)


def may_set_members(caller: Caller, membership: Membership) -> bool:
    """Whether a caller is offered to set the members of a project."""
    return may(caller, Verb.SET_MEMBERS, membership=membership)


def may_notify(caller: Caller, owner: str) -> bool:
    """Whether a caller is offered to change targets and subscriptions of ``owner``, which the
    notifier decides.
    """
    return may(caller, Verb.NOTIFY, owner)


def own_machine(host: str) -> None:
    """Without authentication, answer only to the names of loopback, which prevents DNS rebinding:
    the page of another site whose name resolves to loopback is detected by its ``Host`` header.
    Raises ProblemResponse forbidden.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if not is_loopback(name):
        raise ProblemResponse(
            "forbidden",
            f"authentication is off, so the Host header must be a loopback address, not {host[:80]!r}",
        )


def own_pages(headers: Mapping[str, str]) -> None:
    """Refuse changes by pages of other sites (CSRF), by ``Sec-Fetch-Site``, or by ``Origin`` where
    a browser does not send it.

    Raises ProblemResponse forbidden.
    """
    site = headers.get("sec-fetch-site", "")
    origin = headers.get("origin", "")
    if site:
        own = site in ("same-origin", "none")
    else:
        own = not origin or origin.lower().partition("://")[2] == headers.get("host", "").lower()
    if not own:
        raise ProblemResponse("forbidden", "requests from other sites are refused")


def own_form(headers: Mapping[str, str]) -> None:
    """Refuse a form unless the browser states that it was sent by a page of this gateway:
    ``Sec-Fetch-Site``, or ``Origin`` where a browser does not send it (plain HTTP on a network). A
    client that states neither uses the API.

    Raises ProblemResponse forbidden.
    """
    own_pages(headers)
    if headers.get("sec-fetch-site", "") != "same-origin" and not headers.get("origin"):
        raise ProblemResponse(
            "forbidden",
            "forms are accepted from pages of this gateway only; programs use the API under /v1",
        )


def opened_by_person(headers: Mapping[str, str]) -> bool:
    """Whether the browser states that a page was opened by its user or from a page of this gateway,
    and not by another site. One that does not say so (plain HTTP on a network) may have been led
    here.
    """
    return headers.get("sec-fetch-site", "") in ("none", "same-origin")


def no_form(headers: Mapping[str, str]) -> None:
    """Refuse changes that a plain HTML form could send: a header must show that a script sent them.

    Raises ProblemResponse unsupported_media_type.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if (not kind or kind in _FORM_TYPES) and not any(name in headers for name in _BEYOND_FORMS):
        detail = f"a change must be said as no page's form can say it, not {kind[:80]!r}: Content-Type: application/json"
        raise ProblemResponse(
            "unsupported_media_type", detail, headers={"accept": "application/json"}
        )
