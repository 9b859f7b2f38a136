"""Simulated changes of jobs that wait or run, and what the journal must say of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from iris_core import codec
from iris_core.messages.gateway_state import AmendJob, HoldQueue, SubmitJob
from iris_core.spec.jobs import JobSpec
from iris_core.states import Cause, KernelStatus
from iris_state.records.changes import (
    Assigned,
    Closed,
    Commit,
    JobAdmitted,
    JobAmended,
    Moved,
    QueueHeld,
    QueueReleased,
    Staged,
)
from iris_state.records.gates import Gate, GateKind
from iris_state.records.queue_holds import QueueHold
from tests.sim.people import ADMIN, USER


def amended(rng: random.Random, plan: list[tuple[float, object]]) -> list[tuple[float, object]]:
    """The same plan, with changes of some jobs, and some that are held and later released."""
    made = list(plan)
    for at, command in plan:
        if not isinstance(command, SubmitJob):
            continue
        name, number = command.spec.name, command.request_id
        if rng.random() < 0.3:
            change = AmendJob(
                name, USER, f"u{number}", 1, patch=codec.to_json(_patch(rng, command.spec))
            )
            made.append((at + rng.random() * 10, change))
        if rng.random() < 0.2:
            since = at + rng.random() * 6
            held = AmendJob(name, USER, f"h{number}", 1, hold=True, stop=rng.random() < 0.5)
            made.append((since, held))
            made.append((since + rng.random() * 8, released(held, f"o{number}")))
    if rng.random() < 0.4:
        at = rng.random() * 8
        selector = rng.choice(
            ({"user": "ann"}, {"band": "batch"}, {"label": "n=1"}, {"user": "ann", "band": "batch"})
        )
        made.append((at, HoldQueue(ADMIN, "hold-queue", 1, **selector)))
        made.append((at + rng.random() * 8, HoldQueue(ADMIN, "release-queue", 1, hold="h1")))
    return sorted(made, key=lambda each: each[0])


def released(held: AmendJob, request: str) -> AmendJob:
    """The release of what this command holds."""
    return msgspec.structs.replace(held, hold=False, stop=False, request_id=request)


def _patch(rng: random.Random, spec: JobSpec) -> dict[str, Any]:
    patch: dict[str, Any] = {
        "band": rng.choice(("production", "interactive", "batch")),
        "labels": {"n": "1"},
    }
    if spec.timeout_s is not None:
        patch["timeout_s"] = spec.timeout_s * rng.choice((0.5, 2.0))
    if spec.coscheduling is None:
        patch["max_parallel"] = rng.choice((None, 1, 2, 3))
    patch |= {
        name: rng.choice((0, 1, 3))
        for name in ("max_retries_failure", "max_requeues")
        if rng.random() < 0.5
    }
    return patch


@dataclass
class Amended:
    """A job as the journal says it is at some commit; ``most`` is the largest limit that it ever
    had, by field.

    ``open``: its open attempts. ``started_ms``: of each, when it first ran.
    """

    user: str
    spec: JobSpec
    gates: tuple[Gate, ...]
    most: dict[str, int] = field(default_factory=dict)
    open: set[tuple[int, int]] = field(default_factory=set)
    started_ms: dict[tuple[int, int], int] = field(default_factory=dict)

    def become(self, spec: JobSpec, gates: tuple[Gate, ...]) -> None:
        self.spec, self.gates = spec, gates
        for name in ("max_retries_failure", "max_requeues"):
            self.most[name] = max(self.most.get(name, 0), getattr(spec, name))

    @property
    def is_held(self) -> bool:
        return any(
            gate.kind is GateKind.HELD and gate.is_closed and not gate.hold for gate in self.gates
        )


class Amendments:
    """All jobs, commit by commit. ``wrong``: what was done against what was said last."""

    def __init__(self, commits: Iterable[Commit]) -> None:
        self.jobs: dict[int, Amended] = {}
        self.holds: dict[int, QueueHold] = {}
        self.wrong: list[str] = []
        for commit in commits:
            for change in commit.changes:
                self._take(change, commit.at_ms)

    def _take(self, change: object, at_ms: int) -> None:
        if isinstance(change, JobAdmitted):
            job = self.jobs[change.number] = Amended(change.user, change.spec, change.gates)
            job.become(change.spec, change.gates)
        elif isinstance(change, JobAmended):
            self.jobs[change.job].become(change.spec, change.gates)
        elif isinstance(change, QueueHeld):
            self.holds[change.number] = QueueHold(
                change.number, change.user, change.band, change.label
            )
        elif isinstance(change, QueueReleased):
            del self.holds[change.number]
        elif isinstance(change, Assigned):
            self._start(change)
        elif isinstance(change, Staged) and change.status is KernelStatus.RUNNING:
            self.jobs[change.job].started_ms.setdefault((change.index, change.attempt), at_ms)
        elif isinstance(change, Moved | Closed):
            self._leave(change, at_ms)

    def _start(self, change: Assigned) -> None:
        job = self.jobs[change.job]
        job.open.add((change.index, change.attempt))
        limit = job.spec.max_parallel
        if limit is not None and len(job.open) > limit:
            self.wrong.append(
                f"{change} is one of {len(job.open)} attempts, at most {limit} may start"
            )
        if job.is_held or any(hold.matches(job.user, job.spec) for hold in self.holds.values()):
            self.wrong.append(f"{change} was placed although its job is held")

    def _leave(self, change: Moved | Closed, at_ms: int) -> None:
        job, key = self.jobs[change.job], (change.index, change.attempt)
        if isinstance(change, Closed) or change.closed:
            job.open.discard(key)
        limit_s, began_ms = job.spec.timeout_s, job.started_ms.get(key)
        if isinstance(change, Closed) or change.cause is not Cause.TIMEOUT or began_ms is None:
            return
        if limit_s is None or at_ms < began_ms + int(limit_s * 1000):
            self.wrong.append(f"{change} {at_ms - began_ms} ms after its start, of {limit_s} s")
