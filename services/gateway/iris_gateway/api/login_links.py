"""The endpoint of links that sign a browser in once."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from iris_gateway.auth.bearer import bearer_of
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, json_response


class LoginLink(msgspec.Struct):
    """Where a browser is signed in as the caller, once, within minutes. ``path``: below the
    gateway's address.
    """

    path: str


async def create(call: Call) -> Response:
    gateway = call.gateway
    if gateway.open:
        return json_response(LoginLink("/"), 201)
    code = gateway.new_id()
    token = bearer_of(call.request.headers.get("authorization", ""))
    gateway.login_links.add(code, call.caller.user, token, gateway.clock())
    return json_response(LoginLink(f"/login?code={code}"), 201)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/login-links",
        create,
        "Make a link that signs a browser in as the caller, once",
        answers={201: Answers("The link.", LoginLink)},
    ),
)
