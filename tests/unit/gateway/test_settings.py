"""The section ``[gateway]``: numbers that a gateway cannot work with are refused at its start."""

from __future__ import annotations

import pytest

from iris_gateway.settings import GatewaySettings
from iris_service.settings import BadSetting, load


@pytest.mark.parametrize(
    "given",
    [
        "command_timeout_s=0",
        "query_timeout_s=-1",
        "keep_alive_s=nan",
        "drain_s=-1",
        "body_bytes=-1",
        "uploads_per_user=0",
        "watchers=0",
        "event_ring=-1",
        "connections_per_address=-1",
        "requests_per_s=-1",
        "request_burst=0",
        "intake_burst=0",
    ],
)
def test_a_number_out_of_range_is_refused_by_its_key(given: str) -> None:
    with pytest.raises(BadSetting, match=rf"command line: \[gateway\] {given.partition('=')[0]}: "):
        load(None, {}, [f"gateway.{given}"]).section("gateway", GatewaySettings)


@pytest.mark.parametrize(
    "given", ["requests_per_s=0", "intake_per_s=0", "connections_per_address=0", "drain_s=0"]
)
def test_zero_is_a_value_where_it_means_unlimited_or_at_once(given: str) -> None:
    key = given.partition("=")[0]
    assert (
        getattr(load(None, {}, [f"gateway.{given}"]).section("gateway", GatewaySettings), key) == 0
    )
