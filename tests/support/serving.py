"""A state service with deployments: its hosts start routes as ordered and probe them as the story
states.

All inputs go through the machine's public interface, as in `world`. A route is called by its id,
``r1-2``.
"""

from __future__ import annotations

import json
from typing import Any

from iris_core import codec, subjects
from iris_core.messages.gateway_state import Answer, Caller, DeployCommand
from iris_core.messages.message import AttemptRef
from iris_core.messages.proxy_state import DeploymentLoad, LoadReport, QueriedLoad
from iris_core.messages.state_worker import Ended, ProbeResult, Stage
from iris_core.spec.jobs import Probe
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.spec.serving import DeploymentSpec, RouteTemplate, UpdatePolicy
from iris_core.states import Cause, KernelStatus
from iris_state.deployments.reconciler import note_results
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.deployments.records import Deployment, Route
from iris_state.records.inputs import Load
from iris_state.snapshots import snapshot
from tests.support import first_fit
from tests.support.world import ADMIN, Host, World, picture

ANN = Caller("ann")
GIB = 1 << 30


def template(version: str = "1", probe: Probe | None = None, **fields: Any) -> RouteTemplate:
    resources = ResourceRequest(cpu_millis=1000)
    return RouteTemplate(
        command=("serve", version),
        resources=resources,
        probe=probe or Probe(start_timeout_s=60.0),
        **fields,
    )


def spec(replicas: int = 3, version: str = "1", **fields: Any) -> DeploymentSpec:
    fields.setdefault("update", UpdatePolicy(progress_deadline_s=100.0))
    fields.setdefault("template", template(version))
    return DeploymentSpec(name="chat", replicas=replicas, **fields)


