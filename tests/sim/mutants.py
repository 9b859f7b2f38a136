"""Mutants of the code, each of which the simulation must detect.

A plant is put into the modules of this process and taken out again. Its docstring says what goes
wrong. Worlds that are to find it have only the faults that it needs, so that few of them do.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from types import FunctionType, SimpleNamespace
from typing import Any

import msgspec

from iris_bus.contract import Fenced
from iris_bus.streams.window import Window
from iris_core import codec
from iris_core.messages.gateway_state import Answer, Caller
from iris_core.messages.state_worker import Register, WorkerReport
from iris_core.placement.queue import TaskQueue
from iris_core.spec.jobs import Coscheduling, JobSpec, Level
from iris_core.states import ACTIVE, Budget, Cause, Initiator, RouteStatus, TaskState
from iris_core.subjects import JOURNAL
from iris_core.tables.route import LIVE
from iris_scheduler.mirror import mirror
from iris_scheduler.mirror.classes import class_key
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.preempt import victims
from iris_state.check import records as check
from iris_state.commands import execute, growth
from iris_state.decide import cascade, conclude, coordinator, endings, gates, retention
from iris_state.deployments import routes
from iris_state.effects import deltas
from iris_state.effects.deltas import DeltaBuilder
from iris_state.effects.kinds import Output
from iris_state.effects.orders import OrderBook
from iris_state.inputs.plans import accept
from iris_state.inputs.reports import liveness, progress
from iris_state.machine import round as round_
from iris_state.machine.executor import CommandExecutor
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records import ledger
from iris_state.records.apply import WRITERS, tasks
from iris_state.records.apply import jobs as apply_jobs
from iris_state.records.changes import Answered, Commit, JobPruned, Led
from iris_state.records.claims import CURRENT
from iris_state.records.deployments import health, rollout, scaling
from iris_state.records.entities import Attempt, Job, Task
from iris_state.records.gates import GateKind
from iris_state.records.indexes.gates import GateIndex
from iris_state.records.indexes.timer_queue import TimeoutQueue
from iris_state.records.indexes.usage_days import UsageDays, Used
from iris_state.records.ledger import Ledger
from iris_state.records.stops import StopOrdered
from iris_state.replication import follower, snapshotter
from iris_state.replication.leader import Leader
from iris_state.replication.replica import Replica
from iris_state.replication.unpublished import UnpublishedEvents
from iris_state.snapshots import snapshot
from iris_worker.agent import agent
from iris_worker.agent.agent import Agent
from iris_worker.agent.reports import Reports
from iris_worker.agent.seen import SeenAttempts
from tests.sim import faults
from tests.sim.faults import FAULTS, Fault, Storm

Put = Callable[[Any, Any, Any], None]
Do = Callable[[Put], None]


@dataclass(frozen=True)
class Plant:
    """One breakage.

    Attributes:
        storm: what brings it to light.
        is_shy: too few worlds show it for `make test`.
    """

    do: Do
    storm: Storm
    is_shy: bool

    @property
    def says(self) -> str:
        return self.do.__doc__ or ""


PLANTS: dict[str, Plant] = {}


def plant(*by: Fault, bad_weather: float = 0.6, is_shy: bool = False) -> Callable[[Do], Do]:
    """Keep a breakage with the faults that bring it to light; without any, all may."""
    storm = (
        Storm(by, least=3, most=10, bad_weather=bad_weather)
        if by
        else Storm(FAULTS, bad_weather=bad_weather)
    )

    def keep(do: Do) -> Do:
        PLANTS[do.__name__] = Plant(do, storm, is_shy)
        return do

    return keep


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """With one plant in the code."""
    undo: list[tuple[Any, Any, Any]] = []

    def put(where: Any, place: Any, value: Any) -> None:
        before = where[place] if isinstance(where, dict) else where.__dict__[place]
        undo.append((where, place, before))
        _set(where, place, _called_by_position(before, value))

    try:
        PLANTS[name].do(put)
        yield
    finally:
        for where, place, value in reversed(undo):
            _set(where, place, value)


def _called_by_position(before: Any, value: Any) -> Any:
    """A function that takes the place of another, whose callers name arguments as that one does: it
    gets by name what it names itself.
    """
    if not (isinstance(before, FunctionType) and isinstance(value, FunctionType)):
        return value
    signature = inspect.signature(before)
    own = inspect.signature(value).parameters.values()
    by_name = {one.name for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY}

    @wraps(value)
    def adapted(*arguments: Any, **named: Any) -> Any:
        if named.keys() <= by_name:
            return value(*arguments, **named)
        bound = signature.bind(*arguments, **named)
        if bound.kwargs:
            bound.apply_defaults()
        kept = {name: named[name] for name in by_name & named.keys()}
        if kept:
            by_place = [given for name, given in bound.arguments.items() if name not in kept]
            return value(*by_place, **kept)
        return value(*bound.args, **bound.kwargs)

    return adapted


def _set(where: Any, place: Any, value: Any) -> None:
    """Put into a table, or in place of a function of a module or class."""
    if isinstance(where, dict):
        where[place] = value
    else:
        setattr(where, place, value)


@plant(is_shy=True)
def protected_attempts_are_preempted(put: Put) -> None:
    """Neither the scheduler nor the state service looks at how long an attempt is protected."""
    put(victims, "_protected", lambda *given: {})
    put(JobSpec, "protect_ms", property(lambda self: 0))


@plant(is_shy=True)
def a_task_is_requeued_at_its_time_limit_without_a_bound(put: Put) -> None:
    """The number of requeues is not compared with its limit."""
    count = conclude._spent_and_limit

    def unbounded(job: Any, task: Any, charged: Budget | None, policy: Policy) -> tuple[int, int]:
        return (0, 1 << 30) if charged is Budget.REQUEUE else count(job, task, charged, policy)

    put(conclude, "_spent_and_limit", unbounded)


@plant()
def exit_0_in_time_is_no_success(put: Put) -> None:
    """What a task exits with after a notice counts for nothing."""
    put(endings, "_succeeds", lambda *given: False)


@plant()
def what_is_told_to_stop_holds_nothing(put: Put) -> None:
    """The resources of an attempt are free as soon as it is told to stop."""
    write = WRITERS[StopOrdered]

    def freed(ledger: Ledger, change: StopOrdered, at_ms: int) -> None:
        write(ledger, change, at_ms)
        job = ledger.jobs[change.job]
        ledger.release(job, change.index, job.task(change.index).attempts[change.attempt])

    put(WRITERS, StopOrdered, freed)


@plant()
def runs_more_tasks_of_a_job_than_it_may(put: Put) -> None:
    """The scheduler and the state service forget that a job has a limit of tasks that run at a
    time.
    """
    no_seat = accept._no_seat

    def unlimited(ledger: Ledger, policy: Policy, job: Any, *place: Any) -> str:
        free = msgspec.structs.replace(
            job, spec=msgspec.structs.replace(job.spec, max_parallel=None)
        )
        return no_seat(ledger, policy, free, *place)

    put(accept, "_no_seat", unlimited)
    put(Mirror, "places", lambda self, job, count: count)


@plant()
def the_end_of_a_job_opens_no_gate(put: Put) -> None:
    """What waits for a job is not looked at when that job ends."""
    put(GateIndex, "note_job", lambda self, number: None)


@plant()
def a_task_behind_a_gate_is_queued(put: Put) -> None:
    """A job is queued at its admission although it waits for another one."""
    put(
        Ledger,
        "enqueue_new",
        lambda self, job: self.queue.add(job.number, job.key, job.indexes.ranges),
    )


@plant()
def a_held_job_is_queued(put: Put) -> None:
    """Nothing waits for a release."""
    gated = Job.is_gated.fget
    put(
        Job,
        "is_gated",
        property(lambda self: gated(self) and any(g.kind is not GateKind.HELD for g in self.gates)),
    )


@plant()
def a_new_job_passes_a_hold_on_the_queue(put: Put) -> None:
    """Only what was there when the hold was made waits."""
    put(gates, "under_holds", lambda ledger, user, spec, made: tuple(made))


@plant()
def a_changed_timeout_leaves_the_timers(put: Put) -> None:
    """What runs is held to the timeout that its job had."""
    put(apply_jobs, "KernelStatus", SimpleNamespace(RUNNING=None))


@plant()
def a_changed_band_leaves_the_queue(put: Put) -> None:
    """A job waits where it was submitted."""
    add = TaskQueue.add
    keys: dict[int, Any] = {}
    put(
        TaskQueue,
        "add",
        lambda self, job, key, ranges: add(self, job, keys.setdefault(job, key), ranges),
    )


@plant()
def a_changed_job_starts_more_than_it_may(put: Put) -> None:
    """The limit of a job that was changed holds for nobody."""
    no_seat, told = accept._no_seat, deltas.job_row

    def unlimited(job: Any) -> Any:
        if job.version == 1:
            return job
        return msgspec.structs.replace(
            job, spec=msgspec.structs.replace(job.spec, max_parallel=None)
        )

    put(
        accept,
        "_no_seat",
        lambda ledger, policy, job, *place: no_seat(ledger, policy, unlimited(job), *place),
    )
    put(deltas, "job_row", lambda job: told(unlimited(job)))


# ── journal, leadership ───────────────────────────────────────────────────────────────────────────


@plant(faults.freeze_leader)
def sends_before_the_commit_is_durable(put: Put) -> None:
    """Answers and events go out, and only then is the commit appended."""
    commit, send = Leader._commit, Leader._send
    early: list[Output] = []

    async def send_first(self: Leader, output: Output, request: bool) -> float:
        early.append(output)
        await send(self, output)
        return await commit(self, output, request)

    async def send_rest(self: Leader, output: Output) -> None:
        left = [sent for sent in early if sent is not output]
        if len(left) == len(early):
            await send(self, output)
        early[:] = left

    put(Leader, "_commit", send_first)
    put(Leader, "_send", send_rest)


@plant(faults.freeze_leader)
def goes_on_though_fenced(put: Put) -> None:
    """A deposed leader takes the refusal of its append for a success."""
    commit = Leader._commit

    async def careless(self: Leader, output: Output, request: bool) -> float:
        with contextlib.suppress(Fenced):
            return await commit(self, output, request)
        return 0.0

    put(Leader, "_commit", careless)


@plant(faults.freeze_leader)
def does_not_ask_whether_it_still_leads(put: Put) -> None:
    """What needs no commit is answered from a ledger that may be old."""

    async def trusting(self: Leader) -> None:
        pass

    put(Leader, "_confirm", trusting)


@plant(faults.kill_leader, faults.freeze_leader)
def takes_over_without_catching_up(put: Put) -> None:
    """The new epoch is appended behind whatever the journal ends with, known or not."""

    async def hasty(self: Replica, publisher: Any, epoch: int) -> bool:
        await publisher.resume()
        bid = self.machine.bid(self.clock.now_ms())
        sequence = await self.journal.append(bid, expected=await self.journal.end())
        self.apply(sequence, bid)
        return True

    put(Replica, "take_over", hasty)


@plant()
def the_epoch_does_not_grow(put: Put) -> None:
    """A new leader leads in its predecessor's epoch."""
    bid = Machine.bid

    def same(self: Machine, now_ms: int, *boot: Any) -> bytes:
        commit = codec.unpack(bid(self, now_ms, *boot), Commit)
        led = msgspec.structs.replace(commit.changes[0], epoch=self.ledger.epoch)
        return codec.pack(msgspec.structs.replace(commit, changes=[led]))

    put(Machine, "bid", same)
    put(WRITERS, Led, lambda ledger, change, at_ms: None)


