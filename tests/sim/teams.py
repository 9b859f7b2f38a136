"""Simulated projects: a plan whose jobs are in some, whose limits and members change meanwhile; and
what the sums of projects must be.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import msgspec

from iris_core.messages.gateway_state import Caller, ProjectCommand, SubmitJob
from iris_core.spec.jobs import Coscheduling, JobSpec, Level, NoticePolicy
from iris_core.spec.projects import ProjectSpec, within
from iris_core.spec.resources import ResourceLimits, ResourceRequest
from iris_state.records.ledger import Ledger
from tests.sim.people import ADMIN
from tests.support.usage import usage_rows

TEAMS = 0.6
"""In so many storms there are projects."""
PATHS = ("/lab", "/lab/a", "/lab/a/x", "/lab/b")
"""Each behind those above it."""
WEIGHED = 0.6
"""In so many of those their weights decide who goes first."""
LENT_S = 16.0
"""For so long more work comes than there is room for."""


def in_teams(rng: random.Random, plan: list[tuple[float, object]]) -> list[tuple[float, object]]:
    """The same plan, with projects in which some of its jobs are. Who is in them changes, and so do
    limits; a project is taken away, or is not since a job in it lives.
    """
    if rng.random() > TEAMS:
        return plan
    is_weighed = rng.random() < WEIGHED
    made: list[tuple[float, object]] = [
        (
            number / 2,
            _set(
                path,
                f"t{number}",
                members=("ann", "bob"),
                limit=_limit(rng),
                weight=_weight(rng, is_weighed),
            ),
        )
        for number, path in enumerate(PATHS)
    ]
    for at, command in plan:
        if isinstance(command, SubmitJob) and command.spec.name.count("/") == 1:
            path = rng.choice(("", *PATHS))
            made.append((at, msgspec.structs.replace(command, spec=_with_project(command, path))))
        else:
            made.append((at, command))
    for number in range(rng.randint(1, 4)):
        path = rng.choice(PATHS)
        at = 1 + rng.random() * 15
        members = rng.choice((("ann",), ("bob",), ("@lab", "bob")))
        default = ("bob",) if "bob" in members else ()
        change = _set(
            path,
            f"tc{number}",
            members=members,
            limit=_limit(rng),
            default_for=default,
            weight=_weight(rng, is_weighed),
        )
        made.append((at, change))
    gone = ProjectCommand("remove", rng.choice(PATHS), ADMIN, "tr", 1)
    made.append((2 + rng.random() * 20, gone))
    return sorted(made, key=lambda each: each[0])


def lent(rng: random.Random) -> list[tuple[float, object]]:
    """A plan of its own: more work than there is room for, in projects that lend each other what they
    are guaranteed, and whose guarantees change meanwhile.
    """
    is_weighed = rng.random() < WEIGHED
    cores = {"/lab": 10, "/lab/a": 6, "/lab/a/x": 0, "/lab/b": 4, "/web": 2}
    plan: list[tuple[float, object]] = [
        (number / 10, _lends(path, f"lt{number}", count, weight=_weight(rng, is_weighed)))
        for number, (path, count) in enumerate(cores.items())
    ]
    for number in range(3):
        at, path = 2 + rng.random() * LENT_S, rng.choice(("/lab/a/x", "/web"))
        change = _lends(path, f"lc{number}", rng.choice((0, 4)), weight=_weight(rng, is_weighed))
        plan.append((at, change))
    number, at = 0, 0.6
    while at < LENT_S:
        is_gang = rng.random() < 0.15
        spec = JobSpec(
            name=f"/lent-{number}",
            command=("work", "any"),
            project=rng.choice(("", "/web", "/web", "/lab/a", "/lab/a/x", "/lab/b")),
            replicas=2 if is_gang else rng.randint(2, 6),
            resources=ResourceRequest(cpu_millis=rng.choice((1000, 1000, 2000))),
            coscheduling=Coscheduling((Level("rack"),)) if is_gang else None,
            band=rng.choice(("interactive", "interactive", "batch")),
            protect_s=rng.choice((None, None, None, 2.0)),
            notice=rng.choice((None, None, NoticePolicy())),
        )
        user = Caller(rng.choice(("ann", "bob")), "user")
        plan.append((at, SubmitJob(spec, user, f"lent{number}", 1)))
        number, at = number + 1, at + rng.random() * 1.6
    return sorted(plan, key=lambda each: each[0])


def _lends(path: str, request: str, cores: int, *, weight: float | None) -> ProjectCommand:
    guarantee = ResourceLimits(cpu_millis=1000 * cores)
    return _set(path, request, members=("ann", "bob"), guarantee=guarantee, weight=weight)


def _with_project(command: SubmitJob, path: str) -> object:
    return msgspec.structs.replace(command.spec, project=path)


def _set(path: str, request: str, **fields: object) -> ProjectCommand:
    return ProjectCommand("set", path, ADMIN, request, 1, spec=ProjectSpec(**fields))  # type: ignore[arg-type]


def _weight(rng: random.Random, is_weighed: bool) -> float | None:
    """Of a project; without one it has none of its own, and below two there is no fair share."""
    return rng.choice((None, 0.5, 1.0, 3.0)) if is_weighed else None


def _limit(rng: random.Random) -> ResourceLimits:
    return ResourceLimits(cpu_millis=rng.choice((0, 0, 1000, 4000)))


def wrong_sums_of_projects(ledger: Ledger) -> Iterator[str]:
    """Every project whose days have less than its jobs, or more although no job was deleted: of its
    own, and with those below it.
    """
    days: Counter[tuple[str, str, str]] = Counter()
    jobs: Counter[tuple[str, str, str]] = Counter()
    for _, name, user, outcomes in usage_rows(ledger.project_usage):
        days.update({(name, user, outcome): used.cpu for outcome, used in outcomes.items()})
    for job in ledger.jobs.values():
        above = [f"{path}/" for path in within(job.spec.project)]
        for name in [job.spec.project, *above] if above else ():
            jobs.update({(name, job.user, one): used.cpu for one, used in job.usage.items()})
    for key in {*days, *jobs}:
        if days[key] < jobs[key] or (not ledger.totals.pruned and days[key] != jobs[key]):
            yield f"{key} has used {days[key]} by its days, {jobs[key]} by its jobs"
