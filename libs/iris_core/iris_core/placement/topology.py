"""TPU slices: the hosts and chips of each variant, and what a coscheduled job must request for it.

Names of v4 and v5p count cores, those of v5litepod and v6e count chips. Source: design note on TPU
topologies; docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from iris_core.errors import Mistake
from iris_core.placement.constraints import TPU_NAME, key_mistakes
from iris_core.spec.jobs import Coscheduling, JobSpec
from iris_core.spec.resources import AUTO, Device
from iris_core.units import counted

LEVELS = 8
"""A gang is placed by at most so many levels."""


class Topology(NamedTuple):
    """One variant.

    Attributes:
        chips: in the whole slice. hosts: physical machines.
        vm_count: VMs to schedule on, one task each. chips_per_vm: the most chips of one task.
    """

    variant: str
    chips: int
    hosts: int
    vm_count: int
    chips_per_vm: int


def _cores(family: str, sizes: tuple[int, ...]) -> list[Topology]:
    """Variants named by cores: two cores a chip, four chips a host."""
    return [Topology(f"{family}-{n}", n // 2, n // 8, n // 8, chips_per_vm=4) for n in sizes]


_TABLE = (
    *_cores("v4", (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
    *_cores("v5p", (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288)),
    Topology("v5litepod-1", 1, 1, 1, chips_per_vm=1),
    Topology("v5litepod-2", 2, 1, 1, chips_per_vm=2),
    Topology("v5litepod-4", 4, 1, 1, chips_per_vm=4),
    Topology("v5litepod-8", 8, 1, 1, chips_per_vm=8),
    Topology("v5litepod-16", 16, 2, 4, chips_per_vm=4),
    Topology("v5litepod-32", 32, 4, 8, chips_per_vm=4),
    Topology("v5litepod-64", 64, 8, 16, chips_per_vm=4),
    Topology("v5litepod-128", 128, 16, 32, chips_per_vm=4),
    Topology("v5litepod-256", 256, 32, 64, chips_per_vm=4),
    Topology("v6e-1", 1, 1, 1, chips_per_vm=1),
    Topology("v6e-4", 4, 1, 1, chips_per_vm=4),
    Topology("v6e-8", 8, 1, 1, chips_per_vm=8),
    Topology("v6e-16", 16, 4, 4, chips_per_vm=4),
    Topology("v6e-32", 32, 8, 8, chips_per_vm=4),
    Topology("v6e-64", 64, 16, 16, chips_per_vm=4),
    Topology("v6e-128", 128, 32, 32, chips_per_vm=4),
    Topology("v6e-256", 256, 64, 64, chips_per_vm=4),
)

TOPOLOGIES = {topology.variant: topology for topology in _TABLE}
_CUBOIDS = (
    *((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8)),
    *((8, 8, 16), (8, 16, 16), (16, 16, 16), (16, 16, 24)),
)
_RECTANGLES = (
    (1, 1, 1),
    (1, 2, 1),
    (2, 2, 1),
    (2, 4, 1),
    (4, 4, 1),
    (4, 8, 1),
    (8, 8, 1),
    (8, 16, 1),
    (16, 16, 1),
)
_CHIP_GRIDS = {"v4": _CUBOIDS, "v5p": _CUBOIDS, "v5litepod": _RECTANGLES, "v6e": _RECTANGLES}
"""Chips along each axis of the slices of a family."""
_ANY_PARTS = tuple(sorted({topology.chips for topology in _TABLE if topology.vm_count == 1}))


def topology_of(variant: str) -> Topology | None:
    """The topology of a variant, None when the variant is unknown."""
    return TOPOLOGIES.get(variant)


def vm_grid(topology: Topology) -> tuple[int, int, int]:
    """How many VMs of a slice are in a row, in a column, and behind each other. Each of several VMs
    has 2 x 2 chips.
    """
    if topology.vm_count == 1:
        return 1, 1, 1
    grids = _CHIP_GRIDS[_family(topology.variant)]
    rows, columns, planes = next(grid for grid in grids if prod(grid) == topology.chips)
    return columns // 2, rows // 2, planes


def parts_of(variant: str) -> tuple[int, ...]:
    """How many chips of one of its VMs a task may have, ascending: all of them, and of the only VM
    of a slice also as many as a smaller slice of the family has. Empty for an unknown variant.
    """
    topology = topology_of(variant)
    if topology is None or topology.vm_count > 1:
        return () if topology is None else (topology.chips_per_vm,)
    family = _family(variant)
    singles = (t for t in TOPOLOGIES.values() if t.vm_count == 1 and _family(t.variant) == family)
    return tuple(sorted(t.chips for t in singles if t.chips <= topology.chips))


def validate_device(device: Device) -> list[Mistake]:
    """All mistakes in a task's request for TPUs; other device kinds have no table."""
    if device.kind != "tpu":
        return []
    for variant in device.variants:
        if mistakes := _variant_mistakes(device, variant):
            return mistakes
    shapes = {
        variant: topology_of(variant) for variant in device.variants if device.has_alternatives
    }
    sizes = {
        variant: (found.vm_count, found.chips_per_vm)
        for variant, found in shapes.items()
        if found is not None
    }
    if len(set(sizes.values())) > 1:
        words = ", ".join(
            f"{variant} has {counted(vms, 'VM')} of {chips} chips"
            for variant, (vms, chips) in sizes.items()
        )
        hint = "variants with as many VMs, and chips per VM"
        return [
            Mistake(
                pointer="/resources/device/variant",
                code="unlike_alternatives",
                message=words,
                hint=hint,
            )
        ]
    return []


