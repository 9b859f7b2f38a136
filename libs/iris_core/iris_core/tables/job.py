"""Derives a job's state from its tasks' states: eight rules, the first that matches. A gang
tolerates no failure.

Sources: docs/design/semantics.md#jobs and its prose on PREEMPTED; docs/design/semantics.md#jobs.
"""

from __future__ import annotations

from typing import TypeAlias

from iris_core.lifecycle import Condition, Derivation
from iris_core.states import ACTIVE, TERMINAL, JobState, MatchType, TaskState

T = TaskState
JobDerivation: TypeAlias = Derivation[JobState, TaskState]

_ENDS_TOGETHER: Condition[TaskState] = Condition(fact="ends_together")
"""Whether a killed task ends the others; `JobSpec.ends_together`."""
_ALL_ENDED = Condition(TERMINAL, MatchType.ALL)


def _any(*states: TaskState) -> Condition[TaskState]:
    return Condition(frozenset(states), MatchType.ANY)


TABLE: tuple[JobDerivation, ...] = (
    Derivation(
        "all_succeeded",
        JobState.SUCCEEDED,
        ((Condition(frozenset({T.SUCCEEDED}), MatchType.ALL),),),
    ),
    Derivation(
        "too_many_failed",
        JobState.FAILED,
        ((Condition(frozenset({T.FAILED}), over="max_task_failures"),),),
    ),
    Derivation("any_unschedulable", JobState.UNSCHEDULABLE, ((_any(T.UNSCHEDULABLE),),)),
    Derivation(
        "any_killed",
        JobState.KILLED,
        ((_any(T.KILLED), _ENDS_TOGETHER), (_any(T.KILLED), _ALL_ENDED)),
    ),
    Derivation(
        "all_ended_some_lost",
        JobState.WORKER_FAILED,
        ((_ALL_ENDED, _any(T.WORKER_FAILED, T.PREEMPTED)),),
    ),
    Derivation("all_ended_some_failed", JobState.FAILED, ((_ALL_ENDED,),)),
    Derivation(
        "any_live_or_started",
        JobState.RUNNING,
        ((Condition(ACTIVE, MatchType.ANY),), (Condition(fact="started"),)),
    ),
    Derivation("waiting", JobState.PENDING, ((),)),
)
