"""Control groups that tests may make."""

from __future__ import annotations

import tempfile
from pathlib import Path

from iris_worker.launcher.cgroups.cgroup import NoGroups
from iris_worker.launcher.cgroups.files import UNIFIED, own_directories
from iris_worker.launcher.cgroups.hierarchies import open_groups

_LIMITED = {"cpu", "memory", "pids"}


def refusal() -> str:
    """Why the tests of limits cannot run here; empty when they can."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            groups = open_groups(Path(directory))
        except NoGroups as error:
            return str(error)
    groups.close()
    missing = _LIMITED - set(groups.support.controllers)
    if groups.support.version != 1 or missing:
        return (
            f"{groups.support}, and the tests are of version 1 with {', '.join(sorted(_LIMITED))}"
        )
    return ""


def refusal_of_version_2() -> str:
    """Why there is no group of version 2 for tests here; empty when there is."""
    process = Path("/proc/self")
    own = own_directories((process / "mountinfo").read_text(), (process / "cgroup").read_text())
    return "" if UNIFIED in own else "this process is in none"
