"""Sums over hosts: how many are in each state, what the healthy ones have and hold, and the slices
of accelerators that hosts form.

The ledger keeps them with each change of a host and of an attempt, so that no read looks at every
host; `check` compares them with a recount. Out of scope: samples of each minute (`minutes`).
"""

from __future__ import annotations

from collections import Counter

from sortedcontainers import SortedDict

from iris_core.placement.constraints import TPU_NAME, TPU_TOPOLOGY
from iris_core.placement.topology import Topology, topology_of
from iris_core.spec.jobs import Attribute
from iris_core.spec.resources import NOTHING, Amount
from iris_core.states import WorkerState
from iris_state.records.hosts import Presence, Worker


class SliceHosts:
    """The hosts that share a ``tpu-name``.

    Attributes:
        hosts: by id. used: how many hold an attempt. free: how many are healthy and hold none.
        counted: as what `HostSums` counts it.
    """

    __slots__ = ("_kind", "_topologies", "counted", "free", "hosts", "used")

    def __init__(self) -> None:
        self.hosts: dict[str, Worker] = {}
        self.used = self.free = 0
        self.counted = ("", "")
        self._topologies: Counter[Attribute | None] = Counter()
        self._kind: Topology | None = None

    def change(self, worker: Worker, sign: int, *, is_used: bool) -> None:
        """Count a host, or count it no longer with ``sign`` -1."""
        self.used += sign * is_used
        self.free += sign * (worker.state is WorkerState.HEALTHY and not is_used)
        topology = worker.attributes.get(TPU_TOPOLOGY)
        self._topologies[topology] += sign
        if sign > 0:
            self.hosts[worker.id] = worker
        else:
            del self.hosts[worker.id]
            self._topologies = +self._topologies
        if self.hosts:
            self._kind = topology_of(str(self.topology))

    def take(self, worker: Worker, sign: int) -> None:
        """A host holds an attempt now, or none with ``sign`` -1."""
        self.used += sign
        self.free -= sign * (worker.state is WorkerState.HEALTHY)

    @property
    def topology(self) -> Attribute | None:
        """What most of its hosts say."""
        return max(self._topologies, key=lambda one: (self._topologies[one], str(one)))

    def state(self) -> tuple[str, str]:
        """Its variant, and whether it is free as a whole, used, or broken (a host is missing or
        takes no work).
        """
        kind = self._kind
        is_whole = kind is None or len(self.hosts) >= kind.vm_count
        variant = kind.variant if kind is not None else "other"
        if self.used:
            return variant, "used"
        return variant, "free" if is_whole and self.free == len(self.hosts) else "broken"


class HostSums:
    """Sums over all hosts.

    Attributes:
        states: how many hosts are in each state. committed, capacity: of healthy hosts.
        slices: by name. slice_states: how many there are, by variant and state.
    """

    def __init__(self) -> None:
        self.states: Counter[WorkerState] = Counter()
        self.committed = NOTHING
        self.capacity = NOTHING
        self.slices: SortedDict[str, SliceHosts] = SortedDict()
        self.slice_states: Counter[tuple[str, str]] = Counter()
        self._healthy: set[str] = set()
        self._of_slice: dict[str, SliceHosts] = {}

    def enter(self, worker: Worker, presence: Presence) -> None:
        """Count a host as it is now; see `leave`."""
        self.states[worker.state] += 1
        if worker.state is WorkerState.HEALTHY:
            self._healthy.add(worker.id)
            self.committed = self.committed + presence.committed
            self.capacity = self.capacity + worker.total
        name = worker.attributes.get(TPU_NAME)
        if name is not None:
            found = self.slices.setdefault(str(name), SliceHosts())
            self._of_slice[worker.id] = found
            found.change(worker, 1, is_used=bool(presence.open))
            self._count(found)

    def leave(self, worker: Worker, presence: Presence) -> None:
        """Count a host no longer: it is deleted, or about to change."""
        self.states[worker.state] -= 1
        if worker.id in self._healthy:
            self._healthy.remove(worker.id)
            self.committed = self.committed - presence.committed
            self.capacity = self.capacity - worker.total
        found = self._of_slice.pop(worker.id, None)
        if found is not None:
            found.change(worker, -1, is_used=bool(presence.open))
            self._count(found)
            if not found.hosts:
                del self.slices[str(worker.attributes[TPU_NAME])]

    def _count(self, found: SliceHosts) -> None:
        if found.counted[0]:
            self.slice_states[found.counted] -= 1
        found.counted = found.state() if found.hosts else ("", "")
        if found.hosts:
            self.slice_states[found.counted] += 1

    def hold(self, worker: str, amount: Amount) -> None:
        """A host holds so much more."""
        if worker in self._healthy:
            self.committed = self.committed + amount

    def release(self, worker: str, amount: Amount) -> None:
        """A host holds so much less."""
        if worker in self._healthy:
            self.committed = self.committed - amount

    def use(self, worker: str, sign: int) -> None:
        """A host holds an attempt now, or none any more with ``sign`` -1."""
        found = self._of_slice.get(worker)
        if found is not None:
            found.take(found.hosts[worker], sign)
            self._count(found)

    def counts(self) -> tuple[object, ...]:
        """All of it, for comparison with a recount."""
        slices = {
            name: (sorted(one.hosts), one.used, one.free, one.counted)
            for name, one in self.slices.items()
        }
        states = +self.states, +self.slice_states
        return *states, self.committed, self.capacity, slices
