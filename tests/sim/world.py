"""One simulated cluster and one schedule of faults: built from a seed, run until idle, then judged.

Two state replicas, a scheduler, hosts in racks, and people. A supervisor starts again whatever
dies. While the storm lasts everything may be killed, frozen, cut off, and the server with it; then
the sky clears, and every job must end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from iris_bus.contract import Fenced, Full, Gap, Unavailable
from iris_core.errors import IrisError
from iris_core.messages.gateway_state import AdminCommand
from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Plan, PlanTaken
from iris_core.messages.state_worker import TaskTemplate
from iris_core.spec.jobs import Attribute
from iris_scheduler import service as scheduler_service
from iris_scheduler.service import Scheduler
from iris_scheduler.settings import SchedulerSettings
from iris_state.clock import Clock
from iris_state.policy import Policy
from iris_state.replication import leader
from iris_state.replication.replica import Replica
from iris_state.service.service import StateService
from tests.sim import crowds, guarantees, maps, proxies, shares
from tests.sim.amendments import amended
from tests.sim.faults import EVERYTHING, SETTLE_S, STORM_S, Fault, Storm
from tests.sim.host import Machine, Running, Worker
from tests.sim.judge import Judge, Violation
from tests.sim.levels import levelled
from tests.sim.network import FAIR, Crash, Link, Server, Weather
from tests.sim.open_jobs import open_maps
from tests.sim.people import (
    ADMIN,
    Command,
    People,
    Promises,
    checkpointed,
    gated,
    requeued,
    rollouts,
    wishes,
)
from tests.sim.process import Process
from tests.sim.teams import in_teams, lent

WALL_MS = 1_700_000_000_000
CALM_S = 900.0
LAST_S = 3.0
SLOW_S = 1.0
LARGE = 0.04
"""In so many storms jobs are as large as they may be."""
ENDLESS = 20_000
FOR_EVER_S = 100_000.0
LOOK_S = 0.5
CHECKED_EVERY = 10
WINDOWS = (1, 2, 8, 8)
"""Building windows of a world's hosts: most hosts are too small to fill the default one."""
POLICY = Policy(
    max_band="production",
    worker_grace_s=12.0,
    heartbeat_interval_s=4.0,
    scheduled_timeout_s=8.0,
    preparing_timeout_s=10.0,
    prepared_timeout_s=8.0,
    creating_timeout_s=10.0,
    terminating_timeout_s=8.0,
    snapshot_changes=60,
    snapshot_after_s=30.0,
    events_settle_s=SETTLE_S,
    ping_interval_s=0.5,
    keep_jobs=0,
    keep_deployments=1,
    share_half_life_s=shares.HALF_LIFE_S,
)


@dataclass
class Outcome:
    """How one seed went."""

    seed: int
    digest: str
    jobs: int
    commits: int
    seconds: float
    faults: dict[str, int]
    wrong: str = ""
    largest: int = 0
    chained: int = 0
    handed_back: int = 0
    reclaimed: int = 0
    shared: bool = False


