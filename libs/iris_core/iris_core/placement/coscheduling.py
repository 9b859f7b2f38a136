"""Where the members of a gang may be: each slice in a group of its own, all slices in one domain.
Pure.

Source: docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from iris_core.placement.constraints import DEVICE_VARIANT
from iris_core.spec.jobs import Attribute, JobSpec, Level
from iris_core.spec.resources import ResourceRequest


class Grouping(NamedTuple):
    """One way to divide workers into groups for a gang.

    Attributes:
        group: the attribute that the workers of one slice share; empty: any workers are one group.
        domain: the attributes that the workers of all slices share.
        near: the preferred levels besides these, outermost first.
    """

    group: str
    domain: tuple[str, ...] = ()
    near: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All attributes that workers of one group share."""
        return (self.group, *self.domain) if self.group else self.domain


def slice_of(index: int, tasks: int, slices: int) -> int:
    """The slice of a task, of a gang with so many tasks in so many slices."""
    return index * slices // tasks


def groupings(
    levels: Sequence[Level], within: str, resources: ResourceRequest
) -> tuple[Grouping, ...]:
    """The ways to group workers for a gang, best first: by all its levels, then with fewer and
    fewer of the preferred ones, of which the innermost is left out first. The last one has only
    what is required.
    """
    device = resources.device
    variant = (DEVICE_VARIANT,) if device is not None and device.has_alternatives else ()
    domain = (within, *variant) if within else variant
    preferred = [level.key for level in levels if level.mode == "preferred"]
    found = []
    for dropped in range(len(preferred) + 1):
        near = preferred[:dropped]
        keys = [level.key for level in levels if level.key not in near]
        found.append(Grouping(keys[0] if keys else "", (*keys[1:], *domain), tuple(reversed(near))))
    return tuple(found)


def is_split(spec: JobSpec, seats: Iterable[tuple[int, Mapping[str, Attribute]]]) -> bool:
    """Whether a gang must not be on these workers: a slice is on several groups, two slices are on
    one, a worker has no group, or the workers are in several domains of a required level or have
    devices of several variants.

    ``seats``: indexes of tasks and the attributes of their workers.
    """
    gang = spec.coscheduling
    if gang is None:
        return False
    required = groupings(gang.levels, gang.within, spec.resources)[-1]
    groups: dict[int, Attribute | None] = {}
    domains = set[tuple[Attribute | None, ...]]()
    for index, attributes in seats:
        number = slice_of(index, spec.replicas, gang.slices)
        value = attributes.get(required.group) if required.group else ""
        if value is None or groups.setdefault(number, value) != value:
            return True
        domains.add(tuple(attributes.get(key) for key in required.domain))
    return (
        len(set(groups.values())) < len(groups)
        or len(domains) > 1
        or any(None in domain for domain in domains)
    )