# ── events ────────────────────────────────────────────────────────────────────────────────────────


@plant(faults.cut, faults.crash_server, faults.crash_mid_send, bad_weather=1.0)
def tells_nothing_of_what_was_replayed(put: Put) -> None:
    """A new leader leaves out what the one before it had not told."""
    put(UnpublishedEvents, "behind", lambda self, told: [])


@plant(faults.kill_leader)
def tells_the_last_event_again(put: Put) -> None:
    """A new leader begins with the event that was told last."""

    def again(facts: Any, sequence: int, told: tuple[int, int]) -> Any:
        from iris_state.effects.outbox import events

        if sequence < told[0] or not facts:
            return []
        worded = events(facts, sequence)
        return worded[told[1] :] if sequence == told[0] else worded

    from iris_state.replication import unpublished

    put(unpublished, "unheard", again)


@plant(faults.cut, faults.crash_server, faults.crash_mid_send, bad_weather=1.0)
def loses_its_place_among_the_events(put: Put) -> None:
    """After trouble the publisher goes on one event too far."""
    go_on = Window.go_on

    def too_far(self: Window, sequence: int, last: str) -> None:
        go_on(self, sequence, last)
        if self._waiting:
            self._waiting.popleft()

    put(Window, "go_on", too_far)


@plant()
def words_a_commit_backwards(put: Put) -> None:
    """The events of one commit are told in the wrong order."""
    from iris_state.effects import outbox

    events = outbox.events
    put(outbox, "events", lambda told, sequence: events(list(reversed(told)), sequence))


