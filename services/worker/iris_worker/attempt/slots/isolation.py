"""How the tasks of this host are confined: whose user each runs as, and what it sees of the host.

Out of scope: starting them (process). Source: docs/design/isolation.md#sandboxes,
    docs/security.md#tasks.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from iris_service.settings import BadSetting
from iris_worker.attempt.slots.task_users import UserPool
from iris_worker.launcher.records.records import Confine, Sandbox
from iris_worker.launcher.starts.sandbox import OWN_NETWORK, directories
from iris_worker.settings import WorkerSettings

_POOL = re.compile(r"pool:(\d+)-(\d+)(?:/(\d+))?\Z")
_POOLS = (
    UserPool(range(1_879_048_192, 2_147_479_552), share=4_096),
    UserPool(range(61_184, 65_280), share=512),
)
"""The default pools, the first that this user namespace has: users that nobody uses, and, for
containers with 65,536 users, those of systemd's dynamic users. Source: "Users, Groups, UIDs and
GIDs on systemd systems"."""
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/sys",
)
_RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf")
_DEVICES = ("/dev/dri", "/dev/kfd", "/dev/infiniband")
"""For all tasks; those that are assigned are for their tasks."""
_ACCELERATORS = (
    "/dev/nvidia*",
    "/dev/accel*",
    "/dev/vfio/*",
    "/dev/dri/*",
    "/dev/kfd",
    "/dev/infiniband/*",
)
_OURS = "/etc/iris"

NOTHING = Confine()


class NoAccount(OSError):
    """The submitting user has no account on this host; the text is for that person."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What the settings ask for.

    Attributes:
        pool: of whose users this worker has some. uids: which, one for each slot. account: whose
            user all tasks run as. accounts: by submitting user. Without any of them it is the
            worker's user.
        groups: of all users of a pool: those of this host's accelerators.
        wanted: what the launcher is to try. required: whether the worker ends when that does not
            work.
        own_network: whether tasks are to have a network of their own, in their sandbox.
        trouble: why bubblewrap is not even tried; empty when it is.
        users_lock: an open file that keeps other workers from these users; -1: the launcher has it.
    """

    uids: range | None = None
    account: Sandbox | None = None
    accounts: dict[str, str] | None = None
    groups: tuple[int, ...] = ()
    wanted: Confine = NOTHING
    required: bool = False
    own_network: bool = False
    trouble: str = ""
    pool: UserPool | None = None
    users_lock: int = -1

    @property
    def changes_user(self) -> bool:
        return self.uids is not None or self.account is not None or self.accounts is not None

    @property
    def confines(self) -> bool:
        return self.changes_user or self.wanted != NOTHING

    @property
    def any_user(self) -> str:
        """A submitting user whose tasks run here."""
        return next(iter(self.accounts or ()), "")

    def uid_of(self, slot: int) -> int | None:
        """The user of the pool who has this slot only; None where there is no pool."""
        return self.uids[slot] if self.uids is not None and slot < len(self.uids) else None

    def has_users(self, sandboxed: bool) -> bool:
        """Whether each attempt has a user, or a user namespace, of its own: who limits a user's
        processes limits it.
        """
        return self.uids is not None or (sandboxed and os.geteuid() != 0)

    def sandbox(self, slot: int, user: str, devices: tuple[str, ...] = ()) -> Sandbox | None:
        """How an attempt in ``slot`` of the submitting ``user`` with these device files is
        confined. Raises NoAccount, OSError.
        """
        found = self._user(slot, user)
        return structs.replace(found, devices=devices) if found is not None and devices else found

    def _user(self, slot: int, user: str) -> Sandbox | None:
        if self.uids is not None:
            if slot >= len(self.uids):
                raise OSError(f"all {len(self.uids)} users of the pool are taken ([worker] run_as)")
            return Sandbox(self.uids[slot], self.uids[slot], self.groups, of_pool=True)
        if self.accounts is not None:
            if user not in self.accounts:
                raise NoAccount(f"user {user!r} has no account on this host ([worker] accounts)")
            return _account(self.accounts[user])
        return self.account or (Sandbox() if self.confines else None)

    def name(self, user: str) -> str:
        """The name of the user that tasks of ``user`` run as, which programs look for in USER;
        empty: the worker's.
        """
        if self.accounts is not None:
            return self.accounts.get(user, "")
        if self.account is not None and self.account.uid is not None:
            return pwd.getpwuid(self.account.uid).pw_name
        return "iris" if self.uids is not None else ""


