"""The records of a large cluster, made in seconds: 10,000 jobs, 1,000 hosts, one job of 10,000
tasks.
"""

from __future__ import annotations

from iris_core.codec import unpack
from iris_core.messages.gateway_state import Answer, Query
from iris_core.messages.state_worker import Ended
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount, Device, ResourceRequest
from iris_core.states import Cause, Initiator, JobState, KernelStatus, TaskState, WorkerState
from iris_state.records.apply import apply
from iris_state.records.changes import (
    Assigned,
    Change,
    JobAdmitted,
    JobMoved,
    Moved,
    Staged,
    WorkerMoved,
    WorkerRegistered,
)
from iris_state.records.ledger import Ledger
from iris_state.views.reads import answer
from tests.support.gateway import House

JOBS = 10_000
BIG = JOBS + 1
"""The number of the job with 10,000 tasks, /sweep/big."""
TASKS = 10_000
LARGE_PATHS = (
    *(
        "/",
        "/jobs",
        "/jobs?state=failed",
        "/jobs?user=user7",
        "/jobs?label=team%3Dteam3",
        "/jobs?since=hour",
    ),
    *("/jobs?order=-duration", "/jobs?order=name&user=user7"),
    *(f"/jobs/j{BIG}", f"/jobs/j{BIG}?state=all", "/jobs/j3", f"/tasks/j{BIG}%2F0", "/queue"),
    *(
        "/workers",
        "/workers?state=lost",
        "/workers/slice-000-w1",
        "/deployments",
        "/sessions",
        "/users",
    ),
    *("/events", "/events?kind=task&state=failed", "/system", "/cancel?job=j3&job=j4"),
)
"""Pages of it."""
SLICES, HOSTS_OF_SLICE, HOSTS = 200, 4, 1000
_AGO_MS = 3_500_000
_ROOM = Amount(96_000, 192 << 30, 1 << 40, 8)
_STDERR = "step 900\nwarning: gradient overflow\nValueError: loss is nan at step {}\n"


def large(now_ms: int) -> Ledger:
    """A ledger whose newest records are of ``now_ms``."""
    ledger = Ledger()
    began_ms = now_ms - _AGO_MS
    for number in range(HOSTS):
        apply(ledger, _host(number), began_ms)
    for number in range(0, HOSTS, 97):
        state = (WorkerState.LOST, WorkerState.DRAINING, WorkerState.DEGRADED)[number % 3]
        apply(ledger, WorkerMoved(_name(number), state, "its disk is full"), began_ms)
    for number in range(1, JOBS + 1):
        at_ms = began_ms + _AGO_MS * number // JOBS
        for change in _job(number, at_ms):
            apply(ledger, change, at_ms)
    for change in _big(began_ms):
        apply(ledger, change, now_ms - 60_000)
    ledger.facts.clear()
    waits = Reason(ReasonCode.BEHIND, "there was room, and tasks before it in the queue took it")
    ledger.reasons = dict.fromkeys(range(4, JOBS + 1, 5), waits)
    return ledger


def show(iris: House, ledger: Ledger) -> None:
    """Let the fake state service answer reads from ``ledger``."""

    def look(query: Query) -> Answer:
        return unpack(answer(ledger, query, 1), Answer)

    iris.state.look = look  # type: ignore[method-assign]


def _name(number: int) -> str:
    if number < SLICES * HOSTS_OF_SLICE:
        return f"slice-{number // HOSTS_OF_SLICE:03}-w{number % HOSTS_OF_SLICE}"
    return f"cpu-{number:04}"


def _host(number: int) -> WorkerRegistered:
    name = _name(number)
    attributes: dict[str, str | int | float] = {"zone": "eu-1"}
    if name.startswith("slice"):
        attributes |= {
            "tpu-name": name.rpartition("-")[0],
            "tpu-worker-id": number % HOSTS_OF_SLICE,
        }
        attributes |= {"tpu-topology": "v5litepod-16", "device-type": "tpu"}
    return WorkerRegistered(name, "i", attributes, _ROOM)


def _job(number: int, at_ms: int) -> list[Change]:
    """Of five jobs two have succeeded, one has failed, one runs, one waits."""
    resources = ResourceRequest(
        1000, 1 << 30, 0, Device("tpu", "v5litepod-16", 1) if number % 7 == 0 else None
    )
    spec = JobSpec(
        name=f"/user{number % 40}/train-a-model-{number}",
        command=("python", "train.py", "--seed", str(number)),
        resources=resources,
        labels={"team": f"team{number % 9}"},
        user=f"user{number % 40}",
    )
    admitted = JobAdmitted(number, spec.name, spec, spec.user, at_ms, at_ms)
    kind, host = number % 5, _name(number % HOSTS)
    if kind == 4:
        return [admitted]
    running: list[Change] = [
        admitted,
        *_started(number, 0, host),
        JobMoved(number, JobState.RUNNING),
    ]
    if kind == 3:
        return running
    failed = kind == 2
    state = JobState.FAILED if failed else JobState.SUCCEEDED
    error = "task 0 failed: exit code 1" if failed else ""
    return [*running, _ended(number, 0, failed), JobMoved(number, state, Cause.EXITED, error)]


def _big(at_ms: int) -> list[Change]:
    spec = JobSpec(
        name="/sweep/big",
        command=("python", "sweep.py"),
        replicas=TASKS,
        user="ada",
        max_task_failures=TASKS,
    )
    changes: list[Change] = [JobAdmitted(BIG, spec.name, spec, spec.user, at_ms, at_ms)]
    for index in range(TASKS):
        if index % 10 < 8:
            changes += _started(BIG, index, _name(index % HOSTS))
        if index % 10 < 6:
            changes.append(_ended(BIG, index, failed=index % 10 < 3))
    return [*changes, JobMoved(BIG, JobState.RUNNING)]


def _started(number: int, index: int, host: str) -> list[Change]:
    return [Assigned(number, index, 0, host), Staged(number, index, 0, KernelStatus.RUNNING)]


def _ended(number: int, index: int, failed: bool) -> Moved:
    state = TaskState.FAILED if failed else TaskState.SUCCEEDED
    tail = _STDERR.format(index) if failed else ""
    ended = Ended(Cause.EXITED, int(failed), stderr_tail=tail)
    return Moved(
        number, index, 0, state, state, Cause.EXITED, Initiator.WORKER, closed=True, ended=ended
    )
