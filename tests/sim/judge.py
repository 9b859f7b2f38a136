"""The invariants of a whole run: nothing lost, duplicated or stuck, and the journal replays.

`iris_state.check.records` holds the invariants of one ledger; this module those across time
and processes: P1, P2, P5, P6, P8, and that every way to rebuild a ledger gives the same one.
Source: docs/design/reliability.md#promises, docs/design/reliability.md#invariants.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from operator import or_

import msgspec

from iris_core import codec, subjects
from iris_core.messages.message import AttemptRef
from iris_core.spec.exit_rules import action
from iris_core.spec.resources import NOTHING
from iris_core.spec.serving import DeploymentSpec, Discovery
from iris_core.states import (
    Budget,
    Cause,
    DeploymentLifecycle,
    JobState,
    RouteStatus,
    TaskState,
    WorkerState,
)
from iris_core.views.events import JobEvent, TaskEvent
from iris_state.check.records import check
from iris_state.decide.coordinator import REQUEUED_BY_A_HANDLER
from iris_state.deployments.reconciler import DEPLOYMENT
from iris_state.effects.outbox import event_place
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.changes import (
    Assigned,
    Closed,
    Commit,
    DeploymentChanged,
    DeploymentCreated,
    DeploymentMoved,
    DeploymentScaled,
    JobAdmitted,
    JobPruned,
    Led,
    Moved,
    Requeued,
)
from iris_state.records.compacted import encoder
from iris_state.records.deployments.records import discovery_of
from iris_state.records.entities import Attempt
from iris_state.records.ledger import Ledger
from iris_state.snapshots import snapshot
from tests.sim import guarantees, nominations, open_jobs, shares, stops
from tests.sim.amendments import Amendments
from tests.sim.crowds import starved
from tests.sim.host import Running
from tests.sim.levels import beyond_levels
from tests.sim.network import Server
from tests.sim.people import SETTLED_S, Promises
from tests.sim.teams import wrong_sums_of_projects
from tests.sim.usage import wrong_sums
from tests.sim.violation import Violation as Violation
from tests.sim.violation import expect
from tests.sim.windows import Windows
from tests.support.growth import Growth, check_timeouts
from tests.support.memory_store import digest as digest_of
from tests.support.rollouts import Rollouts

TICK_MS = 1000
RESTORED_EVERY = 8
LATE_S = 5.0
APPEND_MS = 30_000
"""A commit is in the journal this long after its time, at most."""
"""So long what a host has said may be under way."""
_ENDED = {"succeeded", "failed", "killed", "worker_failed", "unschedulable", "preempted"}
_EXITED = {Cause.EXITED.value, Cause.FAILED.value}
"""Why a task leaves an attempt whose process has run to its end."""


@dataclass
class Heard:
    """Everything told on the stream of events, in order, also what the stream has lost again
    since.
    """

    ids: list[tuple[int, int]] = field(default_factory=list)
    tasks: dict[str, list[TaskEvent]] = field(default_factory=lambda: defaultdict(list))
    jobs: dict[str, list[JobEvent]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Ruled:
    """A deployment as its scaling rule may change it; ``rises``: when the rule raised the number,
    and from what.
    """

    spec: DeploymentSpec | None = None
    status: DeploymentLifecycle = DeploymentLifecycle.PENDING
    rises: list[tuple[int, int]] = field(default_factory=list)

    def change(self, spec: DeploymentSpec) -> None:
        """Its owner wants something else; another rule knows of no step."""
        if self.spec is None or spec.scaling != self.spec.scaling:
            self.rises = []
        self.spec = spec

    def scale(self, change: DeploymentScaled, at_ms: int) -> None:
        """The rule wants another number."""
        expect(self.spec is not None and self.spec.scaling is not None, f"{change} without a rule")
        assert self.spec is not None
        rule = self.spec.scaling
        assert rule is not None
        before, after = self.spec.replicas, change.replicas
        expect(
            before != after and rule.minimum <= after <= rule.maximum,
            f"{change} is no change within {rule}",
        )
        if after < before:
            expect(self.status is not DeploymentLifecycle.DEPLOYING, f"{change} during an update")
            expect(after > 0 or before == 1, f"{change} from {before}")
        else:
            self.rises.append((at_ms, before))
            least = min(n for ms, n in self.rises if at_ms - ms < rule.cooldown_s * 1000)
            expect(
                after <= max(2 * least, least + 4),
                f"{change} from {least} within {rule.cooldown_s} s",
            )
        self.spec = msgspec.structs.replace(self.spec, replicas=after)


class Judge:
    """Watches one run.

    Args:
        check_every: of so many commits one is checked for whether its ledger is whole.
    """

    def __init__(self, server: Server, check_every: int = 1) -> None:
        self._server = server
        self._check_every = check_every
        self._growth = Growth()
        self._windows = Windows()
        self.ran: list[Running] = []
        self.commits = 0
        self._given_up: set[str] = set()
        self._known: set[str] = set()
        self._gone: dict[str, tuple[float, int]] = {}
        self._left: dict[int, tuple[float, float]] = {}

    def on_commit(self, machine: Machine) -> None:
        """A leader's commit is in the journal: its ledger must be whole."""
        self.commits += 1
        for sentence in self._windows.look(machine.ledger, machine.policy.max_building):
            raise Violation(sentence)
        if self.commits % self._check_every == 0:
            self._check_whole(machine)
        else:
            self._growth.miss()
        self._note_hosts(machine.ledger)
        self._note_routes_that_leave(machine)
        _children_end_with_parents(machine.ledger)
        told = self._server.streams[subjects.EVENTS.name].messages
        if told:
            last = event_place(next(reversed(told.values())).headers["Nats-Msg-Id"])
            expect(last[0] <= machine.sequence, f"told {last} before commit {machine.sequence}")

    def _check_whole(self, machine: Machine) -> None:
        check(machine.ledger, machine.timers.aside)
        sums = (*wrong_sums(machine.ledger), *wrong_sums_of_projects(machine.ledger))
        wrong = [*beyond_levels(machine.ledger), *sums]
        expect(not wrong, f"{wrong}")
        check_timeouts(
            machine.ledger,
            machine.policy,
            machine.last_ms,
            TICK_MS,
            machine.timers.aside,
            self._growth.ended,
        )
        self._growth.look(machine.ledger)
        if self.commits % RESTORED_EVERY == 0:
            restored = Machine(machine.policy, "restored")
            restored.restore(
                snapshot.read(snapshot.cut(machine.ledger, machine.sequence, machine.last_ms))
            )
            check(restored.ledger, machine.timers.aside)
            expect(image(restored) == image(machine), "a snapshot restores to another ledger")

    def on_torn(self) -> None:
        """A leader's commit is in the journal, and its ledger is to be reloaded: it is whole after
        the next commit.
        """
        self._growth.miss()
        self._windows.miss()

    def on_gone(self, host: str, epoch: int) -> None:
        """A host is gone for good; the newest leader that can have heard of it is that of
        ``epoch``.
        """
        self._gone[host] = (self._server.now, epoch)

    def _note_hosts(self, ledger: Ledger) -> None:
        """Who has been given up, or forgotten after that."""
        self._given_up |= {w.id for w in ledger.workers.values() if w.state is WorkerState.LOST}
        self._given_up |= self._known - ledger.workers.keys()
        self._known = set(ledger.workers)

    def on_start(self, running: Running) -> None:
        """A process of a task starts: no other attempt of it may run, unless the older one's host
        was given up for it.

        The older may start last: an order that was under way reaches a host that was given up
            meanwhile.
        """
        task = (running.ref.job, running.ref.index)
        for other in (other for other in self.ran if (other.ref.job, other.ref.index) == task):
            expect(
                other.ref != running.ref,
                f"attempt {running.ref} was started twice: {other} {running}",
            )
            older = min(other, running, key=lambda r: r.ref.attempt)
            alone = other.ended is not None or older.host in self._given_up
            expect(alone, f"attempt {running.ref} was started beside {other}")
        self.ran.append(running)
        here = [
            r.template.resources.amount
            for r in self.ran
            if r.ended is None and r.host == running.host
        ]
        expect(
            sum(here, NOTHING).fits(running.total),
            f"{running.host} has {running.total} and runs {here}",
        )

    def chained(self) -> tuple[int, int]:
        """How many attempts waited behind others, and how many of those were handed back."""
        changes = [change for commit in _commits(self._server) for change in commit.changes]
        waited = sum(
            isinstance(change, Assigned) and change.chain is not None for change in changes
        )
        return waited, sum(
            isinstance(change, Moved) and change.cause is Cause.HANDED_BACK for change in changes
        )

    def reclaimed(self) -> int:
        """How many attempts gave way to the guarantee of another project."""
        return guarantees.reclaimed(_commits(self._server))

    def was_shared(self) -> bool:
        """Whether the weights of projects decided the order at some time."""
        return shares.is_counted(_commits(self._server))

    def at_the_end(self, machine: Machine, promises: Promises, policy: Policy) -> str:
        """Everything is quiet. Returns a digest of the whole run."""
        self._no_job_is_lost(machine, promises)
        self._no_large_task_starves()
        self._one_leader_at_a_time(machine)
        self._times_pass_steadily()
        self._budgets_were_kept(machine)
        self._requeued_attempts_ended_nothing()
        expect(
            not (wrong := Amendments(_commits(self._server)).wrong),
            f"against what was said last: {wrong[:3]}",
        )
        for sentence in open_jobs.violations(_commits(self._server), promises.grown):
            raise Violation(sentence)
        for sentence in guarantees.violations(_commits(self._server)):
            raise Violation(sentence)
        for sentence in nominations.violations(_commits(self._server)):
            raise Violation(sentence)
        for sentence in shares.violations(_commits(self._server), machine.ledger.shares):
            raise Violation(sentence)
        stops.check_stops(_commits(self._server))
        self._nothing_is_stuck(machine)
        self._nothing_runs_on()
        self._who_was_not_heard_gets_nothing()
        heard = self._events_are_once_and_in_order(machine)
        self._events_match_the_ledger(machine, heard)
        self._gangs_succeeded_together(machine, heard)
        self._replays_are_equal(machine, policy)
        self._proxies_know_the_routes(machine)
        self._scaling_keeps_to_its_rules()
        self._rollouts_keep_to_their_bounds()
        self._every_deployment_settled(promises)
        digest = hashlib.sha256()
        for entry in self._server.journal_of_all_times:
            digest.update(entry.data)
        for message in self._server.streams[subjects.EVENTS.name].messages.values():
            digest.update(message.data)
        return digest.hexdigest()

    def _proxies_know_the_routes(self, machine: Machine) -> None:
        """The bucket that proxies watch holds the set of every deployment, as it was said last, and
        nothing else.
        """
        stored = self._server.key_values.get(subjects.DISCOVERY_BUCKET, {})
        sets = {name: codec.from_json(entry.value, Discovery) for name, entry in stored.items()}
        known = machine.ledger.deployments
        wanted = {
            name: discovery_of(known[number])
            for name, number in machine.ledger.deployment_names.items()
        }
        expect(sets == wanted, f"proxies know {sets}, the ledger {wanted}")

    def _scaling_keeps_to_its_rules(self) -> None:
        """What rules decide is within their bounds, moves in steps, and takes nothing away during
        an update.
        """
        ruled: dict[int, Ruled] = defaultdict(Ruled)
        for entry in self._server.journal_of_all_times:
            commit = codec.unpack(entry.data, Commit)
            for change in commit.changes:
                if isinstance(change, DeploymentCreated):
                    ruled[change.number].spec = change.spec
                elif isinstance(change, DeploymentChanged):
                    ruled[change.deployment].change(change.spec)
                elif isinstance(change, DeploymentMoved):
                    ruled[change.deployment].status = change.status
                elif isinstance(change, DeploymentScaled):
                    ruled[change.deployment].scale(change, commit.at_ms)

    def _rollouts_keep_to_their_bounds(self) -> None:
        rollouts = Rollouts()
        for sequence, commit in enumerate(_commits(self._server), 1):
            for sentence in rollouts.look(commit):
                raise Violation(f"commit {sequence}: {sentence}")

    def _every_deployment_settled(self, promises: Promises) -> None:
        """Once nothing is done to the cluster each gets ready, or says why not, before it is
        deleted.
        """
        expect(
            not promises.unsettled,
            f"in {SETTLED_S:g} s of calm did not settle: {promises.unsettled}",
        )

    def on_term(self, ref: AttemptRef, ordered_s: float) -> None:
        """A process is told to end: a route's left discovery so long before that nobody sends it
        requests any more.

        A host that got another name ends what ran under the old one: that order comes before the
        state service knows that the route is over.
        """
        left_s = self._left.get(ref.job)
        if left_s is not None:
            at_s, settle_s = left_s
            early = at_s <= ordered_s and self._server.now - at_s < settle_s
            expect(
                not early,
                f"the route of j{ref.job} left discovery {self._server.now - at_s:.3f} s before TERM",
            )

    def _note_routes_that_leave(self, machine: Machine) -> None:
        """When routes left discovery, those that were ever healthy.

        While judging their deployment raises, they may leave late.
        """
        for deployment in machine.ledger.deployments.values():
            if (DEPLOYMENT, deployment.number) in machine.timers.aside:
                self._left |= {
                    route.job: (-math.inf, 0.0)
                    for route in deployment.held()
                    if route.job not in self._left
                }
                continue
            for route in deployment.held():
                if route.status is RouteStatus.TERMINATING and route.healthy_ms:
                    self._left.setdefault(route.job, (self._server.now, deployment.spec.settle_s))

    def _no_job_is_lost(self, machine: Machine, promises: Promises) -> None:
        expect(
            promises.answered == promises.asked,
            f"{promises.asked} asked, {promises.answered} answered",
        )
        admitted = _admitted(self._server)
        for request, number in promises.created.items():
            expect(
                number in admitted, f"{request} was promised j{number}, which was never admitted"
            )
            expect(admitted[number] == promises.names[number], f"j{number} is {admitted[number]}")
        for key, numbers in promises.keys.items():
            expect(len(numbers) == 1, f"the key {key} made the jobs {sorted(numbers)}")
        expect(
            len(set(admitted)) == machine.ledger.totals.admitted,
            "admitted jobs are counted wrongly",
        )
        asked: dict[str, int] = {}
        pruned: dict[int, int] = {}
        for entry in self._server.journal_of_all_times:
            for change in codec.unpack(entry.data, Commit).changes:
                if (
                    isinstance(change, JobAdmitted) and change.request_id
                ):  # the job of a route has none
                    expect(change.request_id not in asked, f"{change.request_id} made two jobs")
                    asked[change.request_id] = change.number
                elif isinstance(change, JobPruned):
                    pruned[change.job] = entry.sequence
        for number, position in promises.forgotten:
            expect(
                pruned.get(number, position + 1) <= position,
                f"j{number} was said to be forgotten before it was",
            )
        expect(not promises.unlike, f"{promises.unlike} were answered with different jobs")
        unheard = promises.given_up - promises.created.keys()
        asked = {request: number for request, number in asked.items() if request not in unheard}
        told = {request: promises.created.get(request) for request in asked}
        gone = [number for number in promises.missed if number in machine.ledger.jobs]
        expect(not gone, f"the promised jobs {gone} were said not to exist")
        expect(not self._server.lies, "; ".join(self._server.lies[:3]))
        expect(told == asked, f"requests made the jobs {asked}, people were told {told}")

    def _no_large_task_starves(self) -> None:
        """A task that fits on an empty host starts, however many smaller ones arrive."""
        commits = zip(self._server.journalled_s, _commits(self._server), strict=True)
        for sentence in starved(commits):
            raise Violation(sentence)

    def _one_leader_at_a_time(self, machine: Machine) -> None:
        """Each epoch begins with its leader's bid, one higher than the one before; on an empty journal
        above every epoch that may have been seen.
        """
        epoch = 0
        for sequence, commit in enumerate(_commits(self._server), 1):
            led = [change for change in commit.changes if isinstance(change, Led)]
            epoch = (epoch or commit.epoch - len(led)) + len(led)
            expect(
                commit.epoch == epoch,
                f"commit {sequence} was made in epoch {commit.epoch}, not {epoch}",
            )

    def _times_pass_steadily(self) -> None:
        """A leader on the host of the one before goes on with its times, wherever the host's wall
        clock was set to meanwhile.
        """
        boot, before_ms, before_s = "", 0, 0.0
        for at_s, commit in zip(self._server.journalled_s, _commits(self._server), strict=True):
            for led in (change for change in commit.changes if isinstance(change, Led)):
                if led.boot == boot:
                    passed_ms = commit.at_ms - before_ms
                    expect(
                        passed_ms <= (at_s - before_s) * 1000 + APPEND_MS,
                        f"{passed_ms} ms passed in {at_s - before_s:.3f} s before epoch {led.epoch}",
                    )
                boot = led.boot
            before_ms, before_s = commit.at_ms, at_s

    def _requeued_attempts_ended_nothing(self) -> None:
        """What an attempt exited with did nothing to its task once that was requeued."""
        asked = set()
        for commit in _commits(self._server):
            for change in commit.changes:
                if isinstance(change, Moved | Requeued):
                    key = (change.job, change.index, change.attempt)
                    other = isinstance(change, Requeued) or change.cause not in (
                        Cause.EXITED,
                        Cause.FAILED,
                    )
                    expect(other or key not in asked, f"{key} was requeued, and then {change}")
                    if isinstance(change, Requeued) or change.cause is Cause.REQUEUED:
                        asked.add(key)

    def _budgets_were_kept(self, machine: Machine) -> None:
        """Every failure was charged and none too many was allowed, by counting attempts anew."""
        said_of = Amendments(_commits(self._server)).jobs
        for job in machine.ledger.jobs.values():
            for index, task in job.numbered():
                failed = [attempt for attempt in task.attempts if attempt.cause is Cause.FAILED]
                said = Counter(
                    action(job.spec.on_exit, one.exit_code, one.signal) or "retry" for one in failed
                )
                said["requeue"] += sum(attempt.cause is Cause.REQUEUED for attempt in task.attempts)
                said["requeue"] += sum(_was_late_and_requeued(attempt) for attempt in task.attempts)
                charged = {"failures": task.failure_count, "requeues": task.requeue_count}
                counted = {"failures": said["retry"] + said["fail"], "requeues": said["requeue"]}
                expect(
                    counted == charged, f"{job.name}/{index} failed {counted}, charged {charged}"
                )
                most = said_of[job.number].most
                limits = {
                    "retry": most["max_retries_failure"],
                    "requeue": most["max_requeues"],
                    "fail": 0,
                }
                over = [word for word, limit in limits.items() if said[word] > limit + 1]
                expect(
                    not over, f"{job.name}/{index} failed {dict(said)}, over its limits of {over}"
                )
                paid = sum(attempt.charged_to is Budget.PREEMPTION for attempt in task.attempts)
                lost = task.preemption_count
                expect(
                    paid == lost,
                    f"{job.name}/{index} was charged for {paid} losses and shows {lost}",
                )

    def _gangs_succeeded_together(self, machine: Machine, heard: Heard) -> None:
        """All tasks of a gang that succeeded did so in one commit, exit 0 each or stopped for the
        leader that did.
        """
        latest = {name: number for number, name in sorted(_admitted(self._server).items())}
        for job in machine.ledger.jobs.values():
            if not job.is_gang or job.state is not JobState.SUCCEEDED:
                continue
            last = [task.attempts[-1] for task in job.tasks]
            done = [attempt.exit_code == 0 for attempt in last]
            stopped = [attempt.cause is Cause.LEADER_DONE for attempt in last]
            leads = job.spec.coscheduling is not None and job.spec.coscheduling.success == "leader"
            expect(
                all(done) or (leads and done[0]),
                f"{job.name} succeeded, its tasks exited 0: {done}",
            )
            expect(
                all(map(or_, done, stopped)),
                f"{job.name} succeeded with tasks that did not: {done} {stopped}",
            )
            if latest[job.name] == job.number:
                commits = {heard.tasks[f"{job.id}/{index}"][-1].seq for index in job.indexes}
                expect(len(commits) == 1, f"{job.name} succeeded in the commits {sorted(commits)}")

    def _nothing_is_stuck(self, machine: Machine) -> None:
        living = [
            f"{job.name} {job.state.name}"
            for job in machine.ledger.jobs.values()
            if not job.is_terminal
        ]
        expect(not living, f"never ended: {living}")
        for worker in machine.ledger.workers.values():
            if worker.state is not WorkerState.LOST:
                left = list(machine.ledger.presence[worker.id].open)
                expect(not left, f"{worker.id} still holds {left}")

    def _nothing_runs_on(self) -> None:
        """An attempt its task has left may run until its stop has arrived; in the end none does."""
        left = [running for running in self.ran if running.ended is None]
        expect(not left, f"still running: {left}")

    def _who_was_not_heard_gets_nothing(self) -> None:
        """A leader gives nothing to a host that was gone before it led; but what a host said may
        come to it late.
        """
        if "state frozen" in self._server.faults:
            return  # any time later
        for at_s, commit in zip(self._server.journalled_s, _commits(self._server), strict=True):
            for change in commit.changes:
                if isinstance(change, Assigned) and change.worker in self._gone:
                    since_s, epoch = self._gone[change.worker]
                    late = commit.epoch > epoch and at_s - since_s > LATE_S
                    expect(
                        not late,
                        f"{change.worker} is gone since {since_s:.1f} s and was given work at {at_s:.1f} s",
                    )

    def _events_are_once_and_in_order(self, machine: Machine) -> Heard:
        heard = Heard()
        for message in self._server.streams[subjects.EVENTS.name].messages.values():
            heard.ids.append(event_place(message.headers["Nats-Msg-Id"]))
            if message.subject.startswith("task.state."):
                event = codec.from_json(message.data, TaskEvent)
                heard.tasks[event.task_id].append(event)
            elif message.subject.startswith("job.state."):
                job = codec.from_json(message.data, JobEvent)
                heard.jobs[job.job_id].append(job)
        expect(heard.ids == sorted(set(heard.ids)), "events were told twice or out of order")
        wanted = _worded(self._server)
        missing = sorted(set(wanted) - set(heard.ids))[:5]
        expect(not missing, f"events {missing} were never told")
        expect(not set(heard.ids) - set(wanted), "events were told that no commit made")
        return heard

    def _events_match_the_ledger(self, machine: Machine, heard: Heard) -> None:
        """Each task's events form one chain of states that ends where the ledger says."""
        for name, events in heard.tasks.items():
            before: str | None = None
            for event in events:
                if event.previous is None:
                    before = None
                expect(
                    event.previous == before, f"{name} went from {event.previous}, it was {before}"
                )
                expect(before not in _ENDED, f"{name} went on from {before} to {event.state}")
                late = (
                    before == "pending" and event.attempt is not None
                )  # its stop came after its exit
                expect(
                    event.cause not in _EXITED or before == "running" or late,
                    f"{name} exited, it was {before}",
                )
                before = event.state
        exited = _exited_unasked(self._server)
        for job in machine.ledger.jobs.values():
            for index, task in job.numbered():
                events = heard.tasks[f"{job.id}/{index}"]
                expect(
                    bool(events) and events[-1].state == TaskState(task.state).name.lower(),
                    f"{job.name}/{index}",
                )
                given_up = [
                    one
                    for one in task.attempts[:-1]
                    if one.cause in REQUEUED_BY_A_HANDLER and not job.is_gang
                ]
                again = [
                    one.number for one in given_up if (job.number, index, one.number) in exited
                ]
                expect(
                    not again,
                    f"{job.name}/{index} ran again after its attempts {again} had exited 0",
                )

    def _replays_are_equal(self, machine: Machine, policy: Policy) -> None:
        """All commits ever, and the newest snapshot with what stands behind it, make the same
        ledger.
        """
        whole = Machine(policy, "replay")
        for entry in self._server.journal_of_all_times:
            whole.replay(entry.sequence, entry.data)
        expect(image(whole) == image(machine), "the whole journal replays to another ledger")
        restored = Machine(policy, "restored")
        restored.restore(snapshot.read(snapshot.cut(whole.ledger, whole.sequence, whole.last_ms)))
        check(restored.ledger)
        expect(image(restored) == image(machine), "a snapshot restores to another ledger")
        for name, (data, known) in self._server.buckets.get(subjects.SNAPSHOTS_BUCKET, {}).items():
            if digest_of(data) != known:
                continue
            behind = Machine(policy, "behind")
            behind.restore(snapshot.read(data))
            for entry in self._server.journal_of_all_times:
                if entry.sequence > behind.sequence:
                    behind.replay(entry.sequence, entry.data)
            expect(
                image(behind) == image(machine),
                f"{name} and the journal behind it make another ledger",
            )


