"""Which route is chosen for a request."""

from collections import Counter

from iris_core.spec.serving import DiscoveredRoute, Discovery
from iris_proxy.routes.choice import RouteLoad, choose, eligible, merged


def routes(*outstanding: int) -> list[RouteLoad]:
    return [
        RouteLoad(f"r{n}", f"10.0.0.{n}:80", outstanding=count)
        for n, count in enumerate(outstanding)
    ]


def first(_: int) -> int:
    return 0


def last(count: int) -> int:
    return count - 1


def test_the_route_with_the_fewest_outstanding_requests_is_chosen():
    assert choose(routes(3, 1, 2), 10, first).id == "r1"


def test_among_equals_chance_decides():
    assert [choose(routes(1, 0, 0), 10, randomly).id for randomly in (first, last)] == ["r1", "r2"]


def test_a_route_with_as_many_requests_as_it_may_have_gets_no_more():
    assert choose(routes(2, 1), 2, first).id == "r1"
    assert choose(routes(2, 2), 2, first) is None


def test_a_key_belongs_to_one_route_and_few_keys_move_when_a_route_leaves():
    keys = [f"user-{n}" for n in range(1000)]
    four = routes(0, 0, 0, 0)
    before = {key: choose(four, 10, first, key).id for key in keys}
    after = {key: choose(four[:3], 10, last, key).id for key in keys}
    assert all(200 < count < 300 for count in Counter(before.values()).values())
    assert {key for key in keys if before[key] != after[key]} == {
        key for key in keys if before[key] == "r3"
    }


def test_a_key_moves_while_its_route_has_much_more_than_the_others():
    free = routes(0, 0, 0)
    owner = choose(free, 100, first, "k")
    owner.outstanding = 9
    assert choose(free, 100, first, "k") is not owner
    for route in free:
        route.outstanding = 9
    assert choose(free, 100, first, "k") is owner


def test_stale_routes_get_requests_only_when_no_healthy_one_is_left():
    stale, healthy = routes(0, 5)
    stale.stale = True
    assert eligible([stale, healthy], ()) == [healthy]
    assert eligible([stale], ()) == [stale]


def test_a_route_that_was_tried_is_not_tried_again():
    one, other = routes(0, 0)
    assert eligible([one, other], [one]) == [other]
    assert eligible([one, other], [one, other]) == []


def test_an_ejected_route_gets_requests_only_when_all_are_ejected():
    bad, good = routes(0, 0)
    bad.ejected = True
    assert eligible([bad, good], ()) == [good]
    assert eligible([bad, good], [good]) == []
    good.ejected = True
    assert eligible([bad, good], ()) == [bad, good]


def test_a_new_set_keeps_the_counts_of_the_routes_that_stay():
    before = routes(4, 2)
    discovery = Discovery(
        "chat",
        2,
        (DiscoveredRoute("r1", "10.0.0.1:80", "stale"), DiscoveredRoute("r0", "10.0.0.9:80")),
    )
    after = merged(before, discovery)
    assert [(route.id, route.address, route.outstanding, route.stale) for route in after] == [
        ("r1", "10.0.0.1:80", 2, True),
        ("r0", "10.0.0.9:80", 0, False),
    ]
    assert after[0] is before[1]
