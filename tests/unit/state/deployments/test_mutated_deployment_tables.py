"""Changing any cell of the deployment and route tables, or of the row by which the task of a route
is retired, makes a story fail.

As `test_mutated_tables` for tasks, jobs and sessions, also in turns.
Source: docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest

from iris_core.guard import TableBroken, guard
from iris_core.lifecycle import Rule
from iris_core.spec.serving import UpdatePolicy
from iris_core.states import (
    TERMINAL,
    Cause,
    DeploymentLifecycle,
    JobState,
    RouteStatus,
    TaskState,
)
from iris_core.tables import deployment, route, task
from tests.support.mutation import Mutant, of_rule, quickly, unnoticed
from tests.support.samples import one_in
from tests.support.serving import Serving

ONE_IN = 3

# ── stories ───────────────────────────────────────────────────────────────────────────────────────


def served(hosts: int, replicas: int, seconds: int, **options: Any) -> Serving:
    """A deployment after some time."""
    world = Serving(hosts)
    world.create(replicas, **options)
    world.go(seconds)
    return world


def told(world: Serving, entity: str, name: str = "") -> list[str]:
    """The states of the public events about one route, or about the deployment."""
    return [
        body["state"]
        for subject, body in world.events
        if subject.startswith(f"{entity}.state.") and body.get("route", "") == name
    ]


def judged(world: Serving, handler: str) -> list[tuple[str, str, str]]:
    """What the history has of one handler: from, to, result."""
    rows = world.query("deployment_history", deployment="chat", limit=500)["items"]
    return [(row["from"], row["to"], row["result"]) for row in rows if row["handler"] == handler]


def comes_and_goes() -> Serving:
    world = served(4, 2, 8)
    assert told(world, "deployment") == ["pending", "scaling", "ready"]
    assert told(world, "route", "r1-1") == ["provisioning", "degraded", "healthy"]
    world.deploy("scale", replicas=1)
    assert judged(world, "CheckReplicaDeployment") == [("ready", "scaling", "SUCCESS")]
    world.go(3)
    assert told(world, "route", "r1-2") == [
        "provisioning",
        "degraded",
        "healthy",
        "terminating",
        "terminated",
    ]
    world.kill("r1-1")
    world.go(8)
    assert judged(world, "RunningRoute") == [("healthy", "terminating", "FAILURE")]
    assert judged(world, "ReconcileDeployment") == [("ready", "scaling", "FAILURE")]
    assert world.routes() == {"r1-3": "healthy"}
    world.deploy("delete")
    world.go(3)
    assert told(world, "deployment")[-2:] == ["destroying", "destroyed"]
    return world


def falls_ill() -> Serving:
    world = served(6, 3, 6)
    world.failing.add("r1-1")
    world.silent.add("r1-2")
    world.go(35)
    assert judged(world, "HealthCheckRoute")[3:] == [
        ("healthy", "unhealthy", "FAILURE"),
        ("healthy", "degraded", "STALE"),
    ]
    world.failing = {"r1-2"}
    world.silent.clear()
    world.go(5)
    assert world.routes() == {"r1-1": "healthy", "r1-2": "unhealthy", "r1-3": "healthy"}
    world.silent = {"r1-2"}
    world.go(35)
    assert judged(world, "HealthCheckRoute")[5:] == [
        ("unhealthy", "healthy", "SUCCESS"),
        ("degraded", "unhealthy", "FAILURE"),
        ("unhealthy", "degraded", "STALE"),
    ]
    return world


def is_evicted() -> Serving:
    world = served(6, 3, 6)
    world.failing.add("r1-1")
    world.go(70)
    assert told(world, "route", "r1-1")[2:] == ["healthy", "unhealthy", "terminating", "terminated"]
    assert judged(world, "RouteEviction") == [("unhealthy", "terminating", "SUCCESS")]
    world.failing |= {"r1-2"}
    world.go(5)
    world.kill("r1-2")
    assert judged(world, "RunningRoute") == [("unhealthy", "terminating", "FAILURE")]
    return world


def fails_to_start() -> Serving:
    world = Serving(6)
    world.broken.add("1")
    world.create(1)
    world.go(3)
    assert told(world, "route", "r1-1") == ["provisioning", "degraded", "terminating", "terminated"]
    assert judged(world, "RunningRoute") == [("degraded", "terminating", "FAILURE")]
    assert world.status() == "scaling"
    world.update("2", 1)
    assert judged(world, "UpdateDeployment") == [("scaling", "deploying", "SUCCESS")]
    return world


def is_refused() -> Serving:
    world = served(2, 1, 3)
    world.admin("set_quota", "ann", max_pending_tasks=1)
    for host in world.hosts:
        world.admin("drain", host)
    world.deploy("scale", replicas=3)
    assert told(world, "route", "r1-3") == [
        "provisioning",
        "failed_to_start",
        "terminating",
        "terminated",
    ]
    assert judged(world, "ProvisioningRoute")[-1] == ("provisioning", "failed_to_start", "FAILURE")
    assert judged(world, "RunningRoute") == [("failed_to_start", "terminating", "FAILURE")]
    assert world.status() == "scaling"
    world.deploy("delete")
    assert world.status() == "destroying"
    return world


def is_updated() -> Serving:
    world = served(6, 1, 8)
    world.update("2", 1)
    assert world.status() == "deploying"
    world.go(2)
    world.update("3", 1)
    assert judged(world, "UpdateDeployment") == [
        ("ready", "deploying", "SUCCESS"),
        ("deploying", "deploying", "SUCCESS"),
    ]
    world.go(20)
    assert world.routes() == {"r3-3": "healthy"}
    assert told(world, "deployment") == ["pending", "scaling", "ready", "deploying", "ready"]
    world.update("4", 1)
    world.deploy("delete")
    assert world.status() == "destroying"
    return world


def goes_back() -> Serving:
    world = Serving(6)
    policy = UpdatePolicy(progress_deadline_s=70)
    world.create(1, update=policy)
    world.go(8)
    world.never_ready.add("2")
    world.update("2", 1, update=policy)
    world.go(75)
    assert judged(world, "RollingDeployment") == [
        ("deploying", "deploying", "FAILURE"),
        ("deploying", "ready", "SUCCESS"),
    ]
    assert world.routes() == {"r1-1": "healthy"}
    return world


def scales_in_whatever_there_is() -> Serving:
    world = served(8, 3, 8)
    world.failing.add("r1-1")
    world.silent.add("r1-2")
    world.go(36)
    assert world.routes() == {"r1-1": "unhealthy", "r1-2": "degraded", "r1-3": "healthy"}
    world.deploy("scale", replicas=0)
    assert judged(world, "EndRoute") == [
        (one, "terminating", "SUCCESS") for one in ("unhealthy", "degraded", "healthy")
    ]
    return world


def does_not_end() -> Serving:
    world = served(2, 1, 3)
    world.stuck.add("r1-1")
    world.deploy("delete")
    world.go(95)
    assert judged(world, "DestroyingDeployment") == [("destroying", "destroyed", "FAILURE")]
    return world


def is_retired() -> Serving:
    """Two routes serve and one waits; all are ended, and one of those that serve was evicted."""
    world = served(6, 3, 6)
    jobs = [world.route(f"r1-{number}").job for number in (1, 2, 3)]
    world.failing.add("r1-1")
    world.go(70)
    for host in world.hosts:
        world.admin("drain", host)
    world.deploy("scale", replicas=4)
    jobs.append(world.route("r1-5").job)
    world.deploy("scale", replicas=1)
    world.go(40)
    evicted, *served_, waited = [world.ledger.jobs[number] for number in jobs]
    assert [job.state for job in (evicted, waited)] == [JobState.KILLED] * 2
    (retired,) = [job for job in served_ if job.is_terminal]
    (found,) = retired.tasks
    assert (retired.state, found.state, found.cause) == (
        JobState.SUCCEEDED,
        TaskState.SUCCEEDED,
        Cause.RETIRED,
    )
    (attempt,) = found.attempts
    assert (attempt.shown, attempt.signal, attempt.is_open) == (TaskState.SUCCEEDED, 15, False)
    assert (found.failure_count, found.preemption_count, found.reschedules) == (0, 0, 0)
    return world


STORIES: tuple[Callable[[], Serving], ...] = (
    *(comes_and_goes, is_refused, fails_to_start, is_updated, falls_ill),
    *(scales_in_whatever_there_is, is_evicted, goes_back, does_not_end, is_retired),
)

SAME = {
    "DestroyDeployment.sources = CREATED DEPLOYING READY SCALING": "none rests in PENDING",
    "DestroyDeployment.sources = DEPLOYING PENDING READY SCALING": "nothing leads to CREATED",
    "EndRoute.sources = DEGRADED FAILED_TO_START HEALTHY UNHEALTHY": "none rests in PROVISIONING",
    "EndRoute.sources = DEGRADED HEALTHY PROVISIONING UNHEALTHY": "none rests in FAILED_TO_START",
}
"""Changes that are none, with the reason."""

# ── changes ───────────────────────────────────────────────────────────────────────────────────────


def mutants(rule: Rule[Any, Any], statuses: type[Enum]) -> list[Mutant]:
    """But for results that nothing claims: no failure is retried, and only the health check has a
    clock.
    """
    idle = {"need_retry"} if rule is route.HEALTH_CHECK else {"need_retry", "expired"}
    return [mutant for mutant in of_rule(rule, statuses) if mutant.place not in idle]


MUTANTS = {
    **{rule.name: mutants(rule, DeploymentLifecycle) for rule in deployment.TABLE},
    **{rule.name: mutants(rule, RouteStatus) for rule in route.TABLE if rule is not route.SYNC},
    task.RETIRE.name: list(of_rule(task.RETIRE, TaskState)),
}
"""ServiceDiscoverySync tells addresses and moves nothing."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Serving]], bool]:
    """Plays a story and says whether it holds."""
    return quickly(monkeypatch, lambda story: story(), 2_000)


def refused() -> bool:
    """Whether the tables as they are now could not be imported."""
    try:
        guard(
            "deployment",
            DeploymentLifecycle,
            deployment.TERMINAL,
            deployment.TABLE,
            deployment.WAYS_OUT,
        )
        clocked = frozenset(route.HEALTH_CHECK.sources)
        guard("route", RouteStatus, route.TERMINAL, route.TABLE, route.WAYS_OUT, clocked=clocked)
        states = (state for state in TaskState if state is not TaskState.UNSPECIFIED)
        guard("task", states, TERMINAL, task.TABLE, task.WAYS_OUT)
    except TableBroken:
        return True
    return False


def test_every_story_holds_with_the_tables_as_they_are(quick):
    assert not refused()
    assert [story.__name__ for story in STORIES if not quick(story)] == []


@pytest.mark.parametrize("row", one_in(ONE_IN, MUTANTS))
def test_some_story_notices_each_cell_that_is_changed(quick, row):
    found = unnoticed(MUTANTS[row], STORIES, refused, quick)
    assert sorted(found) == sorted(name for name in SAME if name.startswith(f"{row}."))
