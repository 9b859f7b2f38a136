"""Authenticates a request by its token, from the header or from the dashboard's cookie.

The cookie is accepted for reads, and for the forms of the dashboard's own pages. The token of a
task is accepted only where an endpoint says so. Source: docs/adr/0036-forms-may-change-jobs.md,
docs/adr/0040-tokens-of-attempts.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request

from iris_core.messages.gateway_state import Caller
from iris_core.spec.serving import SECURE_TOKEN_COOKIE, TASK_TOKEN, TOKEN_COOKIE
from iris_gateway.auth.bearer import (
    ANONYMOUS,
    bearer_of,
    checked_user,
    no_form,
    own_form,
    own_machine,
    own_pages,
)
from iris_gateway.gateway import Gateway
from iris_gateway.http.problem import ProblemResponse
from iris_service.listening import client_of

if TYPE_CHECKING:
    from iris_gateway.auth.oidc import Issuer

SAFE = frozenset({"GET", "HEAD"})


def identify(gateway: Gateway, request: Request, *, task: bool = False) -> Caller:
    """The caller. ``task``: it may be a task. Raises Problem unauthenticated, or forbidden for
    other sites' pages.
    """
    headers = request.headers
    safe = request.method in SAFE
    if gateway.open:
        own_machine(headers.get("host", ""))
    if not safe:
        own_pages(headers)
    if request.method == "POST":  # a form cannot send other methods that change anything
        no_form(headers)
    return _caller(gateway, request, with_cookie=safe, task=task)


def identify_form(gateway: Gateway, request: Request) -> Caller:
    """The caller who sent a form of the dashboard. Raises Problem as `identify`."""
    if gateway.open:
        own_machine(request.headers.get("host", ""))
    own_form(request.headers)
    return _caller(gateway, request, with_cookie=True)


def _caller(gateway: Gateway, request: Request, *, with_cookie: bool, task: bool = False) -> Caller:
    """The caller with the address of the request."""
    peer = request.client.host if request.client is not None else ""
    forwarded_for = ",".join(
        request.headers.getlist("x-forwarded-for")
    )  # a proxy may add a field to the client's
    address = client_of(peer, forwarded_for, gateway.trusted)
    caller = _authenticated(gateway, request, with_cookie=with_cookie, task=task)
    return msgspec.structs.replace(caller, address=address)


def _authenticated(gateway: Gateway, request: Request, *, with_cookie: bool, task: bool) -> Caller:
    """With authentication off, who the client claims to be."""
    if gateway.open:
        user = checked_user(request.headers.get("x-iris-user", "")) or ANONYMOUS
        return Caller(user=user, role="admin", claimed=True)
    secret, is_cookie = _secret_of(request, with_cookie=with_cookie)
    if is_cookie:
        return identify_person(gateway, secret)  # a task has no cookie
    if secret.startswith(TASK_TOKEN):
        caller = gateway.task_tokens.identify(secret, gateway.record_times.now_ms())
        if not task:
            raise ProblemResponse(
                "forbidden", "the token of a task only grants access to jobs of its own subtree"
            )
        return caller
    return identify_person(gateway, secret)


def _secret_of(request: Request, *, with_cookie: bool) -> tuple[str, bool]:
    """The token of a request, and whether it is from the cookie. Raises Problem unauthenticated."""
    authorization = request.headers.get("authorization")
    if authorization is None and with_cookie and token_cookie(request) in request.cookies:
        return request.cookies[token_cookie(request)], True
    return bearer_of(authorization or ""), False


def acceptance(gateway: Gateway, request: Request) -> Callable[[], bool]:
    """Tells whether the token of a request is still accepted: one of the file until it is revoked
    or expires, one of the issuer until it expires; that of a task always.

    Raises Problem unauthenticated.
    """
    if gateway.open:
        return lambda: True
    secret, _ = _secret_of(request, with_cookie=request.method in SAFE)
    if secret.startswith(TASK_TOKEN):
        return lambda: True
    if (issuer := _issuer_of(gateway, secret)) is not None:
        ends_ms = issuer.ends_ms(secret)
        return lambda: gateway.now_ms() < ends_ms
    token = gateway.keyring.token_of(secret, gateway.now_ms())
    return lambda: gateway.keyring.accepts(token, gateway.now_ms())


def token_cookie(request: Request) -> str:
    """The name of the dashboard's cookie: over TLS the one that no other host of the domain can
    set.
    """
    return SECURE_TOKEN_COOKIE if request.url.scheme == "https" else TOKEN_COOKIE


def identify_person(gateway: Gateway, secret: str) -> Caller:
    """The caller behind a token of the issuer, or of the token file. Raises Problem."""
    if (issuer := _issuer_of(gateway, secret)) is not None:
        return issuer.identify(secret)
    return gateway.keyring.identify(secret, gateway.now_ms())


def _issuer_of(gateway: Gateway, secret: str) -> Issuer | None:
    """The issuer, if it verifies this token: it is a JWT; tokens of the file have no dots."""
    return gateway.issuer if secret.count(".") == 2 else None
