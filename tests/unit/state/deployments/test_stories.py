"""Stories of deployments as their owner and the proxies see them."""

from __future__ import annotations

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Eviction, Nomination, Plan
from iris_core.spec.jobs import JobSpec, Probe
from iris_core.spec.resources import ResourceRequest
from iris_core.spec.serving import UpdatePolicy
from iris_state.policy import Policy
from tests.support.serving import ADMIN, Serving, answered, spec, template


@pytest.fixture
def world() -> Serving:
    return Serving()


def test_a_deployment_comes_up(world: Serving):
    view = world.create(3)
    assert (view["status"], view["replicas"], view["ready"]) == ("ready", 3, 0)
    assert world.discovered["chat"].reason == "starting"
    world.go(10)
    assert world.routes() == {"r1-1": "healthy", "r1-2": "healthy", "r1-3": "healthy"}
    assert world.serving() == dict.fromkeys(("r1-1", "r1-2", "r1-3"), "healthy")
    assert world.query("deployment", deployment="chat")["stable_revision"] == 1
    assert world.said("deployment") == ["pending", "scaling", "ready"]
    assert world.said("route").count("healthy") == 3


def test_each_route_is_a_job_below_the_deployments_name(world: Serving):
    world.create(2)
    assert sorted(world.ledger.names) == ["/chat/r1-1", "/chat/r1-2"]
    job = world.ledger.find_job("/chat/r1-1")
    assert job is not None
    assert (job.user, job.spec.ports, job.spec.probe is not None, job.spec.max_retries_failure) == (
        "ann",
        ("http",),
        True,
        0,
    )


def test_a_route_that_is_killed_is_replaced_once(world: Serving):
    world.create(3)
    world.go(10)
    world.kill("r1-2")
    assert world.serving() == {"r1-1": "healthy", "r1-3": "healthy"}
    world.go(30)
    assert world.routes() == {"r1-1": "healthy", "r1-3": "healthy", "r1-4": "healthy"}


def test_a_route_of_a_stopping_worker_leaves_discovery_and_is_replaced(world: Serving):
    world.create(2)
    world.go(10)
    world.leave("w0", "stopping")  # both are there
    assert world.routes() == {"r1-1": "terminating", "r1-2": "terminating", "r1-3": "degraded"}
    assert world.serving() == {}
    assert world.route("r1-1").reason == "worker w0 is stopping"
    world.leave("w0", "gone")
    world.go(30)
    assert world.routes() == {"r1-3": "healthy", "r1-4": "healthy"}
    assert {route.address.partition(":")[0] for route in world.discovered["chat"].routes} == {"w1"}


def test_a_route_of_a_drained_worker_that_is_told_to_stop_leaves_as_well(world: Serving):
    world.create(2)
    world.go(10)
    world.admin("drain", "w0")
    assert world.serving() == {"r1-1": "healthy", "r1-2": "healthy"}
    world.leave("w0", "stopping")
    assert world.serving() == {}


def test_scaling_out_and_in(world: Serving):
    world.create(3)
    world.go(10)
    world.deploy("scale", replicas=10)
    world.go(10)
    assert len(world.serving()) == 10
    world.deploy("scale", replicas=1)
    assert world.serving() == {"r1-1": "healthy"}
    world.go(40)
    assert world.routes() == {"r1-1": "healthy"}
    assert world.status() == "ready"


def test_a_probe_that_starts_failing_takes_a_route_out_and_then_away(world: Serving):
    world.create(3)
    world.go(10)
    world.failing.add("r1-1")
    world.go(3)
    assert world.route("r1-1").status.value == "unhealthy"
    assert world.serving() == {"r1-2": "healthy", "r1-3": "healthy"}
    world.go(57)
    assert world.routes() == {"r1-1": "unhealthy", "r1-2": "healthy", "r1-3": "healthy"}
    world.go(20)
    assert world.routes() == {"r1-2": "healthy", "r1-3": "healthy", "r1-4": "healthy"}
    rows = world.query("deployment_history", deployment="chat", limit=500)["items"]
    (row,) = [
        row for row in rows if row["result"] == "FAILURE" and row["handler"] == "HealthCheckRoute"
    ]
    assert (row["from"], row["to"], row["reason"]) == (
        "healthy",
        "unhealthy",
        "3 probes in a row failed: no answer",
    )