# ── snapshots, retention ──────────────────────────────────────────────────────────────────────────


@plant(faults.stop_worker, faults.kill_any, faults.reboot, bad_weather=1.0)
def a_snapshot_misses_what_changed_while_it_was_cut(put: Put) -> None:
    """Jobs encoded early in a slice stay as they were; here every job is encoded a round before the
    end.
    """
    put(snapshot.Cutter, "note", lambda self, changes: None)
    work = snapshot.Cutter.work

    def slow(self: snapshot.Cutter, tasks: int) -> bool:
        return work(self, 1)

    put(snapshot.Cutter, "work", slow)


@plant()
def a_snapshot_forgets_the_answers(put: Put) -> None:
    """A request that was answered is carried out again after a restart."""
    rest = snapshot._rest
    put(snapshot, "_rest", lambda *given: msgspec.structs.replace(rest(*given), answers=[]))


@plant()
def a_job_uses_everything_twice(put: Put) -> None:
    """An attempt that ends is added to the sums twice."""
    account = tasks.account
    put(tasks, "account", lambda *given: (account(*given), account(*given)))


@plant()
def what_was_used_is_in_no_sum_of_a_day(put: Put) -> None:
    """Jobs have used what their users have not."""
    put(UsageDays, "of", lambda self, day, user, project, outcome: (Used(),))


