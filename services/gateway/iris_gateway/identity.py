"""Authenticates a request by its token, from the header or, for reads only, from the dashboard's cookie."""

from __future__ import annotations

from starlette.requests import Request

from iris_core.messages import Caller
from iris_gateway.auth import Keyring, no_form, own_machine, own_pages

COOKIE = "iris_token"
SAFE = frozenset({"GET", "HEAD"})


def identify(keyring: Keyring, request: Request) -> Caller:
    """The caller. Raises Problem unauthenticated, or forbidden for other sites' pages."""
    headers = request.headers
    safe = request.method in SAFE
    if keyring.open:
        own_machine(headers.get("host", ""))
    if not safe:
        own_pages(headers)
    if request.method == "POST":  # a form cannot send other methods that change anything
        no_form(headers)
    authorization = headers.get("authorization")
    if authorization is None and safe and COOKIE in request.cookies:
        authorization = f"Bearer {request.cookies[COOKIE]}"
    return keyring.identify(authorization, headers.get("x-iris-user", ""))