def _variant_mistakes(device: Device, variant: str) -> list[Mistake]:
    if variant == AUTO:
        parts = _ANY_PARTS
        host = "the largest TPU VM"
    else:
        parts = parts_of(variant)
        host = f"a {variant} VM"
    if not parts:
        message = f"no TPU variant {variant[:80]!r}"
        return [
            Mistake(
                pointer="/resources/device/variant",
                code="unknown_variant",
                message=message,
                hint=_near(variant),
            )
        ]
    if device.count in parts:
        return []
    pointer = "/resources/device/count"
    has = parts[-1]
    if device.count > has:
        message = f"a task asks for {counted(device.count, 'chip')}; {host} has {has}"
        return [
            Mistake(pointer=pointer, code="too_many_chips", message=message, hint=_whole(variant))
        ]
    message = f"a task asks for {device.count} of the chips of {host}"
    hint = f"a task may have {' or '.join(map(str, parts))}"
    return [Mistake(pointer=pointer, code="no_such_part", message=message, hint=hint)]


def validate_coscheduling(spec: JobSpec) -> list[Mistake]:
    """All mistakes in a job's coscheduling."""
    if spec.coscheduling is None:
        return []
    gang = spec.coscheduling
    mistakes = _level_mistakes(gang)
    if gang.within:
        mistakes += key_mistakes("/coscheduling/within", gang.within)
    mistakes += _number_mistakes(spec, gang)
    if mistakes or gang.key != TPU_NAME:
        return mistakes
    return _slice_mistakes(spec, gang.slices)