def _children_end_with_parents(ledger: Ledger) -> None:
    for job in ledger.jobs.values():
        parent = ledger.jobs.get(job.parent)
        if parent is not None and parent.is_terminal and parent.state is not JobState.SUCCEEDED:
            expect(
                job.is_terminal,
                f"{job.name} lives under {parent.name}, which is {parent.state.name}",
            )


def image(machine: Machine) -> bytes:
    """The records as bytes, for comparison."""
    ledger = machine.ledger
    return encoder.encode(
        [
            machine.sequence,
            sorted(ledger.jobs.items()),
            sorted(ledger.workers.items()),
            sorted(ledger.idempotency.items()),
            list(ledger.answers.items()),
            list(ledger.spent_keys.items()),
            sorted(ledger.nominations.items()),
            sorted((key, sorted(found.items())) for key, found in ledger.avoided.items()),
            ledger.totals,
            ledger.next_number,
            ledger.epoch,
            sorted(ledger.quotas.items()),
            sorted((one.path, one) for one in ledger.projects),
            sorted(ledger.groups.items()),
            sorted(ledger.names.items()),
            sorted((name, sorted(found.items())) for name, found in ledger.shared_names.items()),
            sorted(ledger.deployments.items()),
            sorted(ledger.route_of_job.items()),
            [ledger.next_deployment, ledger.discovery_version, list(ledger.destroyed)],
        ]
    )


