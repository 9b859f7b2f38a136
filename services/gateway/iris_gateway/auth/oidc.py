"""Verifies tokens of people that an OpenID Connect issuer has signed, with the issuer's keys from a
file or an address.

The keys are read at intervals, and when a token names one that is not known, but not more often
than every few seconds: who sends tokens of unknown keys costs the issuer little. Out of scope: how
people get a token. Source: docs/security.md#tokens-of-an-issuer; RFC 7517, RFC 7519, RFC
    8725.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jwt
import msgspec

from iris_core.access.token_file import is_user_name
from iris_core.messages.gateway_state import Caller
from iris_core.quota import is_group_name
from iris_gateway.auth.bearer import unauthenticated
from iris_gateway.http.problem import ProblemResponse
from iris_gateway.settings import IssuerSettings

log = logging.getLogger(__name__)

ALGORITHMS = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
"""Signatures with a public key. ``none`` and the HS ones, with which a public key would be a
secret, are not there.
"""
_PUBLIC = frozenset(("RSA", "EC", "OKP"))
LEEWAY_S = 60
"""How far the clocks of the issuer and the gateway may differ."""
REFRESH_S = 300.0
AGAIN_S = 10.0
"""The keys are not read sooner than that after the last time."""
_READ_S = 10.0
_MOST_BYTES = 256 << 10
GROUPS = 256
"""Groups of one user that are taken from a token."""
_NOTED = 1000
"""Users whose unused groups are logged, at most."""
_NEEDED = ("exp", "iat", "iss", "aud", "sub")


class _Jwk(msgspec.Struct, frozen=True, omit_defaults=True):
    """The public members of a JSON Web Key that a signature is verified with; others are not
    read.
    """

    kty: str
    kid: str = ""
    use: str = ""
    alg: str | None = None
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""


class _KeySet(msgspec.Struct, frozen=True):
    keys: tuple[_Jwk, ...]


_read_key_set = msgspec.json.Decoder(_KeySet).decode


class Issuer:
    """The issuer whose tokens are accepted.

    Args:
        read: the bytes of its key set. Raises OSError, ValueError.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: IssuerSettings,
        read: Callable[[], Awaitable[bytes]],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._read = read
        self._clock = clock
        self._keys: Mapping[str, jwt.PyJWK] | None = None
        self._read_s = float("-inf")
        self._wanted = asyncio.Event()
        self._noted: set[str] = set()

    async def follow(self) -> None:
        """Keep the keys fresh until cancelled."""
        while True:
            self._wanted.clear()
            await self._refresh()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_S):
                    await self._wanted.wait()

    async def _refresh(self) -> None:
        """Read the keys; those known stay when that fails."""
        self._read_s = self._clock()
        try:
            async with asyncio.timeout(_READ_S):
                self._keys = read_key_set(await self._read())
        except (OSError, TimeoutError, ValueError) as error:
            log.warning(
                "the keys of %s could not be read: %s",
                self._settings.issuer,
                str(error) or "it took too long",
            )

    def identify(self, token: str) -> Caller:
        """The person behind a token. Raises ProblemResponse: unauthenticated, forbidden, or
        unavailable while keys are read.
        """
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, RecursionError):
            raise unauthenticated("invalid token: not signed by the configured issuer") from None
        claims = self._claims(token, self._key(header.get("kid")))
        user = self._user(claims)
        named = set(values_of(claims, self._settings.groups_claim))
        groups = groups_in(named)
        self._note_unused(user, len(named), used=len(groups))
        return Caller(user, self._role(claims), token="issuer", groups=groups)

    def _note_unused(self, user: str, named: int, used: int) -> None:
        """Log, once for each user, that some of the user's groups are not used."""
        if used == named or user in self._noted or len(self._noted) == _NOTED:
            return
        self._noted.add(user)
        log.warning(
            "%d of the %d groups of %s are not used for limits: at most %d are, and only names of up "
            "to 128 letters, digits and ._@+:/ -",
            named - used,
            named,
            user,
            GROUPS,
        )

    def ends_ms(self, token: str) -> int:
        """When a token that was identified is no longer accepted, in ms since the epoch."""
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
        return (int(claims["exp"]) + LEEWAY_S) * 1000

    def _key(self, name: object) -> jwt.PyJWK:
        key = self._keys.get(name) if self._keys is not None and isinstance(name, str) else None
        if key is not None:
            return key
        if self._clock() - self._read_s >= AGAIN_S:
            self._wanted.set()
        elif self._keys is not None:
            raise unauthenticated(
                "this token was signed with a key that its issuer does not publish"
            )
        raise ProblemResponse(
            "unavailable", "the issuer's signing keys are not loaded yet; try again"
        )

    def _claims(self, token: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        """The verified claims. The algorithm is the key's own, whatever the token says. Raises
        ProblemResponse.
        """
        settings = self._settings
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=LEEWAY_S,
                options={"require": list(_NEEDED)},
            )
        except jwt.ExpiredSignatureError:
            raise unauthenticated("this token has expired") from None
        except jwt.PyJWTError as error:
            raise unauthenticated(f"this token is not accepted: {error}") from None
        return claims

    def _user(self, claims: Mapping[str, Any]) -> str:
        claim = self._settings.user_claim
        name = claims.get(claim)
        if not isinstance(name, str) or not is_user_name(name):
            raise unauthenticated(
                f"the claim {claim!r} of this token is not a user name: {str(name)[:80]!r}"
            )
        if claim == "email" and claims.get("email_verified") is False:
            raise unauthenticated("the issuer has not verified this address")
        return name

    def _role(self, claims: Mapping[str, Any]) -> str:
        settings = self._settings
        held = set(values_of(claims, settings.roles_claim))
        if held & set(settings.admin_roles):
            return "admin"
        if settings.user_roles and not held & set(settings.user_roles):
            raise ProblemResponse(
                "forbidden", f"none of the roles in this token's claim {settings.roles_claim!r} may"
            )
        return "user"


