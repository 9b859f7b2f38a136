"""The machines of a page, on which its commands run as they stand there: addresses, names, users
and paths are its own.

A machine is a network, process, mount and host name namespace, in which `/etc` is a copy and
`/opt`, `/var/lib`, `/var/log` and `/root` are its own. They outlive it, as a disk does. The
reader's computer has no processes of its own and reaches the machines by stand-ins for `ssh` and
`scp`, which enter their namespaces.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from iris_worker.launcher.cgroups import access
from tests.support.cluster import until
from tests.support.guide import Block
from tests.support.machines import OWN, UNSHARE, Switch, ready

ROOT = Path(__file__).resolve().parents[2]
COMPUTER = "your computer"
_OWN = ("etc", "opt", "var/lib", "var/log", "root")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRON = {"HOME": "/root", "LANG": "C.UTF-8", "USER": "root"}
_SET_UP = """
cd "$0" || exit
number=0
for path in $KEPT; do
    number=$((number + 1)); mkdir -p "kept/$number" && mount --bind "$path" "kept/$number" || exit
done
for path in $OWN; do mount --bind "disk/$path" "/$path" || exit; done
for path in $CLOSED; do mkdir -p "$path" && mount -t tmpfs -o mode=755 tmpfs "$path" || exit; done
number=0
for path in $KEPT; do
    number=$((number + 1)); mkdir -p "$path" && mount --bind "kept/$number" "$path" || exit
