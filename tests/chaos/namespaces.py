"""Places as network namespaces, each with its own link to the namespace of NATS and the gateway.

`enter` starts this program again in a network and a mount namespace of its own, the hub. All that
is made there, names included, is gone with the last process of it, however that ends. In a place
127.0.0.1 is not itself but the hub, so every service finds NATS and the gateway where the hub has
them.

A cut is a wrong hardware address for the other end of the cable: packets go out, and nobody takes
them. It is silent, works in either direction alone, and needs nothing of the kernel. Slow is a
token bucket of a few packets (`tc tbf`), which drops what is too much; where the kernel has none it
is a cut that comes and goes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.places import Harm, Place
from tests.chaos.proxies import Proxies, Proxy

_NOWHERE = "02:00:00:00:de:ad"
_SLOW = ("tbf", "rate", "256kbit", "burst", "3000", "limit", "6000")
_FLICKER_S = 0.15
_METRICS_PORT = 9464
_UNSHARE = ("unshare", "--net", "--mount", "--propagation", "private")
_PREPARE = (
    "mkdir -p /run/netns && mount -t tmpfs chaos /run/netns && ip link set lo up"
    " && echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet"
)
_TRY = f"{_PREPARE} && ip netns add try && ip link add try0 type veth peer name try1 netns try"


def refusal() -> str:
    """Why there can be no namespaces on this machine; empty when there can."""
    missing = [program for program in ("unshare", "ip", "mount") if shutil.which(program) is None]
    if missing:
        return f"no {', '.join(missing)} here"
    tried = subprocess.run(
        [*_UNSHARE, "sh", "-c", _TRY], capture_output=True, text=True, check=False
    )
    return (
        (tried.stderr.strip().splitlines() or ["no reason given"])[-1] if tried.returncode else ""
    )


def enter(argv: Sequence[str]) -> None:
    """Become the same program in a hub. Does not return."""
    os.execvp(
        _UNSHARE[0], [*_UNSHARE, "sh", "-c", f'{_PREPARE} && exec "$0" "$@"', sys.executable, *argv]
    )


class Namespace(Place):
    """One place, whose cable is the network 10.213.``number``.0/30; some hosts speak through a
    proxy in the hub.
    """

    has_power_switch = True

    def __init__(self, directory: Path, number: int, proxies: Proxies) -> None:
        super().__init__(directory)
        self.proxy = Proxy(self.directory, proxies) if self.name.startswith("worker-") else None
        self._netns = f"iris-{os.getpid()}-{self.name}"
        self._hub, self._here = f"10.213.{number}.1", f"10.213.{number}.2"
        self._hub_mac, self._mac = f"02:00:00:00:{number:02x}:01", f"02:00:00:00:{number:02x}:02"
        self._cable = f"hub{number}"
        self._flicker: threading.Event | None = None
        self._lay()
        (directory / "netns").write_text(f"/run/netns/{self._netns}")
        if self.is_host:
            (directory / "address").write_text(self._here)
        (directory / "metrics").write_text(f"{self._here}:{_METRICS_PORT}")
        self._boot()

    def _lay(self) -> None:
        ends = (
            "address",
            self._hub_mac,
            "type",
            "veth",
            "peer",
            "name",
            "up0",
            "address",
            self._mac,
        )
        _ip("netns", "add", self._netns)
        _ip("link", "add", self._cable, *ends, "netns", self._netns)
        _ip("addr", "add", f"{self._hub}/30", "dev", self._cable)
        _ip("link", "set", self._cable, "up")
        self._inside("addr", "add", f"{self._here}/30", "dev", "up0")
        self._inside("link", "set", "up0", "up")
        self._inside(
            "link", "set", "lo", "up"
        )  # for what speaks to this place's own address from within
        self._inside("addr", "del", "127.0.0.1/8", "dev", "lo")
        _run(
            "ip",
            "netns",
            "exec",
            self._netns,
            "sh",
            "-c",
            "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet",
        )
        self._inside(
            "route", "add", "127.0.0.1/32", "via", self._hub, "dev", "up0", "src", self._here
        )
        self._point(self._mac, self._hub_mac)

    def harm(self, how: Harm) -> None:
        self.mend()
        if how == "slow" and self._throttle():
            return
        if how == "slow":
            self._flicker = threading.Event()
            threading.Thread(target=self._come_and_go, args=(self._flicker,), daemon=True).start()
            return
        self._point(
            _NOWHERE if how != "mute" else self._mac, _NOWHERE if how != "deaf" else self._hub_mac
        )

    def mend(self) -> None:
        if self._flicker is not None:
            self._flicker.set()
            self._flicker = None
        for command in (("tc",), ("tc", "-n", self._netns)):
            device = self._cable if command == ("tc",) else "up0"
            subprocess.run(
                [*command, "qdisc", "del", "dev", device, "root"], capture_output=True, check=False
            )
        self._point(self._mac, self._hub_mac)

    def switch_on(self) -> None:
        self._boot()
        super().switch_on()

    def _boot(self) -> None:
        """Another boot of this host; a new file, for the one before may still be in use."""
        boot = self.directory / "boot"
        boot.unlink(missing_ok=True)
        boot.write_text(f"{uuid.uuid4()}\n")

    def pids(self) -> set[int]:
        return {int(pid) for pid in _run("ip", "netns", "pids", self._netns).split()}

    def close(self) -> None:
        self.mend()
        if self.proxy is not None:
            self.proxy.close()
        _ip("netns", "del", self._netns)

    def _point(self, mac: str, hub_mac: str) -> None:
        """Where the hub believes this place to be, and this place the hub."""
        _ip("neigh", "replace", self._here, "lladdr", mac, "nud", "permanent", "dev", self._cable)
        self._inside(
            "neigh", "replace", self._hub, "lladdr", hub_mac, "nud", "permanent", "dev", "up0"
        )

    def _throttle(self) -> bool:
        """False when this kernel cannot."""
        commands = (
            ("tc", "qdisc", "add", "dev", self._cable),
            ("tc", "-n", self._netns, "qdisc", "add", "dev", "up0"),
        )
        made = [
            subprocess.run([*each, "root", *_SLOW], capture_output=True, check=False)
            for each in commands
        ]
        return all(each.returncode == 0 for each in made)

    def _come_and_go(self, enough: threading.Event) -> None:
        while not enough.wait(_FLICKER_S):
            self._point(_NOWHERE, _NOWHERE)
            enough.wait(_FLICKER_S)
            self._point(self._mac, self._hub_mac)

    def _inside(self, *words: str) -> None:
        _ip("-n", self._netns, *words)


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
