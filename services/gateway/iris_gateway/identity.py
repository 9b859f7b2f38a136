"""Authenticates a request by its token, from the header or from the dashboard's cookie.

The cookie is accepted for reads, and for the forms of the dashboard's own pages. Source:
docs/adr/0036-forms-of-our-own-pages-may-change-jobs.md.
"""

from __future__ import annotations

from starlette.requests import Request

from iris_core.messages import Caller
from iris_core.serving import TOKEN_COOKIE
from iris_gateway.auth import Keyring, no_form, own_form, own_machine, own_pages

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
    return _caller(keyring, request, with_cookie=safe)


def identify_form(keyring: Keyring, request: Request) -> Caller:
    """The caller who sent a form of the dashboard. Raises Problem as `identify`."""
    if keyring.open:
        own_machine(request.headers.get("host", ""))
    own_form(request.headers)
    return _caller(keyring, request, with_cookie=True)


def _caller(keyring: Keyring, request: Request, *, with_cookie: bool) -> Caller:
    authorization = request.headers.get("authorization")
    if authorization is None and with_cookie and TOKEN_COOKIE in request.cookies:
        authorization = f"Bearer {request.cookies[TOKEN_COOKIE]}"
    return keyring.identify(authorization, request.headers.get("x-iris-user", ""))