def test_a_route_that_recovers_within_its_grace_is_kept(world: Serving):
    world.create(2)
    world.go(10)
    world.failing.add("r1-1")
    world.go(30)
    world.failing.clear()
    world.go(2)
    assert world.routes() == {"r1-1": "healthy", "r1-2": "healthy"}


def test_a_route_probed_more_often_than_reported_is_not_silent(world: Serving):
    world.create(1, template=template(probe=Probe(interval_s=0.1, start_timeout_s=60.0)))
    world.go(10)
    since_ms = world.route("r1-1").since_ms
    world.go(30)
    assert (world.serving(), world.route("r1-1").since_ms) == ({"r1-1": "healthy"}, since_ms)


def test_a_silent_route_gets_requests_behind_the_others(world: Serving):
    world.create(2)
    world.go(10)
    world.silent.add("r1-1")
    world.go(30)
    assert world.serving() == {"r1-1": "healthy", "r1-2": "healthy"}
    world.go(2)
    assert world.serving() == {"r1-1": "stale", "r1-2": "healthy"}
    world.silent.clear()
    world.go(2)
    assert world.serving() == {"r1-1": "healthy", "r1-2": "healthy"}
    rows = world.query("deployment_history", deployment="chat", limit=500)["items"]
    assert [row["to"] for row in rows if row["result"] == "STALE"] == ["degraded"]


def test_a_route_that_is_not_ready_is_taken_out_and_never_away(world: Serving):
    world.create(2)
    world.go(10)
    world.unready.add("r1-1")
    world.go(300)
    assert world.serving() == {"r1-2": "healthy"}
    assert world.routes() == {"r1-1": "healthy", "r1-2": "healthy"}


def test_a_service_that_always_exits_is_tried_a_few_times_and_says_why(world: Serving):
    world.broken.add("1")
    world.create(3)
    world.go(420)
    assert world.codes() == ["crash_loop"]
    jobs = len(world.ledger.jobs)
    assert jobs <= 12
    world.go(200)
    assert len(world.ledger.jobs) == jobs
    why = world.query("deployment_why", deployment="chat")
    assert "exit code 1" in why["conditions"][0]["message"]
    world.broken.clear()
    world.deploy("resume")
    world.go(60)
    assert len(world.serving()) == 3
    assert world.codes() == []


def test_a_host_that_starts_no_routes_is_avoided_by_the_next_ones(world: Serving):
    world.faulty.add("w0")  # first fit prefers it
    world.create(3)
    world.go(90)
    assert world.codes() == []
    assert {route.address.partition(":")[0] for route in world.discovered["chat"].routes} == {"w1"}
    assert len(world.serving()) == 3
    assert [route.reason for route in world.record.routes.values() if route.reason] == [
        "task 0 worker_failed: no disk"
    ] * 3


def test_a_host_that_starts_no_routes_fails_no_update(world: Serving):
    world.create(2)
    world.go(10)
    world.faulty.add("w0")
    world.update("2", replicas=2)
    world.go(90)
    assert (world.codes(), world.status(), world.record.rollout.stable) == ([], "ready", 2)


def test_a_host_that_is_avoided_is_tried_when_there_is_no_other(world: Serving):
    world.faulty.add("w0")
    world.hosts["w1"].silent = True
    world.create(1)
    world.go(5)
    assert world.codes() == ["back_off"]
    world.faulty.clear()
    world.go(60)
    assert len(world.serving()) == 1


def test_a_route_whose_command_ends_without_error_has_to_run_on(world: Serving):
    world.broken.add("1")
    world.exit_code = 0
    world.create(1)
    world.go(5)
    (told,) = world.query("deployment", deployment="chat")["conditions"]
    assert told["message"].endswith(
        "r1-1: its command has ended (exit code 0), though that of a route is to run on"
    )


def test_a_back_off_counts_the_failed_tries_in_words(world: Serving):
    world.broken.add("1")
    world.create(1)
    world.go(5)
    (told,) = world.query("deployment", deployment="chat")["conditions"]
    assert told["message"].startswith(
        "1 try to start a route has failed; the next one waits: r1-1: "
    )
    world.go(15)
    (told,) = world.query("deployment", deployment="chat")["conditions"]
    assert told["message"].startswith(
        "2 tries in a row to start a route have failed; the next one waits: r1-2: "
    )
    world.deploy("delete")
    assert world.codes() == []  # none waits any more


