"""Endpoints of the routes of deployments, for external proxies and monitoring. Source:
docs/design/serving.md#discovery.
"""

from __future__ import annotations

from starlette.responses import Response

from iris_core.serving import Discovery
from iris_gateway.discovery import DiscoveredSets, ScrapeTarget
from iris_gateway.http.endpoint import Answers, Call, Endpoint, json_response
from iris_gateway.http.parameters import Parameter, identifier
from iris_gateway.http.problem import ProblemResponse

LONGEST_WAIT_S = 20


async def prometheus(call: Call) -> Response:
    call.parameters().finish()
    return json_response(_known(call).targets())


async def discovered(call: Call) -> Response:
    sets, name = _known(call), identifier(call.segment("deployment"), "deployment")
    parameters = call.parameters()
    after = parameters.number("after", 0, 0, 2**53)
    wait_s = parameters.number("wait_s", LONGEST_WAIT_S, 0, LONGEST_WAIT_S)
    parameters.finish()
    found = await sets.changed(name, after, wait_s)
    if found is None:
        raise ProblemResponse("not_found", f"there is no deployment {name!r}")
    return json_response(found)


def _known(call: Call) -> DiscoveredSets:
    """Raises ProblemResponse before the first sets are loaded, because an empty answer would look like a set without
    routes.
    """
    if not call.gateway.discovered.known:
        raise ProblemResponse("unavailable", "the routes of deployments are not known yet")
    return call.gateway.discovered


_AFTER = Parameter("after", "Answer when the version is another one.", {"type": "integer", "minimum": 0, "default": 0})
_WAIT = Parameter(
    "wait_s",
    "And after so many seconds at the latest.",
    {"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT_S, "default": LONGEST_WAIT_S},
)

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/discovery/prometheus",
        prometheus,
        "Every route of every deployment, for Prometheus' HTTP service discovery",
        {200: Answers("All targets; none is an empty list.", list[ScrapeTarget])},
        problems=("unavailable",),
    ),
    Endpoint(
        "GET",
        "/v1/deployments/{deployment}/discovery",
        discovered,
        "Where a deployment answers, now or when that changes",
        {200: Answers("The whole set.", Discovery)},
        parameters=(_AFTER, _WAIT),
        problems=("unavailable",),
    ),
)
