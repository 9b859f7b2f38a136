"""What the agent knows of one attempt on its host. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import structs

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Gang, Stage, TaskGrant, TaskTemplate
from iris_core.states import Cause, KernelStatus, NoticeReason
from iris_worker.agent.instructions import Instruction, Notify, RenewToken, SetTimeout

K = KernelStatus
_NO_EXIT = frozenset({Cause.INFRASTRUCTURE, Cause.WORKER_CRASHED})


@dataclass(slots=True, eq=False)
class LocalAttempt:
    """One attempt on this host, from its order until its end is acknowledged.

    Attributes:
        barrier: whether it is prepared first and started by a later order.
        go: whether the start order has arrived.
        preparing: whether what it needs is being provided. building: whether a process builds its
            environment.
        stopping: why it was ordered to end, None otherwise.
        settle_ms: for a route, how long it serves after it has left discovery.
        exited: whether its process has ended by itself, so that a stop does not change how.
        freed: whether nothing of it runs any more.
        chained: whether it was begun, or another one was, in the place of one that had ended.
    """

    ref: AttemptRef
    template: TaskTemplate | None
    stage: Stage
    gang: Gang | None = None
    barrier: bool = False
    go: bool = False
    launched: bool = False
    preparing: bool = False
    building: bool = False
    stopping: Cause | None = None
    settle_ms: int = 0
    exited: bool = False
    freed: bool = False
    chained: bool = False

    @property
    def is_over(self) -> bool:
        return self.stage.ended is not None


def end_stage(ref: AttemptRef, ended: Ended, now_ms: int) -> Stage:
    """The last stage of an attempt."""
    return Stage(ref, K.ERROR if ended.cause in _NO_EXIT else K.TERMINATED, now_ms, ended)


def renewals(attempts: Iterable[LocalAttempt], grants: Iterable[TaskGrant]) -> list[Instruction]:
    """New tokens for the attempts of these jobs that run here, adopted ones too, or are to
    start.
    """
    by_job = {grant.job: grant for grant in grants}
    todo: list[Instruction] = []
    for held in attempts:
        grant = by_job.get(held.ref.job)
        if grant is None or held.is_over:
            continue
        if held.template is not None:
            held.template = structs.replace(held.template, grant=grant)
        if held.launched:
            todo.append(RenewToken(held.ref, grant))
    return todo


def drain_notices(
    attempts: Mapping[AttemptRef, LocalAttempt], refs: Iterable[AttemptRef]
) -> list[Instruction]:
    """Notices of a drain for those of these attempts that run here and go on."""
    held = (attempts[ref] for ref in refs if ref in attempts)
    goes_on = (one for one in held if one.launched and one.stopping is None and not one.is_over)
    return [Notify(one.ref, NoticeReason.DRAIN) for one in goes_on]


def set_timeouts(attempts: Iterable[LocalAttempt], job: int, timeout_ms: int) -> list[Instruction]:
    """Another timeout for the attempts of a job that run here or are to start; 0: none."""
    todo: list[Instruction] = []
    for held in attempts:
        if held.ref.job != job or held.is_over:
            continue
        if held.template is not None:
            held.template = structs.replace(held.template, timeout_ms=timeout_ms or None)
        if held.launched:
            todo.append(SetTimeout(held.ref, held.stage.at_ms, timeout_ms or None))
    return todo
