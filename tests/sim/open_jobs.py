"""Open maps in simulated storms: clients add calls, repeat requests, close or die; and what must
hold of that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from iris_core.messages.gateway_state import Caller, CancelJob, GrowJob, SubmitJob
from iris_core.spec.calls import Calls
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import ResourceRequest
from iris_core.states import JOB_TERMINAL, JobState
from iris_state.records.changes import Commit, JobAdmitted, JobClosed, JobGrown, JobMoved

OPEN = 0.4
"""In so many storms there are open maps."""
USER = Caller("ann", "user")


def open_maps(rng: random.Random, seconds: float) -> list[tuple[float, object]]:
    """A plan for open maps, in some worlds."""
    if rng.random() >= OPEN:
        return []
    return [
        wish for number in range(rng.choice((1, 1, 2))) for wish in _wishes(rng, number, seconds)
    ]


def _wishes(rng: random.Random, number: int, seconds: float) -> Iterator[tuple[float, object]]:
    name, chunksize, first = f"/open-{number}", rng.choice((1, 1, 2)), rng.randint(1, 3)
    at, count = rng.random() * seconds / 2, first * chunksize
    calls = Calls(
        runner="d" * 64,
        function="e" * 64,
        segments=(f"{number:032x}{0:032x}",),
        firsts=(0,),
        count=count,
        chunksize=chunksize,
        idle_s=rng.choice((6.0, 40.0)),
    )
    spec = JobSpec(
        name=name,
        command=("work",),
        replicas=first,
        resources=ResourceRequest(cpu_millis=rng.choice((500, 1000))),
        max_task_failures=100,
        max_parallel=rng.choice((None, 2)),
        scheduling_timeout_s=rng.choice((None, None, 20.0)),
        calls=calls,
        user="ann",
    )
    yield at, SubmitJob(spec, USER, f"ro{number}", 1)
    for turn in range(1, rng.randint(2, 5)):
        at += rng.random() * seconds / 8
        added = rng.randint(0, 3) * chunksize
        grow = GrowJob(
            name,
            USER,
            f"g{number}.{turn}",
            1,
            offset=count,
            segments=(f"{number:032x}{turn:032x}",) if added else (),
            firsts=(count // chunksize,) if added else (),
            count=added,
        )
        yield at, grow
        if rng.random() < 0.4:
            again = {name: getattr(grow, name) for name in grow.__struct_fields__}
            yield at + rng.random() * 4, GrowJob(**again | {"request_id": f"h{number}.{turn}"})
        count += added
    if rng.random() < 0.7:
        yield at + rng.random() * 5, GrowJob(name, USER, f"close{number}", 1, close=True)
    if rng.random() < 0.4:
        yield at + rng.random() * 10, CancelJob(f"{name}/0", USER, f"xo{number}", 1)


def waits_for(request: str) -> str:
    """The request of the same client whose answer comes before this one is sent; empty: none."""
    if not request.startswith("g"):
        return ""
    number, _, turn = request[1:].partition(".")
    return f"g{number}.{int(turn) - 1}" if turn != "1" else f"ro{number}"


def violations(commits: Iterable[Commit], promised: Iterable[str]) -> Iterator[str]:
    """Whatever contradicts that each call is added once, behind those before it, and an open job
    has not succeeded.

    ``promised``: the segments of growth that was answered as accepted.
    """
    calls: dict[int, Calls] = {}
    is_open: set[int] = set()
    added: set[str] = set()
    for commit in commits:
        for change in commit.changes:
            if (
                isinstance(change, JobAdmitted)
                and change.spec.calls is not None
                and change.spec.grows
            ):
                calls[change.number] = change.spec.calls
                is_open.add(change.number)
            elif isinstance(change, JobGrown):
                before = calls[change.job]
                if change.job not in is_open:
                    yield f"j{change.job} was closed, and got {change.calls} calls more"
                if twice := {*change.segments} & {*before.segments}:
                    yield f"j{change.job} has the calls of {twice} twice"
                if change.firsts and change.firsts[0] * before.chunksize != before.count:
                    yield f"j{change.job} has {before.count} calls, and others were added after {change.firsts[0]}"
                calls[change.job] = before.with_more(change.segments, change.firsts, change.calls)
                added |= {*change.segments}
            elif isinstance(change, JobClosed):
                is_open.discard(change.job)
            elif isinstance(change, JobMoved) and change.state in JOB_TERMINAL:
                if change.state is JobState.SUCCEEDED and change.job in is_open:
                    yield f"j{change.job} succeeded while it was open"
                is_open.discard(change.job)
    if lost := {*promised} - added:
        yield f"calls were accepted and never added: {sorted(lost)}"
