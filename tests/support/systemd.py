"""systemd as the first process of a page's machines, which starts units of `/etc/systemd/system`
and no others.

A machine has its own `/run` and `/tmp` then; what machines share stands in that `/tmp` too. Units
see the interpreter and the packages of the tests, even where they are in somebody's home or below
`/tmp`, and nothing else there. A machine's control groups are below one of their own, in the
hierarchy that systemd keeps for itself and that has no limits, so units are tracked by groups as
they are on a host. The other hierarchies are those of the host, where systemd would delete the
empty groups of everybody: one of version 2 is not there, and those with limits are read-only. The
    directory of hierarchies is its own too, because systemd adds some and makes it read-only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.house.repository import ROOT
from tests.support.cluster import until

_GROUPS = Path("/sys/fs/cgroup/systemd")
_PROGRAM = Path("/lib/systemd/systemd")
_BOOT = """
new=/var/lib/tmp
mkdir -p $new && mount -t tmpfs -o mode=1777 tmpfs $new || exit
for path in $KEPT; do
    shown=$new${{path#/tmp}}
    [ "$path" = "${{path#/tmp/}}" ] || {{ mkdir -p "$shown" && mount --bind "$path" "$shown" || exit; }}
done
mount --rbind $new /tmp && mount -t tmpfs -o mode=755 tmpfs /run &&
mkdir -p {group}/$NAME && echo $$ > {group}/$NAME/cgroup.procs && exec unshare --cgroup sh -eu {here}/systemd
"""
_SYSTEMD = """
mount --make-rprivate /
mkdir /run/groups && mount --rbind {root} /run/groups && mount -t tmpfs -o mode=755 tmpfs {root}
for path in /run/groups/*/; do
    name=$(basename "$path")
    mkdir "{root}/$name"
    case "$name" in {groups.name}|unified) continue ;; esac
    mount --bind "$path" "{root}/$name" && mount -o remount,bind,ro "{root}/$name"
done
umount -R /run/groups
mount -t cgroup -o none,name=systemd systemd {groups}
mount --make-rshared /
for name in sysinit basic network-online shutdown multi-user page; do
    printf '[Unit]\\nDefaultDependencies=no\\nAllowIsolate=yes\\n' > /etc/systemd/system/$name.target
done
mkdir -p /etc/systemd/system/service.d
echo "[Service]
ProtectHome=tmpfs
BindReadOnlyPaths={python}" > /etc/systemd/system/service.d/python.conf
: > /etc/fstab
hostname > /etc/hostname
tr -d - < /proc/sys/kernel/random/uuid > /etc/machine-id
exec env -i container=other SYSTEMD_UNIT_PATH=/etc/systemd/system PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    {program} --system --unit=page.target --log-target=null systemd.legacy_systemd_cgroup_controller=1 < /dev/null
"""


def refusal() -> str:
    """Why systemd cannot be the first process of a machine here; empty when it can."""
    if not _PROGRAM.exists():
        return "systemd is not installed"
    return (
        ""
        if os.access(_GROUPS, os.W_OK)
        else f"{_GROUPS} is no hierarchy of groups that may be written"
    )


@contextmanager
def systemd(directory: Path) -> Iterator[tuple[str, ...]]:
    """What becomes the first process of machines on ``directory``; their groups are gone after the
    block.
    """
    group = _GROUPS / f"iris-{uuid.uuid4().hex[:12]}"
    (directory / "boot").write_text(_BOOT.format(here=directory, group=group))
    python = f"{ROOT} {sys.prefix} {sys.base_prefix}"
    places = {"groups": _GROUPS, "root": _GROUPS.parent, "program": _PROGRAM, "python": python}
    (directory / "systemd").write_text(_SYSTEMD.format(**places))
    try:
        yield ("sh", "-eu", str(directory / "boot"))
    finally:
        until(lambda: _removed(group), "the groups are gone")


def _removed(group: Path) -> bool:
    for path, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(path).rmdir()
    return not group.exists()
