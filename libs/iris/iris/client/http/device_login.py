"""Signs a person in at an OpenID Connect issuer by the device flow (RFC 8628): a code is confirmed
in any browser.

Out of scope: where the token is kept (`contexts`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import msgspec

from iris.client.decode import from_json
from iris.client.problems import InvalidOption, Unreachable
from iris_core.codec import Undecodable

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_LOCAL = ("127.0.0.1", "::1", "localhost")
_SLOWER_S = 5.0
_TIMEOUT_S = 30.0
_MOST_BYTES = 1 << 20

T = TypeVar("T")


class Endpoints(msgspec.Struct):
    """The addresses in an issuer's discovery document."""

    token_endpoint: str
    device_authorization_endpoint: str = ""


class DeviceCode(msgspec.Struct):
    """What the person does: open ``verification_uri`` and confirm ``user_code``, within
    ``expires_in`` seconds.
    """

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    interval: float = 5.0
    verification_uri_complete: str = ""


class TokenAnswer(msgspec.Struct):
    """A token, or why there is none yet."""

    access_token: str = ""
    error: str = ""
    error_description: str = ""


def sign_in(issuer: str, client_id: str, tell: Callable[[DeviceCode], None]) -> str:
    """The access token of the person who confirms the code that ``tell`` is given.

    Raises InvalidOption when the issuer has no device flow or refuses, Unreachable when it does not
    answer.
    """
    found = _ask(f"{issuer.rstrip('/')}/.well-known/openid-configuration", None, Endpoints)
    if not found.device_authorization_endpoint:
        raise InvalidOption(
            f"{issuer} has no device flow; take a token from it, and see `iris context add`"
        )
    code = _ask(
        found.device_authorization_endpoint, {"client_id": client_id, "scope": "openid"}, DeviceCode
    )
    tell(code)
    until_s = time.monotonic() + code.expires_in
    pause_s = code.interval
    fields = {"grant_type": _GRANT, "device_code": code.device_code, "client_id": client_id}
    while time.monotonic() < until_s:
        time.sleep(pause_s)
        answer = _ask(found.token_endpoint, fields, TokenAnswer)
        if answer.access_token:
            return answer.access_token
        if answer.error not in ("authorization_pending", "slow_down"):
            raise InvalidOption(
                f"{issuer} refused: {answer.error_description or answer.error or 'it sent no token'}"
            )
        pause_s += _SLOWER_S if answer.error == "slow_down" else 0.0
    raise InvalidOption(
        f"nobody confirmed the code within {code.expires_in:g} s; run `iris login` again"
    )


def _ask(url: str, fields: dict[str, str] | None, kind: type[T]) -> T:
    """The answer to a request, also a refusal, which has the reason in it."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
        raise InvalidOption(f"{url!r} must be an https URL: plain http lets others read the token")
    data = urlencode(fields).encode() if fields is not None else None
    try:
        with urlopen(
            Request(url, data, {"Accept": "application/json"}), timeout=_TIMEOUT_S
        ) as answer:
            body = answer.read(_MOST_BYTES)
    except HTTPError as refusal:
        body = refusal.read(_MOST_BYTES)
    except (URLError, OSError) as error:
        raise Unreachable(f"{parts.netloc} does not answer: {error}") from None
    try:
        return from_json(body, kind)
    except Undecodable:
        raise InvalidOption(f"{url} does not answer as an OpenID Connect issuer does") from None