class Serving(World):
    """Hosts with room for ``room`` routes in all.

    Attributes:
        failing: routes whose probes fail, by id, and silent: of which nothing is heard.
        loads: the requests under way at each proxy, which reports them each second. queried: what
            the query gives.
        broken: versions whose process exits at once, with `exit_code`.
        unready: ids of routes that fail on their ready path.
        faulty: hosts that can start nothing.
    """

    def __init__(self, room: int = 12, policy: Policy | None = None, hosts: int = 2) -> None:
        super().__init__(policy or Policy(terminating_timeout_s=60.0))
        self.failing: set[str] = set()
        self.silent: set[str] = set()
        self.unready: set[str] = set()
        self.broken: set[str] = set()
        self.faulty: set[str] = set()
        self.exit_code = 1
        self.never_ready: set[str] = set()
        self.stuck: set[str] = set()
        self.loads: dict[str, int] = {}
        self.queried: QueriedLoad | None = None
        self._failures: dict[str, int] = {}
        for n in range(hosts):
            self.register(Host(f"w{n}", Amount(room // hosts * 1000, 8 * GIB, 8 * GIB, 4), {}))

    # ── people ────────────────────────────────────────────────────────────────────────────────────

    def deploy(
        self,
        action: str,
        caller: Caller = ANN,
        name: str = "chat",
        request: str = "",
        **fields: Any,
    ) -> Answer:
        message = DeployCommand(
            action, name, caller, request or self._fresh(), self.now_ms, **fields
        )
        return self.command(subjects.CMD_DEPLOY, message)

    def create(self, replicas: int = 3, **fields: Any) -> dict[str, Any]:
        answer = self.deploy(
            "create", request=f"create-{self.now_ms}", spec=spec(replicas, **fields)
        )
        assert answer.status == "created", answer
        return json.loads(answer.body)

    def create_again(self) -> dict[str, Any]:
        """What is answered to the same request at the same time."""
        return json.loads(self.deploy("create", request=f"create-{self.now_ms}", spec=spec()).body)

    def update(self, version: str, replicas: int = 3, **fields: Any) -> None:
        answer = self.deploy("update", spec=spec(replicas, version, **fields))
        assert answer.status == "accepted", answer

    # ── hosts ─────────────────────────────────────────────────────────────────────────────────────

    def go(self, seconds: float = 0.0) -> None:
        """Let time pass, a second at a time, with everything hosts and the scheduler do
        meanwhile.
        """
        until = self.now_ms + round(seconds * 1000)
        self._act()
        while self.now_ms < until:
            self.wait(min(1.0, (until - self.now_ms) / 1000), heartbeat=False)
            self._act()
            for name in self.hosts:
                if not self.hosts[name].silent:
                    self.heartbeat(name)
            self.report_loads()
            self._act()

    def report_loads(self) -> None:
        """Each proxy says how many requests are under way, and the leader what the query gave."""
        for proxy, outstanding in self.loads.items():
            self._report_load(
                LoadReport(proxy, (DeploymentLoad("chat", outstanding, outstanding),))
            )
        if self.queried is not None:
            self._report_load(LoadReport("", queried=(self.queried,)))

    def proxy_leaves(self, proxy: str) -> None:
        """A proxy stops in order."""
        del self.loads[proxy]
        self._report_load(LoadReport(proxy, leaving=True))

    def _report_load(self, report: LoadReport) -> None:
        self.step(Load(codec.pack(report)))

    def _act(self) -> None:
        """Place what waits, start what was placed, end what was stopped; until nothing is left to
        do.
        """
        for _ in range(20):
            before = self.machine.sequence
            if len(self.ledger.queue):
                self.plan(first_fit.plan(self.snapshot()))
            for host in list(self.hosts.values()):
                self._run(host)
            if self.machine.sequence == before:
                return

    def _run(self, host: Host) -> None:
        if host.silent:
            return
        for ref in list(host.believes):
            stage = host.believes.get(ref)
            if stage is None:
                continue
            if ref in host.stopping:
                if self._route_of(ref) not in self.stuck:
                    self.ends(ref, Ended(Cause.CANCELLED, signal=15))
            elif stage.status is KernelStatus.SCHEDULED:
                self.say(host.name, Stage(ref, KernelStatus.PREPARING, self.now_ms))
                if host.name in self.faulty:
                    self.ends(ref, Ended(Cause.INFRASTRUCTURE, error="no disk"))
                    continue
                self.say(host.name, Stage(ref, KernelStatus.RUNNING, self.now_ms))
                if self.ledger.jobs[ref.job].spec.command[-1] in self.broken:
                    self.ends(ref, Ended(Cause.EXITED, exit_code=self.exit_code))

    def ends(self, ref: AttemptRef, ended: Ended) -> None:
        """The process of an attempt is gone."""
        (host,) = [host for host in self.hosts.values() if ref in host.believes]
        self.say(host.name, Stage(ref, KernelStatus.TERMINATED, self.now_ms, ended))

    def kill(self, route: str) -> None:
        """The process of a route is killed."""
        job = self.ledger.jobs[self.route(route).job]
        self.ends(
            AttemptRef(job.number, 0, job.tasks[0].attempts[-1].number),
            Ended(Cause.EXITED, signal=9),
        )

    def _route_of(self, ref: AttemptRef) -> str:
        found = self.ledger.route_for(ref.job)
        return found[1].id if found is not None else ""

    def probes(self, host: Host) -> tuple[ProbeResult, ...]:
        found = []
        for ref, stage in host.believes.items():
            route = self._route_of(ref)
            if stage.status is not KernelStatus.RUNNING or not route or route in self.silent:
                continue
            version = self.ledger.jobs[ref.job].spec.command[-1]
            fails = route in self.failing or version in self.never_ready
            self._failures[route] = self._failures.get(route, 0) + 1 if fails else 0
            address = f"{host.name}:{30_000 + ref.job}"
            passes, failures = (0, self._failures[route]) if fails else (1, 0)
            found.append(
                ProbeResult(
                    ref, address, passes, failures, route not in self.unready, detail="no answer"
                )
            )
        return tuple(found)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    @property
    def record(self) -> Deployment:
        found = self.ledger.find_deployment("chat")
        assert found is not None
        return found

    def route(self, id_: str) -> Route:
        (found,) = [route for route in self.record.routes.values() if route.id == id_]
        return found

    def status(self) -> str:
        return self.record.status.value

    def routes(self) -> dict[str, str]:
        """The status of every route that has not ended, by id."""
        return {route.id: route.status.value for route in self.record.held()}

    def serving(self) -> dict[str, str]:
        """What proxies were told last: the state of each route that may get requests."""
        return {route.id: route.state for route in self.discovered["chat"].routes}

    def codes(self) -> list[str]:
        return [one["code"] for one in self.query("deployment", deployment="chat")["conditions"]]

    def said(self, entity: str) -> list[str]:
        """The states of public events of deployments or routes, in order."""
        return [
            subject.rpartition(".")[2]
            for subject, _ in self.events
            if subject.startswith(f"{entity}.state.")
        ]

    # ── another leader ────────────────────────────────────────────────────────────────────────────

    def take_over(self, *, followed: bool = False) -> None:
        """This leader is gone; the next one knows the journal, and of that the oldest part from a
        snapshot.

        ``followed``: it has heard heartbeats before it leads.
        """
        data = snapshot.cut(self.ledger, self.machine.sequence, self.machine.last_ms)
        before = picture(self.machine, self.now_ms)
        other = Machine(self.policy, "other")
        other.restore(snapshot.read(data))
        other.serial = self.machine.serial
        assert picture(self.replayed(), self.now_ms) == before
        assert picture(other, self.now_ms) == before
        for host in self.hosts.values() if followed else ():
            note_results(other.ledger, host.name, self.probes(host), self.now_ms)
        self.machine, self.mirror = other, None
        self._lead()
        self.step()


def answered(answer: Answer) -> str:
    """The sentence of a refusal."""
    return json.loads(answer.body)["detail"]


__all__ = ["ADMIN", "ANN", "Serving", "answered", "codec", "spec", "template"]
