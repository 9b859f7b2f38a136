"""A new leader continues an update, and no deployment's discovery becomes empty because of the
change.
"""

from __future__ import annotations

import pytest

from iris_core.messages.gateway_state import Query
from iris_core.spec.serving import UpdatePolicy
from iris_core.states import RouteStatus
from iris_state.deployments.reconciler import note_results
from iris_state.views.reads import answer
from tests.support.serving import Serving


@pytest.mark.parametrize("every", [1, 3])
def test_a_life_with_another_leader_every_few_seconds(every: int):
    """Created, updated to what never gets healthy, back, scaled, and deleted."""
    world = Serving()
    world.create(3)

    def lives(seconds: int) -> None:
        for _ in range(0, seconds, every):
            world.go(every)
            world.take_over()

    lives(12)
    assert len(world.serving()) == 3
    world.broken.add("2")
    world.update("2", update=UpdatePolicy(progress_deadline_s=70.0))
    for _ in range(0, 240, 4):
        world.go(4)
        world.take_over()
        assert len(world.serving()) >= 3
    assert (world.status(), world.record.revision, world.codes()) == ("ready", 1, ["rolled_back"])
    world.deploy("scale", replicas=1)
    lives(6)
    assert len(world.routes()) == 1
    world.deploy("delete")
    lives(9)
    assert world.status() == "destroyed"
    assert not world.ledger.route_of_job


def test_a_leader_that_knows_no_result_yet_takes_nobody_out():
    world = Serving()
    world.create(2)
    world.go(10)
    world.silent |= set(world.routes())
    for _ in range(12):
        world.go(10)
        world.take_over()
    assert set(world.serving().values()) == {"healthy"}
    world.go(40)
    assert set(world.serving().values()) == {"stale"}


def test_no_route_is_healthy_by_what_a_follower_has_heard():
    world = Serving()
    world.create(2)
    world.go(10)
    world.update("2", replicas=2)
    world.go()
    world.take_over(followed=True)
    assert all(
        route.address for route in world.record.held() if route.status is RouteStatus.HEALTHY
    )
    for _ in range(20):
        world.go(1)
        assert len(world.serving()) >= 2
    assert {route.revision for route in world.record.held()} == {2}


def test_a_replica_that_follows_tells_how_probes_fail():
    world = Serving()
    world.never_ready.add("1")
    world.create(1)
    world.go(5)
    ledger = world.replayed().ledger
    for host in world.hosts.values():
        note_results(ledger, host.name, world.probes(host), world.now_ms)
    shown = answer(ledger, Query("deployment", {"deployment": "chat"}), 1)
    assert b"6 probes in a row failed: no answer" in shown
