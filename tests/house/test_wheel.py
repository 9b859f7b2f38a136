"""The wheel holds the ten packages, with their templates and static files, and nothing else."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.house.repository import ROOT, tracked

PACKAGES = {
    "iris",
    "iris_bus",
    "iris_core",
    "iris_gateway",
    "iris_nats",
    "iris_proxy",
    "iris_provisioner",
    "iris_notifier",
    "iris_scheduler",
    "iris_service",
    "iris_state",
    "iris_worker",
}
SLURM = ("integrations", "slurm", "iris_slurm")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    with ZipFile(next(out.glob("*.whl"))) as archive:
        yield archive


def test_it_holds_every_file_of_every_package(wheel):
    ours = {
        Path(*path.parts[2:]).as_posix()
        for path in tracked()
        if path.parts[0] in {"libs", "services"}
    }
    assert ours - set(wheel.namelist()) == set()


def test_it_holds_nothing_but_the_packages_and_its_own_record(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_the_wheel_of_the_commands_of_slurm_holds_its_package(tmp_path):
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
    ]
    subprocess.run([*command, str(ROOT / "integrations/slurm")], check=True, capture_output=True)
    ours = {Path(*path.parts[2:]).as_posix() for path in tracked() if path.parts[:3] == SLURM}
    with ZipFile(next(tmp_path.glob("iris_slurm-*.whl"))) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert names == ours
        assert "sbatch = iris_slurm.commands.sbatch:main" in archive.read(entry).decode()


def test_it_installs_the_command(wheel):
    entry = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "iris = iris.cli:main" in wheel.read(entry).decode()
