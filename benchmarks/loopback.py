"""The whole path in one process: machine, scheduler and agents, every message packed and read, no
bus, no clock.

Nothing here waits, so what it counts is the same on every machine: commits, messages, bytes and
events a task. The guard in `tests/unit/bench` holds these figures; `python -m benchmarks.loopback`
prints them, and CPU microseconds. Not a row of the table: no journal is written.
"""

from __future__ import annotations

import time
from collections import Counter

from iris_bus.contract import Publication
from iris_core import codec, subjects
from iris_core.messages.gateway_state import Caller, SubmitJob
from iris_core.messages.scheduler_state import Delta, FullSnapshot, PlanTaken
from iris_core.messages.state_worker import (
    Ended,
    Order,
    OrderTaken,
    Register,
    ReportTaken,
    Stage,
    WorkerReport,
)
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import Cause
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.mirror.mirror import Mirror
from iris_scheduler.plan import plan
from iris_scheduler.settings import SchedulerSettings
from iris_state.effects.kinds import MirrorDelta, OrderTo, Output, ReplyTo
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.inputs import Input, Request
from iris_worker.agent.agent import Agent

SUCCESS = Ended(Cause.EXITED, 0)
_REPORTS = "reports."


class Loopback:
    """A cluster that turns round after round until nothing is left to do.

    Args:
        hosts: how many; slots: how many tasks each may run, and be starting, at once.

    Attributes:
        counts: commits, messages by kind, bytes of journal, deltas and messages, events.
        cpu_s: by service.
    """

    def __init__(self, hosts: int = 2, slots: int = 64) -> None:
        self.counts: Counter[str] = Counter()
        self.cpu_s: Counter[str] = Counter()
        self.now_ms = 1_000_000
        self.machine = Machine(Policy(max_building=slots), "leader")
        self._agents = {f"host-{n}": Agent(f"start-{n}") for n in range(hosts)}
        self._inputs: list[Input] = []
        self._told: dict[str, tuple[Stage, ...]] = {}
        self._commands = 0
        self._settings = SchedulerSettings()
        self._cache = Cache()
        self.machine.replay(1, self.machine.bid(self.now_ms))
        self.machine.lead(self.now_ms)
        for name, agent in self._agents.items():
            register = Register(
                name,
                agent.incarnation,
                {},
                Amount(slots * 1000, 1 << 40, 1 << 40, 0),
                monotonic_ms=self.now_ms,
            )
            self._ask(WorkerReport(name, agent.incarnation, register=register))
        self.machine.step(self._inputs, self.now_ms)
        self._inputs = []
        self._mirror = Mirror.of([codec.unpack(self._full(), FullSnapshot)])
        self.counts.clear()

    def _full(self) -> bytes:
        output = self.machine.step([Request(subjects.SNAPSHOT_FULL, b"", "full")], self.now_ms)
        return output.of(ReplyTo)[0].data

    def submit(self, name: str, tasks: int) -> None:
        """Submit one job."""
        self._commands += 1
        spec = JobSpec(name=name, command=("/bin/true",), replicas=tasks)
        command = SubmitJob(spec, Caller("ann"), f"request-{self._commands}", self.now_ms)
        self._inputs.append(Request(subjects.CMD_SUBMIT, codec.pack(command), "answers"))

    def run(self) -> None:
        """Turn until everything has ended. Raises RuntimeError when nothing moves though something
        waits.
        """
        while self._inputs:
            self.turn()
        if len(self.machine.ledger.queue):
            raise RuntimeError(f"{len(self.machine.ledger.queue)} tasks wait for nothing")

    def turn(self) -> None:
        """One commit, and everything that hosts and scheduler make of it."""
        self.now_ms += 1
        inputs, self._inputs = self._inputs, []
        began = time.process_time()
        output = self.machine.step(inputs, self.now_ms)
        self.cpu_s["state"] += time.process_time() - began
        self._count(output)
        self._plan(output)
        for one in output.of(OrderTo):
            self._carry_out(one.worker, one.order)
        self._answer(output)
        for name, agent in self._agents.items():
            self._report(name, agent)

    def _count(self, output: Output) -> None:
        counts, events, deltas = self.counts, output.of(Publication), output.of(MirrorDelta)
        counts["rounds"] += 1
        counts["commits"] += output.commit is not None
        counts["journal bytes"] += len(output.commit or b"")
        counts["delta bytes"] += sum(len(delta.data) for delta in deltas)
        counts["events"] += len(events)
        counts["event bytes"] += sum(len(event.data) for event in events)
        for delta in deltas:
            self._message("delta", delta.data)
        for reply in output.of(ReplyTo):
            self._message("answers", reply.data)

    def _message(self, kind: str, data: bytes) -> None:
        self.counts[kind] += 1
        self.counts["message bytes"] += len(data)

    def _plan(self, output: Output) -> None:
        deltas = output.of(MirrorDelta)
        if not deltas:
            return
        began = time.process_time()
        if not self._mirror.apply(codec.unpack(deltas[0].data, Delta)):
            raise RuntimeError("the mirror refused a delta")
        decision = plan(self._mirror, self._cache, self.now_ms, self._settings)
        self._cache.learn(decision.columns, decision.findings, self._mirror.looked())
        data = None if decision.is_empty else codec.pack(decision.plan)
        self.cpu_s["scheduler"] += time.process_time() - began
        if data is not None:
            self._message("plans", data)
            self._inputs.append(Request(subjects.STATE_PLAN, data, "plan"))

    def _carry_out(self, name: str, order: Order) -> None:
        data = codec.pack(order)
        self._message("orders", data)
        began = time.process_time()
        agent = self._agents[name]
        taken, _ = agent.on_order(codec.unpack(data, Order), self.now_ms)
        while (held := agent.next_launch()) is not None:
            agent.on_started(held.ref, self.now_ms)
            agent.on_ended(held.ref, SUCCESS, self.now_ms)
        self._message("answers", codec.pack(OrderTaken(taken.incarnation, taken.taken)))
        self.cpu_s["worker"] += time.process_time() - began

    def _report(self, name: str, agent: Agent) -> None:
        began = time.process_time()
        stages = agent.reports.take()
        if stages:
            self._told[name] = stages
            self._ask(WorkerReport(name, agent.incarnation, stages))
        self.cpu_s["worker"] += time.process_time() - began

    def _ask(self, report: WorkerReport) -> None:
        data = codec.pack(report)
        self._message("reports", data)
        self._inputs.append(Request(subjects.report(report.worker), data, _REPORTS + report.worker))

    def _answer(self, output: Output) -> None:
        for reply in output.of(ReplyTo):
            if reply.to.startswith(_REPORTS):
                name = reply.to.removeprefix(_REPORTS)
                self._agents[name].on_taken(
                    self._told.pop(name), codec.unpack(reply.data, ReportTaken), self.now_ms
                )
            elif reply.to == "plan" and codec.unpack(reply.data, PlanTaken).refused:
                raise RuntimeError("a plan was refused")


def main() -> None:
    """Print what one task costs: all at once, and through a few slots."""
    for title, slots, tasks in (
        ("10,000 tasks at once", 10_000, 10_000),
        ("2,000 tasks through 64 slots", 32, 2_000),
    ):
        loopback = Loopback(slots=slots)
        loopback.submit("/warm", tasks)
        loopback.run()
        loopback.counts.clear()
        loopback.cpu_s.clear()
        loopback.submit("/job", tasks)
        loopback.run()
        print(title)
        for what, count in loopback.counts.items():
            print(f"  {what:14} {count / tasks:9.4f} a task")
        for service, seconds in loopback.cpu_s.items():
            rounds = loopback.counts["rounds"]
            print(
                f"  {service:14} {seconds / tasks * 1e6:9.1f} us a task {seconds / rounds * 1e6:9.1f} us a round"
            )


if __name__ == "__main__":
    main()
