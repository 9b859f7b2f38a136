"""Which limits of tasks a host enforces, and what is said of the others."""

import pytest

from iris_core.spec.resources import ResourceRequest
from iris_worker.launcher.cgroups.files import CgroupSupport
from iris_worker.launcher.cgroups.in_force import missing_limits, refusal, unenforced

ALL = CgroupSupport(2, ("cpu", "io", "memory", "pids"))
NONE = CgroupSupport(trouble="/sys/fs/cgroup: Read-only file system")
NO_MEMORY = CgroupSupport(1, ("cpu", "pids"))
ASKED = ResourceRequest(memory_bytes=64 << 20, cpu_millis=1000, cpu_limit_millis=2000)


@pytest.mark.parametrize(
    ("found", "memory", "users", "missing"),
    [
        (ALL, "cgroup", False, set()),
        (NO_MEMORY, "cgroup", False, {"memory"}),
        (NO_MEMORY, "rlimit", False, set()),
        (ALL, "off", False, {"memory"}),
        (NONE, "cgroup", True, {"memory", "cpu"}),
        (NONE, "rlimit", False, {"cpu", "pids"}),
    ],
)
def test_what_is_not_limited_is_known(found, memory, users, missing):
    assert missing_limits(found, memory, counts_users=users).keys() == missing


def test_a_worker_that_must_limit_and_cannot_is_told_why_and_what_to_do():
    words = refusal(missing_limits(NONE, "cgroup", counts_users=True))
    assert "memory: no control groups (/sys/fs/cgroup: Read-only file system)" in words
    assert "docs/hosts.md#limits-of-tasks" in words
    assert "require_limits = false" in words
    assert refusal({}) == ""


def test_what_was_asked_and_is_not_enforced_is_said():
    missing = missing_limits(NO_MEMORY, "cgroup", counts_users=False)
    assert unenforced(ASKED, missing) == (
        "memory 64MiB is not enforced there: no controller memory (v1 cpu pids)"
    )
    assert unenforced(ResourceRequest(cpu_millis=1000), missing) == ""
    assert "cpu limit 2 is not enforced there" in unenforced(
        ASKED, missing_limits(NONE, "cgroup", counts_users=True)
    )
