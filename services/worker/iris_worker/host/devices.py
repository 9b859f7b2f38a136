"""Which accelerators of this host each attempt has, by index, and what its processes are told of
them. Pure.

An attempt has its devices from its order until it has ended, in the launcher's records too, so that
they outlive the worker. A part of a TPU host is a block of neighbouring chips. Indices are those of
`Accelerators`.
Source: docs/design/semantics.md#constraints-and-resources,
    docs/hosts.md#accelerators.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from iris_core.messages.message import AttemptRef

_TPU_BOUNDS: Mapping[int, str] = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
"""The chips of one process along each axis, for a part of a TPU host."""
_TPU_PORT = 8476
"""The port of libtpu's controller; each process that has a part of a host needs another."""


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The accelerators of a host.

    Attributes:
        kind: "gpu", "tpu", or empty when there are none.
        files: the device file of each, by index: GPUs in the order of their PCI addresses, as
            `nvidia-smi` and CUDA count them, TPU chips in that of their files.
        shared: device files that each of their users needs.
        variant: the model of the GPUs; empty when it is unknown.
        first: how many of the machine come before these, which other workers offer.
        hides: the kind of the machine's that this host does not offer: none of its tasks has one.
    """

    kind: str = ""
    files: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    variant: str = ""
    first: int = 0
    hides: str = ""


def share_of(found: Accelerators, share: str) -> Accelerators:
    """The part of a machine's accelerators that one of its workers offers.

    Args:
        share: "all", "none", or ``2/3``: the second of three parts, of which the first are larger
            where they differ. The chips of a TPU are not divided: the first part has them.
    """
    if share == "all":
        return found
    if share == "none" or not found.files:
        return Accelerators(hides=found.kind)
    number, _, count = share.partition("/")
    place = int(number) - 1
    parts = 1 if found.kind == "tpu" else int(count)
    size, larger = divmod(len(found.files), parts)
    first = place * size + min(place, larger)
    own = found.files[first : first + size + (place < larger)]
    return replace(found, files=own, first=first) if own else Accelerators(hides=found.kind)


class Devices:
    """The devices of one host.

    Args:
        kind: "gpu" or "tpu"; any other kind is assigned by index, and nothing is told of it.
        total: how many there are, by the settings or found.
        found: their device files; simulated hosts have none.
    """

    def __init__(self, kind: str, total: int, found: Accelerators) -> None:
        self._kind = kind
        self._total = total
        self._found = found
        self._held: dict[AttemptRef, tuple[int, ...]] = {}

    def assign(self, ref: AttemptRef, count: int) -> tuple[int, ...]:
        """Reserve devices for an attempt until it has ended. Raises OSError when too few are
        free.
        """
        if not count:
            return ()
        used = {index for held in self._held.values() for index in held}
        free = [index for index in range(self._total) if index not in used]
        chosen = _block(free, count, self._total) if self._kind == "tpu" else free[:count]
        if len(chosen) < count:
            listed = ", ".join(map(str, free)) or "none"
            raise OSError(
                errno.EBUSY,
                f"{count} of {self._total} devices ({self._kind}) asked for; free: {listed}",
            )
        self.hold(ref, chosen)
        return self._held[ref]

    def hold(self, ref: AttemptRef, indices: Sequence[int]) -> None:
        """An attempt of the previous worker process has these devices."""
        if indices:
            self._held[ref] = tuple(indices)

    def free(self, ref: AttemptRef) -> None:
        """An attempt has ended."""
        self._held.pop(ref, None)

    def variables(self, held: Sequence[int], *, hidden: bool) -> dict[str, str]:
        """The variables by which frameworks keep to a task's devices; none on hosts without
        devices.

        Args:
            hidden: the task sees no device files but its own, see `files`.
        """
        found: dict[str, str] = {}
        if (absent := _VARIABLES.get(self._found.hides)) is not None:
            found |= absent((), 0, hidden)
        if self._total and (variables := _VARIABLES.get(self._kind)) is not None:
            found |= variables([self._found.first + one for one in held], self._total, hidden)
        return found

    @property
    def every(self) -> Sequence[int]:
        """All devices of this host."""
        return range(self._total)

    @property
    def all_files(self) -> tuple[str, ...]:
        """The device files of all accelerators of this host."""
        return (*self._found.files, *self._found.shared)

    def files(self, held: Sequence[int]) -> tuple[str, ...]:
        """The device files that a task with these devices may open: none without devices, or on a
        simulated host.
        """
        own = self.own_files(held)
        return (*own, *self._found.shared) if own else ()

    def own_files(self, held: Sequence[int]) -> tuple[str, ...]:
        """The device files of these devices, without those that all share."""
        return tuple(self._found.files[index] for index in held if index < len(self._found.files))


def _block(free: Sequence[int], count: int, total: int) -> Sequence[int]:
    """An aligned block of free devices, where the fewest neighbours are free, so that large blocks
    stay whole.
    """
    blocks = [range(at, at + count) for at in range(0, total - count + 1, count)]
    possible = [block for block in blocks if set(block) <= set(free)]
    sizes = [size for size in (2, 4, 8) if size > count]

    def spare(block: range) -> list[int]:
        return [sum(index // size == block.start // size for index in free) for size in sizes]

    return min(possible, key=lambda block: (spare(block), block.start), default=())


def _gpu_variables(held: Sequence[int], total: int, hidden: bool) -> dict[str, str]:
    """CUDA counts in the order of `Accelerators` only when it is told to, and counts only GPUs that
    it can open.

    Source: CUDA C++ Programming Guide, "CUDA Environment Variables"; NVIDIA Container Toolkit, "GPU
    Enumeration"; Slurm, gres.html, where CUDA_VISIBLE_DEVICES begins at 0 once devices are
    constrained.
    """
    listed = ",".join(map(str, held))
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(held)))) if hidden else listed,
        "NVIDIA_VISIBLE_DEVICES": listed or "void",
    }


def _tpu_variables(held: Sequence[int], total: int, hidden: bool) -> dict[str, str]:
    """A whole host needs no words: libtpu asks the VM's metadata. For none, JAX and PyTorch/XLA are
    told to stay off.

    Source: the variables that PyTorch/XLA sets for one process per chip, and Ray for a part of a
        host.
    """
    if not held:
        return {"JAX_PLATFORMS": "cpu", "PJRT_DEVICE": "CPU"}
    if len(held) == total:
        return {}
    port = str(_TPU_PORT + held[0])
    return {
        "TPU_VISIBLE_CHIPS": ",".join(map(str, held)),
        "TPU_CHIPS_PER_PROCESS_BOUNDS": _TPU_BOUNDS.get(len(held), f"{len(held)},1,1"),
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "TPU_MESH_CONTROLLER_ADDRESS": f"localhost:{port}",
        "TPU_MESH_CONTROLLER_PORT": port,
    }


_VARIABLES: Mapping[str, Callable[[Sequence[int], int, bool], dict[str, str]]] = {
    "gpu": _gpu_variables,
    "tpu": _tpu_variables,
}
