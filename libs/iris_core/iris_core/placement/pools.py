"""What the hosts of a pool are to pending work: which work a pool could hold, and what its hosts
will report. Pure.

Source: docs/design/fleet.md#need.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from iris_core.placement.constraints import (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    TPU_NAME,
    TPU_WORKER_ID,
    asks_for_device,
    eligible,
)
from iris_core.spec.jobs import Attribute, Constraint
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import RESOURCE, Amount, ResourceRequest
from iris_core.units import BYTES

POOL_CAPACITY = "capacity"
"""The attribute that says how a host was bought: spot, on_demand or reserved."""
_NUMBER = re.compile("0|[1-9][0-9]{0,8}")
_LIKE = 1 / 64
"""A host may have so much less memory and disk than its pool says: kernels keep some."""


def variant_of(pool: PoolSpec) -> str:
    """The variant of the device that each host of a pool has; empty without one."""
    return str(pool.attributes.get(DEVICE_VARIANT, ""))


def has_devices(pool: PoolSpec) -> bool:
    return DEVICE_TYPE in pool.attributes or pool.resources.chips > 0


def is_for_devices_only(pool: PoolSpec) -> bool:
    """Whether only work that asks for a device causes slices of a pool, and is placed on them."""
    return pool.only == "device" or (not pool.only and has_devices(pool))


def slice_name(pool: str, slot: int) -> str:
    return f"{pool}-{slot}"


def numbered(name: str) -> tuple[str, int] | None:
    """The parts of the name of a slice, or of a host of one: what stands before its last number, and
    that; None for a name that is written otherwise, as strangers may be.
    """
    first, _, last = name.rpartition("-")
    return (first, int(last)) if _NUMBER.fullmatch(last) else None


def host_name(pool: str, slot: int, index: int) -> str:
    """The name of one host of a slice, which is the id of its worker."""
    return f"{pool}-{slot}-{index}"


def host_attributes(pool: PoolSpec, slot: int, index: int) -> dict[str, Attribute]:
    """The attributes that a host of a slice will report."""
    return {
        **pool.attributes,
        TPU_NAME: slice_name(pool.name, slot),
        TPU_WORKER_ID: index,
        POOL_CAPACITY: pool.capacity,
    }


def is_eligible(
    pool: PoolSpec, constraints: Sequence[Constraint], resources: ResourceRequest, group_by: str
) -> bool:
    """Whether an empty host of a new slice could run a task with these constraints, if it has as
    much as the task takes; the number of hosts that a gang needs is not considered.
    """
    if is_for_devices_only(pool) and not asks_for_device(constraints, resources):
        return False
    attributes = host_attributes(pool, slot=0, index=0)
    if group_by and group_by not in attributes:
        return False
    # A job that names one slice by its name waits for that slice.
    return eligible(constraints, resources, attributes)


def differences(
    pool: PoolSpec, slot: int, index: int, total: Amount, attributes: Mapping[str, Attribute]
) -> tuple[str, ...]:
    """How a host that registered falls short of its pool, in words; more than was promised is no
    difference.
    """
    found = []
    wanted = pool.resources
    for name in wanted.__struct_fields__:
        promised = getattr(wanted, name)
        has = getattr(total, name)
        is_approximate = RESOURCE[name].unit is BYTES
        least = promised - int(promised * _LIKE) if is_approximate else promised
        if has < least:
            found.append(f"{name} {has}, not {promised}")
    for key, value in host_attributes(pool, slot, index).items():
        if attributes.get(key) != value:
            found.append(f"{key} {attributes.get(key, 'is missing')}, not {value}")
    return tuple(found)
