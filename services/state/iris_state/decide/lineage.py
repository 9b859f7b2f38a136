"""Jobs that tasks submit beside their own: from which root they descend, and how many may live.

A job that resubmits itself to get around a time limit is no child of the one before, which ends. So
its links are roots, and each has the number of the first root. Pure: reads the ledger. Source:
    docs/adr/0156-a-task-submits-beside-its-root.md.
"""

from __future__ import annotations

from iris_core.access.rights import is_task
from iris_core.errors import Code, Refused
from iris_core.messages.gateway_state import SubmitJob
from iris_core.names import JobName
from iris_state.records.entities import Job
from iris_state.records.indexes.usage_days import PROJECT
from iris_state.records.ledger import Ledger

MAX_LIVE = 1000
"""How many jobs of one lineage may live at a time: what bounds a task that submits itself twice."""


def root_of(ledger: Ledger, job: Job) -> Job:
    """The highest job above a job that is known."""
    while (above := ledger.jobs.get(job.parent)) is not None:
        job = above
    return job


def lineage_of(ledger: Ledger, job: Job) -> int:
    """The number of the root from which the root of a job descends, itself if from no other."""
    root = root_of(ledger, job)
    return root.lineage or root.number


def is_beside(ledger: Ledger, own: Job, job: Job) -> bool:
    """Whether ``job`` is below another root that was submitted in the lineage of ``own``."""
    root = root_of(ledger, job)
    is_other = root is not root_of(ledger, own)
    return is_other and root.lineage != 0 and root.lineage == lineage_of(ledger, own)


def of_submission(ledger: Ledger, command: SubmitJob) -> int:
    """The lineage of a new job: 0 unless a task submits it beside its own. Raises Refused."""
    if not command.beside:
        return 0
    if command.parent or JobName.job(command.spec.name).parent is not None:
        raise Refused(
            Code.INVALID,
            f"a job that is submitted beside another has no parent: {command.spec.name}",
        )
    ref = command.caller.attempt
    if not is_task(command.caller) or ref is None:
        return 0  # the job of a person is a root already, and nothing of it is inherited
    found = lineage_of(ledger, ledger.jobs[ref.job])
    living = len(ledger.index.of(("lineage", found)))
    if living >= MAX_LIVE:
        raise Refused(
            Code.OVER_QUOTA,
            f"{living} jobs that descend from j{found} have not ended, and at most {MAX_LIVE} may "
            "live at a time; wait until some have ended, or submit from outside of a job",
        )
    return found


def inherited(own: Job, command: SubmitJob) -> dict[str, str]:
    """The labels of a job that is submitted beside ``own``: the project, unless it names one."""
    project = own.spec.labels.get(PROJECT)
    given = command.spec.labels
    return {PROJECT: project, **given} if project is not None else given
