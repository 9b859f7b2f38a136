"""Validates a pool's specification, in the gateway and again in the state service.

As `admission.jobs`: all mistakes at once, each with the JSON pointer of its field. Source:
docs/design/fleet.md#pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import islice

from iris_core.admission.pool_options import option_mistakes, program_mistakes
from iris_core.errors import Mistake
from iris_core.limits import MISTAKES
from iris_core.placement.constraints import DEVICE_TYPE, DEVICE_VARIANT, key_mistakes
from iris_core.placement.pools import variant_of
from iris_core.placement.topology import topology_of
from iris_core.spec import field_rules
from iris_core.spec.pools import PoolSpec

_GIVEN_BY_SLICES = ("tpu-name", "tpu-worker-id", "capacity")
"""Attributes that follow from the slice and are not written in a pool."""


def validate_pool(pool: PoolSpec, others: Iterable[PoolSpec] = ()) -> list[Mistake]:
    """The mistakes in a pool's specification beside the other pools, at most `MISTAKES`."""
    return list(islice(_mistakes(pool, others), MISTAKES))


def unknown_program(
    pool: PoolSpec, known: PoolSpec | None, programs: Set[str] | None
) -> list[Mistake]:
    """The mistake of a program that the provisioner does not have, unless the pool has it already: its
    other fields can still be changed.

    ``known``: the pool as it is. ``programs``: as of `program_mistakes`.
    """
    if known is not None and known.options.get("program") == pool.options.get("program"):
        return []
    return list(program_mistakes(pool, programs))


def _mistakes(pool: PoolSpec, others: Iterable[PoolSpec]) -> Iterator[Mistake]:
    yield from field_rules.mistakes(pool)
    for name in ("min", "buffer"):
        if getattr(pool, name) > pool.max:
            yield Mistake(
                pointer=f"/{name}",
                code="out_of_range",
                message=f"{name} {getattr(pool, name)} is more than max {pool.max}",
            )
    yield from _attributes(pool)
    yield from _shape(pool)
    yield from option_mistakes(pool)
    yield from _beside(pool, others)


def _attributes(pool: PoolSpec) -> Iterator[Mistake]:
    for key in pool.attributes:
        yield from key_mistakes(f"/attributes/{key}", key)
        if key in _GIVEN_BY_SLICES:
            yield Mistake(
                pointer=f"/attributes/{key}",
                code="not_settable",
                message=f"{key} follows from the slice of a host",
            )


def _shape(pool: PoolSpec) -> Iterator[Mistake]:
    """A variant of the TPU table has the hosts and the chips of that table."""
    variant = variant_of(pool)
    chips = pool.resources.chips
    if chips and not variant:
        yield Mistake(
            pointer=f"/attributes/{DEVICE_VARIANT}",
            code="missing",
            message=f"a host with {chips} chips has a device variant",
        )
    if chips and DEVICE_TYPE not in pool.attributes:
        yield Mistake(
            pointer=f"/attributes/{DEVICE_TYPE}",
            code="missing",
            message=f"a host with {chips} chips has a device type",
            hint="gpu or tpu",
        )
    topology = topology_of(variant) if pool.attributes.get(DEVICE_TYPE) == "tpu" else None
    if topology is None:
        return
    if pool.hosts != topology.vm_count:
        yield Mistake(
            pointer="/hosts",
            code="not_of_variant",
            message=f"a slice of {variant} has {topology.vm_count} hosts, not {pool.hosts}",
            hint=str(topology.vm_count),
        )
    if chips != topology.chips_per_vm:
        yield Mistake(
            pointer="/resources/chips",
            code="not_of_variant",
            message=f"a host of {variant} has {topology.chips_per_vm} chips, not {chips}",
            hint=str(topology.chips_per_vm),
        )


def _beside(pool: PoolSpec, others: Iterable[PoolSpec]) -> Iterator[Mistake]:
    for other in others:
        if other.name == pool.name:
            continue
        mine = pool.reservation
        theirs = other.reservation
        if mine and theirs and mine.name == theirs.name and mine.chips != theirs.chips:
            yield Mistake(
                pointer="/reservation/chips",
                code="conflict",
                message=f"reservation {mine.name} has {theirs.chips} chips in pool {other.name}",
                hint=str(theirs.chips),
            )
        if _share_names(pool.name, other.name) or _share_names(other.name, pool.name):
            yield Mistake(
                pointer="/name",
                code="conflict",
                message=f"slices or hosts of {pool.name} and of pool {other.name} could have one"
                " name",
            )


def _share_names(shorter: str, longer: str) -> bool:
    """Whether a slice of one pool could have the name of the other's: ``a-1-0`` of ``a`` and of
    ``a-1``.
    """
    rest = longer.removeprefix(f"{shorter}-")
    return rest != longer and rest.replace("-", "").isdigit()
