"""The invariants of the whole ledger: its indexes are what its records say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from iris_core.errors import InvariantBroken
from iris_core.placement.reasons import ReasonCode
from iris_core.spec.projects import ROOT, within
from iris_core.spec.resources import NOTHING
from iris_core.states import (
    ACTIVE,
    PriorityBand,
    SessionStatus,
    TaskState,
    WorkerState,
)
from iris_core.tables import session as session_table
from iris_state.check.deployments import Wrongs, deployments_are_indexed
from iris_state.records.audit import AuditLog
from iris_state.records.changes import GANG
from iris_state.records.entities import AttemptKey, Job, Key, Task
from iris_state.records.gates import WHOLE, GateKind
from iris_state.records.indexes.chains import chain_of
from iris_state.records.indexes.gates import GateIndex
from iris_state.records.indexes.host_sums import HostSums
from iris_state.records.indexes.index import JobIndex
from iris_state.records.indexes.running_usage import RunningInPools, RunningUsage
from iris_state.records.indexes.stored import NONE_STORED, StoredSums
from iris_state.records.indexes.usage_days import PROJECT, UsageDays, groups_of_project
from iris_state.records.ledger import Ledger
from iris_state.records.shares import counted_of


def queue_is_sorted(ledger: Ledger) -> Wrongs:
    try:
        ledger.queue.check()
    except InvariantBroken as broken:
        yield str(broken)
    waiting = Counter({job.user: 0 for job in ledger.jobs.values()})
    for job in ledger.jobs.values():
        waiting[job.user] += job.counts[TaskState.PENDING]
    if +waiting != +ledger.pending_of_user:
        yield f"waiting tasks by user {dict(+ledger.pending_of_user)}, recount {dict(+waiting)}"
    in_projects = Counter(
        {path: 0 for job in ledger.jobs.values() for path in within(job.spec.project)}
    )
    for job in ledger.jobs.values():
        for path in within(job.spec.project):
            in_projects[path] += job.counts[TaskState.PENDING]
    if +in_projects != ledger.pending_of_project:
        words = f"{dict(ledger.pending_of_project)}, recount {dict(+in_projects)}"
        yield f"waiting tasks by project {words}"
    because: Counter[tuple[PriorityBand, ReasonCode]] = Counter()
    for number, reason in ledger.reasons.items():
        because[ledger.jobs[number].band, reason.code] += ledger.jobs[number].counts[
            TaskState.PENDING
        ]
    if +because != +ledger.pending_because:
        yield f"waiting tasks by reason {dict(+ledger.pending_because)}, recount {dict(+because)}"
    known = sum(len(ledger.queue.pending(number)) for number in ledger.jobs)
    if len(ledger.queue) != known:
        yield f"the queue holds {len(ledger.queue)} tasks, {known} of jobs that are known"


def open_attempts_are_held(ledger: Ledger) -> Wrongs:
    """What each host holds is the sum over its open attempts, and at most its capacity."""
    opened: dict[str, set[AttemptKey]] = {worker: set() for worker in ledger.presence}
    for job in ledger.jobs.values():
        for index, task in job.numbered():
            for attempt in task.attempts:
                if attempt.is_open:
                    opened.setdefault(attempt.worker, set()).add(
                        (job.number, index, attempt.number)
                    )
    for name, keys in opened.items():
        presence = ledger.presence[name]
        if set(presence.open) != keys:
            yield f"{name} is thought to hold {sorted(presence.open)}, recount {sorted(keys)}"
            continue
        alone = [key for key in keys if presence.open[key].alone]
        if alone != [key for key in keys if key in ledger.alone]:
            yield f"{name} is thought to be kept for one of {list(ledger.alone)}, recount {alone}"
        held = NOTHING
        building = 0
        for key in keys:
            building += presence.open[key].is_building
        for number, _, _ in {chain_of(key, presence.open[key].chain) for key in keys}:
            held = held + ledger.jobs[number].spec.resources.amount
        if (held, building) != (presence.committed, presence.building):
            yield f"{name} commits {presence.committed} building {presence.building}, recount {held}, {building}"
        if not held.fits(ledger.workers[name].total):
            yield f"{name} has {ledger.workers[name].total} and holds {held}"


def hosts_are_summed(ledger: Ledger) -> Wrongs:
    recount = HostSums()
    for id_, worker in ledger.workers.items():
        recount.enter(worker, ledger.presence[id_])
    kept, wanted = ledger.host_sums.counts(), recount.counts()
    if kept != wanted:
        yield f"hosts are summed as {kept}, recount {wanted}"


def what_runs_is_summed(ledger: Ledger) -> Wrongs:
    recount = RunningUsage(UsageDays())
    in_projects = RunningUsage(UsageDays(), groups_of_project)
    in_pools = RunningInPools(UsageDays())
    for presence in ledger.presence.values():
        for key, attempt in presence.open.items():
            number, index, _ = key
            place = ledger.running_usage.place_of(key)
            job = ledger.jobs[number]
            amount = ledger.requested[number]
            recount.enter(job, amount, index, attempt, job.spec.labels.get(PROJECT, ""), place)
            if path := job.spec.project:
                in_projects.enter(job, amount, index, attempt, path, place)
            if place is not None:
                in_pools.enter(job, amount, index, attempt, place.pool, place)
    for kept, wanted in (
        (ledger.running_usage.sums(), recount.sums()),
        (ledger.running_in_projects.sums(), in_projects.sums()),
        (ledger.running_in_pools.sums(), in_pools.sums()),
    ):
        if kept != wanted:
            yield f"what runs is summed as {kept}, recount {wanted}"


def shares_are_summed(ledger: Ledger) -> Wrongs:
    """What fair share counts as running and as waiting is what the records say."""
    if not ledger.shares.enabled:
        return
    kept = ledger.shares.counted()
    recount: dict[tuple[str, str], tuple[int, list[int], int]] = {}

    def count(job: Job, attempts: int, waiting: int) -> None:
        key = (job.spec.project or ROOT, job.user)
        more = [attempts * part for part in counted_of(ledger.requested[job.number])]
        running, held, before = recount.get(key, (0, [0] * len(more), 0))
        total = [one + other for one, other in zip(held, more, strict=True)]
        recount[key] = (running + attempts, total, before + waiting)

    for presence in ledger.presence.values():
        for number, _, _ in {chain_of(key, one.chain) for key, one in presence.open.items()}:
            count(ledger.jobs[number], 1, 0)
    for job in ledger.jobs.values():
        if pending := job.counts[TaskState.PENDING]:
            count(job, 0, pending)
    if kept != recount:
        yield f"fair share counts {kept}, recount {recount}"


def jobs_are_in_projects(ledger: Ledger) -> Wrongs:
    """Whatever has not ended is in a project that there is, with those above it."""
    for job in ledger.jobs.values():
        for path in within(job.spec.project) if not job.is_terminal else ():
            if ledger.projects.find(path) is None:
                yield f"{job.name} is in {job.spec.project}, and there is no project {path}"
    for project in ledger.projects:
        for path in within(project.path):
            if ledger.projects.find(path) is None:
                yield f"there is a project {project.path}, and none of {path}"
    defaults = {user: one.path for one in ledger.projects for user in one.spec.default_for}
    if defaults != ledger.projects.default_of:
        yield f"defaults of users {ledger.projects.default_of}, recount {defaults}"
    doubled = Counter(user for one in ledger.projects for user in one.spec.default_for)
    for user in (user for user, times in doubled.items() if times > 1):
        yield f"{user} has {doubled[user]} default projects"


def live_jobs_are_weighed(ledger: Ledger) -> Wrongs:
    recorded: Counter[str] = Counter()
    for job in ledger.jobs.values():
        recorded[job.user] += ledger.written[job.number]
    if +recorded != ledger.job_bytes:
        yield f"jobs weigh {dict(ledger.job_bytes)}, recount {dict(+recorded)}"
    recount: Counter[str] = Counter()
    for job in ledger.jobs.values():
        recount[job.user] += 0 if job.is_terminal else ledger.written[job.number]
    if +recount != ledger.live_bytes:
        yield f"live jobs weigh {dict(ledger.live_bytes)}, recount {dict(+recount)}"


def stored_bytes_are_summed(ledger: Ledger) -> Wrongs:
    recount = StoredSums()
    for job in ledger.jobs.values():
        recount.move(job.user, NONE_STORED, job.held)
    if recount.of_user != ledger.stored.of_user:
        yield f"stored bytes are {ledger.stored.of_user}, recount {recount.of_user}"


def gates_are_indexed(ledger: Ledger) -> Wrongs:
    recount = GateIndex(ledger.jobs)
    for job in ledger.jobs.values():
        over = job.is_terminal and not ledger.open_of_job[job.number]
        if not over:
            recount.add(job)
    for name in ("gated", "waiters", "followers", "singletons", "left"):
        kept = getattr(ledger.gates, name)
        wanted = getattr(recount, name)
        if kept != wanted:
            yield f"the index of gates has {name} {kept}, recount {wanted}"
    for number in ledger.gates.waiters:
        if number not in ledger.jobs:
            yield f"j{number} is forgotten, and {list(ledger.gates.waiters[number])} wait for it"


def lost_hosts_hold_nothing(ledger: Ledger) -> Wrongs:
    for worker in ledger.workers.values():
        if worker.state is WorkerState.LOST and ledger.presence[worker.id].open:
            yield f"{worker.id} is lost and holds {sorted(ledger.presence[worker.id].open)}"


def the_lost_are_in_line(ledger: Ledger) -> Wrongs:
    lost = (w for w in ledger.workers.values() if w.state is WorkerState.LOST and not w.drained)
    wanted = {worker.id: worker.lost_ms for worker in lost}
    if dict(ledger.lost.items()) != wanted:
        yield f"the lost hosts are {dict(ledger.lost.items())}, recount {wanted}"


def nominations_are_for_those_who_wait(ledger: Ledger) -> Wrongs:
    for (number, index), worker in ledger.nominations.items():
        job = ledger.jobs.get(number)
        host = ledger.workers.get(worker)
        if job is None or job.task(index).state is not TaskState.PENDING:
            yield f"{worker} is nominated for j{number}/{index}, which does not wait"
        if host is None or host.state is WorkerState.LOST:
            yield f"{worker} is nominated for j{number}/{index} and is gone"


def avoidances_are_of_those_who_go_on(ledger: Ledger) -> Wrongs:
    for (number, index), workers in ledger.avoided.items():
        job = ledger.jobs.get(number)
        if job is None or job.task(index).is_terminal:
            yield f"j{number}/{index} has ended and is kept off {sorted(workers)}"


def clocks_are_set(ledger: Ledger) -> Wrongs:
    """Every record in a status with a timeout is in that status's queue with the right time, and no
    other record is.
    """
    wanted: dict[SessionStatus, dict[Key, int]] = {status: {} for status in ledger.timeouts}
    for job in ledger.jobs.values():
        for key, status, since in _clocks(job):
            if status in wanted:
                wanted[status][key] = since
    for status, line in ledger.timeouts.items():
        if dict(line.items()) != wanted[status]:
            yield f"the line of {status.value} is {dict(line.items())}, recount {wanted[status]}"
        times = [since for _, since in line.items()]
        if times != sorted(times):
            yield f"the line of {status.value} is not in order: {times}"


def _clocks(job: Job) -> Iterator[tuple[Key, SessionStatus, int]]:
    if job.session is not None:
        yield (job.number, GANG), job.session.status, job.session.since_ms
        return
    for index, task in job.numbered():
        if task.state in ACTIVE:
            attempt = task.attempts[-1]
            yield (job.number, index), session_table.SINGLE[attempt.status], attempt.since_ms
        elif (
            task.is_terminal and task.attempts and task.attempts[-1].is_open and not _is_over(task)
        ):
            yield (job.number, index), SessionStatus.TERMINATING, task.attempts[-1].since_ms


def _is_over(task: Task) -> bool:
    """Whether its session of one is TERMINATED for the user although its kernel's end is not
    known.
    """
    return task.session is not None and task.session.status is SessionStatus.TERMINATED


def timeouts_are_set(ledger: Ledger) -> Wrongs:
    timers = dict(ledger.timers.items())
    wanted: dict[tuple[str, int, int], int | None] = {}
    for job in ledger.jobs.values():
        timeout_s = job.spec.scheduling_timeout_s
        if timeout_s is not None and not job.is_terminal and not job.is_gated:
            if not job.opens_by_task:
                wanted["scheduling", job.number, 0] = (job.eligible_ms or job.submitted_ms) + int(
                    timeout_s * 1000
                )
            for index, task in job.numbered() if job.opens_by_task else ():
                if not task.gates and task.state is TaskState.PENDING and not task.attempts:
                    wanted["scheduling", job.number, index] = task.queued_ms + int(timeout_s * 1000)
        wanted |= _idle_timeout(job, timers)
        for gate in job.closed_gates if not job.is_terminal else ():
            if gate.kind is GateKind.NOT_BEFORE:
                wanted["gate", job.number, WHOLE] = gate.until_ms
        for index, task in job.numbered():
            if task.state is TaskState.PENDING and task.not_before_ms:
                wanted["gate", job.number, index] = task.not_before_ms
            if task.state is TaskState.RUNNING and (last := task.current) is not None:
                wanted["timeout", job.number, index] = job.limit_ms(last)
    wanted = {key: due for key, due in wanted.items() if due is not None}
    # A scheduling timeout fires once; attempts that were placed before it continue.
    rung = {key for key in wanted if key[0] == "scheduling"} - timers.keys()
    wanted = {key: due for key, due in wanted.items() if key not in rung}
    found = {
        key: due
        for key, due in timers.items()
        if key in wanted or not _fires_without_effect(ledger, key)
    }
    if found != wanted:
        yield f"alarms {found}, recount {wanted}"


def _idle_timeout(
    job: Job, timers: dict[tuple[str, int, int], int]
) -> dict[tuple[str, int, int], int]:
    """That of an open job; a new leader waits longer."""
    if not job.open or job.spec.calls is None:
        return {}
    due_ms = job.grown_ms + int((job.spec.calls.idle_s or 0) * 1000)
    key = ("idle", job.number, WHOLE)
    return {key: max(due_ms, timers.get(key, 0))}


def _fires_without_effect(ledger: Ledger, key: tuple[str, int, int]) -> bool:
    """Whether a timer is left over: of a task that became eligible by itself and has been placed
    since.
    """
    job = ledger.jobs.get(key[1])
    return key[0] == "scheduling" and job is not None and not job.is_terminal and job.opens_by_task


def names_lead_to_the_newest(ledger: Ledger) -> Wrongs:
    newest: dict[str, int] = {}
    for job in ledger.jobs.values():
        newest[job.name] = max(newest.get(job.name, 0), job.number)
    if newest != ledger.names:
        yield f"names {ledger.names}, recount {newest}"
    owners: dict[str, dict[str, int]] = {}
    for job in ledger.jobs.values():
        of_user = owners.setdefault(job.name, {})
        of_user[job.user] = max(of_user.get(job.user, 0), job.number)
    shared = {name: found for name, found in owners.items() if len(found) > 1}
    if shared != ledger.shared_names:
        yield f"names of several users {ledger.shared_names}, recount {shared}"
    if any(number >= ledger.next_number for number in ledger.jobs):
        yield f"the next job is {ledger.next_number}, there is {max(ledger.jobs)}"


def one_run_of_a_name_lives(ledger: Ledger) -> Wrongs:
    """A run has no attempts until those of earlier runs of the name have ended; until then it is
    held back.
    """
    runs: dict[tuple[str, str], list[Job]] = {}
    for job in ledger.jobs.values():
        runs.setdefault((job.name, job.user), []).append(job)
    held_back = set()
    for (name, _), found in runs.items():
        found.sort(key=lambda job: job.number)
        live = [any(a.is_open for task in job.tasks for a in task.attempts) for job in found]
        if sum(live) > 1:
            yield f"{name} is open in the runs {[job.id for job, is_live in zip(found, live, strict=True) if is_live]}"
        held_back |= {
            job.number
            for place, job in enumerate(found)
            if not job.is_terminal and any(live[:place])
        }
    if held_back != ledger.held_back:
        yield f"the jobs {sorted(ledger.held_back)} are held back, recount {sorted(held_back)}"


def listings_are_indexed(ledger: Ledger) -> Wrongs:
    recount = JobIndex()
    for job in ledger.jobs.values():
        recount.add(job)
    if (list(ledger.index.all), ledger.index.fields()) != (list(recount.all), recount.fields()):
        yield f"listings know {ledger.index.fields()}, recount {recount.fields()}"
    if ledger.index.users != recount.users:
        yield f"users with jobs are {list(ledger.index.users)}, recount {list(recount.users)}"
    for band, counts in ledger.tally.items():
        jobs = [job.counts for job in ledger.jobs.values() if job.band is band]
        if counts != [sum(column) for column in zip([0] * len(counts), *jobs, strict=True)]:
            yield f"{band.name} counts the tasks {counts}, its jobs have {jobs}"


def audit_is_counted(ledger: Ledger) -> Wrongs:
    audit = ledger.audit
    found = [entry.number for entry in audit.newest_first()]
    if found != sorted(found, reverse=True) or found[:1] > [audit.next_number - 1]:
        yield f"the audit holds {found}, the next number is {audit.next_number}"
    recount = AuditLog()
    recount.restore(audit.stored(), audit.next_number)
    if (audit.bytes, audit.bytes_of) != (recount.bytes, recount.bytes_of):
        yield f"the audit counts {audit.bytes} bytes, recount {recount.bytes}"


OF_LEDGER: tuple[Callable[[Ledger], Wrongs], ...] = (
    queue_is_sorted,
    open_attempts_are_held,
    hosts_are_summed,
    what_runs_is_summed,
    jobs_are_in_projects,
    shares_are_summed,
    live_jobs_are_weighed,
    stored_bytes_are_summed,
    gates_are_indexed,
    lost_hosts_hold_nothing,
    the_lost_are_in_line,
    nominations_are_for_those_who_wait,
    avoidances_are_of_those_who_go_on,
    clocks_are_set,
    timeouts_are_set,
    names_lead_to_the_newest,
    one_run_of_a_name_lives,
    listings_are_indexed,
    deployments_are_indexed,
    audit_is_counted,
)
