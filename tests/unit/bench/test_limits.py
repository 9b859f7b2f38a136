"""The guard's limits: each bounds a figure with a reason, and a figure beyond one is found."""

from __future__ import annotations

import pytest

from benchmarks import limits
from benchmarks.limits import Limit

AT_LEAST, AT_MOST = Limit("", at_least=0.7), Limit("", at_most=3.0)


def test_each_limit_has_one_bound_and_a_reason():
    for name, limit in limits.read().items():
        assert (limit.at_least is None) != (limit.at_most is None), name
        assert limit.reason.endswith("."), name


@pytest.mark.parametrize(
    ("limit", "value", "holds"),
    [(AT_LEAST, 0.7, True), (AT_LEAST, 0.69, False), (AT_MOST, 3.0, True), (AT_MOST, 3.1, False)],
)
def test_a_limit_holds_up_to_its_bound(limit, value, holds):
    assert limit.holds(value) is holds


def test_a_figure_that_was_not_measured_has_not_passed():
    assert limits.passed({"a": AT_MOST, "b": AT_MOST}, {"a": 1.0}) == {"a"}
