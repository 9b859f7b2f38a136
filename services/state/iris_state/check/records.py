"""The invariants of the ledger, one function each; `check` runs all of them.

Queue, counters, holds and clocks are indexes over the records, so most functions count the records
again. Slow on purpose and never on a hot path: tests and the simulation run it after every step.
Source: docs/design/reliability.md#invariants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container

from iris_core.errors import InvariantBroken
from iris_core.placement.coscheduling import is_split
from iris_core.states import (
    ACTIVE,
    SESSION_TERMINAL,
    TERMINAL,
    Budget,
    Cause,
    JobState,
    KernelStatus,
    TaskState,
)
from iris_core.tables import task as task_table
from iris_state.check.deployments import OF_DEPLOYMENT, Wrongs
from iris_state.check.ledger import OF_LEDGER
from iris_state.decide import cascade, coordinator, gates
from iris_state.deployments.reconciler import DEPLOYMENT
from iris_state.records.apply.usage import began_to_hold
from iris_state.records.compacted import is_compacted
from iris_state.records.entities import Job, kernel_status, lingers, spent_and_limit
from iris_state.records.gates import WHOLE, GateKind
from iris_state.records.indexes.usage_days import Used, count
from iris_state.records.inputs import TimerKey
from iris_state.records.ledger import Ledger


def check(ledger: Ledger, aside: Container[TimerKey] = ()) -> None:
    """Raises InvariantBroken naming every record that is inconsistent in itself or with an index.

    ``aside``: timers that raised; the reconciliation of such a deployment is outstanding.
    """
    wrong = list(violations(ledger, aside))
    if wrong:
        raise InvariantBroken("; ".join(wrong))


def violations(ledger: Ledger, aside: Container[TimerKey] = ()) -> Wrongs:
    """Every broken invariant as a sentence, naming the record and both values."""
    for of_ledger in OF_LEDGER:
        yield from of_ledger(ledger)
    for job in ledger.jobs.values():
        for of_job in OF_JOB:
            yield from of_job(ledger, job)
    for deployment in ledger.deployments.values():
        for of_deployment in OF_DEPLOYMENT if (DEPLOYMENT, deployment.number) not in aside else ():
            yield from of_deployment(ledger, deployment)


def states_are_counted(ledger: Ledger, job: Job) -> Wrongs:
    recount = [0] * len(job.counts)
    for task in job.tasks:
        recount[task.state] += 1
    if recount != job.counts:
        yield f"{job.name} counts {job.counts}, recount {recount}"


def waiting_is_queued(ledger: Ledger, job: Job) -> Wrongs:
    """A pending task without a possibly running attempt is in the queue unless held back, or kept
    out by a gate; a gang's members all or none.
    """
    waiting = [
        i
        for i, task in job.numbered()
        if task.state is TaskState.PENDING
        and not lingers(job, i)
        and not task.gates
        and not task.not_before_ms
    ]
    if any(gate.is_closed and not gate.each for gate in job.gates):
        waiting = []
    if job.number in ledger.held_back or (job.is_gang and len(waiting) < len(job.tasks)):
        waiting = []
    queued = list(ledger.queue.pending(job.number))
    if waiting != queued:
        yield f"{job.name} has the waiting tasks {waiting}, the queue {queued}"
    elif waiting and ledger.queue.key(job.number) != ledger.key_of(job):
        yield f"{job.name} waits at {ledger.queue.key(job.number)}, its key is {ledger.key_of(job)}"


def attempts_are_in_order(ledger: Ledger, job: Job) -> Wrongs:
    for index, task in job.numbered():
        numbers = [attempt.number for attempt in task.attempts]
        if numbers != list(range(len(numbers))):
            yield f"{job.name}/{index} has the attempts {numbers}"


def one_attempt_lives(ledger: Ledger, job: Job) -> Wrongs:
    """The only open attempt that is not being stopped is an active task's current one; only a
    gang's members may have none.
    """
    for index, task in job.numbered():
        lively = [
            a.number
            for a in task.attempts
            if a.is_open and a.status is not KernelStatus.TERMINATING
        ]
        wanted = [task.current.number] if task.current is not None else []
        if lively != wanted:
            yield f"{job.name}/{index} is {task.state.name} with the live attempts {lively}"
        if task.waits_for_gang and not job.is_gang:
            yield f"{job.name}/{index} waits for a gang and has none"


def budgets_are_exact(ledger: Ledger, job: Job) -> Wrongs:
    """Counters are what was charged, and within the job's limits, unless somebody has changed
    those.
    """
    for index, task in job.numbered():
        charged = [attempt.charged_to for attempt in task.attempts]
        for budget in (Budget.FAILURE, Budget.REQUEUE, Budget.PREEMPTION, Budget.RECLAIM):
            count, limit = spent_and_limit(job, task, budget)
            if count != charged.count(budget) or (count > limit + 1 and job.version == 1):
                yield f"{job.name}/{index} counts {count} of {limit} {budget.value}, charged {charged.count(budget)}"
        if task.reschedules != (count := charged.count(Budget.RESCHEDULE)):
            yield f"{job.name}/{index} reschedules {task.reschedules}, charged {count}"


def limit_is_kept(ledger: Ledger, job: Job) -> Wrongs:
    """A job has at most ``max_parallel`` open attempts; one whose limit was lowered may have begun
    more before.
    """
    limit = job.spec.max_parallel
    count = ledger.open_of_job[job.number]
    if limit is not None and count > limit and job.version == 1:
        yield f"{job.name} has {count} open attempts, at most {limit} are allowed"


def what_ended_is_finished(ledger: Ledger, job: Job) -> Wrongs:
    """A task that failed for good has no retry left: its budget is spent, or it carries the mark
    ``no_retry``.
    """
    for index, task in job.numbered():
        budget = task_table.BUDGET_OF_STATE.get(task.state)
        if budget is None:
            if task.no_retry:
                yield f"{job.name}/{index} is {task.state.name} and marked as without a retry"
            continue
        spent, limit = spent_and_limit(job, task, budget)
        if task.no_retry is (spent > limit):
            yield f"{job.name}/{index} is {task.state.name}, spent {spent} of {limit}, no_retry {task.no_retry}"


def open_jobs_are_live(ledger: Ledger, job: Job) -> Wrongs:
    """Only a live map that grows is open, and a job has the calls and tasks that its specification
    says.
    """
    if job.open and (job.is_terminal or not job.spec.grows):
        yield f"{job.name} is {job.state.name} and open"
    calls = job.spec.calls
    if len(job.tasks) != job.spec.task_count:
        yield f"{job.name} has {len(job.tasks)} tasks, its specification {job.spec.task_count}"
    if (
        job.spec.grows
        and calls is not None
        and -(-calls.count // calls.chunksize) != job.spec.replicas
    ):
        yield f"{job.name} has {job.spec.replicas} tasks for {calls.count} calls"


def job_is_derived(ledger: Ledger, job: Job) -> Wrongs:
    if job.is_terminal:
        left = [index for index, task in job.numbered() if task.state not in TERMINAL]
        if left:
            yield f"{job.name} is {job.state.name} with the tasks {left} not ended"
    elif (moved := cascade.job(job)) is not None:
        yield f"{job.name} is {job.state.name}, its tasks say {moved.state.name}"


def ended_subtree_is_dead(ledger: Ledger, job: Job) -> Wrongs:
    if job.is_terminal and job.state is not JobState.SUCCEEDED:
        yield from (
            f"{child.name} is {child.state.name} under {job.name}, which is {job.state.name}"
            for child in cascade.below(ledger, job)
            if not child.is_terminal
        )


def family_is_linked(ledger: Ledger, job: Job) -> Wrongs:
    parent = ledger.jobs.get(job.parent)
    if parent is None:
        return
    if job.number not in parent.children:
        yield f"{job.name} is not among the children of {parent.name}"
    if parent.children != sorted(parent.children):
        yield f"the children of {parent.name} are not in the order of their admission"
    if job.root_submitted_ms != parent.root_submitted_ms:
        yield f"{job.name} counts from {job.root_submitted_ms}, its root from {parent.root_submitted_ms}"


def gang_is_together(ledger: Ledger, job: Job) -> Wrongs:
    """The live members of a gang have one worker each, those of a slice one group, and all or none
    are pending.
    """
    if job.session is None:
        return
    live = {
        index: task.current.worker for index, task in job.numbered() if task.current is not None
    }
    seats = ((index, ledger.workers[host].attributes) for index, host in live.items())
    if len(set(live.values())) != len(live) or is_split(job.spec, seats):
        yield f"{job.name} lives on {list(live.values())}, which are not one group for each slice"
    if job.counts[TaskState.PENDING] and any(job.counts[state] for state in ACTIVE):
        yield f"{job.name} is placed in part: {job.counted()}"


def gang_succeeds_together(ledger: Ledger, job: Job) -> Wrongs:
    """A member that waits for its gang has exited 0 or is stopped for the leader; none waits for a
    gang that has ended.
    """
    if job.session is None:
        return
    waiting = [task.attempts[-1] for task in job.tasks if task.waits_for_gang]
    for attempt in waiting:
        stopped = attempt.cause is Cause.LEADER_DONE and job.leader_is_done
        if attempt.exit_code != 0 and not stopped:
            yield f"{job.name} has a task that waits for the others after {attempt.cause}, {attempt.exit_code}"
    if waiting and job.session.status in SESSION_TERMINAL:
        yield f"{job.name} is over, and {len(waiting)} of its tasks wait for it"
    if job.counts[TaskState.SUCCEEDED] and any(job.counts[state] for state in ACTIVE):
        yield f"{job.name} has succeeded in part: {job.counted()}"


def session_follows_kernels(ledger: Ledger, job: Job) -> Wrongs:
    if job.session is None or is_compacted(job):
        return
    recount = Counter(kernel_status(task) for task in job.tasks)
    if +ledger.kernels[job.number] != recount:
        yield f"{job.name} counts the kernels {dict(+ledger.kernels[job.number])}, recount {dict(recount)}"
    moved = coordinator.promote(ledger, job)
    if moved is not None:
        yield f"session of {job.name} is {job.session.status}, {moved.handler} says {moved.status}"


def gates_are_judged(ledger: Ledger, job: Job) -> Wrongs:
    """A gate that could open, or never can, is noted to be judged; so nothing eligible is left out
    of the queue.
    """
    if job.is_terminal or not job.closed_gates or ledger.gates.are_noted(job):
        return
    for step in gates.judge(ledger, job.number, WHOLE, ledger.now_ms):
        if not any(
            g.kind is GateKind.NOT_BEFORE and g.number == getattr(step, "gate", -2)
            for g in job.closed_gates
        ):
            yield f"{job.name} waits at a gate although {step}"


def queue_holds_are_gates(ledger: Ledger, job: Job) -> Wrongs:
    """A job has a gate of each hold on the queue that matches it; one of an ended hold is noted to
    be judged.
    """
    if job.is_terminal or ledger.route_for(job.number) is not None:
        return
    wanted = {
        hold.number for hold in ledger.queue_holds.values() if hold.matches(job.user, job.spec)
    }
    found = {gate.hold for gate in job.gates if gate.hold}
    if wanted - found or (found - wanted and not ledger.gates.are_noted(job)):
        yield f"{job.name} is held with the queue by {found}, which should be {wanted}"


def open_gates_were_earned(ledger: Ledger, job: Job) -> Wrongs:
    """A gate is open only when what it waits for has come about, as far as that is on record."""
    for gate in job.gates:
        other = ledger.jobs.get(gate.job)
        if gate.is_closed or gate.kind is not GateKind.DEPENDENCY or other is None:
            continue
        if gate.when != "start" and not gate.each and not other.is_terminal:
            yield f"{job.name} does not wait for {other.name}, which is {other.state.name}"
        if gate.when == "ok" and not gate.each and other.state is not JobState.SUCCEEDED:
            yield f"{job.name} goes on after {other.name}, which is {other.state.name}"


def gated_tasks_have_no_attempt(ledger: Ledger, job: Job) -> Wrongs:
    """A task that waits for another one of ``each`` was never placed."""
    for index, task in job.numbered():
        if task.gates and task.attempts:
            yield f"{job.name}/{index} was placed behind the gates {task.gates:b}"


def usage_is_of_what_has_ended(ledger: Ledger, job: Job) -> Wrongs:
    known = Used()
    recount = Used()
    for used in job.usage.values():
        known.add(used)
    for attempt in (
        attempt for task in job.tasks for attempt in task.attempts if not attempt.is_open
    ):
        if began_ms := began_to_hold(attempt):
            count(
                [recount],
                max(attempt.closed_ms - began_ms, 0),
                ledger.requested[job.number],
                "",
                cpu_ms=0,
                peak_bytes=0,
            )
    if (known.attempts, known.cpu, known.memory) != (recount.attempts, recount.cpu, recount.memory):
        yield f"{job.name} has used {known}, recount {recount}"


OF_JOB: tuple[Callable[[Ledger, Job], Wrongs], ...] = (
    states_are_counted,
    waiting_is_queued,
    attempts_are_in_order,
    one_attempt_lives,
    budgets_are_exact,
    limit_is_kept,
    what_ended_is_finished,
    job_is_derived,
    open_jobs_are_live,
    ended_subtree_is_dead,
    family_is_linked,
    gang_is_together,
    gang_succeeds_together,
    session_follows_kernels,
    gates_are_judged,
    queue_holds_are_gates,
    open_gates_were_earned,
    gated_tasks_have_no_attempt,
    usage_is_of_what_has_ended,
)
