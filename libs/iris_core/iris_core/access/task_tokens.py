"""Tokens of attempts: who signs them, how they are made smaller, and how they are verified without
a request. Pure.

The state service's leader signs a `TaskGrant` for each job and worker, when it orders attempts. The
worker makes the token of an attempt from it: each signature is the key of the next one, so a grant
is good for one job on one worker, and a token for one attempt, and neither leads back to the key
before it. Whoever has the keys verifies a token; whether its attempt is still open, the state
service knows when it judges the request.
Source: docs/adr/0040-tokens-of-attempts.md. Out of scope: where keys are stored
    (`replication.task_keys`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

import msgspec

from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import TaskGrant
from iris_core.spec.serving import TASK_TOKEN

ROLE = "task"
LEEWAY_MS = 60_000
"""How far the clocks of the signer and the verifier may differ."""
ROTATE_MS = 86_400_000
"""After so long a new key is made."""
SETTLE_MS = 60_000
"""A key signs nothing before that age, so that every gateway has it first."""
KEYS = "task"
"""The key of the bucket under which the keys are stored, as one value."""

_DIGEST = 32
_LONGEST = 1024


class BadTaskToken(ValueError):
    """Invalid attempt token: malformed, unknown key, or expired; the text says which."""


class SigningKey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A signing key; ``id`` is public and names it in what it signs."""

    id: str
    secret: bytes
    created_ms: int

    def __repr__(self) -> str:
        return f"SigningKey({self.id!r})"


class TaskClaims(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a grant says."""

    key: str
    job: int
    user: str
    worker: str
    expires_ms: int


class _Token(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a token says: the claims of its grant, packed, and which attempt of the job it is."""

    claims: bytes
    index: int
    attempt: int


def grant(key: SigningKey, job: int, user: str, worker: str, expires_ms: int) -> TaskGrant:
    """The right of a worker to make tokens for the attempts of a job that it runs."""
    claims = codec.pack(TaskClaims(key.id, job, user, worker, expires_ms=expires_ms))
    return TaskGrant(job, claims, _mac(key.secret, claims, b"iris-grant"))


def token(granted: TaskGrant, ref: AttemptRef) -> str:
    """The token of one attempt."""
    data = codec.pack(_Token(granted.claims, ref.index, ref.attempt))
    signed = data + _mac(granted.key, data, b"iris-token")
    return TASK_TOKEN + base64.urlsafe_b64encode(signed).rstrip(b"=").decode()


def verified(text: str, keys: Mapping[str, SigningKey], now_ms: int) -> Caller:
    """The task that a token identifies. Raises BadTaskToken."""
    signed = _decoded(text)
    data = signed[:-_DIGEST]
    signature = signed[-_DIGEST:]
    try:
        body = codec.unpack(data, _Token)
        claims = codec.unpack(body.claims, TaskClaims)
    except Undecodable:
        raise BadTaskToken("invalid task token") from None
    key = keys.get(claims.key)
    if key is None:
        raise BadTaskToken("this task's token was signed with a key that is not known any more")
    own = _mac(_mac(key.secret, body.claims, b"iris-grant"), data, b"iris-token")
    if not hmac.compare_digest(own, signature):
        raise BadTaskToken("invalid task token")
    if now_ms > claims.expires_ms + LEEWAY_MS:
        raise BadTaskToken(
            "this task's token has expired; the file that IRIS_TOKEN_FILE names holds the present one"
        )
    return Caller(
        claims.user, ROLE, AttemptRef(claims.job, body.index, body.attempt), claims.worker
    )


def _decoded(text: str) -> bytes:
    """The bytes of a token, longer than a signature. Raises BadTaskToken."""
    try:
        encoded = text.removeprefix(TASK_TOKEN).encode("ascii")
        signed = base64.b64decode(encoded + b"=" * (-len(encoded) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        signed = b""
    if not text.startswith(TASK_TOKEN) or not _DIGEST < len(signed) <= _LONGEST:
        raise BadTaskToken("invalid task token")
    return signed


def signing(keys: Sequence[SigningKey], now_ms: int) -> SigningKey | None:
    """The key that signs now: the newest one that every gateway has had time to read; else the
    oldest.
    """
    settled = [key for key in keys if now_ms - key.created_ms >= SETTLE_MS]
    return max(settled, key=_age) if settled else min(keys, key=_age, default=None)


def rotated(keys: Sequence[SigningKey], fresh: SigningKey, life_ms: int) -> tuple[SigningKey, ...]:
    """The keys as they should be when ``fresh`` is made: it joins them when the newest is old
    enough.

    A key goes once the one after it has signed for longer than a token lives, and is checked with.
    """
    now_ms = fresh.created_ms
    ordered = sorted(keys, key=_age)
    if not ordered or now_ms - ordered[-1].created_ms >= ROTATE_MS:
        ordered.append(fresh)
    gone_ms = now_ms - SETTLE_MS - life_ms - LEEWAY_MS
    current = max((at for at, key in enumerate(ordered) if key.created_ms <= gone_ms), default=0)
    return tuple(ordered[current:])


def _age(key: SigningKey) -> tuple[int, str]:
    return key.created_ms, key.id


def _mac(key: bytes, data: bytes, use: bytes) -> bytes:
    """BLAKE2b with a key (RFC 7693), less than half the time of HMAC-SHA-256; ``use`` keeps its
    uses apart.
    """
    return hashlib.blake2b(data, key=key, person=use, digest_size=_DIGEST).digest()