@plant()
def a_snapshot_forgets_the_next_number(put: Put) -> None:
    """Numbers of forgotten jobs are given again."""
    rest = snapshot._rest
    put(snapshot, "_rest", lambda *given: msgspec.structs.replace(rest(*given), next_number=1))


@plant()
def a_snapshot_loses_open_attempts_of_waiting_tasks(put: Put) -> None:
    """After a restart a place is free whose last holder has not ended."""
    put(Ledger, "_index_open", lambda self, job, index, task: None)


@plant(faults.deafen, faults.freeze_worker)
def a_snapshot_shuffles_the_lines(put: Put) -> None:
    """After a restart nobody's timeout ends in the right order."""
    put(
        TimeoutQueue,
        "sort",
        lambda self: setattr(self, "_since", dict(reversed(self._since.items()))),
    )


@plant()
def a_snapshot_is_kept_before_its_events_are_told(put: Put) -> None:
    """The commits are gone that the events would have to be worded from."""

    async def at_once(self: Any, name: str, data: bytes, told: str) -> None:
        await self._blobs.put(name, data)
        await self._connection.streams.trim(JOURNAL.name, snapshot.commit_of(name) + 1)

    put(snapshotter.Snapshotter, "_put", at_once)


@plant()
def places_what_may_still_run(put: Put) -> None:
    """A task that was told to stop is placed again before it is known to have stopped."""
    put(ledger, "lingers", lambda job, index: False)
    put(check, "lingers", lambda job, index: False)


@plant()
def runs_a_name_twice(put: Put) -> None:
    """A new run of a name does not wait for the one it replaces."""
    put(Ledger, "ending_runs", lambda self, job: [])


@plant(faults.damage_snapshot)
def trims_up_to_the_newest_snapshot(put: Put) -> None:
    """When that one is damaged there is nothing to begin with."""
    trim = snapshotter.Snapshotter._trim

    async def greedy(self: Any) -> None:
        await trim(self)
        names = await snapshotter._names(self._blobs)
        await self._connection.streams.trim(JOURNAL.name, snapshot.commit_of(names[-1]) + 1)

    put(snapshotter.Snapshotter, "_trim", greedy)


@plant()
def seals_what_is_not_over(put: Put) -> None:
    """What is written to a job after its end is lost."""
    put(retention, "is_over", lambda ledger, job: job.is_terminal)