def _level_mistakes(gang: Coscheduling) -> list[Mistake]:
    """What is wrong with the levels that a gang is placed by."""
    pointer = "/coscheduling/group_by"
    if isinstance(gang.group_by, str):
        return key_mistakes(pointer, gang.group_by)
    if not 1 <= len(gang.group_by) <= LEVELS:
        message = f"{len(gang.group_by)} levels of a topology"
        hint = f"1 to {LEVELS}, innermost first"
        return [Mistake(pointer=pointer, code="number_of_levels", message=message, hint=hint)]
    mistakes = [
        one
        for at, level in enumerate(gang.levels)
        for one in key_mistakes(f"{pointer}/{at}/key", level.key)
    ]
    keys = [level.key for level in gang.levels]
    for at, level in enumerate(gang.levels):
        if level.key in keys[:at] or level.key == gang.within:
            message = (
                f"{level.key} is a level twice"
                if level.key in keys[:at]
                else f"{level.key} is in 'within' too"
            )
            mistakes.append(
                Mistake(
                    pointer=f"{pointer}/{at}/key",
                    code="twice",
                    message=message,
                    hint="leave one out",
                )
            )
        if level.key == TPU_NAME and (at or level.mode == "preferred"):
            message = f"the hosts of a TPU are one slice: {TPU_NAME} is innermost and required"
            hint = "put it first"
            mistakes.append(
                Mistake(
                    pointer=f"{pointer}/{at}", code="tpu_is_innermost", message=message, hint=hint
                )
            )
    if gang.slices > 1 and gang.levels[0].mode == "preferred":
        message = f"each of {gang.slices} slices is in one {keys[0]}, which is required"
        mistakes.append(
            Mistake(
                pointer=f"{pointer}/0/mode",
                code="slices_need_a_group",
                message=message,
                hint="required",
            )
        )
    return mistakes


def _number_mistakes(spec: JobSpec, gang: Coscheduling) -> list[Mistake]:
    """What is wrong with the number of slices, and with what there is for several of them."""
    pointer = "/coscheduling/slices"
    if gang.slices < 1:
        return [
            Mistake(
                pointer=pointer,
                code="too_few",
                message=f"a gang of {gang.slices} slices",
                hint="at least 1",
            )
        ]
    if gang.slices == 1:
        message = "only a gang of several slices has an attribute that they share"
        hint = "leave it out, or specify slices"
        wrong = Mistake(
            pointer="/coscheduling/within", code="needs_slices", message=message, hint=hint
        )
        return [wrong] if gang.within else []
    if spec.indexes:
        message = "a gang of several slices has all of its tasks"
        return [Mistake(pointer="/indexes", code="not_whole", message=message, hint="leave it out")]
    if spec.replicas % gang.slices:
        message = f"{spec.replicas} replicas are not {gang.slices} slices of equal size"
        return [
            Mistake(
                pointer=pointer,
                code="unequal_slices",
                message=message,
                hint=f"replicas a multiple of {gang.slices}",
            )
        ]
    return []


def _slice_mistakes(spec: JobSpec, slices: int) -> list[Mistake]:
    device = spec.resources.device
    if device is None or device.kind != "tpu":
        message = f"a job grouped by {TPU_NAME} asks for a TPU"
        return [
            Mistake(
                pointer="/resources/device",
                code="needs_tpu",
                message=message,
                hint="kind tpu and a variant",
            )
        ]
    variant = device.variants[0]
    if variant == AUTO:
        message = (
            f"a job grouped by {TPU_NAME} names its variant, for its replicas are the slice's VMs"
        )
        return [
            Mistake(
                pointer="/resources/device/variant",
                code="needs_variant",
                message=message,
                hint="v5litepod-16",
            )
        ]
    topology = topology_of(variant)
    if topology is None or spec.replicas == slices * topology.vm_count:
        return []
    several = f", and the job asks for {slices} slices" if slices > 1 else ""
    message = f"{counted(spec.replicas, 'replica')}; a {variant} slice has {counted(topology.vm_count, 'VM')}{several}"
    hint = f"replicas {slices * topology.vm_count}"
    return [Mistake(pointer="/replicas", code="replicas_not_vm_count", message=message, hint=hint)]


def _whole(variant: str) -> str:
    topology = topology_of(variant)
    if topology is None:
        return ""
    return f"{topology.chips_per_vm} chips a task and {counted(topology.vm_count, 'replica')} take the whole slice"


def _family(variant: str) -> str:
    return variant.rpartition("-")[0]


def _near(variant: str) -> str:
    known = [name for name in TOPOLOGIES if _family(name) == _family(variant)] or list(TOPOLOGIES)
    return f"one of {', '.join(known)}"
