"""Recognises bearer tokens that Iris accepts, so that the proxy does not pass them on to services.

A token of the issuer is recognised by its claims; its signature is not verified, because nothing is
granted here.
Source: docs/design/reliability.md#security.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from iris_core.spec.serving import TASK_TOKEN


class _Claims(msgspec.Struct):
    iss: Any = None
    aud: Any = None


_read_claims = msgspec.json.Decoder(_Claims).decode


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """The tokens that Iris accepts.

    Attributes:
        digests: SHA-256 of the tokens of the token file.
        issuer, audience: of people's tokens, as in ``[gateway]``; empty: there is no issuer.
    """

    digests: Collection[bytes] = ()
    issuer: str = ""
    audience: str = ""

    def accepts(self, authorization: str) -> bool:
        """Whether the value of a field Authorization is a bearer token that Iris accepts."""
        scheme, _, rest = authorization.strip().partition(" ")
        secret = rest.strip()
        if scheme.lower() != "bearer":
            return False
        return (
            secret.startswith(TASK_TOKEN) or self._is_of_file(secret) or self._is_of_issuer(secret)
        )

    def _is_of_file(self, secret: str) -> bool:
        return bool(self.digests) and _digest(secret) in self.digests

    def _is_of_issuer(self, secret: str) -> bool:
        if not self.issuer or secret.count(".") != 2:
            return False
        claims = _claims_of(secret)
        audiences = claims.aud if isinstance(claims.aud, list) else [claims.aud]
        return claims.iss == self.issuer and self.audience in audiences


def _claims_of(token: str) -> _Claims:
    """The claims of a JWT, none of one that cannot be read."""
    payload = token.split(".")[1].encode("utf-8", "surrogateescape")
    try:
        return _read_claims(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Claims()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