@plant()
def forgets_jobs_that_live(put: Put) -> None:
    """The oldest job is forgotten, ended or not."""

    def any_job(self: Any, keep_jobs: int, *_: int) -> Iterator[JobPruned]:
        if keep_jobs and len(self._ledger.jobs) > keep_jobs:
            yield JobPruned(min(self._ledger.jobs))

    put(retention.Retention, "forgettable", any_job)


# ── what people are promised ──────────────────────────────────────────────────────────────────────


@plant(faults.cut, faults.crash_server, bad_weather=1.0)
def forgets_whom_it_has_answered(put: Put) -> None:
    """The same request twice is carried out twice."""
    put(WRITERS, Answered, lambda ledger, change, at_ms: None)


@plant()
def forgets_idempotency_keys(put: Put) -> None:
    """The same key twice is two jobs, or a conflict."""
    put(execute, "earlier", lambda ledger, command: None)


@plant()
def answers_before_it_executes(put: Put) -> None:
    """The answer to a submission names a job that is never admitted."""
    shown = CommandExecutor._shown

    def lazy(self: CommandExecutor, status: str, body: bytes, caller: Caller) -> Answer:
        answer = shown(self, status, body, caller)
        if status != "created" or self._ledger.next_number % 5:
            return answer
        job = codec.from_json(answer.body, dict)
        return Answer(status, codec.to_json({**job, "id": f"j{int(job['id'][1:]) + 1}"}))

    put(CommandExecutor, "_shown", lazy)


# ── tasks, budgets, capacity ──────────────────────────────────────────────────────────────────────


@plant()
def believes_reports_about_old_attempts(put: Put) -> None:
    """What a given-up worker says of an attempt counts for the one that followed it."""
    real = conclude.conclude

    def gullible(ledger: Ledger, claim: Any, policy: Policy) -> Any:
        return real(ledger, msgspec.structs.replace(claim, attempt=CURRENT), policy)

    put(round_, "conclude", gullible)


@plant()
def charges_nothing(put: Put) -> None:
    """Failures are free, so a task is tried for ever."""
    leave = conclude._leave

    def free(*given: Any) -> Any:
        change = leave(*given)
        return msgspec.structs.replace(change, charged_to=None) if change is not None else None

    put(conclude, "_leave", free)


@plant()
def allows_one_try_too_many(put: Put) -> None:
    """A budget of n allows n + 2 attempts."""
    real = conclude.decide

    def generous(*given: Any, tries: int, limit: int) -> Any:
        return real(*given, tries=tries, limit=limit + 2)

    put(conclude, "decide", generous)


@plant()
def frees_a_place_when_its_task_is_moved(put: Put) -> None:
    """What is being stopped holds nothing any more."""
    leave = tasks._leave

    def early(ledger: Ledger, job: Any, task: Any, attempt: Any, change: Any, at_ms: int) -> None:
        leave(ledger, job, task, attempt, change, at_ms)
        ledger.release(job, change.index, attempt)

    put(tasks, "_leave", early)


@plant()
def does_not_check_a_plan_for_room(put: Put) -> None:
    """A place is given though somebody has taken it since the plan was made."""
    no_seat = accept._no_seat

    def roomy(*given: Any) -> str:
        cause = no_seat(*given)
        return "" if cause in ("no_room", "building_window_full") else cause

    put(accept, "_no_seat", roomy)


@plant(faults.stop_worker, faults.kill_any, faults.reboot, bad_weather=1.0, is_shy=True)
def takes_a_gang_in_parts(put: Put) -> None:
    """A gang is placed though one of its places is gone."""
    put(accept, "_refusal_cause", lambda *given: "")


@plant()
def puts_two_slices_on_one_rack(put: Put) -> None:
    """A gang of several slices is placed where it fits, and the state service takes it."""

    put(
        mirror,
        "class_key",
        lambda row, size: class_key(msgspec.structs.replace(row, slices=1), size),
    )
    put(accept, "is_split", lambda *given: False)


@plant()
def prefers_what_a_gang_requires(put: Put) -> None:
    """A gang is placed over racks though it requires one, and no rule of the state service says
    so.
    """

    def loose(row: Any, size: int) -> Any:
        levels = tuple(Level(level.key, "preferred") for level in row.levels)
        return class_key(msgspec.structs.replace(row, levels=levels), size)

    put(mirror, "class_key", loose)
    put(accept, "is_split", lambda *given: False)
    put(check, "is_split", lambda *given: False)


