"""Workers as columns: names, attributes as codes, groups, and a mask of the workers that a class of
jobs may use.

One order for every first fit: hosts without accelerators first, so that CPU work does not take
accelerators, then by name. Rebuilt when a worker is added, removed or changes its attributes; the
mask of a class is computed once per build. Free capacity is out of scope.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from iris_core.messages.scheduler_state import WorkerRow
from iris_core.placement import constraints
from iris_core.placement.constraints import TAINT, TPU_WORKER_ID
from iris_core.placement.coscheduling import Grouping
from iris_core.spec.jobs import Attribute, Constraint
from iris_core.states import ConstraintOp
from iris_scheduler.mirror.capacity import Mask, Slots
from iris_scheduler.mirror.classes import JobClass, Shape

Codes = NDArray[np.int64]

_MANY = 10_000
_BYTES = 64 << 20
"""Limits of cached masks, by number and bytes, besides those of the existing classes."""
_WORKER_BYTES = 17
"""Bytes of a cached result per worker at most: a mask, a slot, a rank."""


@dataclass(frozen=True, slots=True)
class Usable:
    """The workers a class may use, regardless of free capacity.

    Attributes:
        mask: over all workers. slots: the same workers in the order of first fit.
        rank: preferred constraints satisfied, over all workers; None when the class prefers
            nothing.
    """

    mask: Mask
    slots: Slots
    rank: NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class Groups:
    """Workers that share the value of one attribute, and of those that are the domain of their
    group.

    Attributes:
        codes: the group of each worker, -1 for none. names: of the groups, sorted.
        members: slots of each group by numeric ``tpu-worker-id``, those without one last, then by
            name.
        domains: the domain of each group. domain_names: in words; one domain has all groups of a
            single attribute.
        near: of each preferred level besides, outermost first, the domain of each worker, which has
            one of its own where it lacks the attribute.
    """

    codes: Codes
    names: Sequence[str]
    members: Sequence[tuple[int, ...]]
    domains: Codes
    domain_names: Sequence[str] = ("",)
    near: Sequence[Codes] = ()

    def in_domains(self, wanted: Mask | Codes) -> Codes:
        """How many of the wanted groups, a mask or numbers, each domain has."""
        return np.bincount(self.domains[wanted], minlength=len(self.domain_names))

    def holds_slices(self, codes: Sequence[int], slices: int) -> bool:
        """Whether workers of these groups, in order of task index, are one group for each slice in
        one domain.
        """
        size, rest = divmod(len(codes), slices)
        if rest or not size or -1 in codes:
            return False
        groups = codes[::size]
        return (
            all(code == groups[at // size] for at, code in enumerate(codes))
            and len(set(groups)) == slices
            and len(set(self.domains[groups].tolist())) == 1
        )


class AttributeColumn:
    """One attribute of all workers as codes; 0 where it is absent."""

    def __init__(self, values: Sequence[Attribute | None]) -> None:
        self.code_of: dict[Attribute, int] = {}
        for value in values:
            if value is not None and value not in self.code_of:
                self.code_of[value] = len(self.code_of) + 1
        self.codes = np.fromiter(
            (0 if v is None else self.code_of[v] for v in values), np.int64, len(values)
        )

    def mask(self, constraint: Constraint) -> Mask:
        """Which workers satisfy the constraint."""
        if constraint.op is ConstraintOp.EQ and constraint.value is not None:
            return self._having(constraint.value)
        table = np.zeros(len(self.code_of) + 1, np.bool_)
        table[0] = constraint.op in constraints.ABSENT
        for value, code in self.code_of.items():
            table[code] = constraints.admits(constraint, value)
        return np.asarray(table[self.codes], np.bool_)

    def _having(self, value: Attribute) -> Mask:
        code = self.code_of.get(value, -1)
        return np.asarray(self.codes == code, np.bool_)


class Columns:
    """All workers with their attributes at one time.

    Attributes:
        names, attributes: by slot. slot: by name. accelerated: the first slot of those with
            accelerators.
    """

    def __init__(self, rows: Mapping[str, WorkerRow]) -> None:
        self.names = sorted(rows, key=lambda name: (rows[name].total.chips > 0, name))
        self.accelerated = sum(rows[name].total.chips == 0 for name in self.names)
        self.slot = {name: slot for slot, name in enumerate(self.names)}
        self.attributes = [rows[name].attributes for name in self.names]
        self._columns: dict[str, AttributeColumn] = {}
        self._masks: dict[Constraint, Mask] = {}
        self._usable: dict[JobClass, Usable] = {}
        self._shapes: dict[Shape, Usable] = {}
        self._groups: dict[Grouping, Groups] = {}
        self._most = min(_MANY, _BYTES // (_WORKER_BYTES * max(1, len(self.names))))

    def __len__(self) -> int:
        return len(self.names)

    def usable(self, kind: JobClass) -> Usable:
        """The workers a class may use."""
        known = self._usable.get(kind)
        if known is None:
            self._make_room()
            known = self._shapes.get(kind.shape)
            if known is None:
                known = self._shapes[kind.shape] = self._find_usable(kind)
            self._usable[kind] = known
        return known

    def forget(self, kind: JobClass) -> None:
        """Drop the results of a class that has no jobs any more."""
        self._usable.pop(kind, None)

    @property
    def kept(self) -> int:
        """How many results are cached besides those of the existing classes."""
        return len(self._shapes) + len(self._masks) + len(self._columns) + len(self._groups)

    def _make_room(self) -> None:
        """Clear the cache when it is large: users choose the keys and values of constraints."""
        if self.kept > self._most:
            self._shapes.clear()
            self._masks.clear()
            self._columns.clear()
            self._groups.clear()

    def mask(self, constraint: Constraint) -> Mask:
        """The workers that satisfy one constraint."""
        known = self._masks.get(constraint)
        if known is None:
            known = self._masks[constraint] = self._column(constraint.key).mask(constraint)
        return known

    def groups(self, kind: JobClass) -> Groups:
        """The groups of workers that a class of gangs may use."""
        return self._grouped(kind.groupings[-1])

    def groupings(self, kind: JobClass) -> list[Groups]:
        """The same, before them those with preferred levels, best first."""
        return [self._grouped(grouping) for grouping in kind.groupings]

    def roomiest(self, key: str, slots: Slots) -> tuple[str, int]:
        """The value of an attribute that most of these workers have, and how many do; 0 when none
        has one.
        """
        codes, names = self._numbered(key)
        counts = np.bincount(codes.take(slots) + 1, minlength=len(names) + 1)[1:]
        best = int(counts.argmax()) if names else 0
        return (names[best], int(counts[best])) if names else ("", 0)

    def _grouped(self, grouping: Grouping) -> Groups:
        known = self._groups.get(grouping)
        if known is None:
            known = self._groups[grouping] = self._group(grouping)
        return known

    @cached_property
    def taints(self) -> tuple[str, ...]:
        """Every taint some worker has, sorted."""
        return tuple(
            sorted({key for has in self.attributes for key in has if key.startswith(TAINT)})
        )

    def tainted(self, taint: str) -> Mask:
        """The workers that have a taint."""
        return self.mask(Constraint(taint, ConstraintOp.EXISTS))

    def _column(self, key: str) -> AttributeColumn:
        known = self._columns.get(key)
        if known is None:
            known = self._columns[key] = AttributeColumn([has.get(key) for has in self.attributes])
        return known

    def _find_usable(self, kind: JobClass) -> Usable:
        mask = np.ones(len(self), np.bool_)
        for constraint in kind.required:
            mask &= self.mask(constraint)
        for taint in self.taints:
            if taint not in kind.tolerated:
                mask &= ~self.tainted(taint)
        slots = np.flatnonzero(mask)
        if not kind.preferred:
            return Usable(mask, slots, None)
        rank = np.zeros(len(self), np.int64)
        for constraint in kind.preferred:
            rank += self.mask(constraint)
        return Usable(mask, slots[np.argsort(-rank[slots], kind="stable")], rank)

    def _group(self, grouping: Grouping) -> Groups:
        codes, names = self._numbered(grouping.group)
        near = [self._apart(key) for key in grouping.near]
        if not grouping.domain:
            members = self._members(codes, len(names))
            domains = np.zeros(len(names), np.int64)
            return Groups(codes, names, members, domains, near=near)
        outer, outer_names = self._domains(grouping.domain)
        codes, inner, domains = _paired(codes, outer, len(outer_names))
        words = [
            f"{names[group]} in {outer_names[within]}"
            for group, within in zip(inner, domains, strict=True)
        ]
        return Groups(
            codes,
            words,
            self._members(codes, len(words)),
            domains,
            domain_names=outer_names,
            near=near,
        )

    def _apart(self, attribute: str) -> Codes:
        """The rank of each worker's value of an attribute; a number of its own for each worker
        without one.
        """
        codes, names = self._numbered(attribute)
        return np.where(codes < 0, len(names) + np.arange(len(self)), codes)

    def _domains(self, keys: tuple[str, ...]) -> tuple[Codes, list[str]]:
        """The rank of each worker's values of some attributes, -1 where one is absent, and the
        values in words.
        """
        codes, names = self._numbered(keys[0])
        names = [f"{keys[0]} {name}" for name in names]
        for key in keys[1:]:
            more, values = self._numbered(key)
            codes, firsts, seconds = _paired(codes, more, len(values))
            names = [
                f"{names[one]}, {key} {values[two]}"
                for one, two in zip(firsts, seconds, strict=True)
            ]
        return codes, names

    def _numbered(self, attribute: str) -> tuple[Codes, list[str]]:
        """The rank of each worker's value of an attribute, -1 for none, and the values in words.
        Without an attribute all have one value.
        """
        if not attribute:
            return np.zeros(len(self), np.int64), ["any"]
        column = self._column(attribute)
        values = sorted(column.code_of, key=lambda value: (isinstance(value, str), value))
        number = np.full(len(values) + 1, -1, np.int64)
        for rank, value in enumerate(values):
            number[column.code_of[value]] = rank
        return number[column.codes], [str(value) for value in values]

    def _members(self, codes: Codes, groups: int) -> list[tuple[int, ...]]:
        members: list[list[int]] = [[] for _ in range(groups)]
        for slot, code in enumerate(codes.tolist()):
            if code >= 0:
                members[code].append(slot)
        return [tuple(sorted(slots, key=self._seat_rank)) for slots in members]

    def _seat_rank(self, slot: int) -> tuple[bool, float, str]:
        number = worker_number(self.attributes[slot])
        return (number is None, number or 0.0, self.names[slot])


def _paired(codes: Codes, others: Codes, number: int) -> tuple[Codes, Codes, Codes]:
    """Pairs of codes as codes, -1 where one is; and of each pair, by rank, the first and the
    second.

    ``number``: how many other codes there are.
    """
    pairs = np.where((codes >= 0) & (others >= 0), codes * number + others, -1)
    found = np.unique(pairs[pairs >= 0])
    firsts, seconds = np.divmod(found, max(1, number))
    return np.where(pairs >= 0, np.searchsorted(found, pairs), -1), firsts, seconds


def worker_number(attributes: Mapping[str, Attribute]) -> float | None:
    """A worker's numeric ``tpu-worker-id``; None when it is absent or not a number."""
    try:
        number = float(attributes.get(TPU_WORKER_ID, ""))
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
