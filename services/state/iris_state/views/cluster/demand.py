"""Capacity that pending work lacks, in units that can be bought: whole TPU slices, and hosts of a
shape. Pure.

A shape is what registered hosts have, LOST ones included; nothing is known of hosts that never were
there. Work counts while it does not fit: what waits for another cause (a quota, a victim that
stops, a delay) needs no host. Room that running work will free is not subtracted. Out of scope: who
    buys. Source: docs/autoscaling.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from msgspec.structs import asdict

from iris_core.placement.constraints import (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    TPU_NAME,
    describe,
    eligible,
    implied,
    matches,
    repelling,
)
from iris_core.placement.coscheduling import groupings
from iris_core.placement.reasons import NOT_YET_LOOKED_AT, ReasonCode
from iris_core.placement.topology import Topology, topology_of
from iris_core.spec.jobs import Attribute, Constraint
from iris_core.spec.resources import RESOURCES, Amount, Device, ResourceRequest, times
from iris_core.units import BYTES
from iris_core.views.cluster import DemandView, HostDemand, SliceDemand, UnsatisfiableDemand
from iris_core.views.jobs import moment
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.views.pages import Pieces, parts

JOBS = 2000
"""Waiting jobs looked at, in the order of the queue."""
CLASSES = 200
"""Classes of them that are told apart; jobs of others are left out."""
LOOKED_AT_ONCE = 500
"""Jobs or hosts that are looked at in one piece of a read."""
SHAPES = 50
"""Shapes that are told apart; of more, the largest are left out."""
_OPEN = 16
"""Groups of equal hosts of one shape that later classes may still fill up."""
GIB = 1 << 30

NO_DEMAND = frozenset(
    {
        ReasonCode.NOT_YET_LOOKED_AT,
        ReasonCode.OVER_QUOTA,
        ReasonCode.BUILDING_WINDOW_FULL,
        ReasonCode.WAITING_FOR_VICTIM,
        ReasonCode.DELAYED,
        ReasonCode.ARRAY_LIMIT,
    }
)
"""Reasons for which another host would change nothing."""


KindOfHost = tuple[Amount, tuple[tuple[str, Attribute], ...]]
"""What a host has, and the attributes of it that matter, in its own order."""


class DemandClass(NamedTuple):
    """What waiting jobs of one kind have in common; ``size``: tasks that need a host each at once,
    0 for none.

    ``slices``: groups of hosts that a gang needs.
    """

    resources: ResourceRequest
    constraints: tuple[Constraint, ...]
    group_by: str
    size: int
    slices: int = 1

    @property
    def selector(self) -> tuple[tuple[Constraint, ...], Device | None, str]:
        """What decides which shapes may hold the class, its size aside."""
        return self.constraints, self.resources.device, self.group_by

    @property
    def conditions(self) -> list[Constraint]:
        """What the jobs ask of their hosts in their own words."""
        return [one for one in self.constraints if one.mode == "required"]


@dataclass(slots=True)
class WaitingWork:
    """The waiting jobs of one class. ``first`` is the one that is next in the queue."""

    first: str
    jobs: int = 0
    tasks: int = 0
    oldest_ms: int = 0

    def add(self, tasks: int, jobs: int, submitted_ms: int) -> None:
        self.jobs += jobs
        self.tasks += tasks
        self.oldest_ms = min(self.oldest_ms or submitted_ms, submitted_ms)


@dataclass(slots=True)
class HostShape:
    """Hosts that are alike to everything that waits, and how many more of them are missing.

    Attributes:
        bins: groups of equal new hosts: how many, and what is free on each.
    """

    total: Amount
    attributes: Mapping[str, Attribute]
    hosts: int = 0
    waiting: WaitingWork = field(default_factory=lambda: WaitingWork(""))
    bins: list[tuple[int, Amount]] = field(default_factory=list)

    def take(self, amount: Amount, tasks: int, *, apart: bool) -> None:
        """Put ``tasks`` on the new hosts that have room, and on as many more as it takes;
        ``apart``: one on each.
        """
        bins = self.bins
        self.bins = []
        for count, free in bins:
            tasks -= self._fill(count, free, amount, tasks, apart=apart)
        if tasks:
            new = -(-tasks // (1 if apart else times(self.total, amount)))
            self.hosts += new
            self._fill(new, self.total, amount, tasks, apart=apart)
        self.bins = self.bins[-_OPEN:]

    def _fill(self, count: int, free: Amount, amount: Amount, tasks: int, *, apart: bool) -> int:
        """How many of ``tasks`` go on ``count`` equal hosts; what is left of these becomes groups
        again.
        """
        each = min(times(free, amount), 1) if apart else times(free, amount)
        whole, rest = divmod(tasks, each) if each else (0, 0)
        if whole >= count:
            whole = count
            rest = 0
        groups = ((whole, each), (1 if rest else 0, rest), (count - whole - (1 if rest else 0), 0))
        self.bins += [(number, free - amount * held) for number, held in groups if number]
        return whole * each + rest


def demand(ledger: Ledger) -> Pieces[DemandView]:
    """What is missing now. O(waiting jobs looked at + hosts + classes x shapes)."""
    classes, not_counted, truncated = yield from waiting_classes(ledger)
    shapes = yield from known_shapes(ledger, classes)
    slices: dict[tuple[str, tuple[str, ...]], tuple[int, WaitingWork]] = {}
    unsatisfiable: dict[tuple[str, ...], WaitingWork] = {}
    selected: dict[object, list[HostShape]] = {}
    for kind, waiting in classes.items():
        possible = selected.get(kind.selector)
        if possible is None:
            yield
            possible = selected[kind.selector] = [
                shape for shape in shapes if _eligible(kind, shape)
            ]
        amount = kind.resources.amount
        shape = next((shape for shape in possible if amount.fits(shape.total)), None)
        topology = _slice_of(kind)
        if topology is not None and (shape is not None or not possible):
            key = (topology.variant, tuple(describe(one) for one in kind.conditions))
            number, before = slices.get(key, (0, WaitingWork(waiting.first)))
            before.add(waiting.tasks, waiting.jobs, waiting.oldest_ms)
            slices[key] = (number + _slices(kind, topology, waiting), before)
        elif shape is not None:
            shape.take(amount, waiting.tasks, apart=kind.size > 0)
            shape.waiting.add(waiting.tasks, waiting.jobs, waiting.oldest_ms)
        else:
            why = tuple(_too_large(kind, possible) if possible else _unmatched(kind, shapes))
            before = unsatisfiable.setdefault(why, WaitingWork(waiting.first))
            before.add(waiting.tasks, waiting.jobs, waiting.oldest_ms)
    return DemandView(
        slices=[
            _slice_view(*key, number, waiting) for key, (number, waiting) in sorted(slices.items())
        ],
        hosts=[_host_view(shape) for shape in shapes if shape.hosts],
        unsatisfiable=[
            _unsatisfiable_view(why, waiting) for why, waiting in sorted(unsatisfiable.items())
        ],
        not_counted=dict(sorted(not_counted.items())),
        truncated=truncated,
    )


def waiting_classes(
    ledger: Ledger,
) -> Pieces[tuple[dict[DemandClass, WaitingWork], Counter[str], bool]]:
    """Waiting work by class; tasks that wait for something else, by reason; whether anything was
    left out.
    """
    classes: dict[DemandClass, WaitingWork] = {}
    not_counted: Counter[str] = Counter()
    numbers = list(islice(ledger.queue.jobs(), JOBS + 1))
    left_out = len(numbers) > JOBS
    for part in parts(numbers[:JOBS], LOOKED_AT_ONCE):
        yield
        for job in filter(None, map(ledger.jobs.get, part)):
            tasks = len(ledger.queue.pending(job.number))
            if not tasks:
                continue
            reason = ledger.reasons.get(job.number, NOT_YET_LOOKED_AT)
            if reason.code in NO_DEMAND:
                not_counted[reason.code.value] += tasks
                continue
            if (limit := job.spec.max_parallel) is not None:
                tasks = min(tasks, max(0, limit - ledger.open_of_job[job.number]))
            kind = class_of(job)
            if kind not in classes and len(classes) == CLASSES:
                left_out = True
                continue
            classes.setdefault(kind, WaitingWork(job.name)).add(tasks, 1, job.submitted_ms)
    return classes, not_counted, left_out


def class_of(job: Job) -> DemandClass:
    """What a job asks of hosts; jobs of one class are counted together."""
    spec = job.spec
    gang = spec.coscheduling
    if gang is None:
        return DemandClass(spec.resources, spec.placement, "", 0)
    group = groupings(gang.levels, gang.within, spec.resources)[-1].group
    return DemandClass(spec.resources, spec.placement, group, len(job.tasks), slices=gang.slices)


def known_shapes(ledger: Ledger, classes: Iterable[DemandClass] = ()) -> Pieces[list[HostShape]]:
    """Kinds of hosts, those without devices first, then by size. They differ by what they have, in
    whole GiB, and by what classes ask about.
    """
    keys = {DEVICE_TYPE, DEVICE_VARIANT, *(one.key for kind in classes for one in kind.constraints)}
    keys |= {kind.group_by for kind in classes} - {TPU_NAME, ""}
    found = {}
    for size, shown in (yield from _kinds_of_hosts(ledger, keys)):
        words = tuple(sorted((key, str(value)) for key, value in shown))
        total = in_whole_gib(size)
        found[total.chips, total, words] = dict(shown)
    return [HostShape(key[1], found[key]) for key in sorted(found)[:SHAPES]]


def _kinds_of_hosts(ledger: Ledger, keys: Set[str]) -> Pieces[Iterable[KindOfHost]]:
    """What hosts have and which values of these attributes and taints, each kind once."""
    kinds: dict[KindOfHost, None] = {}
    for part in parts(list(ledger.workers.values()), LOOKED_AT_ONCE):
        yield
        known = {key for worker in part for key in worker.attributes}
        wanted = {key for key in known if key in keys or key.startswith("taint:")}
        for worker in part:
            has = worker.attributes
            shown = tuple([(key, has[key]) for key in has if key in wanted])
            kinds[worker.total, shown] = None
    return kinds


def in_whole_gib(total: Amount) -> Amount:
    """Hosts of one kind differ by some MiB; less than a GiB stays as it is."""
    return Amount(
        *(
            size - size % GIB if resource.unit is BYTES and size >= GIB else size
            for resource, size in zip(RESOURCES, total.values, strict=True)
        )
    )


def _eligible(kind: DemandClass, shape: HostShape) -> bool:
    """Whether hosts of a shape may hold the class; nobody buys a TPU for work that does not ask for
    one.
    """
    if shape.attributes.get(DEVICE_TYPE) == "tpu" and kind.resources.device is None:
        return False
    grouped = kind.group_by in ("", TPU_NAME) or kind.group_by in shape.attributes
    return grouped and eligible(kind.constraints, kind.resources, shape.attributes)


def _slice_of(kind: DemandClass) -> Topology | None:
    """The kind of slice a class takes, if it names one; of several, the first."""
    device = kind.resources.device
    return topology_of(device.variants[0]) if device is not None and device.kind == "tpu" else None


def _slices(kind: DemandClass, topology: Topology, waiting: WaitingWork) -> int:
    """A gang takes whole slices; single tasks share the VMs of slices by their chips."""
    if kind.size:
        return waiting.jobs * kind.slices
    device = kind.resources.device
    assert device is not None
    vms = -(-waiting.tasks // max(1, topology.chips_per_vm // max(1, device.count)))
    return -(-vms // topology.vm_count)


def _unmatched(kind: DemandClass, shapes: list[HostShape]) -> list[str]:
    """The conditions that no known host satisfies, or all when each is satisfied by some host."""
    if not shapes:
        return ["no worker is registered"]
    if kind.resources.device is None and all(
        shape.attributes.get(DEVICE_TYPE) == "tpu" for shape in shapes
    ):
        return ["no worker but those of TPU slices is registered"]
    asked = [*kind.conditions, *implied(kind.resources)]
    none = [one for one in asked if not any(matches(one, shape.attributes) for shape in shapes)]
    words = [describe(one) for one in none or asked]
    if not none:
        taints = {
            taint
            for shape in shapes
            for taint in repelling(kind.constraints, kind.resources, shape.attributes)
        }
        words += [f"{taint} not tolerated" for taint in sorted(taints)]
    grouped = kind.group_by in ("", TPU_NAME) or any(
        kind.group_by in shape.attributes for shape in shapes
    )
    return words if grouped else [*words, f"group by {kind.group_by}"]


def _too_large(kind: DemandClass, possible: list[HostShape]) -> list[str]:
    """The resources of which no matching host has enough, even if it were empty."""
    most = [max(column) for column in zip(*(shape.total.values for shape in possible), strict=True)]
    asked = zip(RESOURCES, kind.resources.amount.values, most, strict=True)
    return [
        f"{r.word} {r.unit.show(asks)} of at most {r.unit.show(has)}"
        for r, asks, has in asked
        if asks > has
    ]


def _slice_view(
    variant: str, constraints: tuple[str, ...], number: int, waiting: WaitingWork
) -> SliceDemand:
    topology = topology_of(variant)
    assert topology is not None
    return SliceDemand(
        variant=variant,
        constraints=list(constraints),
        slices=number,
        hosts=number * topology.vm_count,
        chips=number * topology.chips,
        tasks=waiting.tasks,
        jobs=waiting.jobs,
        oldest_submitted_at=moment(waiting.oldest_ms),
    )


def _host_view(shape: HostShape) -> HostDemand:
    return HostDemand(
        shape=asdict(shape.total),
        attributes=dict(shape.attributes),
        hosts=shape.hosts,
        tasks=shape.waiting.tasks,
        jobs=shape.waiting.jobs,
        oldest_submitted_at=moment(shape.waiting.oldest_ms),
    )


def _unsatisfiable_view(why: tuple[str, ...], waiting: WaitingWork) -> UnsatisfiableDemand:
    return UnsatisfiableDemand(
        constraints=list(why),
        tasks=waiting.tasks,
        jobs=waiting.jobs,
        example=waiting.first,
        oldest_submitted_at=moment(waiting.oldest_ms),
    )