@plant()
def tells_schedulers_the_innermost_level_only(put: Put) -> None:
    """A gang that requires an outer level is placed by the inner one, and the state service takes
    it.
    """
    put(Coscheduling, "several", property(lambda self: ()))
    put(accept, "is_split", lambda *given: False)


@plant(is_shy=True)
def an_attempt_that_was_requeued_ends_its_task(put: Put) -> None:
    """A task is wanted again, and its attempt exits by itself before its stop arrives."""
    put(Attempt, "exit_ignored", property(lambda self: False))


@plant()
def a_requeued_task_does_not_wait(put: Put) -> None:
    """A task is pending and nobody ever looks at it."""
    put(Ledger, "enqueue", lambda self, job, index: None)


@plant()
def an_open_job_succeeds(put: Put) -> None:
    """All calls of an open job have succeeded, and its client wants to add others."""
    job = cascade.job
    put(cascade, "job", lambda record: job(msgspec.structs.replace(record, open=False)))


@plant()
def calls_that_are_sent_twice_are_added_twice(put: Put) -> None:
    """A client has not got the answer to a request and repeats it."""
    growth_of = growth._growth

    def at_the_end(ledger: Ledger, job: Any, calls: Any, command: Any) -> Any:
        again = msgspec.structs.replace(command, offset=calls.count, firsts=(job.spec.replicas,))
        return growth_of(ledger, job, calls, again)

    put(growth, "_has", lambda *given: False)
    put(growth, "_growth", at_the_end)


@plant(faults.lose_for_good, faults.restart_with_fewer, faults.rename)
def keeps_what_a_lost_worker_ran(put: Put) -> None:
    """A worker is given up, its attempts are not."""
    put(progress.cascade, "lost_with", lambda *given: [])


@plant(faults.lose_for_good, faults.restart_with_fewer, faults.rename)
def gives_nobody_up(put: Put) -> None:
    """A host that is gone is waited for."""
    put(liveness, "silent", lambda *given: iter(()))


@plant()
def a_gang_ignores_its_members(put: Put) -> None:
    """One member ends badly and the others run on."""
    put(cascade, "siblings", lambda ledger, moved: [])


@plant()
def a_member_that_exits_0_succeeds_alone(put: Put) -> None:
    """What is done has ended, and its gang cannot start again."""
    put(progress.table, "FINISH", progress.table.SUCCEED)


@plant()
def nobody_waits_for_the_rest_of_a_gang(put: Put) -> None:
    """The session is over, and its tasks wait for it for ever."""
    put(cascade, "complete", lambda job: [])


@plant()
def the_loss_of_a_host_ends_members_that_are_done(put: Put) -> None:
    """What a finished attempt is reported to have come to once more is believed."""

    def last(task: Task) -> Any:
        return task.attempts[-1] if task.state in ACTIVE else None

    put(Task, "current", property(last))


@plant()
def children_outlive_their_parents(put: Put) -> None:
    """A job is cancelled and what it started is not."""
    put(cascade, "below", lambda ledger, root: iter(()))


@plant()
def a_job_is_not_derived(put: Put) -> None:
    """Every task has ended and the job goes on."""
    put(cascade, "job", lambda job: None)


@plant(faults.deafen, faults.freeze_worker)
def nobody_is_overdue(put: Put) -> None:
    """Timeout never ends."""
    put(coordinator, "overdue", lambda *given: iter(()))


@plant()
def a_timeout_rings_after_the_end(put: Put) -> None:
    """The alarm of an attempt outlives it."""
    from iris_state.records.indexes.timer_queue import TimerQueue

    clear = TimerQueue.clear

    def careless(self: TimerQueue[Any], key: Any) -> None:
        if not isinstance(key, tuple) or key[0] != "timeout":
            clear(self, key)

    put(TimerQueue, "clear", careless)


@plant()
def an_ended_task_can_end_again(put: Put) -> None:
    """Terminal is not terminal: a kill takes what has ended too."""
    from iris_core.tables import task as table

    sources = table.KILL.sources | {TaskState.SUCCEEDED, TaskState.FAILED}
    put(cascade, "kill", _kill_anything(cascade.kill, sources))


