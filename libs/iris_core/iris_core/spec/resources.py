"""The resources of hosts and tasks. `RESOURCES` is the only table of them.

A new resource is a row at the end of the table, and the field of its name in the shapes below,
which `_guard` asks for. Columns of the scheduler, reasons, admission, options, listings, pages and
metrics read the table.
Source: docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import msgspec

from iris_core.spec.field_rules import between
from iris_core.units import BYTES, CORES, COUNT, Unit

DeviceKind = Literal["gpu", "tpu"]
Declared = Annotated[int, msgspec.Meta(ge=0)] | None

AUTO = "auto"
"""A device variant that matches any device of the kind."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One row.

    Attributes:
        name: the field of the shapes below, with its unit last; also in JSON, as a label and as a
            key of ``[worker]``.
        word: its name for users: the option ``--<word>`` and the reason ``not_enough_<word>``.
        largest: the most one task may request. scarcity: the scarcest resource has the lowest.
        requested: whether a task requests an amount of it; chips come with the device.
        wide: only the wide form of listings shows it.
    """

    name: str
    word: str
    unit: Unit
    largest: int
    scarcity: int
    requested: bool = True
    wide: bool = False

    @property
    def words(self) -> str:
        """``gpu memory``."""
        return self.word.replace("_", " ")


RESOURCES = (
    Resource("cpu_millis", "cpu", CORES, largest=10_000_000, scarcity=1),
    Resource("memory_bytes", "memory", BYTES, largest=1 << 50, scarcity=2),
    Resource("disk_bytes", "disk", BYTES, largest=1 << 53, scarcity=3, wide=True),
    Resource("chips", "chips", COUNT, largest=1024, scarcity=0, requested=False),
)
"""In the order of the fields of `Amount`, which is their order on the wire: rows are only added, at
the end.
"""

RESOURCE = {resource.name: resource for resource in RESOURCES}
CPU = RESOURCE["cpu_millis"]
CHIPS = RESOURCE["chips"]
REQUESTED = tuple(resource for resource in RESOURCES if resource.requested)
"""The resources that a task requests by name."""


def up_to_largest(resource: str, least: int = 0) -> msgspec.Meta:
    """The limit of an amount that one task may request, or a host may have."""
    row = RESOURCE[resource]
    return between(least, row.largest, row.unit)


VARIANT = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_SOME = msgspec.Meta(extra_json_schema={"minItems": 1})
DeviceVariant = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{VARIANT}$"})]


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An accelerator: kind, variant (``H100``, ``v5litepod-16``, or ``auto``), and how many a task
    takes.

    ``variant`` may be a list: any one of them will do, for a gang the same one for all of its
    tasks.
    """

    kind: DeviceKind
    variant: DeviceVariant | Annotated[tuple[DeviceVariant, ...], _SOME] = AUTO
    count: Annotated[int, between(1, RESOURCE["chips"].largest)] = 1

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants of which any will do."""
        return (self.variant,) if isinstance(self.variant, str) else self.variant

    @property
    def has_alternatives(self) -> bool:
        return len(self.variants) > 1

    def with_variant(self, variant: str) -> Device:
        """The same, of one variant."""
        return Device(self.kind, variant, self.count)


class ResourceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The amounts one task holds while it is placed; 0 requests nothing.

    ``cpu_limit_millis``: the most it may use, also of processors that are idle; 0: no limit. It
    decides no placement.
    """

    cpu_millis: Annotated[int, up_to_largest("cpu_millis")] = 1000
    memory_bytes: Annotated[int, up_to_largest("memory_bytes")] = 0
    disk_bytes: Annotated[int, up_to_largest("disk_bytes")] = 0
    device: Device | None = None
    cpu_limit_millis: Annotated[int, up_to_largest("cpu_millis")] = 0

    @property
    def is_limited_below_request(self) -> bool:
        return 0 < self.cpu_limit_millis < self.cpu_millis

    @property
    def amount(self) -> Amount:
        requested = {resource.name: getattr(self, resource.name) for resource in REQUESTED}
        return Amount(**requested, chips=self.device.count if self.device else 0)


