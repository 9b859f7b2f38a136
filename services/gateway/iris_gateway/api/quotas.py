"""Endpoints of users: their limits, and what their jobs have held and used, with the cost by the
gateway's prices.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterable

import msgspec
from starlette.responses import Response

from iris_core import codec
from iris_core.admission.actions import SetQuota
from iris_core.quota import GROUP, is_group, is_group_name
from iris_core.spec.jobs import BANDS, BandName
from iris_core.states import PriorityBand
from iris_core.views.jobs import QuotaView
from iris_core.views.queries import (
    JobUsageQuery,
    QuotaQuery,
    QuotasQuery,
    StoredUsageQuery,
    UsageQuery,
)
from iris_core.views.usage import CSV_COLUMNS, Prices, StoredUsageView, UsageView, csv_row
from iris_gateway.api.cluster import administer
from iris_gateway.api.handling import json_body, listing, page_of, view
from iris_gateway.dispatch.endpoint import JSON, Answers, Call, Endpoint, passed_on
from iris_gateway.dispatch.sse import counted
from iris_gateway.http.parameters import identifier

QuotaBody = msgspec.defstruct(
    "QuotaBody",
    [("max_band", BandName, BANDS[0])],
    bases=(SetQuota,),
    namespace={
        "__doc__": "The limits of one user, or of each member of a ``@GROUP``; 0 is "
        "unlimited. ``max_band`` is the best band it may ask for. All are set: what is left out is not "
        "limited, so that without ``max_band`` any band may be asked for."
    },
    frozen=True,
)


async def put(call: Call) -> Response:
    user = _whose(call.segment("user"))
    limits = msgspec.structs.asdict(await json_body(call, QuotaBody))
    limits["max_band"] = PriorityBand[limits["max_band"].upper()].value
    return passed_on(await administer(call, user, SetQuota(**limits)))


def _whose(name: str) -> str:
    """A user, or as ``@GROUP`` the members of a group. Raises ProblemResponse not_found."""
    if is_group(name) and is_group_name(name.removeprefix(GROUP)):
        return name
    return identifier(name, "user or @group")


CSV = "text/csv"
_ROWS = 100
"""Rows that are written at a time."""


class UsagePage(msgspec.Struct):
    """One page of usage."""

    items: list[UsageView]
    next_cursor: str | None


async def usage(call: Call) -> Response:
    asked = call.asked(UsageQuery)
    page = await _read(call, asked)
    if not call.accepts(CSV):
        return passed_on(codec.to_json(page))
    return counted(call, _csv(call, asked, page), CSV)


async def _csv(call: Call, asked: UsageQuery, page: UsagePage) -> AsyncIterator[bytes]:
    """Every row, or with ``limit`` those of one page."""
    yield _lines([CSV_COLUMNS])
    while True:
        for first in range(0, len(page.items), _ROWS):
            yield _lines(csv_row(item) for item in page.items[first : first + _ROWS])
            await call.gateway.turns.give()
        if page.next_cursor is None or "limit" in call.request.query_params:
            return
        page = await _read(call, msgspec.structs.replace(asked, cursor=page.next_cursor))


def _lines(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


async def _read(call: Call, asked: UsageQuery) -> UsagePage:
    data = await call.read(asked)
    await call.gateway.turns.give()
    page = msgspec.json.decode(data, type=UsagePage)
    prices = Prices(call.gateway.settings.prices)
    for item in page.items:
        item.price(prices)
    return page


async def job_usage(call: Call) -> Response:
    found = msgspec.json.decode(await call.read(call.asked(JobUsageQuery)), type=UsageView)
    found.price(Prices(call.gateway.settings.prices))
    return passed_on(codec.to_json(found))


ENDPOINTS = (
    listing("/v1/quotas", QuotasQuery, "List quotas", page_of(QuotaView)),
    view("/v1/quotas/{user}", QuotaQuery, "Show a user's quota", Answers("The quota.", QuotaView)),
    Endpoint(
        "PUT",
        "/v1/quotas/{user}",
        put,
        "Set the quota of a user, or of each member of a `@GROUP`",
        answers={200: Answers("The quota.", QuotaView)},
        body=QuotaBody,
        admin=True,
        problems=("idempotency_mismatch",),
    ),
    Endpoint(
        "GET",
        "/v1/usage",
        usage,
        "Show what jobs have held and used",
        answers={
            200: Answers(
                "One page; as CSV every row, or with `limit` those of one page.",
                UsagePage,
                (JSON, CSV),
            )
        },
        parameters=UsageQuery,
    ),
    listing(
        "/v1/usage/stored",
        StoredUsageQuery,
        "Show what is stored of each user's jobs",
        page_of(StoredUsageView),
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{job}/usage",
        job_usage,
        "Show what a job has held and used",
        answers={200: Answers("Its usage.", UsageView)},
        parameters=JobUsageQuery,
        task=True,
    ),
)
