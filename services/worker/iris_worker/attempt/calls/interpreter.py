"""Which program of this host runs a call: the ``python`` of its PATH, if its user can execute that,
else ``python3`` there, else the worker's own.

Out of scope: interpreters of images and environments, which are in the PATH of their tasks.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import NamedTuple

PYTHON = "python"


class Interpreter(NamedTuple):
    """The program to run, and why it is another one than ``python``; empty: it is that."""

    program: str
    note: str = ""


class CallUser(NamedTuple):
    """As whom a process runs; ``uid`` None: as this process."""

    uid: int | None = None
    gid: int = 0
    groups: tuple[int, ...] = ()


def choose_interpreter(path: str, owner: CallUser, own: str = sys.executable) -> Interpreter:
    """The interpreter of a call.

    Args:
        path: PATH of its process. own: the interpreter of this process.
    """
    directories = path.split(":")
    if not all(directory.startswith("/") for directory in directories):
        return Interpreter(PYTHON)  # it may be in the directory of the task
    if _first(directories, PYTHON, owner):
        return Interpreter(PYTHON)
    found = _first(directories, "python3", owner) or (own if may_execute(own, owner) else "")
    if not found:
        return Interpreter(PYTHON)
    return Interpreter(found, f"it is run by {found}: its PATH has no python that its user may run")


def _first(directories: Sequence[str], name: str, owner: CallUser) -> str:
    places = (f"{directory.rstrip('/')}/{name}" for directory in directories)
    return next((place for place in places if may_execute(place, owner)), "")


def may_execute(file: str, owner: CallUser) -> bool:
    """Whether the owner may execute a file, which may be a link, and enter the directories of
    both.
    """
    if owner.uid is None:
        return os.path.isfile(file) and os.access(file, os.X_OK)
    real = os.path.realpath(file)
    parents = {parent for path in (file, real) for parent in _parents(os.path.dirname(path))}
    try:
        found = os.stat(real)
        return (
            stat.S_ISREG(found.st_mode)
            and _may(found, owner, any_of_root=False)
            and all(_may(os.stat(parent), owner, any_of_root=True) for parent in parents)
        )
    except OSError:
        return False


def _parents(directory: str) -> list[str]:
    found = [directory]
    while found[-1] != os.path.dirname(found[-1]):
        found.append(os.path.dirname(found[-1]))
    return found


def _may(found: os.stat_result, owner: CallUser, *, any_of_root: bool) -> bool:
    """Whether the owner may execute or enter this. Root may enter all directories."""
    if owner.uid == 0:
        return any_of_root or bool(found.st_mode & 0o111)
    if found.st_uid == owner.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid in (owner.gid, *owner.groups):
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)
