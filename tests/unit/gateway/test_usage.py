"""Usage over HTTP: the prices of the gateway, CSV, and who asks."""

import csv
import io

import msgspec
import pytest

from iris_core.views.usage import CSV_COLUMNS, Prices, UsageView, UsedView, csv_row
from iris_gateway.settings import GatewaySettings
from iris_service.settings import BadSetting
from tests.support.gateway import House
from tests.support.pages import USAGE

PRICES = ("cpu=0.5", "H100=4")


@pytest.fixture
def iris(iris: House) -> House:
    iris.state.pages = {"usage": {"items": [USAGE], "next_cursor": None}, "job_usage": USAGE}
    return iris


async def test_usage_has_a_cost_where_there_are_prices(iris: House):
    free = (await iris.http.get("/v1/usage")).json()["items"][0]
    iris.gateway.settings = msgspec.structs.replace(iris.gateway.settings, prices=PRICES)
    priced = (await iris.http.get("/v1/usage")).json()["items"][0]
    assert (free["cost"], priced["cost"]) == (None, 3.5)
    assert (await iris.http.get("/v1/jobs/j1/usage")).json() == priced


async def test_a_cost_is_that_of_pools_and_outside_by_the_prices(iris: House):
    outside = {"attempts": 1, "cpu_seconds": 1800.0, "chip_seconds": {"H100": 900.0}}
    row = {**USAGE, "pool": "cpu", "pools_cost": 10.0, "outside": outside}
    iris.state.pages["usage"] = {"items": [row], "next_cursor": None}
    free = (await iris.http.get("/v1/usage?by=pool")).json()["items"][0]
    iris.gateway.settings = msgspec.structs.replace(iris.gateway.settings, prices=PRICES)
    priced = await iris.http.get("/v1/usage?by=pool", headers={"Accept": "text/csv"})
    [line] = csv.DictReader(io.StringIO(priced.text))
    assert (free["cost"], line["cost"]) == (10.0, "11.25")
    assert (line["pool"], line["pools_cost"]) == ("cpu", "10.0")


async def test_usage_is_asked_for_as_the_caller(iris: House):
    iris.gateway.now_ms = lambda: 100_000
    await iris.http.get("/v1/usage?by=day&label=project%3Dvision&since=10s")
    [query] = iris.state.queries
    assert query.what == "usage"
    assert [query.arguments[name] for name in ("by", "label", "since_ms")] == [
        "day",
        "project=vision",
        90_000,
    ]
    assert (await iris.http.get("/v1/usage?by=month")).status_code == 422


async def test_a_csv_has_every_page_or_one_that_is_limited(iris: House):
    iris.state.pages["usage"]["next_cursor"] = "aa"
    one = await iris.http.get("/v1/usage?limit=5", headers={"Accept": "text/csv"})
    assert one.headers["content-type"].startswith("text/csv")
    [row] = csv.DictReader(io.StringIO(one.text))
    assert (row["user"], row["total_cpu_seconds"], row["total_chip_seconds"]) == (
        "ada",
        "7200.0",
        "H100=3600",
    )
    assert (row["lost_by_cause"], row["lost_chip_seconds"], row["cost"]) == (
        "preempted=3600",
        "H100=900",
        "",
    )


def test_what_the_cluster_lost_costs_nothing():
    billed = UsedView(
        cpu_seconds=3600, memory_gib_seconds=7200, chip_seconds={"H100": 1800, "A100": 99}
    )
    assert Prices(PRICES).cost(billed) == 2.5
    assert Prices(()).cost(billed) is None


@pytest.mark.parametrize("price", ["cpu", "=3", "cpu=-1", "cpu=nan", "cpu=inf", "H100=much"])
def test_what_is_no_price_is_refused(price):
    with pytest.raises(BadSetting, match=r"\[gateway\] prices: .*is not a price"):
        GatewaySettings(prices=(price,)).check_forms()


def test_a_text_that_a_spreadsheet_would_execute_is_quoted():
    used = UsedView()
    row = UsageView(project="=cmd()", total=used, useful=used, lost={}, running=used, billed=used)
    assert dict(zip(CSV_COLUMNS, csv_row(row), strict=True))["project"] == "'=cmd()"
