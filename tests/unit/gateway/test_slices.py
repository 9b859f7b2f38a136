"""Slices as shapes: each host in its place of the topology, planes of a cuboid beside each
other.
"""

from __future__ import annotations

import re
from typing import Any

from iris_gateway.dashboard.drawings.slices import SliceShape, shape_of


def host(
    number: int, state: str = "healthy", held: int = 0, total: int = 4, **attributes: Any
) -> dict[str, Any]:
    return {
        "id": f"<h>{number}",
        "state": state,
        "attributes": {"tpu-worker-id": number, **attributes},
        "total": {"chips": total},
        "committed": {"chips": held},
        "tasks": [f"/job{number}/0"] if held else [],
        "task_ids": [f"j{number}/0"] if held else [],
        "task_count": int(held > 0),
    }


def shape(topology: str | None, *hosts: dict[str, Any]) -> SliceShape:
    free = sum(one["state"] == "healthy" and not one["tasks"] for one in hosts)
    return shape_of({"name": "s", "topology": topology, "workers": hosts, "free_workers": free})


def classes(made: SliceShape) -> list[list[str]]:
    return [re.findall(r'class="host ([^"]*)"', plane) for plane in made.planes]


def test_a_cuboid_has_a_plane_for_each_of_its_layers():
    made = shape("v4-64", *(host(number, held=4 * (number == 5)) for number in range(8)))
    assert (made.width, [len(plane) for plane in classes(made)]) == (2, [2, 2, 2, 2])
    assert classes(made)[2] == ["of-4 on-0", "of-4 on-4"]
    assert (made.words, made.holders) == ("7 of 8 hosts free", [("/job5", "j5")])


def test_a_host_that_has_not_registered_leaves_its_place_empty():
    made = shape("v5litepod-16", host(0), host(3, "lost"))
    assert classes(made) == [["of-4 on-0", "missing", "missing", "of-4 on-0 off lost"]]
    assert made.words == "1 of 4 hosts free, 1 lost, 2 missing"


def test_a_large_slice_with_few_registered_hosts_is_drawn_without_the_rest():
    few, many = (shape("v4-1024", *map(host, range(count))) for count in (3, 100))
    assert [sum(map(len, classes(made))) for made in (few, many)] == [3, 128]
    assert (many.width, len(many.planes), many.words) == (4, 8, "100 of 128 hosts free, 28 missing")


def test_hosts_whose_numbers_are_no_places_stand_in_their_order():
    twice, beyond, none = (
        shape("v5litepod-16", *hosts)
        for hosts in ([host(1), host(1, "lost")], [host(7)], [{**host(0), "attributes": {}}])
    )
    assert classes(twice) == [["of-4 on-0", "of-4 on-0 off lost", "missing", "missing"]]
    assert classes(beyond) == classes(none) == [["of-4 on-0", "missing", "missing", "missing"]]


def test_a_slice_of_no_known_topology_is_nearly_square():
    made = shape(None, *(host(number) for number in range(5)))
    assert (made.width, made.topology, classes(made)) == (4, "", [["of-4 on-0"] * 5])


def test_chips_are_filled_as_they_are_held_and_many_of_them_in_proportion():
    made = shape(
        "v5litepod-16",
        host(0, held=1),
        host(1, held=3),
        host(2, held=5, total=16),
        host(3, total=0),
    )
    assert classes(made) == [["of-4 on-1", "of-4 on-3", "of-8 on-3", "of-0 on-0"]]


def test_names_of_hosts_are_escaped():
    assert (
        "&lt;h&gt;0: healthy, 1 task, 4 of 4 chips held"
        in shape("v5litepod-4", host(0, held=4)).planes[0]
    )