def isolation(settings: WorkerSettings, hidden: Iterable[str]) -> Isolation:
    """What the settings ask for on this host. Raises BadSetting.

    Args:
        hidden: files and directories of the operator that no task may see.
    """
    pool = _pool(settings.run_as)
    uids = pool.users if pool is not None else None
    accounts = _accounts(settings.accounts) if settings.run_as == "submitter" else None
    named = settings.run_as not in ("", "worker", "submitter") and uids is None
    try:
        account = _account(settings.run_as) if named else None
    except OSError as error:
        raise BadSetting(f"[worker] run_as: {error}") from error
    if os.geteuid() != 0 and (uids is not None or accounts is not None or account is not None):
        raise BadSetting(
            f"[worker] run_as: only a worker of root starts tasks as {settings.run_as!r}"
        )
    program = shutil.which(settings.bubblewrap) if settings.sandbox != "off" else None
    arguments = (program, *visible(settings, hidden)) if program else ()
    return Isolation(
        uids=uids,
        account=account,
        accounts=accounts,
        groups=device_groups() if uids is not None else (),
        wanted=NOTHING
        if settings.sandbox == "off"
        else Confine(
            arguments, no_new_privileges=True, scopes_sockets=settings.abstract_sockets == "scoped"
        ),
        required=settings.sandbox == "required",
        own_network=settings.sandbox != "off" and settings.abstract_sockets == "network",
        trouble=""
        if arguments or settings.sandbox == "off"
        else f"{settings.bubblewrap} is not installed",
        pool=pool,
    )


def _pool(run_as: str) -> UserPool | None:
    """The users that are for tasks of this host. Raises BadSetting."""
    if not run_as and os.geteuid() == 0:
        mapped = Path("/proc/self/uid_map").read_text()
        for pool in _POOLS:
            if is_mapped(pool.users, mapped):
                return pool
        raise BadSetting(
            "[worker] run_as: no range of users is free for tasks here; name one, as pool:1000-1999"
        )
    match = _POOL.match(run_as)
    if match is None:
        return None
    uids = range(int(match[1]), int(match[2]) + 1)
    if not uids or not uids[0]:
        raise BadSetting(
            f"[worker] run_as: {run_as!r} is not a range of users without root; write pool:1000-1999"
        )
    share = int(match[3] or len(uids))
    if not 0 < share <= len(uids):
        raise BadSetting(
            f"[worker] run_as: {run_as!r} has {len(uids)} users, so a worker cannot take {share}"
        )
    return UserPool(uids, share)


def is_mapped(uids: range, mapped: str) -> bool:
    """Whether a user namespace has all these users, by its ``uid_map``."""
    rows = [list(map(int, line.split())) for line in mapped.splitlines()]
    return any(first <= uids[0] and uids[-1] < first + count for first, _, count in rows)


def _accounts(texts: Iterable[str]) -> dict[str, str]:
    """``user=account`` each. Raises BadSetting."""
    found = {}
    for text in texts:
        user, equals, account = (part.strip() for part in text.partition("="))
        if not (user and equals and account):
            raise BadSetting(f"[worker] accounts: not USER=ACCOUNT: {text!r}")
        found[user] = account
    return found