def _commits(server: Server) -> list[Commit]:
    return [codec.unpack(entry.data, Commit) for entry in server.journal_of_all_times]


def _admitted(server: Server) -> dict[int, str]:
    return {
        c.number: c.name
        for commit in _commits(server)
        for c in commit.changes
        if isinstance(c, JobAdmitted)
    }


def _exited_unasked(server: Server) -> set[tuple[int, int, int]]:
    """Attempts that exited 0 before they were told to stop; one that is told and exits 0 has
    perhaps saved its work.
    """
    changes = (
        change
        for commit in _commits(server)
        for change in commit.changes
        if isinstance(change, Closed | Moved)
    )
    return {
        (change.job, change.index, change.attempt)
        for change in changes
        if change.ended is not None
        and change.ended.cause is Cause.EXITED
        and change.ended.exit_code == 0
    }


def _worded(server: Server) -> list[tuple[int, int]]:
    """The id of every event that every commit ever made."""
    machine = Machine(Policy(), "words")
    found: list[tuple[int, int]] = []
    for entry in server.journal_of_all_times:
        facts = machine.replay(entry.sequence, entry.data)
        count = sum(fact.tasks if fact.entity == "task" else 1 for fact in facts)
        found += [(entry.sequence, place) for place in range(count)]
    return found


def _was_late_and_requeued(attempt: Attempt) -> bool:
    """Whether it was returned to the queue at its time limit."""
    return attempt.cause is Cause.TIMEOUT and attempt.charged_to is Budget.REQUEUE