def _written_out(expression: str, term: str, joint: str) -> Any:
    """Compile a function of two amounts: a term for each resource; a loop takes four times as
    long.
    """
    terms = joint.join(term.format(resource.name) for resource in RESOURCES)
    return eval(f"lambda a, b: {expression.format(terms)}", globals())


class Amount(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A vector over `RESOURCES`. Chips count whole devices (a host has devices of one kind)."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    chips: int = 0

    @property
    def values(self) -> tuple[int, ...]:
        """The amounts in the order of `RESOURCES`."""
        return msgspec.structs.astuple(self)

    __add__: ClassVar[Callable[[Amount, Amount], Amount]] = _written_out(
        "Amount({})", "a.{0} + b.{0}", ", "
    )
    __sub__: ClassVar[Callable[[Amount, Amount], Amount]] = _written_out(
        "Amount({})", "a.{0} - b.{0}", ", "
    )
    fits: ClassVar[Callable[[Amount, Amount], bool]] = _written_out(
        "({})", "(a.{0} <= b.{0} or not a.{0})", " and "
    )
    """Whether this amount fits into another; a resource whose requested amount is 0 always fits."""

    def __mul__(self, count: int) -> Amount:
        return Amount(*[count * amount for amount in self.values])


NOTHING = Amount()
MOST_OF_ALL = 2**53
"""Beyond it JSON numbers are no longer exact everywhere."""
_ANY_NUMBER = 1 << 40


def times(room: Amount, amount: Amount) -> int:
    """How often ``amount`` fits into ``room``."""
    return min(
        (has // asks for has, asks in zip(room.values, amount.values, strict=True) if asks),
        default=_ANY_NUMBER,
    )


class DeclaredCapacity(msgspec.Struct, frozen=True):
    """The capacity of a host as given by its worker's settings.

    Attributes:
        cpu_millis, memory_bytes, disk_bytes, chips: the capacity; None uses the detected one.
    """

    cpu_millis: Declared = None
    memory_bytes: Declared = None
    disk_bytes: Declared = None
    chips: Declared = None


class HostResources(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """The capacity of each host of a pool, as its worker will report it."""

    cpu_millis: Annotated[int, up_to_largest("cpu_millis", least=1)]
    memory_bytes: Annotated[int, up_to_largest("memory_bytes")] = 0
    disk_bytes: Annotated[int, up_to_largest("disk_bytes")] = 0
    chips: Annotated[int, up_to_largest("chips")] = 0

    @property
    def amount(self) -> Amount:
        return Amount(*[getattr(self, resource.name) for resource in RESOURCES])


class ResourceLimits(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """How much many tasks together may hold of each resource that can be limited; 0 is no limit."""

    cpu_millis: Annotated[int, between(0, MOST_OF_ALL)] = 0
    memory_bytes: Annotated[int, between(0, MOST_OF_ALL)] = 0
    chips: Annotated[int, between(0, MOST_OF_ALL)] = 0


class ResourceOptions(TypedDict, total=False):
    """Amounts of resources as options of the SDK, by name: a number, or a text like ``4GiB``."""

    cpu: float | str | None
    memory: int | str | None
    disk: int | str | None


def _guard() -> None:
    """Raises ValueError when a row has no field in a shape, or a field no row."""
    names = tuple(resource.name for resource in RESOURCES)
    requested = {resource.name for resource in REQUESTED}
    for shape, has, wants in (
        (Amount, Amount.__struct_fields__, names),
        (DeclaredCapacity, set(DeclaredCapacity.__struct_fields__), set(names)),
        (
            ResourceRequest,
            {*ResourceRequest.__struct_fields__} - {"device", "cpu_limit_millis"},
            requested,
        ),
        (
            ResourceOptions,
            {*ResourceOptions.__annotations__},
            {resource.word for resource in REQUESTED},
        ),
    ):
        if has != wants:
            raise ValueError(
                f"{shape.__name__} has the fields {has}, the table of resources wants {wants}"
            )


_guard()
