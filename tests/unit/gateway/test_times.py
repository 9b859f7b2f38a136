"""Times in a query: every form that the manuals name."""

import re

import pytest

from iris_core.views.queries import UsageQuery
from iris_gateway.http.parameters import query_parameters, read_query
from iris_gateway.http.problem import ProblemResponse

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "since_ms"),
    [
        ("2026-01-31T08:00:00Z", 1_769_846_400_000),
        ("2026-01-31T09:00:00+01:00", 1_769_846_400_000),
        ("2026-01-31", 1_769_817_600_000),
        ("10m", NOW_MS - 600_000),
        ("90", NOW_MS - 90_000),
        ("1h30m", NOW_MS - 5_400_000),
        ("7d", NOW_MS - 604_800_000),
    ],
)
def test_a_time_is_a_moment_a_day_or_a_duration_before_now(text, since_ms):
    assert read_query(UsageQuery, [("since", text)], now_ms=NOW_MS).since_ms == since_ms


@pytest.mark.parametrize("text", ["noon", "2026-13-01", "2026-01-31T08:00:00", "9" * 60, "", "-1d"])
def test_another_text_is_refused_with_what_may_be_given(text):
    with pytest.raises(ProblemResponse) as caught:
        read_query(UsageQuery, [("since", text)], now_ms=NOW_MS)
    [mistake] = caught.value.errors
    assert mistake.hint == "a time such as 2026-01-31T08:00:00Z, a day such as 2026-01-31, or 10m"


@pytest.mark.parametrize(
    "text",
    [
        *("0.5", "1.5h", "1h30m", "500ms", "01:30:00", "2-00:00:00", "90"),
        *("1.", ".5", "1h 30m", "10M", "\N{ARABIC-INDIC DIGIT NINE}"),
        *("01:60:00", "1h30", "1:2", "90\n", "9" * 10),
    ],
)
def test_a_duration_is_taken_when_the_document_allows_it(text):
    [since] = [one for one in query_parameters(UsageQuery) if one.name == "since"]
    pattern = since.schema["anyOf"][-1]["pattern"]
    is_documented = re.search(pattern.removesuffix("$") + r"\Z", text) is not None
    try:
        read_query(UsageQuery, [("since", text)], now_ms=NOW_MS)
    except ProblemResponse:
        assert not is_documented
    else:
        assert is_documented
