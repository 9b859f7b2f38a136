"""Stories of deployments that are scaled by rule: reports of proxies in, numbers of routes out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iris_core import codec
from iris_core.messages.proxy_state import (
    DeploymentLoad,
    DeploymentRequests,
    LoadReport,
    QueriedLoad,
)
from iris_core.spec.serving import ScalingPolicy
from iris_state.deployments.reconciler import note_loads
from iris_state.effects.kinds import Raised
from iris_state.records.inputs import Load
from iris_state.replication.metrics import StateMetrics
from tests.support.serving import Serving, answered, spec, template

POLICY = ScalingPolicy(minimum=1, maximum=6, outstanding=5.0)


@pytest.fixture
def world() -> Serving:
    """A leader that has listened for long enough, and a proxy with no request."""
    made = Serving()
    made.loads["p"] = 0
    made.go(61)
    return made


def view(world: Serving) -> dict[str, Any]:
    return world.query("deployment", deployment="chat")


def decided(world: Serving) -> list[str]:
    """Why the number changed, oldest first."""
    rows = world.query("deployment_history", deployment="chat")["items"]
    return [row["reason"] for row in rows if row["handler"] == "AutoscaleDeployment"]


# ── up and down ───────────────────────────────────────────────────────────────────────────────────


def test_routes_follow_the_load_and_the_history_says_by_which_numbers(world: Serving):
    world.create(1, scaling=POLICY)
    world.go(70)
    world.loads["p"] = 15
    world.go(60)
    assert len(world.serving()) == 3
    assert decided(world)[0] == "scaled 1 -> 2: 7.5 outstanding, target 5 a route, over 6 s"
    world.loads["p"] = 0
    world.go(290)
    assert world.record.spec.replicas == 3
    assert view(world)["scaling"]["held"].startswith(
        "1 wanted, and 3 were within 300 s: 0 outstanding"
    )
    world.go(80)
    assert (len(world.serving()), world.record.spec.replicas) == (1, 1)
    assert decided(world)[-1].endswith("and no more were wanted for 300 s")
    assert view(world)["scaling"]["last"] == decided(world)[-1]


def test_a_decision_is_no_change_by_its_owner(world: Serving):
    """A program that changes a deployment with If-Match is not refused because the load rose
    meanwhile.
    """
    version = world.create(1, scaling=POLICY)["version"]
    world.loads["p"] = 15
    world.go(30)
    assert world.record.spec.replicas == 3
    assert world.deploy("pause", version=version).status == "accepted"


def test_the_requests_of_all_proxies_and_all_their_processes_count(world: Serving):
    world.loads.update(p=5, q=5, r=5)
    world.create(1, scaling=POLICY)
    world.go(70)
    assert world.record.spec.replicas == 3


def test_samples_are_not_recorded(world: Serving):
    world.create(1, scaling=POLICY)
    world.go(70)
    world.loads["p"] = 5
    end = world.machine.sequence
    world.step(Load(codec.pack(LoadReport("p", (DeploymentLoad("chat", 5, 5),)))))
    assert world.machine.sequence == end


@pytest.mark.parametrize("data", [b"", b"\xc1", codec.pack(7), codec.pack(("p", ((1, 2),)))])
def test_a_report_that_cannot_be_read_changes_nothing(world: Serving, data: bytes):
    world.create(1, scaling=POLICY)
    end = world.machine.sequence
    output = world.step(Load(data))
    assert (list(output.of(Raised)), world.machine.sequence) == ([], end)


def test_reports_about_what_has_no_rule_or_is_not_there_change_nothing(world: Serving):
    world.create(2)
    world.loads["p"] = 500
    world.go(70)
    world.step(Load(codec.pack(LoadReport("p", (DeploymentLoad("nobody", 5),)))))
    assert world.record.spec.replicas == 2
    assert (view(world)["scaling"], world.ledger.loads.books) == (None, {})


def test_the_rate_of_requests_is_the_mean_of_ten_seconds_over_all_proxies(world: Serving):
    world.create(2)
    world.go(30)

    first, second = (route["id"] for route in view(world)["routes"])

    def report(proxy: str, arrived: int, routes: dict[str, int]) -> None:
        requests = (DeploymentRequests("chat", arrived, routes), DeploymentRequests("nobody", 7))
        world.step(Load(codec.pack(LoadReport(proxy, requests=requests))))

    def rates() -> list[float]:
        return [one["requests_per_s"] for one in (view(world), *view(world)["routes"])]

    report("p", 30, {first: 30})
    world.go(5)
    report("q", 25, {first: 5, second: 15})
    assert rates() == [5.5, 3.5, 1.5]
    world.go(6)
    assert rates() == [2.5, 0.5, 1.5]
    world.go(5)
    assert rates() == [0.0, 0.0, 0.0]


def test_nothing_is_kept_of_the_load_of_a_deployment_that_is_deleted(world: Serving):
    world.create(1, scaling=POLICY)
    world.go(10)
    world.deploy("delete")
    world.go(10)
    assert world.status() == "destroyed"
    assert world.ledger.loads.books == {}
    assert world.discovered["chat"].minimum is None


# ── unknown is not zero ───────────────────────────────────────────────────────────────────────────


def test_a_silent_proxy_holds_the_number_and_its_owner_is_told_which(world: Serving):
    world.loads["q"] = 0
    world.create(4, scaling=POLICY)
    world.go(250)
    del world.loads["q"]
    world.go(50)
    assert (world.record.spec.replicas, world.codes()) == (4, ["load_unknown"])
    why = world.query("deployment_why", deployment="chat")
    assert "the proxy q is silent" in why["conditions"][0]["message"]
    assert "the proxy q is silent" in why["scaling"]["held"]
    assert why["scaling"]["load"] is None


def test_a_proxy_that_was_killed_is_forgotten_after_a_while(world: Serving):
    world.loads["q"] = 0
    world.create(4, scaling=POLICY)
    world.go(20)
    del world.loads["q"]
    world.go(62)
    assert world.codes() == []
    world.go(305)
    assert world.record.spec.replicas == 1


def test_a_proxy_that_stops_in_order_is_no_silent_one(world: Serving):
    world.loads["q"] = 20
    world.create(4, scaling=POLICY)
    world.go(20)
    world.proxy_leaves("q")
    world.go(10)
    assert world.codes() == []


def test_without_any_proxy_nothing_is_known(world: Serving):
    world.proxy_leaves("p")
    world.create(4, scaling=POLICY)
    world.go(400)
    assert (world.record.spec.replicas, world.codes()) == (4, ["load_unknown"])
    assert view(world)["scaling"]["held"] == "no proxy reports its requests"


def test_a_new_leader_holds_for_a_window(world: Serving):
    world.create(3, scaling=POLICY)
    world.loads["p"] = 15
    world.go(310)
    world.take_over()
    world.loads["p"] = 60
    world.go(58)
    assert world.record.spec.replicas == 3
    assert "listens to the load for 60 s" in view(world)["scaling"]["held"]
    world.go(5)
    assert world.record.spec.replicas == 6


def test_a_new_leader_scales_nothing_down_before_the_window_has_passed(world: Serving):
    world.create(3, scaling=POLICY)
    world.go(20)
    world.take_over()
    world.go(350)
    assert world.record.spec.replicas == 3
    world.go(20)
    assert world.record.spec.replicas == 1


def test_a_replica_that_follows_tells_what_holds_the_number(world: Serving):
    world.create(3, scaling=POLICY)
    world.go(20)
    ledger = world.replayed().ledger
    report = LoadReport("p", (DeploymentLoad("chat", 5, 5),))
    decisions = [decision for _, decision in note_loads(ledger, report, world.now_ms)]
    assert [(one.target, one.reason.partition(":")[0]) for one in decisions] == [
        (3, "1 wanted, and 3 were within 300 s")
    ]


def test_prometheus_reads_how_many_are_wanted_and_whose_load_is_not_known(world: Serving):
    def scraped() -> list[float]:
        registry = StateMetrics(lambda: world.machine).registry
        return [
            registry.get_sample_value(f"iris_deployment_{name}")
            for name in ("wanted_routes", "load_unknown")
        ]

    world.create(3, scaling=POLICY)
    world.go(5)
    assert scraped() == [3, 0]
    del world.loads["p"]
    world.go(10)
    assert scraped() == [3, 1]
    world.deploy("delete")
    assert scraped() == [0, 0]


# ── by a query ────────────────────────────────────────────────────────────────────────────────────

QUERY = ScalingPolicy(minimum=1, maximum=6, query="sum(queue_length)", per_route=100.0)


def test_routes_follow_what_a_query_gives_and_not_the_requests(world: Serving):
    world.queried = QueriedLoad("chat", 250.0)
    world.loads["p"] = 1000
    world.create(1, scaling=QUERY)
    world.go(70)
    assert world.record.spec.replicas == 3
    assert decided(world)[-1] == "scaled 1 -> 3: 250 by its query, target 100 a route, over 60 s"


def test_an_unanswered_query_holds_the_number_and_why_tells_the_error(world: Serving):
    world.queried = QueriedLoad("chat", 250.0)
    world.create(1, scaling=QUERY)
    world.go(70)
    world.queried = QueriedLoad("chat", error="Prometheus answered 503")
    world.go(600)
    assert world.record.spec.replicas == 3
    assert view(world)["scaling"]["held"] == "its query is not answered: Prometheus answered 503"
    world.queried = QueriedLoad("chat", 0.0)
    world.go(400)
    assert world.record.spec.replicas == 1


def test_a_query_that_nobody_asks_holds_the_number(world: Serving):
    world.create(3, scaling=QUERY)
    world.go(400)
    assert (world.record.spec.replicas, world.codes()) == (3, ["load_unknown"])


def test_a_query_wakes_what_has_no_route_and_no_load_ends_the_last_one(world: Serving):
    world.proxy_leaves("p")
    world.queried = QueriedLoad("chat", 0.0)
    world.create(1, scaling=ScalingPolicy(minimum=0, maximum=6, query="queue", per_route=100.0))
    world.go(320)
    assert decided(world) == ["scaled 1 -> 0: no load for 300 s"]
    world.queried = QueriedLoad("chat", 250.0)
    world.go(1)
    assert decided(world)[1] == "scaled 0 -> 1: its query is above 0, or a request has come"
    world.go(30)
    assert world.record.spec.replicas == 3


# ── zero ──────────────────────────────────────────────────────────────────────────────────────────

IDLE = ScalingPolicy(minimum=0, maximum=4, outstanding=5.0)


def test_an_idle_deployment_has_no_route_until_a_request_comes(world: Serving):
    world.create(1, scaling=IDLE)
    world.go(320)
    assert (world.routes(), world.status(), world.discovered["chat"].wakes) == ({}, "ready", True)
    assert (decided(world), world.codes()) == (["scaled 1 -> 0: no request for 300 s"], [])
    world.loads["p"] = 1
    world.report_loads()
    assert world.record.spec.replicas == 1
    world.go(10)
    assert world.serving() == {"r1-2": "healthy"}
    assert not world.discovered["chat"].wakes


def test_requests_wait_while_a_larger_minimum_starts_the_first_route(world: Serving):
    world.create(1, scaling=IDLE)
    world.go(320)
    assert world.routes() == {}
    world.update("1", 0, scaling=ScalingPolicy(minimum=1, maximum=4, outstanding=5.0))
    assert world.discovered["chat"].wakes
    world.go(10)
    assert world.serving() == {"r1-2": "healthy"}
    assert not world.discovered["chat"].wakes


def test_requests_do_not_wait_for_a_route_that_has_crashed(world: Serving):
    world.create(1, scaling=ScalingPolicy(minimum=1, maximum=4, outstanding=5.0))
    assert world.discovered["chat"].wakes
    world.go(20)
    world.kill("r1-1")
    world.go(0)
    assert not world.discovered["chat"].wakes


def test_a_new_leader_wakes_at_once(world: Serving):
    world.create(1, scaling=IDLE)
    world.go(320)
    world.take_over()
    world.loads["p"] = 1
    world.report_loads()
    assert world.record.spec.replicas == 1


def test_a_request_that_was_answered_between_two_reports_is_a_request_too(world: Serving):
    world.create(1, scaling=IDLE)
    world.go(250)
    world.step(Load(codec.pack(LoadReport("p", (DeploymentLoad("chat", 0, 3),)))))
    world.go(250)
    assert world.record.spec.replicas == 1
    world.go(60)
    assert world.record.spec.replicas == 0


def test_a_deployment_may_begin_without_a_route(world: Serving):
    world.create(0, scaling=IDLE)
    world.go(5)
    assert (world.routes(), world.status(), world.discovered["chat"].wakes) == ({}, "ready", True)


# ── updates ───────────────────────────────────────────────────────────────────────────────────────


def test_no_route_goes_by_rule_during_an_update_and_more_may_come(world: Serving):
    world.create(4, scaling=POLICY)
    world.go(290)
    world.never_ready.add("2")
    answer = world.deploy(
        "update", patch=json.dumps({"template": {"command": ["serve", "2"]}}).encode()
    )
    assert answer.status == "accepted"
    world.go(60)
    assert (world.status(), world.record.spec.replicas) == ("deploying", 4)
    assert "none goes during an update" in view(world)["scaling"]["held"]
    world.loads["p"] = 28
    world.go(30)
    assert (world.status(), world.record.spec.replicas) == ("deploying", 6)


# ── what its owner may change ─────────────────────────────────────────────────────────────────────


def test_it_begins_within_its_bounds(world: Serving):
    assert world.create(1, scaling=ScalingPolicy(minimum=2, maximum=4))["replicas"] == 2


def test_a_number_by_hand_is_refused_while_a_rule_decides(world: Serving):
    world.create(1, scaling=POLICY)
    for change in ({"replicas": 3}, {"patch": b'{"replicas": 3, "settle_s": 1.0}'}):
        answer = world.deploy("update" if "patch" in change else "scale", **change)
        assert answer.status == "conflict"
        assert "follows its scaling rule; change the rule's minimum and maximum" in answered(answer)
    assert world.deploy("update", patch=b'{"replicas": 3, "scaling": null}').status == "accepted"
    assert (world.record.spec.replicas, world.record.spec.scaling) == (3, None)


def test_other_changes_keep_the_number_that_the_rule_found(world: Serving):
    world.create(1, scaling=POLICY)
    world.loads["p"] = 15
    world.go(60)
    assert world.deploy("update", patch=b'{"settle_s": 1.0}').status == "accepted"
    assert (
        world.deploy("update", spec=spec(1, scaling=POLICY, template=template("2"))).status
        == "accepted"
    )
    assert world.record.spec.replicas == 3


def test_changed_bounds_hold_at_once(world: Serving):
    world.create(1, scaling=POLICY)
    for patch, replicas in (({"minimum": 3}, 3), ({"minimum": 1, "maximum": 2}, 2)):
        answer = world.deploy("update", patch=json.dumps({"scaling": patch}).encode())
        assert (answer.status, world.record.spec.replicas) == ("accepted", replicas)


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"stabilization_s": 59.0}, "/scaling/stabilization_s"),  # ray#26455: it thrashes
        ({"cooldown_s": 61.0}, "/scaling/cooldown_s"),
        ({"panic_window_s": 61.0}, "/scaling/panic_window_s"),
        ({"window_s": 601.0, "stabilization_s": 700.0}, "/scaling/window_s"),
        (
            {"window_s": 5.0, "panic_window_s": 4.0},
            "/scaling/window_s",
        ),  # shorter than the cooldown, a default
        ({"minimum": 7}, "/scaling/minimum"),
        ({"outstanding": 0.0}, "/scaling/outstanding"),
        ({"query": "a\nb"}, "/scaling/query"),
        ({"query": "a" * 4001}, "/scaling/query"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(world: Serving, wrong: dict[str, Any], pointer: str):
    policy = ScalingPolicy(**{"minimum": 1, "maximum": 6, **wrong})
    answer = world.deploy("create", spec=spec(1, scaling=policy))
    assert answer.status == "invalid"
    assert [mistake["pointer"] for mistake in json.loads(answer.body)["errors"]] == [pointer]