class World:
    """One run of one seed.

    Args:
        storm: what may happen in it.
        lends: whether there is only work of projects that lend each other what they are guaranteed.
        crowded: whether there is a crowd, whatever the seed says; such a world has fewer other
            jobs, and of `CHECKED_EVERY` commits one is checked for what the crowd does not touch.
    """

    def __init__(
        self,
        seed: int,
        storm: Storm = EVERYTHING,
        *,
        crowded: bool = False,
        lends: bool = False,
    ) -> None:
        self.seed = seed
        self._lends = lends
        self._storm = storm
        self._crowded = crowded
        self.rng = random.Random(seed)
        self.server = Server(self.rng)
        self.judge = Judge(self.server, check_every=CHECKED_EVERY if crowded or lends else 1)
        self.promises = Promises()
        self.processes: dict[str, Process] = {}
        self._busy: dict[Process, None] = {}
        self.links: dict[str, Link] = {}
        self.states: dict[str, StateService] = {}
        self.machines: dict[str, Machine] = {}
        self.workers: dict[str, Worker] = {}
        self.away_s: dict[str, float] = {}
        self.wrong = ""
        self.damaged = False
        self.planted = 0
        self._all_states: list[StateService] = []
        self.gone: set[str] = set()
        self.large = self.rng.random() < LARGE
        self.policy = msgspec.structs.replace(
            _policy(self.rng, large=self.large),
            max_building=random.Random(f"{seed}/window").choice(WINDOWS),
        )
        self._starts: dict[str, int] = {}
        self._mains: dict[str, Callable[[Process, Link], Any]] = {}
        self._dead: list[Process] = []
        self.is_stormy = True
        self.server.appended.append(self._appended)
        self.server.crashed = self._buried
        self._build()

    # ── the cluster ───────────────────────────────────────────────────────────────────────────────

    def _build(self) -> None:
        hosts = [f"w{n}" for n in range(self.rng.choice((3, 4, 5)))]
        for n, host in enumerate(hosts):
            places: dict[str, Attribute] = {"rack": f"r{n % 2}", "zone": f"z{n // 2}"}
            self.machines[host] = Machine(
                host, places, self._fate, self.judge.on_start, self._answers, self.judge.on_term
            )
            self._mains[host] = self._worker
        self._mains |= {
            "state-0": self._state,
            "state-1": self._state,
            "scheduler": self._scheduler,
        }
        if self.rng.random() < 0.6:
            self._mains["scheduler-2"] = self._scheduler
        jobs = self.rng.randint(2, 4) if self._crowded else self.rng.randint(5, 14)
        self._plan = wishes(self.rng, jobs, STORM_S, hosts, large=self.large)
        changes = (
            (gated, "gates"),
            (maps.mapped, "maps"),
            (checkpointed, "checkpoints"),
            (requeued, "requeues"),
            (amended, "amendments"),
            (levelled, "levels"),
            (in_teams, "teams"),
        )
        crowd_rng = random.Random(f"{self.seed}/crowd")
        crowd = crowds.crowd(crowd_rng, STORM_S, always=self._crowded)
        for change, name in () if crowd else changes:
            self._plan = change(random.Random(f"{self.seed}/{name}"), self._plan)
        self._plan += crowd or open_maps(random.Random(f"{self.seed}/open"), STORM_S)
        self._plan += proxies.scaled(
            random.Random(f"{self.seed}/scaling"),
            [] if crowd else rollouts(random.Random(f"{self.seed}/deployments"), STORM_S),
        )
        if self._lends:
            self._plan = lent(random.Random(f"{self.seed}/lent"))
        self._has_family = crowds.has_family(self._plan)
        self._scaled = proxies.names(self._plan)
        for name in ("proxy-0", "proxy-1") if self._scaled else ():
            self._mains[name] = self._proxy
        self._plan.sort(key=lambda each: each[0])
        self._mains["people"] = self._people
        for name in self._mains:
            self._start(name)

    def _start(self, name: str) -> None:
        self._starts[name] = self._starts.get(name, 0) + 1
        process = Process(name, lambda: self.server.now, self._ended, self._busy)
        link = Link(self.server, process)
        if self.processes.get(name) is not None:
            process.jump_ms = self.processes[name].jump_ms
        self.processes[name], self.links[name] = process, link
        process.start(self._mains[name](process, link))

    def _again(self, name: str) -> None:
        if not self.processes[name].alive and name not in self.gone:
            self._start(name)

    def _ended(self, process: Process, error: BaseException | None) -> None:
        """A process is gone: the supervisor starts it again, unless what ended it is a finding."""
        if isinstance(error, AssertionError) or _is_bug(error):
            self.wrong = (
                self.wrong
                or f"{process.name} at {self.server.now:.3f} s: {type(error).__name__}: {error}"
            )
            logging.getLogger("sim").error("wrong", exc_info=error)
        self._buried(process)

    def _buried(self, process: Process) -> None:
        self._dead.append(process)
        if process.name != "people":
            away_s = self.away_s.pop(process.name, 0.0)
            self.server.at(0.3 + away_s + self.rng.random(), lambda: self._again(process.name))

    async def _state(self, process: Process, link: Link) -> None:
        clock = Clock(
            lambda: int((self.server.now * 1000 + process.jump_ms + WALL_MS) * 1e6),
            self._steady_ns,
            process.name,
        )
        name = f"{process.name}.{self._starts[process.name]}"
        state = StateService(Replica(name, self.policy, link, clock), asyncio.Event())  # type: ignore[arg-type]
        self.states[process.name] = state
        self._all_states.append(state)
        await state.run()

    def _steady_ns(self) -> int:
        return int(self.server.now * 1e9)

    async def _scheduler(self, process: Process, link: Link) -> None:
        await _SimScheduler(link, process).run()

    async def _worker(self, process: Process, link: Link) -> None:
        incarnation = f"{process.name}.{self._starts[process.name]}"
        worker = self.workers[process.name] = Worker(
            self.machines[process.name], link, process, incarnation
        )
        await worker.run()

    async def _proxy(self, process: Process, link: Link) -> None:
        await proxies.proxy(link, process.name, self._scaled, self.seed, STORM_S)

    async def _people(self, process: Process, link: Link) -> None:
        self.people = People(link, self.promises, self._plan, STORM_S, self._is_needless)
        await self.people.run()

    def _fate(self, ref: AttemptRef, template: TaskTemplate) -> tuple[float, int]:
        rng = random.Random(f"{self.seed}/{ref.job}/{ref.index}/{ref.attempt}")
        if template.calls is not None:
            return maps.fate(self.seed, ref)
        if template.probe is not None:
            return (FOR_EVER_S, 0) if template.command[1] != "bad" else (0.5, 1)
        if template.command[1:] in ((crowds.SMALL,), (crowds.CHILD,)):
            return crowds.run_s(rng), 0
        if template.command[1:] == (crowds.PARENT,):
            return FOR_EVER_S, 0  # until its child has succeeded
        if template.timeout_ms is not None and rng.random() < 0.4:
            return FOR_EVER_S, 0
        return rng.choice((0.05, 0.5, 3.0, 12.0)), int(rng.random() < 0.25)

    def _is_needless(self, command: Command) -> bool:
        """The crowd is over when the task is there that it was in the way of."""
        return crowds.is_of_crowd(command) and self._has_started(crowds.LARGE)

    def _has_started(self, role: str) -> bool:
        return any(running.template.command[1:] == (role,) for running in self.judge.ran)

    def _end_parents(self) -> None:
        """Parents end soon after a child has succeeded; looks again after a while."""
        children = (r for r in self.judge.ran if r.template.command[1:] == (crowds.CHILD,))
        if any(child.ended == crowds.SUCCEEDED for child in children):
            for name, worker in self.workers.items():
                self.processes[name].soon(worker.end_all, crowds.PARENT)
        self.server.at(LOOK_S, self._end_parents)

    def _answers(self, running: Running, now_s: float) -> tuple[int, int]:
        """One probe a second: it passes after a while, unless the version is ``never``; in the
        storm some fall ill.
        """
        rng = random.Random(f"{self.seed}/probe/{running.ref.job}/{running.ref.attempt}")
        ready_s, ill_s, well_s = (
            rng.choice((0.0, 1.0, 4.0)),
            rng.choice((1e9, 1e9, 6.0, 20.0)),
            rng.choice((3.0, 30.0)),
        )
        never = running.template.command[1] == "never"
        past = range(int(now_s - running.since_s), -1, -1)
        ill_until_s = min(ill_s + well_s, STORM_S - running.since_s)
        results = [not never and ready_s <= t and not ill_s <= t < ill_until_s for t in past]
        alike = next(
            (n for n, passed in enumerate(results) if passed is not results[0]), len(results)
        )
        return (alike, 0) if results[0] else (0, alike)

    def _appended(self, link: Link, sequence: int) -> None:
        state = self.states.get(link.process.name)
        if state is None or self.wrong:
            return
        machine = state.replica.machine
        raised = sum(state.metrics.raised.total for state in self._all_states)
        if raised > self.planted:
            self.wrong = f"{raised} inputs raised, {self.planted} of them planted"
        if machine.torn:
            self.judge.on_torn()
        elif machine.sequence == sequence:
            try:
                self.judge.on_commit(machine)
            except (IrisError, Violation, LookupError) as error:
                self.wrong = (
                    f"commit {sequence} at {self.server.now:.3f} s: {type(error).__name__}: {error}"
                )

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> Outcome:
        """The storm, the calm, the verdict."""
        digest = ""
        gc.disable()
        real = scheduler_service.time
        scheduler_service.time = leader.time = _Time(self.server)  # type: ignore[assignment]
        try:
            self._plan_faults()
            self._until(lambda: False, STORM_S)
            self._clear_up()
            deadline = STORM_S + CALM_S
            while not self.wrong:
                if not self._until(self._is_quiet, deadline):
                    self.wrong = (
                        self.wrong or f"not quiet after {self.server.now:.0f} s: {self._left()}"
                    )
                    break
                end = self.server.journal_end
                self._until(lambda: False, self.server.now + LAST_S)
                if self._is_quiet() and end == self.server.journal_end:
                    break
            if not self.wrong:
                digest = self._verdict()
        except Violation as error:
            self.wrong = self.wrong or str(error)
        finally:
            self._end()
            scheduler_service.time = leader.time = real
            gc.enable()
        jobs = self.promises.asked
        return Outcome(
            self.seed,
            digest,
            jobs,
            self.judge.commits,
            self.server.now,
            dict(self.server.faults),
            self.wrong,
            self.server.largest,
            *self.judge.chained(),
            reclaimed=self.judge.reclaimed(),
            shared=self.judge.was_shared(),
        )

    def _verdict(self) -> str:
        leader = self.leader()
        if leader is None:
            raise Violation("nobody leads")
        return self.judge.at_the_end(leader.replica.machine, self.promises, self.policy)

    def _until(self, done: Callable[[], bool], deadline: float) -> bool:
        """Go on until ``done``, a finding, or the deadline. False when the deadline came first."""
        turns = 0
        while not self.wrong:
            self._settle()
            turns += 1
            if turns % 50 == 0 and done():
                return True
            event_s = self.server.next_s
            timer_s, process = self._next_timer()
            when = min(w for w in (event_s, timer_s, deadline) if w is not None)
            if when >= deadline:
                self.server.now = deadline
                return done()
            if event_s is not None and event_s <= when:
                self.server.happen()
            elif process is not None:
                self.server.now = max(self.server.now, when)
                process.loop.step()
        return False

    def _settle(self) -> None:
        """Give everybody who has something to do their turns."""
        rounds = 0
        while (self._busy or self._dead) and not self.wrong:
            rounds += 1
            if rounds > ENDLESS:
                self.wrong = f"time stands still at {self.server.now:.3f} s"
            turn = list(self._busy)
            self._busy.clear()
            for process in turn:
                if process.alive and not process.frozen:
                    process.loop.step()
            for process in self._dead:
                process.unwind()
            self._dead.clear()

    def _next_timer(self) -> tuple[float | None, Process | None]:
        best: tuple[float | None, Process | None] = (None, None)
        for process in self.processes.values():
            if process.alive and not process.frozen:
                due = process.loop.due
                if due is not None and (best[0] is None or due < best[0]):
                    best = (due, process)
        return best

    # ── the storm ─────────────────────────────────────────────────────────────────────────────────

    def _plan_faults(self) -> None:
        for _ in range(self.rng.randint(self._storm.least, self._storm.most)):
            fault = self.rng.choice(self._storm.faults)
            self.server.at(self.rng.random() * STORM_S, lambda fault=fault: self._strike(fault))
        if self.rng.random() < self._storm.bad_weather:
            self.server.weather = Weather(
                loss=self.rng.choice((0.0, 0.01, 0.1)),
                repeat=self.rng.choice((0.0, 0.01, 0.1)),
                shuffle_s=self.rng.choice((0.0, 0.1, 3.0)),
                jitter_s=self.rng.choice((0.0005, 0.02, 0.2)),
                lag_s=self.rng.choice((0.0, 0.5, 5.0)),
            )

    def _strike(self, fault: Fault) -> None:
        if self.is_stormy:
            fault(self)

    def victim(self, *kinds: str) -> str:
        return self.rng.choice(
            [name for name in self._mains if name.startswith(kinds) and name not in self.gone]
        )

    @property
    def hosts(self) -> list[str]:
        """Those that are there, or come back by themselves."""
        return [name for name in self._mains if name in self.machines and name not in self.gone]

    def can_spare(self, host: str) -> bool:
        """Whether every job can run without it: two hosts in one rack and one in another are
        enough.
        """
        if self._has_family and self.machines[host].attributes == crowds.HOME:
            return False
        left = [self.machines[name].attributes["rack"] for name in self.hosts if name != host]
        return any(left.count(rack) > 1 for rack in left) and len(set(left)) > 1

    def take_away(self, host: str) -> None:
        """A host is gone and never comes back; now and then somebody says so, and has it
        forgotten.
        """
        self.kill(host)
        self.gone.add(host)
        epochs = [state.replica.machine.ledger.epoch for state in self.states.values()]
        self.judge.on_gone(host, max(epochs, default=0))
        after_s = self.rng.random() * STORM_S
        for action in ("mark_lost", "forget") if self.rng.random() < 0.5 else ():
            command = AdminCommand(action, host, ADMIN, f"{action}-{host}", 1)
            self.server.at(
                after_s,
                lambda command=command: self.processes["people"].soon(self.people.want, command),
            )
            after_s += 2.0

    def rename(self, host: str, name: str) -> None:
        """The worker of a machine comes back with another name, and finds what the one before it
        ran.
        """
        machine = self.machines.pop(host)
        self.take_away(host)
        machine.name = name
        self.machines[name] = machine
        self.server.at(self.rng.choice((0.5, 5.0, 20.0)), lambda: self._join(name))

    def _join(self, host: str) -> None:
        """A host that nobody knows yet."""
        self._mains[host] = self._worker
        self._start(host)

    def kill(self, name: str) -> None:
        process = self.processes[name]
        if process.alive:
            self.server.count(f"{process.kind} killed")
            process.kill()
            self._buried(process)

    def freeze(self, name: str, seconds: float) -> None:
        process = self.processes[name]
        if process.alive and not process.frozen:
            self.server.count(f"{process.kind} frozen")
            process.frozen = True
            self.server.at(seconds, process.thaw)

    def stop(self, name: str) -> None:
        """As SIGTERM does to a worker; it comes back after a while."""
        process = self.processes[name]
        if process.alive and name in self.workers:
            self.server.count("worker told to stop")
            self.away_s[name] = self.rng.choice((0.0, 0.0, 6.0, 30.0))
            process.soon(self.workers[name].begin_to_stop)

    def leader(self) -> StateService | None:
        """The replica that leads; a deposed one may not know yet that it does not."""
        leading = [
            state
            for name, state in self.states.items()
            if self.processes[name].alive and state.leads
        ]
        return max(leading, key=lambda state: state.replica.machine.ledger.epoch, default=None)

    def leader_name(self) -> str:
        leader = self.leader()
        return leader.replica.name.split(".")[0] if leader is not None else "state-0"

    def _clear_up(self) -> None:
        self.is_stormy = False
        if self._has_family:
            self._end_parents()
        for machine in self.machines.values():
            machine.unreachable_until_s = 0.0
        self.server.weather = FAIR

    def _is_quiet(self) -> bool:
        """Everybody was answered, every job has ended, and nothing is under way."""
        leader = self.leader()
        if leader is None or self.promises.answered < self.promises.asked:
            return False
        machine = leader.replica.machine
        if any(not job.is_terminal for job in machine.ledger.jobs.values()):
            return False
        if any(not one.is_terminal or one.held() for one in machine.ledger.deployments.values()):
            return False
        if any(presence.open for presence in machine.ledger.presence.values()):
            return False
        if machine.sequence != self.server.journal_end:
            return False
        if any(process.frozen for process in self.processes.values()) or self._running():
            return False
        events = self.server.streams["IRIS_EVENTS"]
        return bool(events.messages) and not leader._leader._publisher.backlog  # type: ignore[union-attr]

    def _running(self) -> list[AttemptRef]:
        return [running.ref for running in self.judge.ran if running.ended is None]

    def _left(self) -> str:
        leader = self.leader()
        if leader is None:
            return "nobody leads"
        ledger = leader.replica.machine.ledger
        living = [
            (
                job.name,
                job.state.name,
                {s.name: n for s, n in job.counted().items()},
                job.session and job.session.status,
            )
            for job in ledger.jobs.values()
            if not job.is_terminal
        ]
        workers = {
            worker.id: (worker.state.value, worker.reason) for worker in ledger.workers.values()
        }
        reasons = {number: reason.message for number, reason in ledger.reasons.items()}
        held = {name: sorted(p.open) for name, p in ledger.presence.items() if p.open}
        return (
            f"answered {self.promises.answered} of {self.promises.asked}, living {living}, held {held}, "
            f"running {self._running()}, workers {workers}, reasons {reasons}"
        )

    def _end(self) -> None:
        for process in self.processes.values():
            if process.alive:
                process.kill()
                self._dead.append(process)
        for process in self._dead:
            process.unwind()


