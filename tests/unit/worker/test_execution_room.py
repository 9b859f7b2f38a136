"""Whose command gives way to that of another user."""

from __future__ import annotations

import pytest

from iris_worker.attempt.executions.room import NoRoom, Running, gives_way


def commands(users: str) -> list[Running]:
    """One for each letter, which names its user; the first has been idle for longest."""
    return [Running(str(number), user, number) for number, user in enumerate(users)]


@pytest.mark.parametrize(
    ("running", "user", "gives"),
    [
        ("", "b", ""),
        ("aaa", "a", ""),
        ("baaa", "b", "1"),
        ("aaab", "c", "0"),
        ("abab", "c", None),
        ("aaaa", "a", None),
        ("aaab", "a", None),
    ],
)
def test_who_has_more_than_a_half_gives_way_to_another_user(
    running: str, user: str, gives: str | None
):
    if gives is None:
        with pytest.raises(
            NoRoom, match=f"4 commands already, {running.count(user)} of them yours"
        ):
            gives_way(commands(running), user, 4)
    else:
        assert gives_way(commands(running), user, 4) == gives


def test_who_has_the_only_one_keeps_it():
    with pytest.raises(NoRoom):
        gives_way(commands("a"), "b", 1)
