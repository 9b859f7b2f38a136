"""The endpoint of the API's OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from starlette.responses import Response

from iris_core import __version__
from iris_core.codec import to_json
from iris_gateway.dispatch.endpoint import Answers, Call, Endpoint, passed_on
from iris_gateway.dispatch.openapi import describe


def documented(endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """The endpoints, and one more that describes them all."""

    @cache
    def document() -> bytes:
        return to_json(describe(table, __version__))

    async def shown(call: Call) -> Response:
        return passed_on(document())

    own = Endpoint(
        "GET",
        "/v1/openapi.json",
        shown,
        "This description",
        answers={200: Answers("OpenAPI 3.1.", dict[str, Any])},
        public=True,
    )
    table = (*endpoints, own)
    return table
