"""Authenticates callers by bearer tokens, each with a user and a role, stored only as SHA-256.

The file has one token per line, ``USER ROLE SHA256``; ``#`` starts a comment. Tokens are long and random, so one
round of SHA-256 is enough. Out of scope: reading the file (`service`), and what a role may do with a job (the state
service). Source: docs/design/interfaces.md#http, docs/design/reliability.md#security.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from iris_core.messages import Caller
from iris_gateway.problem import ProblemResponse

Role = Literal["user", "admin", "worker"]
ROLES = get_args(Role)
MAX_USER = 128
ANONYMOUS = "anonymous"
"""The user of requests without authentication."""

_FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
_BEYOND_FORMS = ("authorization", "idempotency-key", "x-iris-user")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_USER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@+-]{{0,{MAX_USER - 1}}}\Z")


class BadTokenFile(Exception):
    """The token file cannot be used; the text names the line."""


@dataclass(frozen=True, slots=True)
class Token:
    """One line of the token file."""

    caller: Caller
    digest: bytes


@dataclass(frozen=True, slots=True)
class Keyring:
    """All tokens. Without tokens authentication is off, which is allowed on loopback only."""

    tokens: tuple[Token, ...] = ()

    @property
    def open(self) -> bool:
        """Whether authentication is off."""
        return not self.tokens

    def identify(self, authorization: str | None, claimed_user: str = "") -> Caller:
        """The caller behind an ``Authorization`` header.

        Args:
            authorization: the header's value, None when absent.
            claimed_user: the user the client claims; used only when authentication is off.

        Raises ProblemResponse unauthenticated. Every token is compared, each in constant time.
        """
        if self.open:
            return Caller(user=checked_user(claimed_user) or ANONYMOUS, role="admin")
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise unauthenticated("a bearer token is needed")
        digest = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest()
        found = None
        for token in self.tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token.caller
        if found is None:
            raise unauthenticated("this token is not known")
        return found


def unauthenticated(detail: str) -> ProblemResponse:
    """The response 401."""
    return ProblemResponse("unauthenticated", detail, headers={"www-authenticate": 'Bearer realm="iris"'})


def checked_user(name: str) -> str:
    """``name`` if it is a valid user name, or empty. Raises ProblemResponse."""
    if name and not _USER.match(name):
        raise ProblemResponse("malformed", f"a user's name holds letters, digits and '._@+-': {name[:80]!r}")
    return name


def parse_tokens(text: str) -> Keyring:
    """The keyring of a token file's text. Raises BadTokenFile."""
    tokens = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words:
            tokens.append(_token(words, number))
    if not tokens:
        raise BadTokenFile("the token file names nobody, so nobody could call")
    return Keyring(tuple(tokens))


def _token(words: list[str], number: int) -> Token:
    if len(words) != 3:
        raise BadTokenFile(f"line {number}: expected USER ROLE SHA256")
    user, role, digest = words
    if not _USER.match(user):
        raise BadTokenFile(f"line {number}: {user[:40]!r} is no user's name")
    if role not in ROLES:
        raise BadTokenFile(f"line {number}: {role[:40]!r} is no role; one of {', '.join(ROLES)}")
    if not _DIGEST.match(digest.lower()):
        raise BadTokenFile(f"line {number}: the third word is the token's SHA-256 in hexadecimal")
    return Token(Caller(user=user, role=role), bytes.fromhex(digest))


def require_admin(caller: Caller) -> None:
    """Raises ProblemResponse forbidden unless the caller is an admin."""
    if caller.role != "admin":
        raise ProblemResponse("forbidden", "only an admin may do this")


def may_read(caller: Caller, owner: str) -> bool:
    """Whether a caller may read the output of tasks of ``owner``."""
    return caller.role == "admin" or caller.user == owner


def is_loopback(host: str) -> bool:
    """Whether a listening address is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def own_machine(host: str) -> None:
    """Without authentication, answer only to the names of loopback, which prevents DNS rebinding: the page of another
    site whose name resolves to loopback is detected by its ``Host`` header. Raises ProblemResponse forbidden.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if not is_loopback(name):
        raise ProblemResponse("forbidden", f"without authentication only loopback may be asked for, not {host[:80]!r}")


def own_pages(headers: Mapping[str, str]) -> None:
    """Refuse changes by pages of other sites (CSRF), by ``Sec-Fetch-Site``, or by ``Origin`` where a browser does not
    send it.

    Raises ProblemResponse forbidden.
    """
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    if site:
        own = site in ("same-origin", "none")
    else:
        own = not origin or origin.lower().partition("://")[2] == headers.get("host", "").lower()
    if not own:
        raise ProblemResponse("forbidden", "another site may not do this")


def no_form(headers: Mapping[str, str]) -> None:
    """Refuse changes that a plain HTML form could send: a header must show that a script sent them.

    Raises ProblemResponse unsupported_media_type.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if (not kind or kind in _FORM_TYPES) and not any(name in headers for name in _BEYOND_FORMS):
        detail = (
            f"a change must be said as no page's form can say it, not {kind[:80]!r}: Content-Type: application/json"
        )
        raise ProblemResponse("unsupported_media_type", detail, headers={"accept": "application/json"})