def _kill_anything(kill: Any, sources: frozenset[TaskState]) -> Any:
    import dataclasses

    def careless(job: Any, *given: Any) -> Any:
        claims = kill(job, *given)
        if not claims:
            return claims
        rule = dataclasses.replace(claims[0].rule, sources=sources)
        return [
            msgspec.structs.replace(claims[0], rule=rule, index=index)
            for index in range(len(job.tasks))
        ]

    return careless


@plant()
def counts_a_state_twice(put: Put) -> None:
    """The counters of a job drift from its tasks."""
    show = tasks._show

    def twice(ledger: Ledger, job: Any, index: int, state: TaskState, *given: Any) -> None:
        show(ledger, job, index, state, *given)
        if state is TaskState.SUCCEEDED:
            job.counts[state] += 1

    put(tasks, "_show", twice)


@plant()
def charges_the_wrong_budget(put: Put) -> None:
    """A preemption is paid for like a failure of the task."""
    leave = conclude._leave

    def wrong(*given: Any) -> Any:
        change = leave(*given)
        if change is not None and change.charged_to is Budget.PREEMPTION:
            return msgspec.structs.replace(change, charged_to=Budget.FAILURE)
        return change

    put(conclude, "_leave", wrong)


# ── workers, scheduler ────────────────────────────────────────────────────────────────────────────


@plant()
def a_worker_starts_what_it_has_started(put: Put) -> None:
    """An order that comes twice is carried out twice."""
    put(SeenAttempts, "__contains__", lambda self, ref: False)


@plant(faults.deafen, faults.freeze_worker, faults.reboot)
def a_worker_does_not_stop(put: Put) -> None:
    """What was told to end runs on."""
    put(Agent, "_let_go", lambda self, *given: None)


@plant()
def a_worker_tells_nothing_twice(put: Put) -> None:
    """Nor does its heartbeat say what still lives: what was lost on the way stays lost."""
    put(Agent, "on_untaken", lambda self, stages: None)
    put(Agent, "attempts", lambda self: ())
    put(liveness, "_unreported", lambda *given: iter(()))


@plant()
def a_worker_tells_only_where_it_stands(put: Put) -> None:
    """A heartbeat or a registration says how an attempt ended, and never that it ran."""
    put(Reports, "of", lambda self, ref: [])


@plant(faults.reboot, faults.stop_worker, faults.stop_half)
def a_registration_told_again_is_not_read(put: Put) -> None:
    """Yet it is answered, so what it said is never said again. Its first answer is lost, to see it
    more often.
    """
    on_register, on_report = progress.on_register, Machine._on_report

    def deaf(ledger: Ledger, policy: Policy, register: Register) -> Any:
        again = liveness.is_known(ledger, register.worker, register.incarnation)
        return iter(()) if again else on_register(ledger, policy, register)

    def mute(self: Machine, request: Any) -> None:
        report = codec.unpack(request.data, WorkerReport)
        first = report.register is not None and not liveness.is_known(
            self.ledger, report.worker, report.incarnation
        )
        on_report(self, request)
        if first:
            self.round.effects.pop()

    put(progress, "on_register", deaf)
    put(Machine, "_on_report", mute)


@plant()
def the_scheduler_hears_of_no_free_places(put: Put) -> None:
    """What has ended is never told to the mirror."""
    put(DeltaBuilder, "_close", lambda self, ref: None)


# ── reads ─────────────────────────────────────────────────────────────────────────────────────────


@plant(faults.cut, faults.crash_server, bad_weather=1.0)
def a_follower_answers_before_it_is_there(put: Put) -> None:
    """What was asked for as of a later position is answered from an older ledger."""
    put(follower, "_position", lambda data: 0)


# ── deployments ───────────────────────────────────────────────────────────────────────────────────


@plant()
def a_route_that_ends_leaves_its_job(put: Put) -> None:
    """The job of a route that is not wanted any more runs on."""
    subtree = cascade.subtree
    put(cascade, "retire", lambda *given: [])

    def spared(*given: Any) -> Any:
        return [] if given[2:4] == (Cause.CANCELLED, Initiator.SYSTEM) else subtree(*given)

    put(cascade, "subtree", spared)


