"""Times as users write them."""

import re

import pytest

from iris_core.moments import parse_moment


@pytest.mark.parametrize("text", ["2027-01-01", "2027-01-01 10:00", "2027-01-01T10:00:30"])
def test_the_moment_that_a_refusal_suggests_is_accepted(text):
    with pytest.raises(ValueError, match="names no time zone") as refused:
        parse_moment(text, 0)
    suggested = re.search(r"write (\S+) for UTC", str(refused.value))
    assert parse_moment(suggested[1], 0) % 1000 == 0
