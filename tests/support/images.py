"""Files of container images that are made of programs of this machine, where no registry is
reached.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from iris_nats import nats_binary
from tests.house.repository import ROOT

PYTHON = "python:local"
"""The base image of the product's, where no registry is reached."""
PATH = "ENV PATH=/usr/local/bin:/usr/bin:/bin"
_SHELL = (
    "sh",
    "cat",
    "chown",
    "echo",
    "env",
    "find",
    "id",
    "ls",
    "mkdir",
    "rm",
    "sleep",
    "touch",
    "true",
)
_NOT_IN_SLIM = (
    "site-packages",
    "dist-packages",
    "test",
    "config-",
    "ensurepip",
    "idlelib",
    "EXTERNALLY-MANAGED",
)


class Image:
    """Files of this machine at their own paths, and the shared libraries they need."""

    def __init__(self) -> None:
        self._sources: dict[str, Path] = {}
        self._texts = {
            "/etc/passwd": "root:x:0:0::/:/bin/sh\n",
            "/etc/group": "root:x:0:\n",
            "/etc/nsswitch.conf": "hosts: files dns\n",
        }
        self._directories = {"/tmp": (0, 0o1777)}

    def file(self, source: Path, target: str = "") -> None:
        self._sources[target or str(source)] = source

    def tree(self, source: Path, target: str = "", without: Iterable[str] = ()) -> None:
        for path in source.rglob("*"):
            inside = path.relative_to(source)
            if path.is_file() and not any(
                part.startswith(("__pycache__", *without)) for part in inside.parts
            ):
                self.file(path, str(Path(target or source) / inside))

    def programs(self, *names: str) -> None:
        for name in names:
            self.file(found(name))

    def directory(self, path: str, owner: int) -> None:
        self._directories[path] = (owner, 0o755)

    def text(self, path: str, text: str) -> None:
        self._texts[path] = text

    def libraries(self, of: Sequence[Path]) -> None:
        """What the loader finds for these programs and libraries, but for what their own wheel
        holds.
        """
        listed = subprocess.run(
            ["ldd", *map(str, of)], capture_output=True, text=True, check=False
        ).stdout
        for line in listed.splitlines():
            path = next(
                (word for word in line.split() if word.startswith("/") and not word.endswith(":")),
                None,
            )
            if path and not path.startswith(sys.prefix):
                self.file(Path(path))

    def tar(self) -> bytes:
        self.libraries([path for path in self._sources.values() if _is_elf(path)])
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", dereference=True) as archive:
            for path, (owner, mode) in self._directories.items():
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.type, entry.uid, entry.gid, entry.mode = tarfile.DIRTYPE, owner, owner, mode
                archive.addfile(entry)
            for path, source in sorted(self._sources.items()):
                archive.add(source, path.lstrip("/"), recursive=False)
            for path, text in self._texts.items():
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.size, entry.mode = len(text.encode()), 0o755
                archive.addfile(entry, io.BytesIO(text.encode()))
        return out.getvalue()


def found(program: str) -> Path:
    path = shutil.which(program)
    assert path, program
    return Path(path)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def python_image() -> Image:
    """What `python:...-slim` holds, with the interpreter that runs the tests and a pip that knows
    `wheels` only.
    """
    image = Image()
    stdlib = Path(
        sysconfig.get_path(
            "stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix}
        )
    )
    interpreter = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    image.file(interpreter)
    image.tree(stdlib, without=_NOT_IN_SLIM)
    image.directory(f"{stdlib}/site-packages", 0)
    pip = importlib.util.find_spec("pip")
    assert pip, "pip is not installed"
    assert pip.origin
    image.tree(Path(pip.origin).parent, f"{stdlib}/pip")
    for name in ("python", "python3"):
        image.text(f"/usr/local/bin/{name}", f'#!/bin/sh\nexec {interpreter} "$@"\n')
    image.text("/usr/local/bin/pip", f'#!/bin/sh\nexec {interpreter} -m pip "$@"\n')
    image.tree(wheels(), "/wheels-of-this-machine")
    image.text("/etc/pip.conf", "[global]\nno-index = true\nfind-links = /wheels-of-this-machine\n")
    image.programs(*_SHELL)
    image.file(Path("/bin/sh"))
    numpy = importlib.util.find_spec("numpy")
    assert numpy
    assert numpy.origin
    image.libraries(
        list(Path(numpy.origin).parent.rglob("*.so"))
    )  # wheels count on the libraries of C++
    return image


def nats_image() -> Image:
    image = Image()
    image.file(Path(nats_binary.find()), "/usr/local/bin/nats-server")
    image.programs("wget", "mv")
    return image


def nginx_image() -> Image:
    image = Image()
    image.programs("nginx", "wget", "cat")
    return image


def prometheus_image() -> Image:
    image = Image()
    image.programs("wget")
    image.file(found("prometheus"), "/bin/prometheus")
    image.directory("/prometheus", 65534)
    return image


def wheels() -> Path:
    """Everything the Dockerfile installs, by way of whatever pip is configured to use; it is kept
    for later runs.
    """
    locks = [ROOT / "requirements" / name for name in ("build.lock", "local.lock")]
    named = hashlib.sha256(
        b"".join([sys.version.encode(), *(lock.read_bytes() for lock in locks)])
    ).hexdigest()
    kept = ROOT / ".wheels" / named[:16]
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as place:
            words = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--require-hashes",
            ]
            for lock in locks:
                given = ["--dest", f"{place}/wheels", "--requirement", str(lock)]
                subprocess.run([*words, *given], check=True, timeout=180, capture_output=True)
            with contextlib.suppress(OSError):  # another process was quicker
                Path(place, "wheels").rename(kept)
    return kept


if __name__ == "__main__":
    wheels()
