"""Where the members of a gang may be: each slice in a group of its own, all slices in one domain. Pure.

Source: docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from iris_core.constraints import DEVICE_VARIANT
from iris_core.resources import ResourceRequest
from iris_core.spec import Attribute, JobSpec


def slice_of(index: int, tasks: int, slices: int) -> int:
    """The slice of a task, of a gang with so many tasks in so many slices."""
    return index * slices // tasks


def domain_keys(within: str, resources: ResourceRequest) -> tuple[str, ...]:
    """The attributes whose values all workers of a gang share, besides the groups of its slices."""
    device = resources.device
    variant = (DEVICE_VARIANT,) if device is not None and device.has_alternatives else ()
    return (within, *variant) if within else variant


def is_split(spec: JobSpec, seats: Iterable[tuple[int, Mapping[str, Attribute]]]) -> bool:
    """Whether a gang must not be on these workers: a slice is on several groups, two slices are on one, a worker has
    no group, or the workers are in several domains or have devices of several variants.

    ``seats``: indexes of tasks and the attributes of their workers.
    """
    gang = spec.coscheduling
    if gang is None:
        return False
    groups: dict[int, Attribute | None] = {}
    domains, keys = set[tuple[Attribute | None, ...]](), domain_keys(gang.within, spec.resources)
    for index, attributes in seats:
        number, value = slice_of(index, spec.replicas, gang.slices), attributes.get(gang.group_by)
        if value is None or groups.setdefault(number, value) != value:
            return True
        domains.add(tuple(attributes.get(key) for key in keys))
    return len(set(groups.values())) < len(groups) or len(domains) > 1 or any(None in domain for domain in domains)
