"""A route that shares its host with another of its deployment says so.
docs/design/semantics.md#order.
"""

import pytest

from tests.support.serving import Serving, template


@pytest.mark.parametrize(
    ("spread", "note"),
    [
        ("hosts", "shares w0 with 1 other route: no other worker had room when it was placed"),
        ("none", None),
    ],
)
def test_a_route_says_that_it_shares_its_host(spread: str, note: str | None) -> None:
    world = Serving()
    world.create(2, template=template(spread=spread))
    world.go(10)
    assert [world.query("task", task=f"/chat/r1-{number}/0")["note"] for number in (1, 2)] == [
        note
    ] * 2


def test_a_route_that_shares_nothing_says_nothing() -> None:
    world = Serving()
    world.create(1)
    world.go(10)
    assert world.query("task", task="/chat/r1-1/0")["note"] is None
