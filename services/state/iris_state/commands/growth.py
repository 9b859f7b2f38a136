"""Executes commands about open jobs: add calls, close, or only show that the client is there.

Source: docs/design/semantics.md#jobs; docs/design/calls.md#open-maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from iris_core.access.rights import Verb
from iris_core.admission.jobs import SHA256
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import GrowJob
from iris_core.spec.calls import Calls
from iris_core.spec.jobs import MAX_REPLICAS
from iris_core.units import counted
from iris_state.commands.execute import check_length, check_owner
from iris_state.decide import quota
from iris_state.records.changes import JobClosed, JobGrown
from iris_state.records.claims import Step
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.records.targets import known_job
from iris_state.records.weight import memory_of


def on_grow(ledger: Ledger, command: GrowJob) -> Iterator[Step]:
    """Add calls to an open job, once however often they are sent, and close it if that is wanted.
    Raises Refused.
    """
    job = known_job(ledger, command.job)
    check_owner(ledger, command.caller, job, "change", Verb.REPEAT)
    check_length("reason", command.reason)
    calls = job.spec.calls
    if calls is None or calls.idle_s is None:
        raise Refused(
            Code.CONFLICT,
            f"{job.name} is not an open job: it has the tasks that it was submitted with",
        )
    adds = command.count > 0 and not _has(calls, command)
    if adds:
        _check_open(job)
        yield _growth(ledger, job, calls, command)
    if job.open and command.close:
        yield JobClosed(job.number, command.reason)
    elif job.open and not adds:
        yield JobGrown(job.number, 0, 0)


def _has(calls: Calls, command: GrowJob) -> bool:
    """Whether the calls were added before, by the same request of a client that has not got the
    answer.
    """
    if (
        command.offset + command.count > calls.count
        or not command.firsts
        or command.firsts[0] not in calls.firsts
    ):
        return False
    at = calls.firsts.index(command.firsts[0])
    return (
        command.firsts[0] * calls.chunksize == command.offset
        and calls.segments[at : at + len(command.segments)] == command.segments
    )


def _check_open(job: Job) -> None:
    if job.is_terminal:
        raise Refused(
            Code.CONFLICT,
            f"{job.name} has ended ({job.state.name.lower()}) and takes no further calls",
        )
    if not job.open:
        raise Refused(
            Code.CONFLICT, f"{job.name} takes no further calls: {job.note or 'it was closed'}"
        )


def _growth(ledger: Ledger, job: Job, calls: Calls, command: GrowJob) -> JobGrown:
    """The change that adds the calls. Raises Refused."""
    if command.offset != calls.count:
        words = f"{job.name} has {counted(calls.count, 'call')}, and this request adds calls after {command.offset}"
        raise Refused(Code.CONFLICT, words)
    if calls.count % calls.chunksize:
        words = f"the last task of {job.name} makes fewer than {calls.chunksize} calls already"
        raise Refused(Code.CONFLICT, f"{words}; only the last growth may end within a task")
    first = job.spec.replicas
    tasks = -(-command.count // calls.chunksize)
    if first + tasks > MAX_REPLICAS:
        words = (
            f"a job has at most {MAX_REPLICAS:,} tasks, and {job.name} would have {first + tasks:,}"
        )
        raise Refused(Code.INVALID, words)
    ascending = all(before < after for before, after in pairwise(command.firsts))
    is_aligned = command.firsts[:1] == (first,) and ascending and command.firsts[-1] < first + tasks
    if not is_aligned or len(command.firsts) != len(command.segments):
        raise Refused(Code.INVALID, f"not one ascending index for each segment, from {first}")
    if not all(map(SHA256.match, command.segments)):
        raise Refused(
            Code.INVALID, "a file is named by its digest: 64 hexadecimal digits (SHA-256)"
        )
    written = memory_of((command.segments, command.firsts))
    quota.check_growth(ledger, job, quota.Added(tasks, written))
    return JobGrown(job.number, command.count, tasks, command.segments, firsts=command.firsts)
