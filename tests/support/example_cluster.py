"""A small cluster in the middle of a day's work: a sweep with failures, gangs, a pipeline, a
deployment, a lost host.

Its records are made by the changes that a real cluster writes, and served to a gateway by the views
of the state service. The same moment gives the same cluster.
"""

from __future__ import annotations

import random
from heapq import heapify, heapreplace
from typing import Any

import msgspec

from iris_bus.contract import Publication
from iris_core.codec import pack
from iris_core.messages.processes import ReplicaInfo, ServiceInfo
from iris_core.messages.proxy_state import DeploymentRequests
from iris_core.messages.state_worker import Ended
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.quota import Quota
from iris_core.spec.jobs import Coscheduling, JobSpec
from iris_core.spec.resources import Amount, Device, ResourceRequest
from iris_core.spec.serving import LATENCY_MS, DeploymentSpec, DiscoveredRoute, RouteTemplate
from iris_core.states import (
    Budget,
    Cause,
    DeploymentLifecycle,
    Initiator,
    JobState,
    KernelStatus,
    RouteStatus,
    SchedulingResult,
    SessionStatus,
    TaskState,
    WorkerState,
)
from iris_core.subjects import DESCRIBE
from iris_state.effects.outbox import events
from iris_state.records import changes as c
from iris_state.records.apply import apply
from iris_state.records.deployments.records import Rollout
from iris_state.records.deployments.rollout import RolloutProgress
from iris_state.records.ledger import Ledger
from tests.support.gateway import House
from tests.support.large import show

SWEEP = "/ada/sweep-lr"
"""The job of 300 tasks of which 33 have failed."""
GANG, WAITING, PIPELINE, DEPLOYMENT = "/grace/llama-7b", "/hedy/vit-huge", "/lin/nightly", "chat"
NAN = "ValueError: loss is nan at step {}"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
NO_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 13.00 GiB."
_HOUR_S, _GIB = 3600.0, 1 << 30
_TPU, _CPU = Amount(112_000, 192 * _GIB, 1 << 40, 4), Amount(32_000, 128 * _GIB, 1 << 40)
_SLICES = ("slice-a", "slice-b", "slice-c", "slice-d")
_HOSTS = tuple(f"cpu-{number:02}" for number in range(1, 13))
_TRAIN = ("python", "train.py")


