"""Properties on small clusters: the plan equals that of the reference scheduler and breaks no
rule.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from iris_core.admission.jobs import validate_spec
from iris_core.codec import pack
from iris_core.messages.gateway_scheduler import PlanRequest
from iris_core.messages.gateway_state import Caller
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import FullSnapshot, Hold, WorkerRow
from iris_core.placement import constraints
from iris_core.placement.window import places_beyond
from iris_core.spec.jobs import Coscheduling, JobSpec, Level
from iris_core.spec.resources import ResourceRequest
from iris_core.states import WorkerState
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import Decision, plan
from iris_scheduler.preview import preview
from iris_scheduler.settings import SchedulerSettings
from tests.support.random_clusters import USERS, a_job, a_worker, jobs, quotas, workers
from tests.support.scheduling import Story, levels
from tests.support.slow_scheduler import SlowScheduler, ask_of, fits, plus

PATIENT = SchedulerSettings(gang_reservation_after_s=1e9, task_reservation_after_s=1e9)


class ClusterLife(RuleBasedStateMachine):
    """A cluster to which things happen, with a scheduler that is asked before anything is carried
    out.
    """

    policy = PATIENT

    @initialize(rows=workers(), early=jobs, late=jobs)
    def begin(
        self, rows: list[WorkerRow], early: list[dict[str, Any]], late: list[dict[str, Any]]
    ) -> None:
        self.story = Story(*rows, settings=self.policy)
        self.count = 0
        self.cancelled: set[int] = set()
        self.submit(early)
        self.cycle()
        self.story.wait(1)
        self.submit(late)

    # ── what happens ──────────────────────────────────────────────────────────────────────────────

    @rule(new=jobs)
    def submit(self, new: list[dict[str, Any]]) -> None:
        for job in new:
            options = dict(job)
            name = "/a" * (options.pop("depth") - 1) + f"/job-{self.count}"
            self.count += 1
            self.story.submit(name, **options)

    @rule(number=st.integers(0, 7), data=st.data())
    def change_worker(self, number: int, data: st.DataObject) -> None:
        row = data.draw(a_worker(number))
        if row.state is WorkerState.LOST:
            here = [
                hold.ref for hold, _ in self.story.mirror.hosts.holds() if hold.worker == row.worker
            ]
            self._end(here, again=True)
        self.story.worker(row)

    @rule(user=st.sampled_from(USERS), limits=quotas)
    def set_quota(self, user: str, limits: dict[str, int]) -> None:
        self.story.quota(user, **limits)

    @rule(seconds=st.sampled_from([0.5, 5, 20]))
    def wait(self, seconds: float) -> None:
        self.story.wait(seconds)

    @precondition(lambda self: self._open())
    @rule(data=st.data(), again=st.booleans())
    def end(self, data: st.DataObject, again: bool) -> None:
        refs = data.draw(st.lists(st.sampled_from(self._open()), unique=True, min_size=1))
        self._end(refs, again=again)

    def _end(self, refs: list[AttemptRef], *, again: bool) -> None:
        """Attempts end; a gang's members wait again together or never, as the state service sees
        to.
        """
        for ref in refs:
            row = self.story.mirror.jobs[ref.job]
            alone = not row.group_by or row.replicas == 1
            self.story.stopped(ref, again=again and alone and ref.job not in self.cancelled)

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def run(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(self._open()))
        self.story.tell(moved=(msgspec.structs.replace(self.story.held(ref), building=False),))

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        self.story.stop(data.draw(st.sampled_from(self._open())))

    @precondition(lambda self: len(self.story.mirror.queue))
    @rule(data=st.data(), number=st.integers(0, 7), seconds=st.integers(0, 10))
    def avoid(self, data: st.DataObject, number: int, seconds: int) -> None:
        job, index = data.draw(st.sampled_from(list(self.story.mirror.queue)))
        self.story.avoid(self.story.names[job], index, f"w{number}", for_s=seconds)

    @precondition(lambda self: self.story.rows)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.story.mirror.jobs) or [0]))
        refs = [ref for ref in self._open() if ref.job == job]
        self.story.stop(*refs)
        self.story.tell(gone=(job,))
        self.cancelled.add(job)

    @rule()
    def cycle(self) -> None:
        before = self.story.mirror.snapshot()
        decision = self.story.look()
        self.story.cycle()
        self.judge(before, decision)

    def judge(self, before: FullSnapshot, decision: Decision) -> None:
        """What must be true of a plan on these records."""
        Judge(self.story, before, decision).all()

    @rule(job=a_job())
    def a_dry_run_says_what_the_next_cycle_does(self, job: dict[str, Any]) -> None:
        options = dict(job)
        name = "/a" * (options.pop("depth") - 1) + f"/job-{self.count}"
        self.count += 1
        before = self.story.mirror.snapshot()
        assume(not validate_spec(_request(name, options).spec))
        said = preview(
            self.story.mirror,
            self.story.cache,
            _request(name, options),
            self.story.now_ms,
            self.policy,
        )
        assert self.story.mirror.snapshot() == before
        row = self.story.submit(name, **options)
        made = self.story.look().plan
        assert said.placements == tuple(
            sorted(
                (index, made.workers[number])
                for placement in made.placements
                if placement.job == row.job
                for index, number in zip(placement.indexes, placement.workers, strict=True)
            )
        )
        for_it = [
            e
            for e in made.evictions
            if any(nomination.job == row.job for nomination in e.nominations)
        ]
        names = [f"{self.story.names[ref.job]}/{ref.index}" for e in for_it for ref in e.victims]
        assert said.victims == tuple(names)
        assert said.reason == next(
            (update.reason for update in made.reasons if update.job == row.job), None
        )

    @rule()
    def two_cycles(self) -> None:
        self.cycle()
        self.story.wait(0.1)
        self.cycle()

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def all_of_a_worker_runs(self, data: st.DataObject) -> None:
        name = data.draw(
            st.sampled_from(sorted({self.story.held(ref).worker for ref in self._open()}))
        )
        here = [self.story.held(ref) for ref in self._open()]
        here = [hold for hold in here if hold.worker == name]
        self.story.tell(moved=tuple(msgspec.structs.replace(hold, building=False) for hold in here))

    @precondition(lambda self: self._open())
    @rule()
    def what_stops_has_stopped(self) -> None:
        stopping = [ref for ref in self._open() if self.story.held(ref).stopping]
        self._end(stopping, again=True)

    def _open(self) -> list[AttemptRef]:
        return sorted(hold.ref for hold, _ in self.story.mirror.hosts.holds())

    # ── what must always be true ──────────────────────────────────────────────────────────────────

    @invariant()
    def a_mirror_made_anew_knows_the_same(self) -> None:
        snapshot = self.story.mirror.snapshot()
        assert Mirror.of([snapshot]).snapshot() == snapshot

    @invariant()
    def room_is_total_less_what_is_held(self) -> None:
        mirror = self.story.mirror
        slow = SlowScheduler(mirror.snapshot(), self.story.now_ms)
        free = mirror.hosts.free()
        for slot, name in enumerate(mirror.hosts.columns().names):
            expected = slow.free[name]
            if slow.workers[name].state is WorkerState.HEALTHY:
                assert free[:, slot].tolist() == expected
        mirror.queue.check()

    @invariant()
    def cache_changes_no_decision(self) -> None:
        with_cache, without = self.story.look().plan, self.story.look(Cache()).plan
        assert with_cache.placements == without.placements
        assert with_cache.evictions == without.evictions

    @invariant()
    def a_full_plan_is_the_beginning_of_the_whole_one(self) -> None:
        story = self.story
        whole = [(placement.job, placement.indexes) for placement in story.look().plan.placements]
        for most in (1, 3):
            decision = plan(story.mirror, story.cache, story.now_ms, self.policy, most)
            made = [(placement.job, placement.indexes) for placement in decision.plan.placements]
            count = sum(len(indexes) for _, indexes in made)
            assert made == whole[: len(made)]
            assert len(made) == len(whole) or (
                decision.wake_ms == story.now_ms and count + len(whole[len(made)][1]) > most
            )
            assert count <= most or len(made) == 1

    @invariant()
    def the_same_records_give_the_same_bytes(self) -> None:
        again = Mirror.of([self.story.mirror.snapshot()])
        story = self.story
        first = pack(story.look(Cache()).plan)
        assert first == pack(story.look(Cache()).plan)
        story.mirror, kept = again, story.mirror
        fresh = pack(story.look(Cache()).plan)
        story.mirror = kept
        assert fresh == first

    @invariant()
    def whatever_waits_is_explained(self) -> None:
        story = self.story
        decision = story.look()
        update = {update.job for update in decision.plan.reasons} | story.cache.jobs.keys()
        placed = Counter(p.job for p in decision.plan.placements for _ in p.indexes)
        assert {
            job
            for job in story.mirror.queue.jobs()
            if len(story.mirror.queue.pending(job)) > placed[job]
        } <= update


class PatientClusterLife(ClusterLife):
    """Without reservations the plan is exactly what the slow scheduler places."""

    @invariant()
    def the_plan_places_what_the_slow_scheduler_places(self) -> None:
        story = self.story
        made = story.look().plan
        placed = {
            (placement.job, index): made.workers[number]
            for placement in made.placements
            for index, number in zip(placement.indexes, placement.workers, strict=True)
        }
        assert placed == SlowScheduler(story.mirror.snapshot(), story.now_ms).plan()


class ImpatientClusterLife(ClusterLife):
    """With groups kept for gangs at once."""

    policy = SchedulerSettings(gang_reservation_after_s=0.1, task_reservation_after_s=0.1)


def _request(name: str, job: dict[str, Any]) -> PlanRequest:
    spec = JobSpec(
        name=name,
        command=("true",),
        replicas=job["replicas"],
        resources=ResourceRequest(int(job["cpu"] * 1000), job["memory"], 0, job["device"]),
        constraints=job["constraints"],
        coscheduling=Coscheduling(
            levels(job["group_by"]), slices=job["slices"], within=job["within"]
        )
        if job["group_by"]
        else None,
        band=job["band"],
        timeout_s=job["timeout_s"],
        user=job["user"],
        spread="none",
    )
    return PlanRequest(spec, Caller(job["user"]), 0)


def _may_prepare(user: str, size: int, preparing: Counter[str]) -> bool:
    """Whether a building window has a place, or a user a share of it."""
    count = preparing.total()
    users = len(+preparing | Counter({user: 1}))
    return count < size or places_beyond(size, count, preparing[user], users) > 0


class Judge:
    """Rules every plan must keep, checked against the records it was made from."""

    def __init__(self, story: Story, before: FullSnapshot, decision: Decision) -> None:
        self.plan = decision.plan
        self.slow = SlowScheduler(before, story.now_ms)
        self.holds = {hold.ref: hold for hold in before.holds}
        self.placed = [
            (self.slow.rows[placement.job], index, self.plan.workers[number])
            for placement in self.plan.placements
            for index, number in zip(placement.indexes, placement.workers, strict=True)
        ]

    def all(self) -> None:
        self.nothing_is_over_committed()
        self.everything_matches()
        self.no_gang_is_split()
        self.evictions_help_and_only_hit_lower_bands()

    def nothing_is_over_committed(self) -> None:
        free = dict(self.slow.free)
        preparing = {name: Counter(users) for name, users in self.slow.preparing.items()}
        for row, _, name in self.placed:
            ask = ask_of(row)
            size = self.slow.workers[name].max_building
            assert fits(ask[:-1], free[name][:-1])
            assert _may_prepare(row.user, size, preparing[name])
            free[name] = plus(free[name], ask, -1)
            preparing[name][row.user] += 1

    def everything_matches(self) -> None:
        for row, index, name in self.placed:
            worker = self.slow.workers[name]
            assert worker.state is WorkerState.HEALTHY
            assert constraints.eligible(row.constraints, row.resources, worker.attributes)
            assert index in self.slow.waiting[row.job]

    def no_gang_is_split(self) -> None:
        for placement in self.plan.placements:
            row = self.slow.rows[placement.job]
            if not row.group_by:
                continue
            names = [self.plan.workers[number] for number in placement.workers]
            assert len(set(names)) == len(names) == len(self.slow.waiting[row.job])
            attributes = [self.slow.workers[name].attributes for name in names]
            size, by = row.replicas // row.slices, row.levels or (Level(row.group_by),)
            required = [level.key for level in by if level.mode == "required"]
            if required:
                groups = [
                    {has[required[0]] for has in attributes[at : at + size]}
                    for at in range(0, len(names), size)
                ]
                assert all(len(group) == 1 for group in groups)
                assert len(set().union(*groups)) == row.slices
            assert all(len({has[key] for has in attributes}) == 1 for key in required[1:])
            device = row.resources.device
            if device is not None and len(device.variants) > 1:
                assert len({has["device-variant"] for has in attributes}) == 1
            assert not row.within or len({has[row.within] for has in attributes}) == 1

    def evictions_help_and_only_hit_lower_bands(self) -> None:
        future = self._future()
        patient = self._patient()
        gone: set[AttemptRef] = set()
        for eviction in self.plan.evictions:
            row = self.slow.rows[eviction.nominations[0].job]
            victims = [self.holds[ref] for ref in eviction.victims]
            assert not gone & set(eviction.victims)
            gone |= set(eviction.victims)
            assert all(
                self.slow.rows[v.ref.job].band > row.band and not v.stopping for v in victims
            )
            self._whole_sessions(victims)
            if not row.group_by:
                here = [v for v in victims if v.worker == eviction.nominations[0].worker]
                assert {v.ref.job for v in victims} == {v.ref.job for v in here}
                assert all(v in here or self.slow.rows[v.ref.job].group_by for v in victims)
            for spared in self._units(victims):
                fits_without = self._fits_without(
                    row, eviction.nominations, victims, spared, future
                )
                assert not fits_without or self._is_counted_on(
                    future, patient, row, eviction.nominations
                )
            for victim in victims:
                future[victim.worker] = plus(future[victim.worker], self._frees(victim))
            for nomination in eviction.nominations:
                assert fits(ask_of(row), future[nomination.worker])
                future[nomination.worker] = plus(future[nomination.worker], ask_of(row), -1)

    def _future(self) -> dict[str, list[int]]:
        """What will be free once what stops has stopped, promises are kept and the plan is carried
        out.
        """
        future = {
            name: plus(free, self.slow.stopping[name]) for name, free in self.slow.free.items()
        }
        for row, _, name in self.placed:
            future[name] = plus(future[name], ask_of(row), -1)
        taken = {(row.job, index) for row, index, _ in self.placed}
        for task, name in self.slow.nominations.items():
            if task not in taken:
                future[name] = plus(future[name], ask_of(self.slow.rows[task[0]]), -1)
        return future

    def _patient(self) -> set[int]:
        """Jobs with tasks that get nothing in this plan: they may wait for what comes free without
        an eviction.
        """
        served = {(row.job, index) for row, index, _ in self.placed} | self.slow.nominations.keys()
        served |= {
            (nomination.job, nomination.index)
            for e in self.plan.evictions
            for nomination in e.nominations
        }
        return {
            job
            for job, waiting in self.slow.waiting.items()
            if {(job, index) for index in waiting} - served
        }

    def _is_counted_on(
        self, future: dict[str, list[int]], patient: set[int], row: Any, nominations: Any
    ) -> bool:
        """Whether somebody else, of no lower band, may take the room that will be there without
        this eviction.
        """
        others = [self.slow.rows[job] for job in patient if self.slow.rows[job].band <= row.band]
        return any(
            fits(ask_of(other), future[nomination.worker])
            for other in others
            for nomination in nominations
        )

    def _frees(self, victim: Hold) -> list[int]:
        return [*ask_of(self.slow.rows[victim.ref.job])[:4], int(victim.building)]

    def _units(self, victims: list[Hold]) -> list[list[Hold]]:
        singles = [[v] for v in victims if not self.slow.rows[v.ref.job].group_by]
        sessions: dict[int, list[Hold]] = {}
        for victim in victims:
            if self.slow.rows[victim.ref.job].group_by:
                sessions.setdefault(victim.ref.job, []).append(victim)
        return [*singles, *sessions.values()]

    def _whole_sessions(self, victims: list[Hold]) -> None:
        for job in {v.ref.job for v in victims if self.slow.rows[v.ref.job].group_by}:
            members = {
                ref for ref, hold in self.holds.items() if ref.job == job and not hold.stopping
            }
            assert members <= {victim.ref for victim in victims}

    def _fits_without(
        self,
        row: Any,
        nominations: Any,
        victims: list[Hold],
        spared: list[Hold],
        future: dict[str, list[int]],
    ) -> bool:
        """Whether the promised tasks would have had their places even if some victims had been left
        alone.
        """
        room = dict(future)
        for victim in victims:
            if victim not in spared:
                room[victim.worker] = plus(room[victim.worker], self._frees(victim))
        return all(fits(ask_of(row), room[nomination.worker]) for nomination in nominations)


LIVES = settings.default.max_examples if settings.default else 100
PatientClusterLife.TestCase.settings = settings(
    max_examples=LIVES // 4, stateful_step_count=16, deadline=None
)
ImpatientClusterLife.TestCase.settings = settings(
    max_examples=LIVES // 8, stateful_step_count=16, deadline=None
)
TestPatientClusterLife = PatientClusterLife.TestCase
TestImpatientClusterLife = ImpatientClusterLife.TestCase


@given(st.lists(st.integers(0, 3), max_size=4))
def test_chunks_may_come_in_any_order(order: list[int]) -> None:
    story = Story()
    story.submit("/job", 3)
    whole = story.mirror.snapshot()
    chunks = [
        FullSnapshot(whole.version, whole.at_ms, jobs=whole.jobs, chunk=0, last=False),
        FullSnapshot(whole.version, whole.at_ms, queued=whole.queued, chunk=1),
    ]
    shuffled = sorted(chunks, key=lambda chunk: order.count(chunk.chunk))
    assert Mirror.of(shuffled).snapshot() == whole
