"""Checks one host's attributes against one job's constraints. Capacity and the choice of a host are
out of scope.

A host that lacks an attribute satisfies NOT_EXISTS and NE on it and nothing else, as with NotIn of
Kubernetes. Strings are compared exactly and are never ordered; integers and floats compare by
value; a string never equals a number. A ``taint:<name>`` attribute repels every job without a
constraint on that key; ``taint:gpu`` and ``taint:tpu`` do not repel jobs that ask for such a
device, as with ExtendedResourceToleration of Kubernetes. Preferred constraints rank hosts and never
    exclude one. Source: docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from iris_core.errors import Mistake
from iris_core.limits import clipped
from iris_core.spec.jobs import MAX_CONSTRAINTS, MAX_VALUES, NEEDS_RUNTIME, Attribute, Constraint
from iris_core.spec.resources import AUTO, ResourceRequest
from iris_core.states import ConstraintOp

Attributes = Mapping[str, Attribute]

DEVICE_TYPE = "device-type"
DEVICE_VARIANT = "device-variant"
TPU_NAME = "tpu-name"
TPU_TOPOLOGY = "tpu-topology"
TPU_VM_COUNT = "tpu-vm-count"
TPU_WORKER_ID = "tpu-worker-id"
TAINT = "taint:"
DEVICE_ONLY = "taint:device-only"
"""Of the hosts of pools that are for work with devices: it repels what asks for none."""

LABEL = 400
"""Maximum length of a constraint as text, in characters: the key and one value, or the first of
many.
"""

_KEY = re.compile(r"[a-z0-9][a-z0-9._:/-]{0,127}\Z")

ORDERING: Mapping[ConstraintOp, Callable[[float, float], bool]] = {
    ConstraintOp.GT: operator.gt,
    ConstraintOp.GE: operator.ge,
    ConstraintOp.LT: operator.lt,
    ConstraintOp.LE: operator.le,
}
PRESENCE = frozenset({ConstraintOp.EXISTS, ConstraintOp.NOT_EXISTS})
ABSENT = frozenset({ConstraintOp.NOT_EXISTS, ConstraintOp.NE})
"""The operators that a host without the attribute satisfies."""


def is_number(value: object) -> bool:
    """Whether a value can be ordered; true and false are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(one: Attribute, other: Attribute) -> bool:
    """Equality of attribute values: strings exactly, numbers by value; a string never equals a
    number.
    """
    return is_number(one) == is_number(other) and one == other


def admits(constraint: Constraint, value: Attribute) -> bool:
    """Whether a host that has the attribute with this value satisfies the constraint."""
    op = constraint.op
    if op in PRESENCE:
        return op is ConstraintOp.EXISTS
    if op is ConstraintOp.IN:
        return any(same(value, wanted) for wanted in constraint.values)
    wanted = constraint.value
    if wanted is None:
        return False
    if op in ORDERING:
        return is_number(value) and is_number(wanted) and ORDERING[op](value, wanted)  # type: ignore[arg-type]
    return same(value, wanted) == (op is ConstraintOp.EQ)


def matches(constraint: Constraint, attributes: Attributes) -> bool:
    """Whether a host with these attributes satisfies the constraint."""
    value = attributes.get(constraint.key)
    if value is None:
        return constraint.op in ABSENT
    return admits(constraint, value)


def implied(resources: ResourceRequest) -> tuple[Constraint, ...]:
    """The constraints that follow from a requested device: its kind, and its variants unless any
    will do (`AUTO`).
    """
    device = resources.device
    if device is None:
        return ()
    kind = Constraint(DEVICE_TYPE, ConstraintOp.EQ, device.kind)
    if device.has_alternatives:
        return (kind, Constraint(DEVICE_VARIANT, ConstraintOp.IN, values=device.variants))
    [variant] = device.variants
    return (
        (kind,) if variant == AUTO else (kind, Constraint(DEVICE_VARIANT, ConstraintOp.EQ, variant))
    )


def required(
    constraints: Iterable[Constraint], resources: ResourceRequest
) -> tuple[Constraint, ...]:
    """Every constraint that a job's hosts must satisfy, its own first."""
    return (*(c for c in constraints if c.mode == "required"), *implied(resources))