def _account(name: str) -> Sandbox:
    """An account of this host. Raises OSError."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise OSError(f"this host has no account {name!r}") from None
    return Sandbox(found.pw_uid, found.pw_gid, tuple(os.getgrouplist(name, found.pw_gid)))


def owner_of(sandbox: Sandbox | None) -> tuple[int, int] | None:
    """Who owns the files of an attempt; None: the worker."""
    if sandbox is None or sandbox.uid is None or sandbox.gid is None:
        return None
    return sandbox.uid, sandbox.gid


def device_groups() -> tuple[int, ...]:
    """The groups, besides root's, that may use this host's accelerators."""
    found = [os.stat(path) for pattern in _ACCELERATORS for path in glob.glob(pattern)]
    usable = {
        one.st_gid
        for one in found
        if stat.S_ISCHR(one.st_mode) and one.st_mode & stat.S_IWGRP and one.st_gid
    }
    return tuple(sorted(usable))


# ── what is visible ───────────────────────────────────────────────────────────────────────────────


def visible(settings: WorkerSettings, hidden: Iterable[str]) -> tuple[str, ...]:
    """The arguments of bubblewrap for what all tasks of this host see. Raises BadSetting."""
    words = ["--unshare-pid", "--unshare-ipc", "--proc", "/proc", "--dev", "/dev"]
    if settings.abstract_sockets == "network":
        words.append(OWN_NETWORK)
    if "mqueue" in Path("/proc/filesystems").read_text().split():
        words += ("--mqueue", "/dev/mqueue")
    for path in ("/dev/shm", "/tmp", "/var/tmp"):
        words += (*directories(path), "--perms", "1777", "--tmpfs", path)
    devices = [(path, "--dev-bind") for path in _DEVICES]
    system = [
        (path, "--ro-bind") for path in dict.fromkeys((*_SYSTEM, sys.prefix, sys.base_prefix))
    ]
    shown = [
        *system,
        *((path, "--ro-bind") for path in _RESOLVERS),
        *devices,
        *read_binds(settings.binds),
    ]
    for path, option in shown:
        if os.path.exists(path):
            words += (*directories(path), option, path, path)
    for path in (str(settings.root), _OURS, *hidden):
        if os.path.exists(path) and any(Path(path).is_relative_to(place) for place, _ in shown):
            words += ("--tmpfs", path) if os.path.isdir(path) else ("--ro-bind", os.devnull, path)
    return tuple(words)


def read_binds(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Each path with the option of bubblewrap that shows it. Raises BadSetting."""
    found = []
    for text in texts:
        path, _, mode = text.partition(":")
        if mode not in ("", "ro") or not path.startswith("/") or not os.path.exists(path):
            raise BadSetting(f"[worker] binds: {text!r} is not a path of this host, or PATH:ro")
        found.append((path, "--ro-bind" if mode else "--bind"))
    return found


def allow_task_users(attempts: str) -> None:
    """Let other users pass to the directories of their attempts. Raises BadSetting."""
    for path in (attempts, os.path.dirname(attempts)):
        os.chmod(path, 0o711)
    closed = [
        shlex.quote(str(above))
        for above in reversed(Path(attempts).parents)
        if not above.stat().st_mode & stat.S_IXOTH
    ]
    if closed:
        raise BadSetting(
            f"[worker] data: the users of tasks cannot pass {', '.join(closed)}; "
            f"`chmod o+x {' '.join(closed)}` lets them pass, and shows them no names of files there"
        )


class Isolated(NamedTuple):
    """How tasks are confined.

    ``word``: the value of the attribute ``isolation``. ``sentence``: for the log. ``unscoped``: why
    tasks reach each other's abstract sockets though they should not; empty: they do not, or may.
    """

    word: str
    sentence: str
    sandboxed: bool = False
    unscoped: str = ""


def summary(held: Isolation, trouble: str, unscoped: str = "") -> Isolated:
    """``trouble``: why there is no sandbox. ``unscoped``: why the kernel scopes no abstract
    sockets.
    """
    word, sentence, sandboxed = _summary(held, trouble)
    if held.own_network and not sandboxed:
        unscoped = "without a sandbox they have no network of their own"
    if unscoped:
        sentence += f"; they reach each other's abstract sockets: {unscoped}"
    return Isolated(word, sentence, sandboxed, unscoped)


def _summary(held: Isolation, trouble: str) -> tuple[str, str, bool]:
    sandboxed = bool(held.wanted.bubblewrap) and not trouble
    users = (
        "users of their own"
        if held.uids is not None
        else "another user"
        if held.changes_user
        else "this user"
    )
    if sandboxed:
        return "sandbox", f"tasks run as {users} in a sandbox of bubblewrap", True
    if not held.confines:
        return "none", f"tasks run as {users} without a sandbox", False
    because = f": {trouble or held.trouble}" if trouble or held.trouble else ""
    word = "users" if held.changes_user else "user"
    return word, f"tasks run as {users} without a sandbox{because}", False