def test_a_route_that_never_gets_healthy_is_replaced_at_its_start_timeout(world: Serving):
    world.never_ready.add("1")
    world.create(1)
    world.go(60)
    assert world.routes() == {"r1-1": "degraded"}
    (shown,) = world.query("deployment_why", deployment="chat")["routes"]
    assert shown["detail"] == "60 probes in a row failed: no answer"
    world.go(5)
    assert world.route("r1-1").status.value == "terminated"
    assert world.codes() == ["back_off"]


def test_the_loss_of_a_host_is_no_failed_start(world: Serving):
    world.create(3)
    world.hosts["w0"].silent = True
    world.go(120)
    assert world.codes() == []
    assert len(world.serving()) == 3


# ── updates ───────────────────────────────────────────────────────────────────────────────────────


def test_a_rolling_update_never_serves_with_fewer_routes(world: Serving):
    world.create(3)
    world.go(10)
    world.update("2")
    assert world.status() == "deploying"
    fewest = 99
    for _ in range(150):
        world.go(1)
        fewest = min(fewest, len(world.serving()))
        assert len(world.routes()) <= 4
    assert fewest == 3
    assert {id_.partition("-")[0] for id_ in world.routes()} == {"r2"}
    assert (world.status(), world.record.rollout.stable) == ("ready", 2)


def test_an_unhealthy_revision_is_given_up_and_the_old_one_kept(world: Serving):
    world.create(3)
    world.go(10)
    world.never_ready.add("2")
    world.update("2")
    world.go(400)
    assert {id_.partition("-")[0] for id_ in world.routes()} == {"r1"}
    assert (world.status(), world.record.revision, world.codes()) == ("ready", 1, ["rolled_back"])
    assert len(world.serving()) == 3


def test_a_revision_that_exits_at_once_is_given_up_sooner(world: Serving):
    world.create(3, update=UpdatePolicy(progress_deadline_s=10_000))
    world.go(10)
    world.broken.add("2")
    world.update("2", update=UpdatePolicy(progress_deadline_s=10_000))
    world.go(400)
    assert (world.status(), world.record.revision, world.codes()) == ("ready", 1, ["rolled_back"])
    assert "5 of its routes failed to start" in world.record.rollout.failure


def test_an_update_without_a_way_back_stays_and_says_so(world: Serving):
    policy = UpdatePolicy(progress_deadline_s=100, rollback=False)
    world.create(2, update=policy)
    world.go(10)
    world.never_ready.add("2")
    world.update("2", 2, update=policy)
    world.go(300)
    assert (world.status(), world.record.revision) == ("deploying", 2)
    assert "update_failed" in world.codes()
    assert len(world.serving()) == 2


def test_the_latest_update_wins(world: Serving):
    world.create(3)
    world.go(10)
    world.update("2")
    world.go(12)
    world.update("3")
    world.go(120)
    assert {id_.partition("-")[0] for id_ in world.routes()} == {"r3"}
    assert world.status() == "ready"


def test_a_canary_waits_to_be_resumed(world: Serving):
    policy = UpdatePolicy(progress_deadline_s=100, pause_after=1)
    world.create(3, update=policy)
    world.go(10)
    world.update("2", update=policy)
    world.go(300)
    assert sorted(id_.partition("-")[0] for id_ in world.routes()) == ["r1", "r1", "r2"]
    assert world.codes() == ["paused"]
    world.kill(next(id_ for id_ in world.routes() if id_.startswith("r1")))
    world.go(30)
    assert sorted(id_.partition("-")[0] for id_ in world.routes()) == ["r1", "r1", "r2"]
    before = world.routes()
    world.deploy("resume")
    world.go(100)
    assert {id_.partition("-")[0] for id_ in world.routes()} == {"r2"}
    assert set(before) & set(world.routes()), "resuming alone ends no route of the canary"


def test_a_pause_lets_no_more_new_routes_come(world: Serving):
    world.create(3)
    world.go(10)
    world.update("2")
    world.deploy("pause")
    world.go(200)
    assert sorted(id_.partition("-")[0] for id_ in world.routes()) == ["r1", "r1", "r2"]
    assert world.codes() == ["paused"]
    world.deploy("resume")
    world.go(150)
    assert {id_.partition("-")[0] for id_ in world.routes()} == {"r2"}


def test_a_rollback_goes_to_the_revision_before(world: Serving):
    world.create(2)
    world.go(10)
    world.update("2", 2)
    world.go(60)
    assert world.deploy("rollback").status == "accepted"
    world.go(60)
    assert {id_.partition("-")[0] for id_ in world.routes()} == {"r1"}
    assert world.record.spec.template == template("1")


