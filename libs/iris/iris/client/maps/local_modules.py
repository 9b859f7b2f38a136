"""The modules that only this machine has, as source: they are sent along with a function.

A module of the standard library or of an installed package is on the hosts, or is not; one of the
directory that is sent along is there. Others, the file beside a script or a module of tests, are
on this machine alone. What they define is pickled by its name, as of any module, and the call's
process imports them from what was sent (`call_runner`). Out of scope: what is sent with it
(`calls`).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

MOST_BYTES = 4 << 20
"""Of more, those are sent whose package the function names."""
_OURS = "iris"
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_LIBRARIES = tuple(
    f"{os.path.realpath(path)}{os.sep}"
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)

Sources = dict[str, tuple[bytes, str, bool]]
"""By the name of a module its source, its file here, and whether it is a package."""


def local_sources(packed: bytes, workdir: str | os.PathLike[str] | None = None) -> Sources:
    """The loaded modules that are neither installed nor in ``workdir``, and their packages.

    ``packed``: the function, as it is sent.
    """
    found: Sources = {}
    for name, module in list(sys.modules.items()):
        if _is_local(name, module) and not (workdir is not None and _is_in(module, workdir)):
            file = str(module.__file__)
            with suppress(OSError):
                source = Path(file).read_bytes()
                found[name] = source, file, Path(file).name == "__init__.py"
    if sum(len(source) for source, _, _ in found.values()) > MOST_BYTES:
        found = {
            name: one for name, one in found.items() if name.partition(".")[0].encode() in packed
        }
    for name in list(found):
        while name := name.rpartition(".")[0]:  # a package without a file of its own
            found.setdefault(name, (b"", "", True))
    return found


def _is_local(name: str, module: ModuleType) -> bool:
    top = name.partition(".")[0]
    if top in (_OURS, "__main__") or top.startswith(f"{_OURS}_"):
        return False
    file = getattr(module, "__file__", None)
    named = getattr(module, "__name__", None) == name
    return named and isinstance(file, str) and _is_users_file(file)


@cache
def _is_users_file(file: str) -> bool:
    """Whether it is Python source of neither the standard library nor an installed package."""
    if not file.endswith(".py") or any(part in file for part in _PACKAGES):
        return False
    return not os.path.realpath(file).startswith(_LIBRARIES)


def _is_in(module: ModuleType, workdir: str | os.PathLike[str]) -> bool:
    """Whether a task whose directory has these files can import it by its name."""
    path = os.path.join(os.path.realpath(workdir), *module.__name__.split("."))
    file = os.path.realpath(str(module.__file__))
    return file in (f"{path}.py", os.path.join(path, "__init__.py"))
