"""The file of the API's bearer tokens: one line per token, ``USER ROLE SHA256``; ``#`` starts a comment. Pure.

Tokens are long and random, so one round of SHA-256 is enough. Source: docs/design/interfaces.md#http,
docs/design/reliability.md#security.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal, get_args

from iris_core.messages import Caller

Role = Literal["user", "admin", "worker"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_USER = 128

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_USER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@+-]{{0,{MAX_USER - 1}}}\Z")


class BadTokenFile(ValueError):
    """The token file cannot be used; the text names the line."""


@dataclass(frozen=True, slots=True)
class Token:
    """One line of the token file."""

    caller: Caller
    digest: bytes


def is_user_name(name: str) -> bool:
    return _USER.match(name) is not None


def digest_of(secret: str) -> bytes:
    """What is stored of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def line_of(user: str, role: Role, secret: str) -> str:
    """The line of a new token."""
    return f"{user} {role} {digest_of(secret).hex()}\n"


def parse_tokens(text: str) -> tuple[Token, ...]:
    """All tokens of a file's text. Raises BadTokenFile."""
    lines = ((line.partition("#")[0].split(), number) for number, line in enumerate(text.splitlines(), start=1))
    return tuple(_token(words, number) for words, number in lines if words)


def _token(words: list[str], number: int) -> Token:
    if len(words) != 3:
        raise BadTokenFile(f"line {number}: expected USER ROLE SHA256")
    user, role, digest = words
    if not is_user_name(user):
        raise BadTokenFile(f"line {number}: {user[:40]!r} is no user's name")
    if role not in ROLES:
        raise BadTokenFile(f"line {number}: {role[:40]!r} is no role; one of {', '.join(ROLES)}")
    if not _DIGEST.match(digest.lower()):
        raise BadTokenFile(f"line {number}: the third word is the token's SHA-256 in hexadecimal")
    return Token(Caller(user=user, role=role), bytes.fromhex(digest))
