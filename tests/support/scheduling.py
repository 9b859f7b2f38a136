"""Short descriptions of clusters for tests of the scheduler: its input messages and its replies.

A `Story` stands in for the state service: it accepts every plan, ends attempts on request, and
    numbers its deltas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from iris_core.limits import ATTEMPTS, PLACED_AT_ONCE
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import (
    Avoid,
    Delta,
    FullSnapshot,
    Hold,
    JobRow,
    Nomination,
    Plan,
    ProjectRow,
    Queued,
    Reclaimed,
    WorkerRow,
)
from iris_core.placement.reasons import Reason
from iris_core.quota import Quota
from iris_core.spec.jobs import Attribute, Constraint, Coscheduling, Level
from iris_core.spec.resources import Amount, Device, ResourceLimits, ResourceRequest
from iris_core.states import ConstraintOp, PriorityBand, WorkerState
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import Decision, plan
from iris_scheduler.settings import SchedulerSettings

GIB = 1 << 30
BANDS = {
    "production": PriorityBand.PRODUCTION,
    "interactive": PriorityBand.INTERACTIVE,
    "batch": PriorityBand.BATCH,
}


def worker(
    name: str,
    cpu: float = 4,
    memory: int = 64 * GIB,
    chips: int = 0,
    state: WorkerState = WorkerState.HEALTHY,
    window: int = 8,
    attempts: int = ATTEMPTS,
    **attributes: Attribute,
) -> WorkerRow:
    """A host; attributes may be given with ``_`` for ``-``."""
    named = {key.replace("_", "-"): value for key, value in attributes.items()}
    return WorkerRow(
        name,
        state,
        named,
        Amount(int(cpu * 1000), memory, 1 << 40, chips),
        window,
        attempts,
        chains=True,
    )


def tpu(slice_name: str, number: int, variant: str = "v4-16", **more: Any) -> WorkerRow:
    """One VM of a slice."""
    attributes: dict[str, Attribute] = {
        "tpu_name": slice_name,
        "tpu_worker_id": number,
        "device_type": "tpu",
        "device_variant": variant,
    }
    return worker(f"{slice_name}-{number}", **{"chips": 4, **attributes, **more})


def tpus(variant: str | tuple[str, ...] = "v4-16", count: int = 4) -> Device:
    return Device("tpu", variant, count)


def eq(key: str, value: Attribute) -> Constraint:
    return Constraint(key, ConstraintOp.EQ, value)


def levels(words: str) -> tuple[Level, ...]:
    """``rack:preferred block``, innermost first."""
    return tuple(
        Level(key, mode or "required")
        for key, _, mode in (word.partition(":") for word in words.split())
    )  # type: ignore[arg-type]


class Story:
    """A cluster and what happens on it, with the scheduler looking on."""

    def __init__(self, *workers: WorkerRow, settings: SchedulerSettings | None = None) -> None:
        self.settings = settings or SchedulerSettings()
        self.now_ms = 1_000_000
        self.mirror = Mirror.of([FullSnapshot(0, self.now_ms, workers=workers)])
        self.cache = Cache()
        self.rows: dict[str, JobRow] = {}
        self.names: dict[int, str] = {}
        self.reasons: dict[str, Reason] = {}
        self.attempts: dict[tuple[int, int], int] = {}
        self.on_delta: Callable[[Delta], None] = lambda _: None
        self.most = PLACED_AT_ONCE

    # ── what the state service tells ──────────────────────────────────────────────────────────────

    def tell(self, **changes: Any) -> None:
        """One commit."""
        delta = Delta(self.mirror.version + 1, self.now_ms, after=self.mirror.version, **changes)
        assert self.mirror.apply(delta)
        self.on_delta(delta)

    def submit(
        self,
        name: str,
        replicas: int = 1,
        *,
        cpu: float = 1,
        memory: int = 0,
        device: Device | None = None,
        band: str = "interactive",
        user: str = "ann",
        constraints: tuple[Constraint, ...] = (),
        group_by: str = "",
        at_ms: int | None = None,
        root_ms: int | None = None,
        timeout_s: float | None = None,
        spread: str = "",
        max_parallel: int | None = None,
        slices: int = 1,
        within: str = "",
        protect_s: float = 0,
        project: str = "",
    ) -> JobRow:
        """A job is admitted and all its tasks wait. ``group_by``: as of `levels`."""
        at_ms = self.now_ms if at_ms is None else at_ms
        by = levels(group_by)
        row = JobRow(
            job=len(self.rows) + 1,
            name=name,
            user=user,
            band=BANDS[band],
            depth=name.count("/"),
            root_submitted_ms=at_ms if root_ms is None else root_ms,
            submitted_ms=at_ms,
            replicas=replicas,
            resources=ResourceRequest(int(cpu * 1000), memory, 0, device),
            constraints=constraints,
            group_by=by[0].key if by else "",
            levels=Coscheduling(by).several if by else (),
            timeout_ms=None if timeout_s is None else int(timeout_s * 1000),
            spread=spread,
            max_parallel=max_parallel,
            slices=slices,
            within=within,
            protect_ms=int(protect_s * 1000),
            project=project,
        )
        self.rows[name], self.names[row.job] = row, name
        self.tell(jobs=(row,), queued=(Queued(row.job, ((0, replicas),), at_ms),))
        return row

    def gang(self, name: str, size: int, **options: Any) -> JobRow:
        """A coscheduled job, by default on the VMs of one slice."""
        return self.submit(name, size, **{"group_by": "tpu-name", "device": tpus(), **options})

    def running(self, name: str, where: str | list[str], **options: Any) -> None:
        """A job whose tasks already run there."""
        hosts = [where] if isinstance(where, str) else where
        self.submit(name, len(hosts), **options)
        self.start(name, dict(enumerate(hosts)), building=False)

    def start(self, name: str, places: dict[int, str], *, building: bool = True) -> None:
        row = self.rows[name]
        self.tell(
            opened=tuple(
                self._hold(row.job, index, host, building) for index, host in places.items()
            )
        )

    def _hold(self, job: int, index: int, host: str, building: bool) -> Hold:
        attempt = self.attempts[job, index] = self.attempts.get((job, index), -1) + 1
        return Hold(AttemptRef(job, index, attempt), host, building, False, self.now_ms)

    def end(self, name: str, *indexes: int, again: bool = False) -> None:
        """Attempts end; with ``again`` their tasks wait once more."""
        job = self.rows[name].job
        refs = tuple(AttemptRef(job, index, self.attempts[job, index]) for index in indexes)
        back = (
            tuple(Queued(job, ((index, index + 1),), self.now_ms) for index in indexes)
            if again
            else ()
        )
        self.tell(closed=refs, queued=back)

    def stop(self, *refs: AttemptRef) -> None:
        """Attempts have been told to end."""
        self.tell(moved=tuple(self._stopping(ref) for ref in refs))

    def _stopping(self, ref: AttemptRef) -> Hold:
        return msgspec.structs.replace(self.held(ref), stopping=True, stopping_ms=self.now_ms)

    def stopped(self, *refs: AttemptRef, again: bool = True) -> None:
        """The end of attempts is known; their tasks wait again."""
        back = tuple(Queued(ref.job, ((ref.index, ref.index + 1),), self.now_ms) for ref in refs)
        self.tell(closed=refs, queued=back if again else ())

    def gave_way(self, *refs: AttemptRef) -> None:
        """Attempts that were reclaimed have ended; their tasks wait again."""
        back = tuple(Queued(ref.job, ((ref.index, ref.index + 1),), self.now_ms) for ref in refs)
        told = tuple(Reclaimed(ref.job, ref.index, self.now_ms) for ref in refs)
        self.tell(closed=refs, queued=back, reclaimed=told)

    def held(self, ref: AttemptRef) -> Hold:
        return next(hold for hold, _ in self.mirror.hosts.holds() if hold.ref == ref)

    def avoid(self, name: str, index: int, host: str, for_s: float) -> None:
        self.tell(avoid=(Avoid(self.rows[name].job, index, host, self.now_ms + int(for_s * 1000)),))

    def quota(self, user: str, **limits: int) -> None:
        self.tell(quotas=(Quota(user, **limits),))

    def limit(self, path: str, **amounts: int) -> None:
        """What a project may run before others go first."""
        self.tell(projects=(ProjectRow(path, ResourceLimits(**amounts)),))

    def guarantee(self, path: str, **amounts: int) -> None:
        """What a project may run before others."""
        self.tell(projects=(ProjectRow(path, ResourceLimits(), ResourceLimits(**amounts)),))

    def worker(self, row: WorkerRow) -> None:
        self.tell(workers=(row,))

    def wait(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)

    # ── what the scheduler says ───────────────────────────────────────────────────────────────────

    def look(self, cache: Cache | None = None) -> Decision:
        """What the next cycle would decide; nothing changes."""
        return plan(
            self.mirror,
            self.cache if cache is None else cache,
            self.now_ms,
            self.settings,
            self.most,
        )

    def cycle(self) -> dict[str, str]:
        """Make a plan and carry it out. Returns the worker of every task placed, in the order of
        the plan.
        """
        decision = self.look()
        self.cache.learn(decision.columns, decision.findings, self.mirror.looked())
        self.mirror.changes.fresh |= decision.left
        self.reasons.update(
            {self.names[update.job]: update.reason for update in decision.plan.reasons}
        )
        self.carry_out(decision.plan)
        return self.places(decision.plan)

    def carry_out(self, made: Plan) -> None:
        opened = tuple(
            self._hold(placement.job, index, made.workers[number], True)
            for placement in made.placements
            for index, number in zip(placement.indexes, placement.workers, strict=True)
        )
        stopping = tuple(self._stopping(ref) for e in made.evictions for ref in e.victims)
        nominations = tuple(
            nomination for eviction in made.evictions for nomination in eviction.nominations
        )
        if opened or stopping or nominations:
            self.tell(opened=opened, moved=stopping, nominations=nominations)

    def places(self, made: Plan) -> dict[str, str]:
        """The worker of every task a plan places, in its order."""
        return {
            f"{self.names[placement.job]}/{index}": made.workers[number]
            for placement in made.placements
            for index, number in zip(placement.indexes, placement.workers, strict=True)
        }

    def victims(self, made: Plan) -> list[str]:
        """The tasks a plan evicts."""
        return [
            f"{self.names[ref.job]}/{ref.index}"
            for eviction in made.evictions
            for ref in eviction.victims
        ]

    def evict(self) -> tuple[list[str], tuple[Nomination, ...]]:
        """Make a plan and carry it out. Returns whom it evicts and what it promises."""
        made = self.look().plan
        victims = self.victims(made)
        self.cycle()
        return victims, tuple(
            nomination for eviction in made.evictions for nomination in eviction.nominations
        )

    def refs(self, name: str) -> list[AttemptRef]:
        """The present attempts of a job."""
        job = self.rows[name].job
        return sorted(hold.ref for hold, _ in self.mirror.hosts.holds() if hold.ref.job == job)