class Story:
    """What has happened to a cluster, in changes with their times.

    Args:
        now_ms: the present; times of the methods are seconds before it.
    """

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.random = random.Random(7)
        self._steps: list[tuple[int, int, c.Change]] = []
        self._jobs: dict[str, int] = {}
        self.printed: list[tuple[int, int, int, str, str, int]] = []

    def add(self, ago_s: float, change: c.Change) -> None:
        self._steps.append((self.now_ms - round(1000 * ago_s), len(self._steps), change))

    def host(self, name: str, total: Amount, **attributes: str | int | float) -> None:
        self.add(
            5 * _HOUR_S,
            c.WorkerRegistered(name, "i", {"zone": "eu-1", **attributes}, total, version="0.1.0"),
        )

    def job(self, name: str, ago_s: float, **spec: Any) -> int:
        """Submit a job; its number, which grows with the time."""
        number = round(10 * (_HOUR_S - ago_s))
        self._jobs[name] = number
        user = name.split("/")[1]
        parent = self._jobs.get(name.rpartition("/")[0], 0)
        made = JobSpec(**{"name": name, "user": user, "command": _TRAIN, **spec})
        at_ms = self.now_ms - round(1000 * ago_s)
        self.add(ago_s, c.JobAdmitted(number, name, made, user, at_ms, at_ms, parent))
        return number

    def run(
        self, job: int, index: int, host: str, ago_s: float, took_s: float | None, **end: Any
    ) -> None:
        """One attempt, placed ``ago_s``; ``took_s`` None: it runs. ``attempt``, ``error``: see
        `_end`.
        """
        attempt = end.get("attempt", 0)
        self.add(ago_s, c.Assigned(job, index, attempt, host))
        self.add(ago_s - 0.4, c.Staged(job, index, attempt, KernelStatus.PREPARING))
        self.add(ago_s - 4.0, c.Staged(job, index, attempt, KernelStatus.RUNNING))
        if took_s is not None:
            self._end(job, index, ago_s - took_s, **end)

    def _end(
        self,
        job: int,
        index: int,
        ago_s: float,
        *,
        attempt: int = 0,
        error: str = "",
        retried: bool = False,
    ) -> None:
        """The end of an attempt; ``error``: the last line it printed to stderr."""
        state = TaskState.FAILED if error else TaskState.SUCCEEDED
        tail = f"step {self.random.randrange(100, 900)}: lr 3.0e-03\nTraceback (most recent call last):\n{error}\n"
        peak = self.random.randrange(900, 3600) << 20
        ended = Ended(
            Cause.EXITED, 1 if error else 0, stderr_tail=tail if error else "", peak_rss_bytes=peak
        )
        left = TaskState.PENDING if retried else state
        charged = Budget.FAILURE if error else None
        moved = c.Moved(
            job, index, attempt, left, state, Cause.EXITED, Initiator.WORKER, True, charged, ended
        )
        self.add(ago_s, moved)
        if error:
            self.printed.append(
                (job, index, attempt, "stderr", tail, self.now_ms - round(1000 * ago_s))
            )

    def print(self, job: int, index: int, lines: str, ago_s: float = 1.0, attempt: int = 0) -> None:
        self.printed.append(
            (job, index, attempt, "stdout", lines, self.now_ms - round(1000 * ago_s))
        )

    def applied(self) -> tuple[Ledger, list[Publication]]:
        """The ledger after all changes, and the events of them."""
        ledger, told = Ledger(), list[Publication]()
        for sequence, (at_ms, _, change) in enumerate(
            sorted(self._steps, key=lambda step: step[:2]), 1
        ):
            ledger.now_ms = at_ms
            apply(ledger, change, at_ms)
            told += events(ledger.facts, sequence)
            ledger.facts = []
        ledger.now_ms = self.now_ms
        return ledger, told


async def happen(iris: House, ledger: Ledger, at_ms: int, *changes: c.Change) -> None:
    """Apply changes to a ledger that a gateway shows, and publish their events."""
    for change in changes:
        apply(ledger, change, at_ms)
        facts, ledger.facts = ledger.facts, []
        for event in events(facts, 1):
            await iris.state.streams.publish(event.subject, event.data)


async def show_example(iris: House, now_ms: int) -> Ledger:
    """Let a gateway show the example, as it is at ``now_ms``."""
    story = example(now_ms)
    ledger, told = story.applied()
    for event in told:
        await iris.state.streams.publish(event.subject, event.data)
    for number, presence in enumerate(ledger.presence.values()):
        presence.heartbeat_ms = now_ms - 100 * (number % 9) - 200
    ledger.presence["slice-d-w2"].heartbeat_ms = now_ms - 250_000
    group = "slice-b, slice-c and slice-d have hosts in use; it needs 4 free hosts of one slice"
    cores = "asks for 8 cores, the best host has 4 free"
    ledger.reasons = {
        _number(ledger, WAITING): Reason(ReasonCode.GANG_NEEDS_GROUP, group),
        _number(ledger, "/mia/augment"): Reason(ReasonCode.NOT_ENOUGH_CPU, cores),
        _number(ledger, "/ken/tokenize"): Reason(ReasonCode.OVER_QUOTA, "ken runs 64 of 64 cores"),
    }
    offsets: dict[tuple[int, int, int, str], int] = {}
    for job, index, attempt, stream, text, at_ms in sorted(story.printed, key=lambda one: one[-1]):
        offset = offsets.get((job, index, attempt, stream), 0)
        offsets[job, index, attempt, stream] = offset + len(text.encode())
        await iris.state.print(
            job, index, text, attempt=attempt, stream=stream, at_ms=at_ms, offset=offset
        )
    _requests(ledger)
    show(iris, ledger)
    await _describe(iris, now_ms)
    return ledger


