"""Endpoints of the routes of deployments, for external proxies and monitoring. Source:
docs/design/serving.md#discovery.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from iris_core.spec.serving import Discovery
from iris_core.views.queries import about
from iris_gateway.discovery import DiscoveredSets, ScrapeTarget
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, json_response
from iris_gateway.http.parameters import identifier
from iris_gateway.http.problem import ProblemResponse

LONGEST_WAIT_S = 20


class DiscoveryParameters(msgspec.Struct, frozen=True):
    """For which change a request waits."""

    after: Annotated[
        int, about("Answer once the version differs from this one.", ge=0, le=2**53)
    ] = 0
    wait_s: Annotated[
        int, about("Answer after this many seconds at the latest.", ge=0, le=LONGEST_WAIT_S)
    ] = LONGEST_WAIT_S


async def prometheus(call: Call) -> Response:
    return json_response(_known(call).targets())


async def discovered(call: Call) -> Response:
    sets = _known(call)
    name = identifier(call.segment("deployment"), "deployment")
    wanted = call.asked(DiscoveryParameters)
    found = await sets.changed(name, wanted.after, wanted.wait_s)
    if found is None:
        raise ProblemResponse("not_found", f"there is no deployment {name!r}")
    return json_response(found)


def _known(call: Call) -> DiscoveredSets:
    """Raises ProblemResponse before the first sets are loaded, because an empty answer would look
    like a set without routes.
    """
    if not call.gateway.discovered.known:
        raise ProblemResponse("unavailable", "the routes of deployments are not known yet")
    return call.gateway.discovered


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/discovery/prometheus",
        prometheus,
        "Every route of every deployment, for Prometheus' HTTP service discovery",
        answers={200: Answers("All targets; none is an empty list.", list[ScrapeTarget])},
    ),
    Endpoint(
        "GET",
        "/v1/deployments/{deployment}/discovery",
        discovered,
        "Where a deployment answers, now or when that changes",
        answers={200: Answers("The whole set.", Discovery)},
        parameters=DiscoveryParameters,
    ),
)
