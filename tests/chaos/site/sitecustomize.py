"""Runs at each start of Python: moves a service of a chaos cluster into its place first.

A place is a directory below ``CHAOS_PLACES``. A worker's is named like the worker; a service with
several replicas takes the first that no other replica has. In it may be: ``off``, the host is off,
so starting waits; ``netns``, the network namespace to enter, and ``boot``, the id of this boot of
the host, which a worker asks the kernel for; ``port``, the proxy to speak to instead of NATS, which
learns from ``nats`` on which ports that is; ``address``, what a worker has in its network, where
others reach its routes; ``metrics``, where its figures are served; ``clock``, by how many
nanoseconds the wall clock of its processes is off, now and whenever that changes. ``CHAOS_NATS`` is
the address of servers to use instead of the embedded one, ``CHAOS_NATS_CA`` who has signed theirs.
Nothing of Iris is imported here. Out of scope: what is done to a place (`namespaces`, `proxies`).
"""

import ctypes
import fcntl
import mmap
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000
_MS_BIND = 0x1000
_BOOT_ID = b"/proc/sys/kernel/random/boot_id"
_LOOK_S = 0.05
_HELD: list[int] = []


def places(root: Path, words: list[str]) -> Iterator[Path]:
    """The places this process may take, best first."""
    services = [
        word.removeprefix("iris_")
        for word in words
        if re.fullmatch(r"iris_(state|scheduler|gateway|proxy)", word)
    ]
    workers = [word.removeprefix("worker.id=") for word in words if word.startswith("worker.id=")]
    yield from (root / worker for worker in workers)
    for service in services:
        yield from sorted(root.glob(f"{service}-*"))


def take(place: Path) -> bool:
    """Have it for as long as this process lives; False when another process has it."""
    held = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return False
    _HELD.append(held)
    return True


def settle(place: Path) -> None:
    """Wait until the host is on, then see the network as it is there."""
    while (place / "off").exists():
        time.sleep(_LOOK_S)
    if (place / "netns").exists():
        enter(place)
    if (place / "address").exists():
        sys.argv += ["--set", f"worker.address={(place / 'address').read_text()}"]
    if (place / "metrics").exists():
        sys.argv += ["--set", f"run.metrics={(place / 'metrics').read_text()}"]
    if "CHAOS_NATS_CA" in os.environ:
        os.environ["IRIS_NATS_TLS_CA"] = os.environ["CHAOS_NATS_CA"]
    servers = os.environ.get("CHAOS_NATS", os.environ["IRIS_NATS_URL"])
    if (place / "port").exists():
        (place / "nats").write_text(
            " ".join(server.rpartition(":")[2] for server in servers.split(","))
        )
        servers = f"{servers.partition(',')[0].rpartition(':')[0]}:{(place / 'port').read_text()}"
    os.environ["IRIS_NATS_URL"] = servers


def enter(place: Path) -> None:
    """The network, and a mount namespace of its own for the id of its boot."""
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open((place / "netns").read_text(), os.O_RDONLY | os.O_CLOEXEC)
    boot = os.fsencode(place / "boot")
    failed = libc.setns(namespace, _CLONE_NEWNET) or libc.unshare(_CLONE_NEWNS)
    if failed or libc.mount(boot, _BOOT_ID, None, _MS_BIND, None):
        raise OSError(ctypes.get_errno(), f"cannot enter {place}")
    os.close(namespace)


def follow_clock(place: Path) -> None:
    """Have the wall clock of this process be off by what the place says."""
    held = os.open(place / "clock", os.O_RDONLY | os.O_CLOEXEC)
    off = mmap.mmap(held, 8, prot=mmap.PROT_READ)
    os.close(held)
    real_ns = time.time_ns

    def wall_ns() -> int:
        return real_ns() + int.from_bytes(off[:8], "little", signed=True)

    time.time_ns = wall_ns
    time.time = lambda: wall_ns() / 1e9


def launches_for(root: Path, words: list[str]) -> Iterator[Path]:
    """The place of the worker whose launcher this is."""
    if "iris_worker.launcher.launcher" in words:
        yield root / Path(words[-1]).name


if "CHAOS_PLACES" in os.environ:
    _ROOT = Path(os.environ["CHAOS_PLACES"])
    for each in places(_ROOT, sys.orig_argv):
        if each.is_dir() and take(each):
            settle(each)
            follow_clock(each)
            break
    for each in launches_for(_ROOT, sys.orig_argv):
        follow_clock(each)
