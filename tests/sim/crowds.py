"""Crowds in simulated clusters: small tasks that keep arriving and fill every host, and a task that
needs a whole one; and what must hold of that.

In some of them the large task fits on one host only, where a parent runs until its child in a lower
band has succeeded, which runs on that host only, too: a reservation that keeps the child off waits
for ever.

The storm is over while the bound on its wait is measured, but what the storm has left is there.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from iris_core.messages.gateway_state import Caller, SubmitJob
from iris_core.messages.state_worker import Ended
from iris_core.names import JobName
from iris_core.spec.jobs import Constraint, JobSpec
from iris_core.spec.resources import ResourceRequest
from iris_core.states import Cause, ConstraintOp, TaskState
from iris_state.records.changes import Assigned, Commit, JobAdmitted, Moved, WorkerMoved

CROWDED = 0.15
"""In so many worlds there is a crowd."""
SMALL, LARGE = "small", "large"
FAMILY = 0.5
"""In so many crowds there is a parent with a child."""
PARENT, CHILD = "parent", "child"
SUCCEEDED = Ended(Cause.EXITED, 0)
HOME = {"rack": "r1", "zone": "z0"}
"""Where a family lives: one host of every world."""
USER = Caller("ann", "user")
LONGEST_S = 4.0
"""A small task runs for so long at most."""
RESERVED_AFTER_S = 2.0
BOUND_S = RESERVED_AFTER_S + 5 * LONGEST_S + 5.0
"""The large task has started by then: the delay, periods and the longest run, and a few seconds for
plans, orders and reports.
"""
LULL_S = 2.0
"""A longer time without any placement is a stopped scheduler: it is counted as so long."""
_FIRST_S, _LARGE_S, _LAST_S = -4.0, 5.0, 45.0
_EVERY_S = 4.0
_TASKS = 12
"""When the crowd begins, when the large task comes, and when the crowd ends, after the storm; how
often a job of how many small tasks arrives: as many as five hosts run.
"""
_PARENT_S, _CHILD_S = 1.0, 3.0
"""When a parent and its child come, after the storm."""
_AT_HOME = tuple(Constraint(key, ConstraintOp.EQ, value) for key, value in HOME.items())


def crowd(
    rng: random.Random, storm_s: float, *, always: bool = False
) -> list[tuple[float, object]]:
    """A plan for a crowd, in some worlds."""
    if rng.random() >= CROWDED and not always:
        return []
    band = rng.choice(("interactive", "interactive", "interactive", "batch"))
    plan: list[tuple[float, object]] = []
    at, number = storm_s + _FIRST_S, 0
    while at < storm_s + _LAST_S:
        spec = JobSpec(
            name=f"/crowd-{number}",
            command=("work", SMALL),
            replicas=_TASKS,
            resources=ResourceRequest(cpu_millis=2000),
            band=band,
            user="ann",
        )
        plan.append((at, SubmitJob(spec, USER, f"crowd-{number}", 1)))
        at += _EVERY_S
        number += 1
    is_at_home = rng.random() < FAMILY
    if is_at_home:
        plan += _family(storm_s)
    large = JobSpec(
        name="/crowded-out",
        command=("work", LARGE),
        resources=ResourceRequest(cpu_millis=4000),
        constraints=_AT_HOME if is_at_home else (),
        user="ann",
    )
    plan.append((storm_s + _LARGE_S, SubmitJob(large, USER, "crowded-out", 1)))
    return plan


def _family(storm_s: float) -> Iterator[tuple[float, object]]:
    """A parent and its child, on one host."""
    people = (
        ("/family", PARENT, "production", _PARENT_S),
        ("/family/child", CHILD, "batch", _CHILD_S),
    )
    for name, role, band, at_s in people:
        spec = JobSpec(
            name=name,
            command=("work", role),
            resources=ResourceRequest(cpu_millis=2000),
            constraints=_AT_HOME,
            band=band,
            user="ann",
        )
        yield storm_s + at_s, SubmitJob(spec, USER, role, 1)


def is_of_crowd(wish: object) -> bool:
    """Whether somebody wishes for more small tasks."""
    return isinstance(wish, SubmitJob) and wish.spec.command[1:] == (SMALL,)


def has_family(plan: Iterable[tuple[float, object]]) -> bool:
    """Whether a plan has a parent and a child, which need their host."""
    return any(isinstance(wish, SubmitJob) and wish.spec.name == "/family" for _, wish in plan)


def run_s(rng: random.Random) -> float:
    """How long a small task runs."""
    return rng.uniform(2.0, LONGEST_S)


def starved(commits: Iterable[tuple[float, Commit]]) -> Iterator[str]:
    """A large task that was not placed within its bound, although nothing before it in the queue
    was placed meanwhile, no parent waited for its child, which may be preempted, nor did any host
    come or go.
    """
    keys: dict[int, tuple[int, ...]] = {}
    children: set[int] = set()
    large, waited_s, last_s = 0, 0.0, 0.0
    for at_s, commit in commits:
        for change in commit.changes:
            if isinstance(change, JobAdmitted):
                keys[change.number] = _key_of(change)
                if change.spec.command[1:] == (LARGE,):
                    large, waited_s, last_s = change.number, 0.0, at_s
                elif change.spec.command[1:] == (CHILD,):
                    children.add(change.number)
            elif isinstance(change, Moved) and change.state is TaskState.SUCCEEDED:
                children.discard(change.job)
            elif isinstance(change, WorkerMoved):
                waited_s = 0.0
            elif isinstance(change, Assigned) and large:
                if change.job == large:
                    return
                waited_s += min(at_s - last_s, LULL_S)
                last_s = at_s
                if children or keys[change.job] < keys[large]:
                    waited_s = 0.0
                if waited_s > BOUND_S:
                    yield f"j{large} fits on an empty host and waits for {waited_s:.1f} s at {at_s:.1f} s"
                    return


def _key_of(job: JobAdmitted) -> tuple[int, ...]:
    depth = JobName.job(job.name).depth
    band = int(job.spec.priority_band)
    return (band, -depth, job.root_submitted_ms, job.submitted_ms, job.number)