def _number(ledger: Ledger, name: str) -> int:
    job = ledger.find_job(name)
    assert job is not None
    return job.number


async def _describe(iris: House, now_ms: int) -> None:
    """The processes of the cluster besides the one that leads."""
    bus = iris.memory.connect("processes").bus
    began_ms = now_ms - 4 * 3_600_000

    def tell(message: Any) -> None:
        for number, service in enumerate(("state", "scheduler", "gateway", "proxy"), 2):
            replica = ReplicaInfo(False, 3, 41, 0, 7, {}) if service == "state" else None
            info = ServiceInfo(
                service, f"{service}2", "0.1.0", "host-b", 4000 + number, began_ms, "", replica
            )
            bus.publish(message.reply, pack(info))

    await bus.subscribe(DESCRIBE, tell)


def example(now_ms: int) -> Story:
    """The cluster's hosts, and its jobs from the oldest to the newest."""
    story = Story(now_ms)
    for name in _SLICES:
        for number in range(4):
            place = {
                "tpu-name": name,
                "tpu-worker-id": number,
                "tpu-topology": "v5litepod-16",
                "device-type": "tpu",
            }
            story.host(f"{name}-w{number}", _TPU, **place)
    for name in _HOSTS:
        story.host(name, _CPU)
    story.add(1500, c.WorkerMoved("slice-d-w2", WorkerState.LOST, "no heartbeat for 20 s"))
    story.add(900, c.WorkerMoved("cpu-12", WorkerState.DRAINING, "kernel update", drained=True))
    story.add(4 * _HOUR_S, c.QuotaSet(Quota("ken", max_running_cpu=64_000)))
    _gang(story)
    _finished(story)
    _serving(story)
    _sweep(story)
    _pipeline(story)
    _newest(story)
    return story


_HANDLER = {
    SessionStatus.SCHEDULED: "ScheduleNewSessions",
    SessionStatus.RUNNING: "PromoteToRunning",
}


def _gang_spec() -> dict[str, Any]:
    device = Device("tpu", "v5litepod-16", 4)
    resources = ResourceRequest(64_000, 96 * _GIB, 0, device)
    return {"replicas": 4, "resources": resources, "coscheduling": Coscheduling("tpu-name")}


def _gang(story: Story) -> None:
    """Placed on slice-d, whose third host was lost; since then on slice-a."""
    gang = story.job(
        GANG,
        2700,
        **_gang_spec(),
        max_retries_failure=2,
        labels={"team": "language"},
        band="production",
    )
    for index in range(4):
        story.run(gang, index, f"slice-d-w{index}", 2680, None)
        lost = index == 2
        cause = Cause.WORKER_LOST if lost else Cause.COSCHEDULED_RESTART
        shown = TaskState.WORKER_FAILED if lost else TaskState.PREEMPTED
        words = (
            "its worker was lost" if lost else "started again, because task 2 had a worker failure"
        )
        ended = Ended(cause, error=words)
        story.add(
            1490,
            c.Moved(
                gang,
                index,
                0,
                TaskState.PENDING,
                shown,
                cause,
                Initiator.SYSTEM,
                True,
                Budget.PREEMPTION,
                ended,
            ),
        )
        story.run(gang, index, f"slice-a-w{index}", 1400 - index, None, attempt=1)
        lines = "".join(
            f"\x1b[36mINFO\x1b[0m step {step}: loss \x1b[1m{4.2 - step / 5000:.3f}\x1b[0m, 41.8k tokens/s\n"
            for step in range(8000, 8012)
        )
        story.print(gang, index, lines, attempt=1, ago_s=9 - index)
    for ago_s, status in ((2680, SessionStatus.SCHEDULED), (2676, SessionStatus.RUNNING)):
        story.add(ago_s, c.SessionMoved(gang, status, _HANDLER[status]))
    story.add(
        1489,
        c.SessionMoved(
            gang, SessionStatus.PENDING, "RegressToPending", reason="task 2 had a worker failure"
        ),
    )
    for ago_s, status in ((1399, SessionStatus.SCHEDULED), (1394, SessionStatus.RUNNING)):
        story.add(ago_s, c.SessionMoved(gang, status, _HANDLER[status]))
    story.add(2675, c.JobMoved(gang, JobState.RUNNING))


