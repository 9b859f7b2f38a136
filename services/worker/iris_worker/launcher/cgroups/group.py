"""One control group, as its launcher knows it. Types."""

from __future__ import annotations

from dataclasses import dataclass

from iris_worker.launcher.cgroups.files import Cgroup, CgroupValues


@dataclass(slots=True, eq=False)
class Group:
    """One group.

    Attributes:
        limits: of the attempt that has it; None while none has.
        early, late: what was written; None: anything.
        cpu_us: what was used in it so far, while nobody is in it; else None.
        over: it held more memory than its limit before that was set. spoilt: it is not used again.
        left_bytes: files in memory that its processes have left, once they have ended.
    """

    number: int
    limits: Cgroup | None = None
    early: CgroupValues | None = None
    late: CgroupValues | None = None
    cpu_us: int | None = None
    over: bool = False
    spoilt: bool = False
    left_bytes: int = 0
