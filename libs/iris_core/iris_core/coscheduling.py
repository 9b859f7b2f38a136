"""Where the members of a gang may be: each slice in a group of its own, all slices in one domain. Pure.

Source: docs/design/semantics.md#coscheduling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from iris_core.spec import Attribute, JobSpec


def slice_of(index: int, tasks: int, slices: int) -> int:
    """The slice of a task, of a gang with so many tasks in so many slices."""
    return index * slices // tasks


def is_split(spec: JobSpec, seats: Iterable[tuple[int, Mapping[str, Attribute]]]) -> bool:
    """Whether a gang must not be on these workers: a slice is on several groups, two slices are on one, a worker has
    no group, or the slices are in several domains.

    ``seats``: indexes of tasks and the attributes of their workers.
    """
    gang = spec.coscheduling
    if gang is None:
        return False
    groups: dict[int, Attribute | None] = {}
    domains = set[Attribute | None]()
    for index, attributes in seats:
        number, value = slice_of(index, spec.replicas, gang.slices), attributes.get(gang.group_by)
        if value is None or groups.setdefault(number, value) != value:
            return True
        if gang.within:
            domains.add(attributes.get(gang.within))
    return len(set(groups.values())) < len(groups) or len(domains) > 1 or None in domains
