"""What can replace each other is spread: routes over hosts, racks and slices, the tasks of a plain
job softly.
"""

from __future__ import annotations

from collections import Counter

import pytest

from iris_core.messages.gateway_scheduler import PlanRequest
from iris_core.messages.gateway_state import Caller
from iris_core.spec.jobs import TASKS, Constraint, JobSpec, Probe
from iris_core.spec.resources import ResourceRequest
from iris_scheduler.preview import preview
from tests.support.scheduling import Story, worker


def hosts(placed: dict[str, str]) -> list[int]:
    """How many tasks each host has got, most first."""
    return sorted(Counter(placed.values()).values(), reverse=True)


@pytest.mark.parametrize(("spread", "counts"), [(TASKS, [2, 2, 2]), ("", [4, 2])])
def test_tasks_of_a_job_are_spread_over_hosts_unless_it_packs(
    spread: str, counts: list[int]
) -> None:
    story = Story(*(worker(name, cpu=4) for name in "abc"))
    story.submit("/sweep", 6, spread=spread)
    assert hosts(story.cycle()) == counts


def test_spreading_places_as_many_as_packing() -> None:
    story = Story(worker("a", cpu=1), worker("b", cpu=3), worker("c", cpu=5))
    story.submit("/sweep", 10, spread=TASKS)
    assert Counter(story.cycle().values()) == {"a": 1, "b": 3, "c": 5}


def test_spreading_avoids_accelerators_and_keeps_preferences() -> None:
    story = Story(worker("cpu", cpu=4), worker("tpu", cpu=4, chips=4))
    story.submit("/sweep", 4, spread=TASKS)
    assert hosts(story.cycle()) == [4]


ROUTES = ("/chat/r1-1", "/chat/r1-2", "/chat/r1-3")


def deploy(story: Story, *names: str, spread: str = "/chat") -> dict[str, str]:
    for name in names:
        story.submit(name, spread=spread)
    return story.cycle()


def test_routes_of_a_deployment_are_on_different_hosts() -> None:
    story = Story(*(worker(name, cpu=4) for name in "abc"))
    assert set(deploy(story, *ROUTES).values()) == {"a", "b", "c"}
    assert hosts(deploy(Story(*(worker(name, cpu=4) for name in "abc")), *ROUTES, spread="")) == [3]


def test_a_route_of_a_later_cycle_goes_where_none_is() -> None:
    story = Story(*(worker(name, cpu=4) for name in "abc"))
    first = deploy(story, ROUTES[0])
    second = deploy(story, ROUTES[1])
    story.end(ROUTES[0], 0)
    assert first == {"/chat/r1-1/0": "a"}
    assert second == {"/chat/r1-2/0": "b"}
    assert deploy(story, ROUTES[2]) == {"/chat/r1-3/0": "a"}


def test_a_route_that_avoids_a_host_is_spread_over_the_others() -> None:
    story = Story(*(worker(name, cpu=4) for name in "abc"))
    deploy(story, ROUTES[0])
    story.submit(ROUTES[1], spread="/chat")
    story.avoid(ROUTES[1], 0, "b", 5)
    assert story.cycle() == {"/chat/r1-2/0": "c"}


def test_a_route_waits_for_a_host_that_it_avoids_when_no_other_has_room() -> None:
    story = Story(worker("a", cpu=4))
    story.submit(ROUTES[0], spread="/chat")
    story.avoid(ROUTES[0], 0, "a", 5)
    assert story.cycle() == {}
    story.wait(6)
    assert story.cycle() == {"/chat/r1-1/0": "a"}


def test_routes_share_a_host_when_there_is_no_other() -> None:
    assert hosts(deploy(Story(worker("a", cpu=4)), *ROUTES)) == [3]


@pytest.mark.parametrize("domain", ["rack", "tpu-name"])
def test_routes_are_spread_over_racks_and_slices(domain: str) -> None:
    racks = {"a": "r1", "b": "r1", "c": "r2"}
    story = Story(*(worker(name, cpu=4, **{domain: rack}) for name, rack in racks.items()))
    assert set(deploy(story, *ROUTES[:2]).values()) == {"a", "c"}


def test_another_deployment_counts_for_nothing() -> None:
    story = Story(worker("a", cpu=4), worker("b", cpu=4))
    deploy(story, ROUTES[0])
    assert deploy(story, "/other/r1-1", spread="/other") == {"/other/r1-1/0": "a"}


def test_the_same_snapshot_gives_the_same_plan() -> None:
    plans = []
    for _ in range(2):
        story = Story(*(worker(name, cpu=4, rack=name) for name in "abcd"))
        story.submit("/sweep", 9, spread=TASKS)
        for name in ROUTES:
            story.submit(name, spread="/chat")
        plans.append(story.look().plan)
    assert plans[0] == plans[1]


@pytest.mark.parametrize(("spread", "used"), [("hosts", 3), ("none", 1)])
def test_a_dry_run_tells_how_tasks_would_be_spread(spread: str, used: int) -> None:
    story = Story(*(worker(name, cpu=4) for name in "abc"))
    spec = JobSpec(
        name="/a", command=("true",), replicas=3, resources=ResourceRequest(1000), spread=spread
    )  # type: ignore[arg-type]
    found = preview(
        story.mirror, story.cache, PlanRequest(spec, Caller("ann"), 0), story.now_ms, story.settings
    )
    assert len({host for _, host in found.placements}) == used


def test_the_spread_key_of_a_specification() -> None:
    plain = JobSpec(name="/a", command=("true",), replicas=2)
    route = JobSpec(name="/chat/r1-1", command=("true",), probe=Probe())
    packed = JobSpec(name="/a", command=("true",), replicas=2, spread="none")
    single = JobSpec(name="/a", command=("true",))
    assert [one.spread_key for one in (plain, route, packed, single)] == [TASKS, "/chat", "", ""]


def test_a_preferred_host_is_filled_first() -> None:
    story = Story(worker("a", cpu=4, zone="x"), worker("b", cpu=4, zone="y"))
    story.submit(
        "/sweep", 4, spread=TASKS, constraints=(Constraint("zone", value="y", mode="preferred"),)
    )
    assert set(story.cycle().values()) == {"b"}
