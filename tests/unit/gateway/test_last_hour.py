"""Charts of the last hour: what was held in each minute, whether or not something changed in it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from iris_core.spec.resources import RESOURCES
from iris_gateway.dashboard.drawings.last_hour import Chart, held_over_time

NOW = datetime(2026, 1, 31, 12, 30, 45, tzinfo=UTC)
MINUTE = int(NOW.timestamp()) // 60


def charts(*samples: tuple[int, int]) -> dict[str, Chart]:
    """Of a host with 4 chips, from samples of so many chips held since so many minutes ago."""
    nothing = {resource.name: 0 for resource in RESOURCES}
    rows = [
        {
            "number": MINUTE - ago,
            "committed": {**nothing, "chips": held},
            "capacity": {**nothing, "chips": 4},
        }
        for ago, held in samples
    ]
    return held_over_time(rows, NOW)


def heights(chart: Chart) -> list[str]:
    return re.findall(r"V([\d.]+)h1", chart.drawing)


def test_an_amount_lasts_until_the_next_sample_and_starts_from_nothing():
    chips = charts((20, 4), (5, 1), (0, 1))["chips"]
    assert heights(chips) == ["100"] * 39 + ["0"] * 15 + ["75"] * 6
    assert chips.words == "0% to 100% held in the last hour"


def test_a_sample_older_than_the_hour_tells_what_was_held_at_its_beginning():
    chips = charts((300, 2), (0, 2))["chips"]
    assert (heights(chips), chips.words) == (["50"] * 60, "50% held in the last hour")


def test_a_resource_that_a_host_does_not_have_is_not_held():
    assert heights(charts((0, 4))["memory_bytes"]) == ["100"] * 60
    assert held_over_time([], NOW) == {}