class _Time:
    """What shells ask of the module `time`, answered with simulated time."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def perf_counter(self) -> float:
        return self._server.now

    thread_time = perf_counter


class _SimScheduler(Scheduler):
    """The scheduler on simulated time; the second of two is slow, so that its plans are of the
    past.
    """

    def __init__(self, link: Link, process: Process) -> None:
        self._process = process
        super().__init__(
            link.bus,
            SchedulerSettings(
                answer_timeout_s=2.0,
                gang_reservation_after_s=20.0,
                reclaim_min_s=guarantees.RECLAIM_MIN_S,
                task_reservation_after_s=crowds.RESERVED_AFTER_S,
            ),
            asyncio.Event(),
        )  # type: ignore[arg-type]

    async def _send(self, decided: Plan) -> PlanTaken | None:
        if self._process.name != "scheduler":
            await asyncio.sleep(SLOW_S)
        return await super()._send(decided)


def _policy(rng: random.Random, *, large: bool) -> Policy:
    return msgspec.structs.replace(
        POLICY,
        snapshot_changes=rng.choice((20, 20, 60, 100_000)),
        keep_jobs=rng.choice((0, 0, 3)),
        forget_workers_after_s=rng.choice((86_400.0, 86_400.0, 5.0)),
        journal_part_bytes=rng.choice((100_000, 1 << 20) if large else (100, 1000, 1 << 20)),
    )


def _is_bug(error: BaseException | None) -> bool:
    """Whether an exception that ended a process is not one of those a process may end with."""
    return error is not None and not isinstance(
        error, Fenced | Full | Gap | Unavailable | TimeoutError | Crash
    )


def play(
    seed: int, storm: Storm = EVERYTHING, *, crowded: bool = False, lends: bool = False
) -> Outcome:
    """Run one seed, silently."""
    logging.disable(logging.CRITICAL)
    try:
        return World(seed, storm, crowded=crowded, lends=lends).run()
    finally:
        logging.disable(logging.NOTSET)
