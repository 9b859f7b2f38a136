"""Build and check what is released: `make dist`.

Builds the wheel and the source archive of `iris-control-plane` and of each distribution below
`integrations/` into `dist/`. Then checks that

* the metadata is valid by the core metadata specification, and all versions are the same;
* each wheel holds the packages of its `pyproject.toml` and nothing else, each archive a license;
* everything installs into an empty environment on every Python of 3.11 to 3.13 that is on PATH, and
  there a cluster starts, runs a task and stops.

Ends with 1 and the first fault. `--no-install` leaves the environments out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from zipfile import ZipFile

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
INTERPRETERS = ("python3.11", "python3.12", "python3.13")


class Fault(Exception):
    """What is wrong with a distribution."""


def projects() -> Iterator[Path]:
    """The directory of each distribution."""
    yield ROOT
    yield from sorted(path.parent for path in ROOT.glob("integrations/*/pyproject.toml"))


def build(project: Path, out: Path) -> tuple[Path, Path]:
    """Build a distribution; returns its wheel and its source archive."""
    built = out / project.name
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(built),
        str(project),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = built.glob("*.whl")
    (archive,) = built.glob("*.tar.gz")
    return wheel, archive


def check_wheel(project: Path, wheel: Path) -> str:
    """Check metadata and contents of a wheel; returns its version."""
    config = tomllib.loads((project / "pyproject.toml").read_text())
    wanted = {
        Path(package).name
        for package in config["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    with ZipFile(wheel) as contents:
        names = contents.namelist()
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(contents.read(path), validate=True)
    found = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    if found != wanted:
        raise Fault(f"{wheel.name} holds {sorted(found)}, not {sorted(wanted)}")
    if not any(name.endswith("py.typed") for name in names):
        raise Fault(f"{wheel.name} has no py.typed")
    if not metadata.description:
        raise Fault(f"{wheel.name} has no description")
    return str(metadata.version)


def check_archive(archive: Path) -> None:
    """Check that a source archive has its project file, its README and a license."""
    with tarfile.open(archive) as contents:
        names = {name.partition("/")[2] for name in contents.getnames()}
    for name in ("pyproject.toml", "README.md", "LICENSE", "PKG-INFO"):
        if name not in names:
            raise Fault(f"{archive.name} has no {name}")


def runs(interpreter: str) -> bool:
    """Whether a Python of that name starts; a shim on PATH may stand for none."""
    if shutil.which(interpreter) is None:
        return False
    done = subprocess.run([interpreter, "-c", ""], check=False, capture_output=True)
    return done.returncode == 0


def check_install(interpreter: str, wheels: Sequence[Path]) -> None:
    """Install wheels into an empty environment; start a cluster there, run a task, stop it."""
    with tempfile.TemporaryDirectory(prefix="iris-dist-") as place:
        environment = Path(place, "venv")
        subprocess.run([interpreter, "-m", "venv", str(environment)], check=True)
        python, iris = environment / "bin/python", environment / "bin/iris"
        own, *others = wheels
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, f"{own}[local]", *map(str, others)], check=True)
        variables = {"PATH": os.environ["PATH"], "HOME": place, "IRIS_DATA": f"{place}/data"}
        up = [str(iris), "up", "--http", "127.0.0.1:0", "--detach"]
        subprocess.run(up, check=True, env=variables, stdout=subprocess.DEVNULL)
        try:
            task = [str(iris), "run", "--", "echo", "released"]
            done = subprocess.run(task, check=True, env=variables, capture_output=True, text=True)
        finally:
            subprocess.run([str(iris), "down"], check=True, env=variables)
        if "released" not in done.stdout:
            raise Fault(f"{interpreter}: the task printed {done.stdout!r}, not 'released'")


def main() -> None:
    """Build, check, and print what was made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-install", action="store_true", help="leave the environments out")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.out, ignore_errors=True)
    wheels, versions = [], set()
    for project in projects():
        wheel, archive = build(project, arguments.out)
        versions.add(check_wheel(project, wheel))
        check_archive(archive)
        wheels.append(wheel)
        print(f"built {wheel.name} and {archive.name}")
    if len(versions) != 1:
        raise Fault(f"the distributions have different versions: {sorted(versions)}")
    for interpreter in () if arguments.no_install else INTERPRETERS:
        if runs(interpreter):
            check_install(interpreter, wheels)
            print(f"installed and ran a task with {interpreter}")
        else:
            print(f"note: {interpreter} is not there; not tried")


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"make dist: {fault}")