done
hostname "$NAME" && ip link set lo up && echo ready && read address &&
ip addr add "$address" dev eth0 && ip link set eth0 up && trap '' CHLD && cd /root && exec "$@"
"""
_AT_HOME = "cd /root && exec sh"
_SSH = """#!/bin/sh
pid=$(cat "{pids}/${{1#*@}}") && shift && exec nsenter --target "$pid" --net --uts --mount --pid sh -c "cd /root && $*"
"""
_SCP = """#!/bin/sh
for last; do :; done
host=${last%%:*} path=${last#*:}
for file; do
    [ "$file" = "$last" ] && exit
    ssh "$host" "to=$path; [ ! -d \\$to ] || to=\\$to/$(basename "$file")
        install -m $(stat -c %a "$file") /dev/stdin \\$to" < "$file" || exit
done
"""


class Shell:
    """A shell that stays open, on one machine."""

    def __init__(
        self, stack: ExitStack, command: list[str], log: Path, environ: Mapping[str, str]
    ) -> None:
        self._log = log
        self._scripts = log.with_suffix(".scripts")
        self._scripts.mkdir(exist_ok=True)
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environ
            )
        stack.enter_context(self.process)
        stack.callback(self.process.kill)

    def run(self, script: str, seconds: float = 60) -> str:
        """Run commands to their end; what they print. Fails when one of them does."""
        begun, done = self._log.stat().st_size, f"-- {len(list(self._scripts.iterdir()))} --"
        file = self._scripts / done.strip("- ")
        file.write_text(_with_own_groups(script, self._log.stem))
        assert self.process.stdin is not None
        self.process.stdin.write(f"set -e; . {file} < /dev/null; set +e; echo '{done}'\n".encode())
        self.process.stdin.flush()
        until(
            lambda: done in self._since(begun) or self.process.poll() is not None,
            f"done: {script}",
            seconds,
        )
        said = self._since(begun)
        assert done in said, f"{script}\nended with {self.process.returncode}:\n{said}"
        return said.replace(f"{done}\n", "")

    def _since(self, offset: int) -> str:
        with self._log.open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")


def _with_own_groups(script: str, machine: str) -> str:
    """The commands of a page with control groups of this machine: all, and those of other tests,
    have one kernel, and who ends removes what is theirs.
    """
    groups = re.compile(r"(?P<above>/sys/fs/cgroup(?:/(?:cpu|cpuacct|memory|pids))?)/iris\b")
    return groups.sub(rf"\g<above>/{_groups_of(machine)}", script)


def _groups_of(machine: str) -> str:
    return f"iris-{machine}-{os.getpid()}"


def _remove_groups(machine: str) -> None:
    """Remove what the workers of a machine that is off have left."""
    groups = _groups_of(machine)
    for home in (*Path("/sys/fs/cgroup").glob(f"*/{groups}"), Path("/sys/fs/cgroup", groups)):
        until(partial(_is_removed, home), f"{home} is removed")


def _is_removed(home: Path) -> bool:
    access.remove(str(home))
    return not home.exists()


@dataclass
class PageMachines:
    """The machines of a page by name with their addresses, the reader's computer among them.

    Attributes:
        first: the first process of each machine but the reader's, which stays.
    """

    directory: Path
    stack: ExitStack
    addresses: Mapping[str, str]
    first: tuple[str, ...] = ("cat",)
    shells: dict[str, Shell] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.switch = Switch(self.stack)
        self._hosts: dict[str, int] = {}
        for directory in ("bin", "pids"):
            (self.directory / directory).mkdir()
        for name, text in {"ssh": _SSH.format(pids=self.directory / "pids"), "scp": _SCP}.items():
            (self.directory / "bin" / name).write_text(text)
            (self.directory / "bin" / name).chmod(0o755)
        for name in self.addresses:
            self.stack.callback(_remove_groups, _host_name(name))
            self._make_disk(name)
            self.switch_on(name)

    def run(self, block: Block) -> dict[str, str]:
        """Run a block on each machine that the sentence before it names; what each printed."""
        named = [name for name in self.addresses if re.search(rf"\b{name}\b", block.where)]
        assert named, f"where does this run? {block}"
        return {name: self.shells[name].run(block.script) for name in named}

    def switch_off(self, name: str) -> None:
        """It has no network, and all its processes end at once."""
        self.switch.ip("link", "del", _host_name(name))
        self.shells.pop(name).process.kill()
        os.kill(self._hosts.pop(name), signal.SIGKILL)

    def switch_on(self, name: str) -> None:
        """With what is on its disk, and no processes."""
        own = (*(() if name == COMPUTER else OWN), "--mount", "--uts")
        environ = {
            **_ENVIRON,
            "PATH": f"{self.directory / 'bin'}:{_PATH}",
            "NAME": _host_name(name),
        } | _places()
        environ["KEPT"] += f" {self.directory}"
        first = ("cat",) if name == COMPUTER else self.first
        set_up = [
            *UNSHARE,
            *own,
            "sh",
            "-c",
            _SET_UP,
            str(self.directory / _host_name(name)),
            *first,
        ]
        host = ready(self.stack, set_up, environ, None)
        pid = host.pid if name == COMPUTER else psutil.Process(host.pid).children()[0].pid
        (self.directory / "pids" / self.addresses[name]).write_text(f"{pid}")
        self._hosts[name] = pid
        self.switch.plug(_host_name(name), pid)
        assert host.stdin is not None
        host.stdin.write(f"{self.addresses[name]}/24\n".encode())
        host.stdin.flush()
        enter = [
            "nsenter",
            "--target",
            str(pid),
            "--net",
            "--uts",
            "--mount",
            "--pid",
            "sh",
            "-c",
            _AT_HOME,
        ]
        self.shells[name] = Shell(
            self.stack, enter, self.directory / f"{_host_name(name)}.log", environ
        )
        until(
            lambda: self.addresses[name] in self.shells[name].run("ip addr show dev eth0"),
            "the cable is there",
        )

    def _make_disk(self, name: str) -> None:
        disk = self.directory / _host_name(name) / "disk"
        for place in _OWN:
            (disk / place).mkdir(parents=True)
        (disk / "opt" / "iris").symlink_to(sys.prefix)
        subprocess.run(["cp", "-a", "/etc/.", disk / "etc"], check=True)


def _host_name(name: str) -> str:
    return name.rpartition(" ")[2]


def _places() -> dict[str, str]:
    """What all machines share with this one, and the directories around it that only their owner
    may enter.
    """
    kept = [ROOT, Path(sys.prefix), Path(sys.base_prefix)]
    own = {Path("/", place) for place in _OWN}
    closed = {
        parent for path in kept for parent in path.parents if not parent.stat().st_mode & 0o001
    } - own
    return {
        "KEPT": " ".join(map(str, kept)),
        "CLOSED": " ".join(map(str, sorted(closed))),
        "OWN": " ".join(_OWN),
    }


@contextmanager
def page_machines(
    directory: Path, addresses: Mapping[str, str], first: tuple[str, ...] = ("cat",)
) -> Iterator[PageMachines]:
    """Machines that are on, until the block ends."""
    with ExitStack() as stack:
        yield PageMachines(directory, stack, addresses, first)
