"""Which program of this host runs a call: the ``python`` of its PATH, if its user can execute that
and its version fits the code of the function, else ``python3`` or the one named after the version
there, else the worker's own.

The version of a program is told by its name, once links are followed: nothing of a user is executed
here, for the worker may be root. A ``python`` that tells none fits. Out of scope: interpreters
of images and environments, which are in the PATH of their tasks; the error of a call that no
program fits (`iris.client.maps.call_runner`).
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Sequence
from typing import NamedTuple

PYTHON = "python"
_OWN_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
_NAMED = re.compile(r"python(3\.\d+)", re.ASCII)


class Interpreter(NamedTuple):
    """The program to run, and why it is another one than ``python``; empty: it is that."""

    program: str
    note: str = ""


class CallUser(NamedTuple):
    """As whom a process runs; ``uid`` None: as this process."""

    uid: int | None = None
    gid: int = 0
    groups: tuple[int, ...] = ()


class Own(NamedTuple):
    """The interpreter of this process."""

    program: str = sys.executable
    version: str = _OWN_VERSION


def choose_interpreter(
    path: str, owner: CallUser, version: str = "", own: Own | None = None
) -> Interpreter:
    """The interpreter of a call.

    Args:
        path: PATH of its process.
        version: of Python, whose code its function is; empty: it is of no version.
    """
    own = own or Own()
    directories = path.split(":")
    if not all(directory.startswith("/") for directory in directories):
        return Interpreter(PYTHON)  # it may be in the directory of the task
    named = (PYTHON, "python3", *([f"python{version}"] if version else []))
    programs = [_first(directories, name, owner) for name in named]
    there = [(program, version_of(program)) for program in programs if program]
    if may_execute(own.program, owner):
        there.append((own.program, own.version))
    if programs[0] and (not version or version_of(programs[0]) in ("", version)):
        return Interpreter(PYTHON)
    exact = [program for program, its in there if version and its == version]
    found = next(iter(exact or [program for program, _ in there]), "")
    if found in ("", programs[0]):
        return Interpreter(PYTHON)
    if not programs[0]:
        why = "its PATH has no python that its user may run"
    else:
        why = f"python in its PATH is {version_of(programs[0])}, its function is code of {version}"
    return Interpreter(found, f"it is run by {found}: {why}")


def version_of(program: str) -> str:
    """``3.11`` of ``/usr/bin/python``, a link to ``python3.11``; empty when the name tells none, or
    a script has it, which may run any or fail, such as those of pyenv.
    """
    real = os.path.realpath(program)
    named = _NAMED.fullmatch(os.path.basename(real))
    return named[1] if named and not _is_script(real) else ""


def _is_script(file: str) -> bool:
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # it may be executed and not read
        return False
    try:
        return os.read(opened, 2) == b"#!"
    except OSError:
        return False
    finally:
        os.close(opened)


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