def _finished(story: Story) -> None:
    """An hour of small jobs, of which few fail."""
    users, kinds = ("mia", "ken", "lin", "ada"), ("evaluate", "embed", "score", "convert")
    for number in range(64):
        ago_s = 3550 - 54 * number + story.random.randrange(30)
        name = f"/{users[number % 4]}/{kinds[number % 3]}-{1200 + number}"
        tasks = story.random.choice((1, 1, 2, 4, 8))
        job = story.job(
            name, ago_s, replicas=tasks, resources=ResourceRequest(2000, 4 * _GIB), band="batch"
        )
        longest = 0.0
        for index in range(tasks):
            took_s = story.random.uniform(20, 110)
            longest = max(longest, took_s)
            waited_s = story.random.uniform(0.2, 25)
            error = (
                "FileNotFoundError: /data/shards/0041.tar"
                if number in (12, 60) and index == 0
                else ""
            )
            story.run(
                job, index, _HOSTS[(number + index) % 11], ago_s - waited_s, took_s, error=error
            )
        failed = number in (12, 60)
        state = JobState.FAILED if failed else JobState.SUCCEEDED
        story.add(ago_s - 5, c.JobMoved(job, JobState.RUNNING))
        story.add(
            ago_s - 26 - longest,
            c.JobMoved(job, state, None, "task 0 failed: exit code 1" if failed else ""),
        )


def _serving(story: Story) -> None:
    """Three routes that serve, and an update: two routes of its revision failed to start, and one
    is starting.
    """
    resources = ResourceRequest(4000, 16 * _GIB)
    template = RouteTemplate(
        ("python", "serve.py", "--model", "chat-3b"), resources=resources, labels={"team": "chat"}
    )
    spec = DeploymentSpec(DEPLOYMENT, template, replicas=3, user="mary")
    story.add(3300, c.DeploymentCreated(1, spec, "mary"))
    discovered = []
    for route in (1, 2, 3):
        story.add(3299, c.RouteCreated(1, route, 1))
        job = story.job(f"/{DEPLOYMENT}/r1-{route}", 3298 - route, **_route(template))
        story.run(job, 0, f"cpu-{route:02}", 3294, None)
        address = f"10.0.0.{route}:31000"
        story.add(3290, c.JobMoved(job, JobState.RUNNING))
        story.add(
            3289, c.RouteMoved(1, route, RouteStatus.PROVISIONING, "ProvisioningRoute", job=job)
        )
        story.add(3288, c.RouteProbed(1, route, address))
        story.add(
            3287, c.RouteMoved(1, route, RouteStatus.HEALTHY, "HealthCheckRoute", passed=True)
        )
        discovered.append(DiscoveredRoute(f"r1-{route}", address))
    story.add(3286, c.RoutesDiscovered(1, 1, tuple(discovered)))
    story.add(3285, c.RolledOut(1, Rollout(stable=1)))
    story.add(3284, c.DeploymentMoved(1, DeploymentLifecycle.READY, "ScalingDeployment"))
    larger = msgspec.structs.replace(template, command=("python", "serve.py", "--model", "chat-7b"))
    story.add(
        200,
        c.DeploymentChanged(1, msgspec.structs.replace(spec, template=larger), 2, by_owner=True),
    )
    story.add(199, c.DeploymentMoved(1, DeploymentLifecycle.DEPLOYING, "UpdateDeployment"))
    for number, ago_s in ((4, 198), (5, 120), (6, 30)):
        story.add(ago_s, c.RouteCreated(1, number, 2))
        job = story.job(f"/{DEPLOYMENT}/r2-{number}", ago_s - 1, **_route(larger))
        fails = number != 6
        story.run(
            job,
            0,
            f"cpu-{number:02}",
            ago_s - 2,
            20 if fails else None,
            error=NO_MEMORY if fails else "",
        )
        story.add(ago_s - 6.5, c.JobMoved(job, JobState.RUNNING))
        story.add(
            ago_s - 7,
            c.RouteMoved(1, number, RouteStatus.PROVISIONING, "ProvisioningRoute", job=job),
        )
        if fails:
            reason = "task 0 failed: exit code 1"
            story.add(ago_s - 22.5, c.JobMoved(job, JobState.FAILED, Cause.EXITED, reason))
            gone, gave_up = RouteStatus.FAILED_TO_START, SchedulingResult.GIVE_UP
            story.add(
                ago_s - 23, c.RouteMoved(1, number, gone, "ProvisioningRoute", gave_up, reason)
            )
    progress = RolloutProgress(story.now_ms - 199_000, old=3, failed=2)
    story.add(20, c.RolledOut(1, Rollout(stable=1, progress=progress)))


