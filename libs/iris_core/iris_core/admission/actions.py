"""What is done to workers, users, deployments, the fleet and projects: one struct for each action of
`AdminCommand`, `DeployCommand`, `FleetCommand` and `ProjectCommand`.

An action's name is its word on the wire; its fields are its arguments, with their limits. The
gateway reads a body into it and documents it; the state service reads the command into it, and has
one function for each. Source: docs/adr/0061-one-struct-for-each-query.md#actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar, cast

import msgspec
from msgspec import Meta

from iris_core.admission.decoder_words import in_words, place_of, with_choices
from iris_core.errors import Code, Refused
from iris_core.limits import SENTENCE
from iris_core.quota import QUOTA_LIMITS, UserLimit
from iris_core.spec.field_rules import between, seconds
from iris_core.spec.pools import PoolSpec
from iris_core.spec.projects import ProjectSpec
from iris_core.spec.serving import DeploymentSpec
from iris_core.states import PriorityBand
from iris_core.units import counted

ReasonText = Annotated[
    str, Meta(max_length=SENTENCE, description="Why; shown with it, and in the audit.")
]


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all."""

    action: ClassVar[str]


class WorkerAction(Action, frozen=True, omit_defaults=True):
    """The base of what an admin does with a worker."""

    reason: ReasonText = ""


class DrainWorker(WorkerAction, frozen=True):
    action = "drain"


class UndrainWorker(WorkerAction, frozen=True):
    action = "undrain"


class MarkWorkerLost(WorkerAction, frozen=True):
    action = "mark_lost"


class ForgetWorker(WorkerAction, frozen=True):
    action = "forget"


_LARGEST = 2**53
"""Beyond it JSON numbers are no longer exact everywhere."""


def _amount(limit: UserLimit) -> Any:
    return Annotated[
        int, Meta(ge=0, le=_LARGEST, description=limit.about), between(0, _LARGEST, limit.unit)
    ]


SetQuota = cast(
    type[Action],
    msgspec.defstruct(
        "SetQuota",
        [
            *((limit.name, _amount(limit), 0) for limit in QUOTA_LIMITS),
            ("max_band", Annotated[int, Meta(ge=1, le=len(PriorityBand))], 1),
        ],
        bases=(Action,),
        namespace={
            "__doc__": "Set the limits of a user, as in `Quota`; 0 is unlimited.",
            "action": "set_quota",
        },
        frozen=True,
    ),
)


class DeploymentAction(Action, frozen=True, kw_only=True):
    """The base of what is done with a deployment.

    Attributes:
        version: the expected version of the deployment; another one is refused. 0: any.
        when_ended: it may be done with one that is being destroyed.
        detail: what the audit adds about it.
    """

    version: int = 0
    when_ended: ClassVar[bool] = False
    detail: ClassVar[str] = ""


class CreateDeployment(DeploymentAction, frozen=True, kw_only=True):
    action = "create"
    spec: DeploymentSpec | None = None


class UpdateDeployment(DeploymentAction, frozen=True, kw_only=True):
    """``patch``: a JSON merge patch (RFC 7396) of its specification; without one ``spec`` replaces
    that.
    """

    action = "update"
    spec: DeploymentSpec | None = None
    patch: bytes = b""


class ScaleDeployment(DeploymentAction, frozen=True, kw_only=True):
    action = "scale"
    detail = "to {.goal}"
    replicas: int = 0

    @property
    def goal(self) -> str:
        return counted(self.replicas, "route")


class RollBackDeployment(DeploymentAction, frozen=True, kw_only=True):
    """``revision``: 0 is the one before."""

    action = "rollback"
    detail = "to {.goal}"
    revision: int = 0

    @property
    def goal(self) -> str:
        return f"revision {self.revision}" if self.revision else "the revision before"


class PauseDeployment(DeploymentAction, frozen=True, kw_only=True):
    action = "pause"


class ResumeDeployment(DeploymentAction, frozen=True, kw_only=True):
    action = "resume"


class DeleteDeployment(DeploymentAction, frozen=True, kw_only=True):
    action = "delete"
    when_ended = True


class FleetAction(Action, frozen=True, kw_only=True):
    """The base of what an admin does with a pool or a slice.

    Attributes:
        version: the expected version of the pool; another one is refused. 0: any.
        reason: why; shown in the audit.
    """

    version: int = 0
    reason: ReasonText = ""


class SetPool(FleetAction, frozen=True, kw_only=True):
    """Replace the specification of a pool, or make the pool."""

    action = "set"
    spec: PoolSpec | None = None


class RemovePool(FleetAction, frozen=True, kw_only=True):
    """``drain``: also while it has slices; its idle ones go, and running work ends first."""

    action = "remove"
    drain: bool = False


class PausePool(FleetAction, frozen=True, kw_only=True):
    action = "pause"


class ResumePool(FleetAction, frozen=True, kw_only=True):
    """Forgets what hindered its growth too: refusals, delays, and that it was stopped."""

    action = "resume"


class DrainSlice(FleetAction, frozen=True, kw_only=True):
    """``deadline_s``: it is deleted so long from now, whatever runs; None: it waits."""

    action = "drain"
    deadline_s: Annotated[float, seconds(0)] | None = None


class ProjectAction(Action, frozen=True, kw_only=True):
    """The base of what is done with a project.

    Attributes:
        version: the expected version of the project; another one is refused. 0: any.
    """

    version: int = 0


class SetProject(ProjectAction, frozen=True, kw_only=True):
    """Replace the specification of a project, or make the project."""

    action = "set"
    spec: ProjectSpec | None = None


class RemoveProject(ProjectAction, frozen=True, kw_only=True):
    action = "remove"


ADMIN_ACTIONS: dict[str, type[Action]] = {
    kind.action: kind for kind in (*WorkerAction.__subclasses__(), SetQuota)
}
DEPLOYMENT_ACTIONS: dict[str, type[DeploymentAction]] = {
    kind.action: kind for kind in DeploymentAction.__subclasses__()
}
FLEET_ACTIONS: dict[str, type[FleetAction]] = {
    kind.action: kind for kind in FleetAction.__subclasses__()
}
PROJECT_ACTIONS: dict[str, type[ProjectAction]] = {
    kind.action: kind for kind in ProjectAction.__subclasses__()
}
"""By the word on the wire."""

A = TypeVar("A", bound=Action)


def read_action(kinds: Mapping[str, type[A]], action: str, arguments: Mapping[str, Any]) -> A:
    """The struct of an action. Raises Refused."""
    kind = kinds.get(action)
    if kind is None:
        raise Refused(Code.INVALID, f"unknown action: {action[:80]}")
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        place = place_of(str(error))
        words = with_choices(f"{place} {in_words(str(error))}".strip(), kind, place)
        raise Refused(Code.INVALID, f"{action}: {words}") from None