def groups_in(names: Iterable[str]) -> tuple[str, ...]:
    """The groups that a token names, in order, at most `GROUPS`; what is no name of a group is left
    out.
    """
    return tuple(sorted({name for name in names if is_group_name(name)})[:GROUPS])


def read_key_set(data: bytes) -> dict[str, jwt.PyJWK]:
    """The public signing keys of a JSON Web Key Set by their ids. Raises ValueError."""
    try:
        given = _read_key_set(data).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"invalid key set: {error}") from None
    keys = {
        one.kid: key
        for one in given
        if one.kid and one.use in ("", "sig") and (key := _key_of(one)) is not None
    }
    if not keys:
        raise ValueError(f"none of its {len(given)} keys can be used")
    return keys


def _key_of(given: _Jwk) -> jwt.PyJWK | None:
    """A key for signatures with a public key; None when it is another one, or invalid."""
    if given.kty not in _PUBLIC:
        return None
    try:
        key = jwt.PyJWK(msgspec.to_builtins(given))
    except (jwt.PyJWTError, ValueError):
        return None
    return key if key.algorithm_name in ALGORITHMS else None


def values_of(claims: Mapping[str, Any], path: str) -> Iterable[str]:
    """The words in a claim, a list or a text with blanks; ``realm_access.roles`` is a claim within
    one.
    """
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return found.split()
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else ()


def reader_of(place: str) -> Callable[[], Awaitable[bytes]]:
    """Reads the key set of an address or a file. Raises OSError, ValueError."""

    async def from_file() -> bytes:
        return await asyncio.to_thread(Path(place).read_bytes)

    async def from_address() -> bytes:
        from aiohttp import ClientError, ClientSession

        try:
            async with (
                ClientSession() as session,
                session.get(place, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise ValueError(f"{place} answers {answer.status}")
                data = await answer.content.read(_MOST_BYTES + 1)
                while len(data) <= _MOST_BYTES and (more := await answer.content.read(_MOST_BYTES)):
                    data += more
        except ClientError as error:
            raise OSError(f"{place}: {error}") from None
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{place} answers with more than {_MOST_BYTES} bytes")
        return data

    return from_address if place.startswith(("http://", "https://")) else from_file