def _requests(ledger: Ledger) -> None:
    """An hour of requests, with an error now and then."""
    chance = random.Random(5)
    for ago in range(59, -1, -1):
        arrived = 900 + chance.randrange(300)
        latency = [0] * (len(LATENCY_MS) + 1)
        latency[4:9] = (arrived // 4, arrived // 2, arrived // 8, arrived // 10, arrived // 40)
        failed = chance.randrange(9) if ago in (44, 43, 12, 11, 10, 3) else 0
        requests = DeploymentRequests(DEPLOYMENT, arrived, {}, arrived, 5 * failed, tuple(latency))
        ledger.loads.minutes.note(1, requests, ledger.now_ms - 60_000 * ago)
    now = DeploymentRequests(DEPLOYMENT, 173, {f"r1-{number}": 57 for number in (1, 2, 3)})
    ledger.loads.rates.note(now, ledger.now_ms)


def _route(template: RouteTemplate) -> dict[str, Any]:
    return {
        "user": "mary",
        "command": template.command,
        "resources": template.resources,
        "labels": template.labels,
    }


def _sweep(story: Story) -> None:
    """300 tasks on 36 places; 33 fail, most of them alike, and some are tried twice."""
    spec: dict[str, Any] = {
        "replicas": 300,
        "max_task_failures": 20,
        "max_retries_failure": 1,
        "band": "batch",
    }
    spec["labels"] = {"team": "vision", "sweep": "lr"}
    job = story.job(
        SWEEP,
        2400,
        **spec,
        resources=ResourceRequest(2000, 4 * _GIB),
        command=("python", "sweep.py"),
    )
    free = [(place / 9 - 2396.0, place) for place in range(36)]
    heapify(free)
    bad = set(story.random.sample(range(300), 33))
    last = 2400.0
    for index in range(300):
        began, place = free[0]
        host, ago_s = _HOSTS[place % 11], -began
        took_s = story.random.uniform(90, 330)
        error = (
            (NAN.format(story.random.randrange(200, 900)) if index % 7 else MEMORY)
            if index in bad
            else ""
        )
        retried = bool(error) or index % 41 == 5
        if retried:
            first_s = story.random.uniform(30, 80)
            first = error or "ConnectionResetError: [Errno 104] Connection reset by peer"
            story.run(job, index, host, ago_s, first_s, error=first, retried=True)
            story.run(job, index, host, ago_s - first_s - 3, took_s / 3, attempt=1, error=error)
            took_s = first_s + 3 + took_s / 3
        else:
            story.run(job, index, host, ago_s, took_s)
        heapreplace(free, (-(ago_s - took_s - 2), place))
        last = min(last, ago_s - took_s)
    story.add(2390, c.JobMoved(job, JobState.RUNNING))
    story.add(
        max(1.0, last - 1),
        c.JobMoved(job, JobState.FAILED, Cause.EXITED, f"task {min(bad)} failed: exit code 1"),
    )


def _pipeline(story: Story) -> None:
    """A parent that waits for its children: one has succeeded, one runs, one waits."""
    parent = story.job(PIPELINE, 620, command=("python", "nightly.py"), labels={"team": "data"})
    story.run(parent, 0, "cpu-07", 618, None)
    story.add(613, c.JobMoved(parent, JobState.RUNNING))
    tokenize = story.job(
        f"{PIPELINE}/tokenize", 600, replicas=8, resources=ResourceRequest(4000, 8 * _GIB)
    )
    for index in range(8):
        story.run(tokenize, index, _HOSTS[index], 599, 100 + 9 * index)
    story.add(590, c.JobMoved(tokenize, JobState.RUNNING))
    story.add(430, c.JobMoved(tokenize, JobState.SUCCEEDED))
    train = story.job(f"{PIPELINE}/train", 425, **_gang_spec())
    for index in range(4):
        story.run(train, index, f"slice-b-w{index}", 420, None)
    for ago_s, status in ((420, SessionStatus.SCHEDULED), (415, SessionStatus.RUNNING)):
        story.add(ago_s, c.SessionMoved(train, status, _HANDLER[status]))
    story.add(414, c.JobMoved(train, JobState.RUNNING))
    evaluate = story.job(
        f"{PIPELINE}/train/evaluate", 300, replicas=2, resources=ResourceRequest(4000, 8 * _GIB)
    )
    for index in range(2):
        story.run(evaluate, index, _HOSTS[8 + index], 298, None if index else 120)
    story.add(290, c.JobMoved(evaluate, JobState.RUNNING))


def _newest(story: Story) -> None:
    """What runs now and what waits, and why."""
    device = Device("tpu", "v5litepod-16", 4)
    probe = story.job(
        "/mia/probe", 540, replicas=2, resources=ResourceRequest(8000, 16 * _GIB, 0, device)
    )
    for index in range(2):
        story.run(probe, index, f"slice-c-w{index}", 538, None)
    story.add(530, c.JobMoved(probe, JobState.RUNNING))
    story.job(WAITING, 480, **_gang_spec(), labels={"team": "vision"})
    augment = story.job(
        "/mia/augment", 330, replicas=120, resources=ResourceRequest(8000, 8 * _GIB), band="batch"
    )
    for index in range(70):
        begun_s = 328 - 12 * (index // 6) - index % 6
        story.run(augment, index, _HOSTS[index % 11], begun_s, 120 if index < 46 else None)
    story.add(320, c.JobMoved(augment, JobState.RUNNING))
    cancelled = story.job("/ken/old-preprocess", 280, replicas=4)
    for index in range(4):
        story.run(cancelled, index, _HOSTS[index], 279, None)
        ended = Ended(Cause.CANCELLED, signal=15)
        killed = TaskState.KILLED
        story.add(
            200,
            c.Moved(
                cancelled,
                index,
                0,
                killed,
                killed,
                Cause.CANCELLED,
                Initiator.USER,
                True,
                ended=ended,
            ),
        )
    story.add(275, c.JobMoved(cancelled, JobState.RUNNING))
    story.add(
        200,
        c.JobMoved(cancelled, JobState.KILLED, Cause.CANCELLED, "cancelled by ken: wrong shards"),
    )
    story.job(
        "/ken/tokenize", 160, replicas=24, resources=ResourceRequest(4000, 8 * _GIB), band="batch"
    )
