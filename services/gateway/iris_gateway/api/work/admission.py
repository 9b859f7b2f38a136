"""Refuses invalid submissions before they are sent to the state service.

The state service validates again, by the same `iris_core.admission.jobs` rules and against its
records; this check saves its time and returns all mistakes at once. Source:
docs/ARCHITECTURE.md#the-path-of-one-job, step 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from iris_core.access.rights import Verb, may
from iris_core.admission.deployments import validate_deployment
from iris_core.admission.jobs import validate_spec
from iris_core.admission.patches import merged
from iris_core.admission.pools import validate_pool
from iris_core.codec import Undecodable, from_builtins, from_json
from iris_core.errors import Mistake, pointer_to
from iris_core.messages.gateway_state import Caller, SubmitJob
from iris_core.spec.jobs import Constraint, JobSpec
from iris_core.spec.pools import MAX_SLICES, PoolSpec
from iris_core.spec.resources import REQUESTED
from iris_core.spec.serving import DeploymentSpec
from iris_gateway.api.work.validation import huge_integers, shape_mistakes
from iris_gateway.auth.bearer import refuse_worker
from iris_gateway.http.problem import ProblemResponse, invalid

_STAND_INS: dict[type, dict[str, Any]] = {
    JobSpec: {"name": "/x", "command": ["true"]},
    DeploymentSpec: {"name": "x", "template": {"command": ["true"]}},
    PoolSpec: {
        "name": "x",
        "provider": "x",
        "max": MAX_SLICES,
        "resources": {resource.name: 1 for resource in REQUESTED},
    },
}
"""Substitutes for invalid required fields, so that the rules can be applied to the other fields."""
T = TypeVar("T")
_Owned = TypeVar("_Owned", JobSpec, DeploymentSpec)
_Spec = TypeVar("_Spec", JobSpec, DeploymentSpec, PoolSpec)


def spec_from(body: bytes, caller: Caller) -> JobSpec:
    """The specification in a request's body, with the caller as its user. Raises ProblemResponse.

    A body that decodes is validated by the rules. For one that does not, the mistakes of its shape
    and those of its valid fields are returned together.
    """
    return _allowed(with_absolute_name(_specification(body, JobSpec)), caller)


def deployment_from(body: bytes, caller: Caller) -> DeploymentSpec:
    """The deployment in a request's body, as `spec_from`. Raises ProblemResponse."""
    return _allowed(_specification(body, DeploymentSpec), caller)


def pool_from(body: bytes) -> PoolSpec:
    """The pool in a request's body, as `spec_from`. Raises ProblemResponse."""
    spec = _specification(body, PoolSpec)
    if mistakes := _rules(spec):
        raise invalid(mistakes)
    return spec


def _specification(body: bytes, kind: type[_Spec]) -> _Spec:
    return decoded(body, kind, lambda value: all_mistakes(value, kind))


def decoded(body: bytes, kind: type[T], mistakes: Callable[[Any], list[Mistake]]) -> T:
    """A body as a ``kind``. Raises ProblemResponse with the ``mistakes`` of its JSON value,
    malformed when it has none.

    A number such as ``2.0`` is a whole one, as JSON Schema has it; the decoder alone refuses it.
    """
    with suppress(Undecodable):
        return from_json(body, kind)
    value = json_from(body)
    try:
        return from_builtins(value, kind)
    except Undecodable:
        raise invalid(mistakes(value)) from None


def _allowed(spec: _Owned, caller: Caller) -> _Owned:
    if mistakes := _rules(spec):
        raise invalid(mistakes)
    return with_owner(spec, caller)


def with_absolute_name(spec: JobSpec) -> JobSpec:
    """A name with a leading slash; a name without one is a root job's, as on the command line."""
    return (
        spec if spec.name.startswith("/") else msgspec.structs.replace(spec, name=f"/{spec.name}")
    )


def with_owner(spec: _Owned, caller: Caller) -> _Owned:
    """The specification with its user filled in; only an admin may submit for another user. Raises
    ProblemResponse.
    """
    refuse_worker(caller, SubmitJob)
    if spec.user and not may(caller, Verb.SUBMIT_FOR, spec.user):
        raise ProblemResponse("forbidden", f"{caller.user} may not submit for {spec.user[:80]}")
    return spec if spec.user else msgspec.structs.replace(spec, user=caller.user)


def _with_whole_numbers(value: Any) -> Any:
    """The same JSON value, in which a float without a fraction is an integer."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    return (
        {key: _with_whole_numbers(item) for key, item in value.items()}
        if isinstance(value, dict)
        else value
    )


def json_from(body: bytes) -> Any:
    """The JSON value in a body, whole numbers as integers. Raises ProblemResponse malformed with
    the position of the syntax error.
    """
    try:
        return _with_whole_numbers(msgspec.json.decode(body))
    except UnicodeDecodeError as error:
        raise ProblemResponse(
            "malformed", f"the body is not UTF-8: {error.reason} at byte {error.start}"
        ) from None
    except RecursionError:
        raise ProblemResponse("malformed", "the body is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ProblemResponse("malformed", f"the body is not JSON: {error}") from None


def all_mistakes(
    value: Any, kind: type[JobSpec] | type[DeploymentSpec] | type[PoolSpec]
) -> list[Mistake]:
    """All mistakes in a JSON value that should be a specification: of its shape, and of its valid
    fields by the rules.
    """
    mistakes = shape_mistakes(value, kind)
    wrong = [mistake.pointer for mistake in mistakes]
    sound = merged(_STAND_INS[kind], _without(value, wrong)) if isinstance(value, dict) else None
    try:
        spec: JobSpec | DeploymentSpec | PoolSpec = msgspec.convert(sound, kind)
    except msgspec.ValidationError:
        return mistakes
    spec = with_absolute_name(spec) if isinstance(spec, JobSpec) else spec
    return mistakes + [
        mistake
        for mistake in _rules(spec)
        if not any(_touch(mistake.pointer, one) for one in wrong)
    ]


def _rules(spec: JobSpec | DeploymentSpec | PoolSpec) -> list[Mistake]:
    """The mistakes that the state service would find too, and operands that messages between
    services cannot hold.
    """
    if isinstance(spec, JobSpec):
        return [*validate_spec(spec), *_huge_operands(spec.constraints, "/constraints")]
    if isinstance(spec, PoolSpec):
        return [
            *validate_pool(spec),
            *huge_integers(spec.options, "/options"),
            *huge_integers(spec.attributes, "/attributes"),
        ]
    return [
        *validate_deployment(spec),
        *_huge_operands(spec.template.constraints, "/template/constraints"),
    ]


def _without(value: dict[str, Any], pointers: Sequence[str]) -> dict[str, Any]:
    """The members of an object to which no pointer leads; likewise within its member objects."""
    kept: dict[str, Any] = {}
    for name, item in value.items():
        at = pointer_to(name)
        inside = [pointer.removeprefix(at) for pointer in pointers if _touch(pointer, at)]
        if not inside:
            kept[name] = item
        elif isinstance(item, dict) and "" not in inside:
            kept[name] = _without(item, inside)
    return kept


def _touch(one: str, other: str) -> bool:
    """Whether one of two pointers is a prefix of the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _huge_operands(constraints: Sequence[Constraint], pointer: str) -> list[Mistake]:
    """Operands of constraints that messages between services cannot hold."""
    return huge_integers(msgspec.to_builtins(constraints), pointer) if constraints else []
