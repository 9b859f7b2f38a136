"""How many tasks of a user may begin to prepare on a host whose window is full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.placement.window import WINDOWS, places_beyond


@pytest.mark.parametrize(
    ("window", "preparing", "own", "users", "more"),
    [
        (8, 8, 8, 1, 0),  # who filled it alone
        (8, 8, 0, 2, 4),  # the next has as much as if both had begun together
        (8, 11, 3, 2, 1),
        (8, 12, 4, 2, 0),
        (8, 12, 0, 3, 2),
        (8, 8, 0, 20, 1),  # one place at least
        (8, 8, 1, 20, 0),
        (1, 1, 0, 2, 1),
        (8, 23, 0, 5, 1),  # no more than three windows in all
        (8, 24, 0, 5, 0),
    ],
)
def test_a_user_may_have_an_equal_share(window, preparing, own, users, more):
    assert places_beyond(window, preparing, own, users) == more


@given(st.integers(1, 40), st.lists(st.integers(0, 9), max_size=300))
def test_whoever_begins_less_than_three_windows_prepare(window, starts):
    held = dict.fromkeys(range(10), 0)
    for user in starts:
        preparing = sum(held.values())
        users = sum(map(bool, held.values())) + (not held[user])
        if preparing < window or places_beyond(window, preparing, held[user], users):
            held[user] += 1
    assert sum(held.values()) <= WINDOWS * window


@given(st.integers(1, 40), st.integers(1, 100))
def test_one_user_alone_keeps_nobody_out(window, preparing):
    most = max(window, min(preparing, WINDOWS * window - 1))
    assert places_beyond(window, most, 0, 2) >= 1