def preferred(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """The preferred constraints of a job."""
    return tuple(c for c in constraints if c.mode == "preferred")


def asks_for_device(constraints: Iterable[Constraint], resources: ResourceRequest) -> bool:
    """Whether a job wants hosts with devices: it takes one, or requires such hosts."""
    return resources.device is not None or any(
        one.key == DEVICE_TYPE
        and one.mode == "required"
        and one.op in (ConstraintOp.EQ, ConstraintOp.IN, ConstraintOp.EXISTS)
        for one in constraints
    )


def tolerated(constraints: Iterable[Constraint], resources: ResourceRequest) -> frozenset[str]:
    """The taints that do not repel a job: those its constraints mention, that of the kind of
    device it asks for, and `DEVICE_ONLY` if it asks for any.
    """
    constraints = tuple(constraints)
    found = {c.key for c in constraints if c.key.startswith(TAINT)}
    if resources.device is not None:
        found.add(TAINT + resources.device.kind)
    if asks_for_device(constraints, resources):
        found.add(DEVICE_ONLY)
    return frozenset(found)


def repelling(
    constraints: Iterable[Constraint], resources: ResourceRequest, attributes: Attributes
) -> list[str]:
    """The taints of a host that a job does not tolerate."""
    taints = [key for key in attributes if key.startswith(TAINT)]
    return [key for key in taints if key not in tolerated(constraints, resources)] if taints else []


def eligible(
    constraints: Sequence[Constraint], resources: ResourceRequest, attributes: Attributes
) -> bool:
    """Whether a job with these constraints and this ask may be placed on a host with these
    attributes.
    """
    return not repelling(constraints, resources, attributes) and all(
        matches(c, attributes) for c in required(constraints, resources)
    )


def describe(constraint: Constraint) -> str:
    """A constraint as text, e.g. ``zone eq eu-1``; its label in reasons."""
    if constraint == NEEDS_RUNTIME:
        return "has a container runtime, for its image"
    if constraint.op in PRESENCE:
        return f"{constraint.key} {constraint.op}"
    if constraint.op is ConstraintOp.IN:
        return clipped(f"{constraint.key} in {','.join(str(v) for v in constraint.values)}", LABEL)
    return f"{constraint.key} {constraint.op} {constraint.value}"


# ── at submission ─────────────────────────────────────────────────────────────────────────────────


def validate(constraints: Sequence[Constraint]) -> list[Mistake]:
    """All mistakes in a job's constraints, each with its pointer below ``/constraints``."""
    mistakes: list[Mistake] = []
    for number, constraint in enumerate(constraints[:MAX_CONSTRAINTS]):
        pointer = f"/constraints/{number}"
        mistakes += [
            *key_mistakes(f"{pointer}/key", constraint.key),
            *_operand_mistakes(pointer, constraint),
        ]
    return mistakes


def key_mistakes(pointer: str, key: str) -> list[Mistake]:
    """What is wrong with the key of an attribute."""
    if _KEY.match(key):
        return []
    if _KEY.match(key.lower()):
        return [
            Mistake(
                pointer=pointer,
                code="not_lower_case",
                message=f"{key!r} is not lower case",
                hint=key.lower(),
            )
        ]
    message = f"{key[:80]!r} is not an attribute key"
    hint = "1 to 128 of a-z 0-9 . _ : / -, starting with a letter or digit"
    return [Mistake(pointer=pointer, code="bad_key", message=message, hint=hint)]


def _operand_mistakes(pointer: str, constraint: Constraint) -> list[Mistake]:
    op = constraint.op
    value = constraint.value
    values = constraint.values
    wants_value = op not in PRESENCE and op is not ConstraintOp.IN
    found: list[Mistake] = []
    if wants_value and value is None:
        found.append(
            Mistake(pointer=f"{pointer}/value", code="missing", message=f"{op} needs a value")
        )
    if not wants_value and value is not None:
        found.append(
            Mistake(pointer=f"{pointer}/value", code="unexpected", message=f"{op} takes no value")
        )
    if op is ConstraintOp.IN and not values:
        found.append(
            Mistake(pointer=f"{pointer}/values", code="missing", message="in needs values")
        )
    if op is not ConstraintOp.IN and values:
        hint = "give one value in 'value'" if wants_value else ""
        found.append(
            Mistake(
                pointer=f"{pointer}/values",
                code="unexpected",
                message=f"{op} takes no values",
                hint=hint,
            )
        )
    if op in ORDERING and isinstance(value, str):
        message = f"{op} orders numbers, {value[:80]!r} is a string"
        found.append(
            Mistake(
                pointer=f"{pointer}/value",
                code="ordering_on_string",
                message=message,
                hint="use a number",
            )
        )
    operands = [
        (f"{pointer}/value", value),
        *((f"{pointer}/values/{i}", v) for i, v in enumerate(values[:MAX_VALUES])),
    ]
    return found + [
        mistake for where, operand in operands for mistake in _value_mistakes(where, operand)
    ]


def _value_mistakes(pointer: str, value: Attribute | None) -> list[Mistake]:
    if isinstance(value, bool):
        hint = "use the string 'true' or 'false'"
        return [
            Mistake(
                pointer=pointer,
                code="bad_type",
                message="true and false are not attribute values",
                hint=hint,
            )
        ]
    if isinstance(value, float) and not math.isfinite(value):
        return [Mistake(pointer=pointer, code="not_finite", message=f"{value} is not a number")]
    return []
