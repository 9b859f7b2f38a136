"""The file of the API's bearer tokens, one line per token; ``#`` starts a comment. Pure.

``USER ROLE SHA256``, and any of ``name=NAME``, ``made=TIME`` and ``expires=TIME``, times as RFC
3339. Tokens are long and random, so one round of SHA-256 is enough. Source:
docs/access.md#tokens-and-roles, docs/design/reliability.md#security.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from iris_core.messages.gateway_state import Caller

Role = Literal["user", "admin", "worker"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_USER = 128
SHORT = 8
"""The digits of its digest that name a token without a name."""

_DIGITS = 16
_FACTS = ("name", "made", "expires")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_USER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@+-]{{0,{MAX_USER - 1}}}\Z")


class BadTokenFile(ValueError):
    """The token file cannot be used; the text names the line."""


@dataclass(frozen=True, slots=True)
class Token:
    """One line of the token file.

    Attributes:
        caller: with the token's name; one without a name is called by the beginning of its digest.
        made_ms, expires_ms: 0: unknown, and never.
    """

    caller: Caller
    digest: bytes
    made_ms: int = 0
    expires_ms: int = 0

    @property
    def name(self) -> str:
        return self.caller.token

    def has_expired(self, now_ms: int) -> bool:
        return 0 < self.expires_ms <= now_ms


def is_user_name(name: str) -> bool:
    return _USER.match(name) is not None


def digest_of(secret: str) -> bytes:
    """What is stored of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def token_of(user: str, role: Role, secret: str, *, name: str = "", made_ms: int = 0) -> Token:
    """What is stored of a new token."""
    digest = digest_of(secret)
    return Token(Caller(user=user, role=role, token=name or digest.hex()[:SHORT]), digest, made_ms)


def line_of(token: Token) -> str:
    """The line of a token."""
    facts = {
        "name": token.name,
        "made": _written(token.made_ms),
        "expires": _written(token.expires_ms),
    }
    words = (token.caller.user, token.caller.role, token.digest.hex())
    return " ".join([*words, *(f"{key}={value}" for key, value in facts.items() if value)]) + "\n"


def unusable(path: str, error: Exception) -> str:
    """Why a token file cannot be read, and what to do."""
    return f"{path} cannot be used: {error}; correct it, or take that line out: `iris admin token` adds new ones"


def parse_tokens(text: str) -> tuple[Token, ...]:
    """All tokens of a file's text. Raises BadTokenFile."""
    lines = (
        (line.partition("#")[0].split(), number)
        for number, line in enumerate(text.splitlines(), start=1)
    )
    return tuple(_token(words, number) for words, number in lines if words)


def digest_of_all(tokens: Iterable[Token]) -> str:
    """The same for files that accept the same tokens, whatever their order and comments; it tells
    none of them.
    """
    return digest_of("".join(sorted(map(line_of, tokens)))).hex()[:_DIGITS]


def _token(words: list[str], number: int) -> Token:
    if len(words) < 3:
        raise BadTokenFile(f"line {number}: expected USER ROLE SHA256")
    user, role, digest = words[:3]
    if not is_user_name(user):
        raise BadTokenFile(f"line {number}: {user[:40]!r} is not a user name")
    if role not in ROLES:
        raise BadTokenFile(f"line {number}: {role[:40]!r} is not a role; one of {', '.join(ROLES)}")
    if not _DIGEST.match(digest.lower()):
        raise BadTokenFile(f"line {number}: the third word is the token's SHA-256 in hexadecimal")
    facts = _facts(words[3:], number)
    name = facts.get("name") or digest[:SHORT].lower()
    made_ms, expires_ms = (_read_time(facts.get(key, ""), number) for key in ("made", "expires"))
    return Token(
        Caller(user=user, role=role, token=name), bytes.fromhex(digest), made_ms, expires_ms
    )


def _facts(words: list[str], number: int) -> dict[str, str]:
    """``name=laptop expires=...`` by key."""
    facts = dict(word.partition("=")[::2] for word in words)
    unknown = [key for key in facts if key not in _FACTS]
    if unknown:
        raise BadTokenFile(
            f"line {number}: {unknown[0][:40]!r} is not one of {', '.join(_FACTS)}, each with =VALUE"
        )
    if not is_user_name(facts.get("name", "a")):
        raise BadTokenFile(f"line {number}: {facts['name'][:40]!r} is not a token name")
    return facts


def _read_time(text: str, number: int) -> int:
    """The time in ms; 0 for an empty text."""
    if not text:
        return 0
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadTokenFile(
            f"line {number}: {text[:40]!r} is not a time such as 2030-01-31T00:00:00Z"
        ) from None
    return int(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000)


def _written(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z") if ms else ""