@plant()
def an_update_keeps_to_no_surge(put: Put) -> None:
    """All new routes are created at once."""
    plan = rollout.plan

    def unbounded(wanted: Any, members: Any) -> Any:
        return plan(replace(wanted, surge=wanted.surge + 3), members)

    put(rollout, "plan", unbounded)


@plant(faults.kill_leader, faults.reboot)
def a_job_that_ends_leaves_its_route(put: Put) -> None:
    """A route is thought to live though its process is gone."""
    put(routes, "_ended", lambda *given: iter(()))


@plant()
def what_is_still_ending_makes_room_for_new_routes(put: Put) -> None:
    """An update holds more routes than it may, as long as old ones take to end."""
    plan = rollout.plan

    def hasty(wanted: Any, members: Any) -> Any:
        return plan(wanted, [member for member in members if member.status in LIVE])

    put(rollout, "plan", hasty)


@plant()
def an_update_ends_what_serves_too_soon(put: Put) -> None:
    """Old routes go before new ones are available."""
    plan = rollout.plan

    def greedy(wanted: Any, members: Any) -> Any:
        return plan(replace(wanted, unavailable=wanted.replicas), members)

    put(rollout, "plan", greedy)


@plant()
def every_unhealthy_route_is_evicted_at_once(put: Put) -> None:
    """However few are left."""
    put(health, "fell_together", lambda *given: False)
    one_by_one = health.evicted

    def all_of_them(found: Any, probe: Any, unavailable: int, going: int, now_ms: int) -> Any:
        return one_by_one(found, probe, 100, 0, now_ms)

    put(routes, "evicted", all_of_them)


@plant()
def an_unhealthy_route_gets_requests(put: Put) -> None:
    """It stays in discovery until it is evicted."""
    told = routes.discovery

    def unmoved(ledger: Ledger, deployment: Any) -> Iterator[Any]:
        held = {route.number: route.status for route in deployment.held()}
        for route in deployment.held():
            if route.status is RouteStatus.UNHEALTHY and route.healthy_ms:
                route.status = RouteStatus.HEALTHY
        yield from list(told(ledger, deployment))
        for number, status in held.items():
            deployment.routes[number].status = status

    put(routes, "discovery", unmoved)


@plant()
def a_route_gets_term_as_it_leaves_discovery(put: Put) -> None:
    """Proxies that have not heard yet send it requests."""
    stop = OrderBook._stop

    def sudden(self: OrderBook, ref: Any, why: Any) -> Any:
        return msgspec.structs.replace(stop(self, ref, why), settle_ms=0)

    put(OrderBook, "_stop", sudden)


@plant(faults.reboot, faults.deafen)
def what_a_worker_is_told_with_an_answer_ends_at_once(put: Put) -> None:
    """A route that is to stop serves on only if its order was the first to say so."""
    let_go = Agent._let_go

    def sudden(
        self: Agent,
        held: Any,
        why: Any,
        grace_ms: int,
        now_ms: int,
        todo: Any,
        settle_ms: int = 0,
        *reason: Any,
    ) -> None:
        let_go(
            self,
            held,
            why,
            grace_ms,
            now_ms,
            todo,
            0 if grace_ms == agent.DROP_GRACE_MS else settle_ms,
            *reason,
        )

    put(Agent, "_let_go", sudden)


@plant(is_shy=True)
def a_route_that_failed_to_start_is_not_paced(put: Put) -> None:
    """A service that always crashes is tried without end, and says nothing of it."""
    put(routes, "_failed_start", lambda *given: iter(()))


# ── scaling by rule ───────────────────────────────────────────────────────────────────────────────


@plant()
def a_rule_takes_any_step(put: Put) -> None:
    """A scaling rule goes to whatever the load wants at once."""
    put(scaling, "_highest", lambda now, memory: 1_000_000)


@plant()
def a_rule_ends_routes_during_an_update(put: Put) -> None:
    """A scaling rule takes routes away while an update replaces them."""
    held = scaling._held

    def unaware(policy: Any, wanted: int, lowest: int, now_ms: int, now: Any, memory: Any) -> str:
        return held(
            policy, wanted, lowest, now_ms, msgspec.structs.replace(now, updating=False), memory
        )

    put(scaling, "_held", unaware)
