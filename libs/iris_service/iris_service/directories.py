"""Makes data directories: others neither list nor write them, and users of tasks pass where they
have to.
"""

from __future__ import annotations

import os
from itertools import takewhile
from pathlib import Path

_PASS = 0o011


def make_directory(path: Path, *, passed: bool = False) -> None:
    """Make a directory that only its owner lists and writes, and what is missing above it, whatever
    the umask is; what is there is left as it is. Raises OSError.

    ``passed``: users of tasks pass it, as they do what is made above it.
    """
    missing = takewhile(lambda one: not one.exists(), path.parents)
    for above in reversed(list(missing)):
        above.mkdir(exist_ok=True)
        let_pass(above)
    if path.is_dir():
        return
    path.mkdir(mode=0o700, exist_ok=True)
    if passed:
        let_pass(path)


def let_pass(path: Path) -> None:
    """Let the users of tasks pass a directory, without seeing names in it. Only root's workers have
    such users.
    """
    if os.geteuid() == 0:
        path.chmod(path.stat().st_mode | _PASS)