@pytest.mark.parametrize(
    ("revision", "missing"), [(0, "no earlier one"), (77, "it has no revision 77")]
)
def test_a_rollback_to_nothing_names_what_is_kept(world: Serving, revision, missing):
    world.create(1)
    world.go(10)
    refused = world.deploy("rollback", revision=revision)
    assert answered(refused) == f"chat keeps the revisions 1: {missing}"


def test_a_surge_without_room_waits_and_is_not_rolled_back():
    world = Serving(room=2)
    world.create(2)
    world.go(10)
    world.update("2", 2)
    world.go(1000)
    assert world.status() == "deploying"
    assert world.query("deployment", deployment="chat")["update"]["waiting_for"] == "capacity"
    assert world.codes() == ["waiting_for_capacity"]
    world.deploy("update", spec=spec(2, "2", update=UpdatePolicy(max_surge=0, max_unavailable=1)))
    world.go(150)
    assert {id_.partition("-")[0] for id_ in world.routes()} == {"r2"}


def test_another_policy_alone_makes_no_revision(world: Serving):
    world.create(2)
    world.go(10)
    world.update("1", 2, settle_s=9.0)
    assert (world.status(), world.record.revision, world.record.spec.settle_s) == ("ready", 1, 9.0)


def test_a_host_is_given_the_port_that_gets_requests_and_how_to_probe(world: Serving):
    probe = Probe(port="http", start_timeout_s=60.0)
    world.create(1, port="api", template=template(ports=("http", "api"), probe=probe))
    world.go(10)
    given = [
        made for host in world.hosts.values() for order in host.orders for made in order.templates
    ]
    assert {(made.serves, made.probe) for made in given} == {("api", probe)}


# ── the end ───────────────────────────────────────────────────────────────────────────────────────


def test_a_deleted_deployment_drains_and_is_gone(world: Serving):
    world.create(2, settle_s=2.0, grace_s=30.0)
    world.go(10)
    world.deploy("delete")
    assert world.status() == "destroying"
    assert (world.serving(), world.discovered["chat"].reason) == ({}, "draining")
    stops = [stop for host in world.hosts.values() for order in host.orders for stop in order.stop]
    assert {(stop.settle_ms, stop.grace_ms) for stop in stops} == {(2000, 30_000)}
    world.go(5)
    assert world.status() == "destroyed"
    assert world.query("deployments")["items"] == []


def test_routes_have_no_longer_grace_period_than_the_cluster_gives():
    world = Serving(policy=Policy(terminating_timeout_s=60.0, max_grace_s=90.0))
    world.create(2, grace_s=7200.0)
    world.go(10)
    world.deploy("delete")
    stops = [stop for host in world.hosts.values() for order in host.orders for stop in order.stop]
    assert {stop.grace_ms for stop in stops} == {90_000}


def test_routes_that_do_not_end_keep_no_deployment_alive(world: Serving):
    world.create(1)
    world.go(10)
    world.stuck.add("r1-1")
    world.deploy("delete")
    world.go(80)
    assert world.status() == "destroying"
    world.go(30)
    assert world.status() == "destroyed"
    assert world.create(1)["id"] == "d2"
    world.stuck.clear()
    world.go(20)
    assert world.routes() == {"r1-1": "healthy"}


def test_a_route_that_makes_room_for_others_has_a_jobs_grace(world: Serving):
    world.create(1, template=template(probe=Probe(start_timeout_s=60.0), band="batch"))
    world.go(10)
    job = world.ledger.find_job("/chat/r1-1")
    assert job is not None
    room = ResourceRequest(cpu_millis=6000)
    spec = JobSpec(name="/first", command=("true",), resources=room, band="production")
    assert world.submit(spec, ADMIN).status == "created"
    first = world.ledger.jobs[world.ledger.names["/first"]].number
    host = job.tasks[0].attempts[0].worker
    eviction = Eviction((AttemptRef(job.number, 0, 0),), (Nomination(first, 0, host),))
    world.plan(Plan("s", world.machine.sequence, evictions=(eviction,)))
    stops = [stop for host in world.hosts.values() for order in host.orders for stop in order.stop]
    assert [(stop.settle_ms, stop.grace_ms) for stop in stops] == [(2000, 5000)]
    world.go(20)
    assert world.routes() == {"r1-2": "healthy"}
    assert world.codes() == []
