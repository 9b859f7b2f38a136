"""Environments with a build of Iris each, at places of their own: what is installed on a machine
that is upgraded.

A build is a copy of the packages, of the checkout or of an earlier commit, which is not changed by
what becomes of the checkout meanwhile. What it depends on is that of the environment of the tests.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

from iris_service.version import head_commit
from tests.house.repository import ROOT

_PARTS = ("libs", "services", "pyproject.toml")
_SCRIPT = """#!{place}/bin/python
import sys
from iris.cli import main
sys.exit(main())
"""


def has_commit(commit: str) -> bool:
    """Whether the repository of this checkout has that commit."""
    words = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def copy_checkout(source: Path) -> None:
    """Copy the packages as they are now."""
    for part in _PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, source / part, ignore=ignored)
        else:
            shutil.copy(ROOT / part, source / part)


def copy_commit(source: Path, commit: str) -> None:
    """Copy the packages of a commit."""
    words = ["git", "-C", str(ROOT), "archive", commit, *_PARTS]
    archive = subprocess.run(words, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(source, filter="data")


def make_build(directory: Path, place: str, commit: str = "") -> Path:
    """Make an environment for ``place`` in ``directory``, which is copied or mounted there.

    Args:
        place: the absolute path at which it will be used. commit: of the build; empty: the
            checkout as it is.

    Returns:
        ``directory``, with `bin/iris`, `bin/nats-server` and the code in `source`, whose version
        names the commit.
    """
    source = directory / "source"
    source.mkdir(parents=True)
    if commit:
        copy_commit(source, commit)
    else:
        copy_checkout(source)
    (source / ".git").mkdir()
    (source / ".git" / "HEAD").write_text(f"{commit or head_commit(ROOT / '.git')}\n")
    programs = directory / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(Path(sys.executable).resolve())
    (programs / "python3").symlink_to("python")
    (programs / "nats-server").symlink_to(Path(sys.prefix) / "bin" / "nats-server")
    (programs / "iris").write_text(_SCRIPT.format(place=place))
    (programs / "iris").chmod(0o755)
    home = Path(sys.base_prefix) / "bin"
    (directory / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = directory / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    parts = sorted(path for part in ("libs", "services") for path in (source / part).iterdir())
    paths = [f"{place}/{path.relative_to(directory)}" for path in parts]
    paths.append(sysconfig.get_path("purelib"))
    (packages / "iris.pth").write_text("\n".join(paths) + "\n")
    return directory
