"""Finds where a launcher may make control groups: below which groups, in the hierarchies that this
host has.

Out of scope: the groups (`cgroup`).
Source: docs/design/isolation.md#control-groups.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

from iris_worker.data_directory import data_id
from iris_worker.launcher.cgroups import abandoned, access, files
from iris_worker.launcher.cgroups.cgroup import Base, Cgroups, NoGroups, enable_controllers
from iris_worker.launcher.cgroups.files import UNIFIED


def open_groups(root: Path) -> Cgroups:
    """The groups of the launcher of the worker with this data directory. Raises NoGroups."""
    own = files.own_directories(access.get("/proc/self/mountinfo"), access.get("/proc/self/cgroup"))
    return groups_below(own, name_of(root))


def name_of(root: Path) -> str:
    """The name of the directories of groups of a data directory's launcher. Raises OSError."""
    return f"iris-{data_id(root)}"


def groups_below(own: dict[str, str], name: str) -> Cgroups:
    """Groups in directories of this name below the present ones, by controller. Raises NoGroups."""
    homes = {key: own[key] for key in files.WANTED[1] if key in own}
    until_s = time.monotonic() + abandoned.LOCK_S
    try:
        if not homes and UNIFIED in own:
            bases = _bases_2(own[UNIFIED], name, until_s)
            return Cgroups(2, dict.fromkeys(bases, own[UNIFIED]), bases)
        return Cgroups(1, homes, _bases_1(homes, name, until_s))
    except OSError as error:
        raise NoGroups(f"{error.filename}: {error.strerror}") from error


def _bases_1(homes: dict[str, str], name: str, until_s: float) -> dict[str, Base]:
    """Directories below the present groups of this process, in each hierarchy where it may make
    one.
    """
    bases: dict[str, Base] = {}
    refused = OSError(errno.ENOENT, "not mounted", "/sys/fs/cgroup")
    for key, home in homes.items():
        try:
            bases[key] = _base(home, name, until_s)
        except OSError as error:
            refused = error
    if not bases:
        raise refused
    return bases


def _bases_2(own: str, name: str, until_s: float) -> dict[str, Base]:
    """A directory in the group above, where that is delegated to us, or else in the root group.

    Only a group without processes can have controllers for the groups in it, so it is not in that
    of this process.
    """
    above = [
        str(path) for path in (Path(own), *Path(own).parents) if (path / "cgroup.procs").exists()
    ]
    roots = [path for path in above[-1:] if not os.path.exists(f"{path}/cgroup.events")]
    parents = [*(path for path in above[1:2] if _is_delegated(path)), *roots]
    if not parents:
        raise NoGroups(f"{own}: the group above it is not delegated")
    base = _base(parents[0], name, until_s, enable=True)
    usable = access.get(f"{base.path}/cgroup.controllers").split()
    return {key: base for key in (*files.WANTED[2], UNIFIED) if key in usable or key == UNIFIED}


def _is_delegated(path: str) -> bool:
    for attribute in ("user.delegate", "trusted.delegate"):  # set by systemd
        with contextlib.suppress(OSError):
            if os.getxattr(path, attribute) == b"1":
                return True
    return os.geteuid() != 0 and os.access(f"{path}/cgroup.procs", os.W_OK)


def _base(parent: str, name: str, until_s: float, enable: bool = False) -> Base:
    if enable:
        enable_controllers(parent)
    return Base(f"{parent}/{name}", abandoned.hold(f"{parent}/{name}", until_s))
