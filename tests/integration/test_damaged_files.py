"""A damaged file of a data directory ends a start at once, by its name and with a remedy, or costs
nothing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_core import subjects
from tests.support import damage
from tests.support.cluster import cluster_on, iris, start, stop

AT_ONCE_S = 30.0
"""Far less than the 150 s that a start waits for what may still come."""
SOCKETS = shutil.ignore_patterns("launcher")
Harm = Callable[[Path], None]


def flip(mask: int) -> Harm:
    """A harm that changes bits of the letter in the middle of a file."""

    def harm(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= mask
        path.write_bytes(content)

    return harm


def control_letter(path: Path) -> None:
    """One flipped bit of a letter makes it one that no header may hold: ``s`` becomes 0x13."""
    content = bytearray(path.read_bytes())
    content[3] ^= 0x60
    path.write_bytes(content)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


HARMS = {
    "bit 0": flip(0x01),
    "bit 4": flip(0x10),
    "bit 7": flip(0x80),
    "control": control_letter,
    "half": halve,
    "empty": empty,
}
REFUSED = {
    "token": "delete it|delete {path}|write the token into it",
    "tokens": "correct it|delete {data}/token",
    "nats/keys/admin.seed": "put back a copy of it, or delete it",
    "nats/keys/system.seed": "put back a copy of it, or delete it",
    "nats/keys/state.seed": "put back a copy of it, or delete it",
    "nats/keys/worker-worker-0.seed": "put back a copy of it, or delete it",
}
"""The files that cannot be made again, and any of which is in the words of the refusal."""
MADE_AGAIN = (
    "cluster.json",
    "discovery.json",
    "lock",
    "nats/nats.conf",
    "nats/run/nats.pid",
    "workers/worker-0/processes",
)
"""The files that a start writes anew."""


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a local cluster that has stopped after a job."""
    data = tmp_path_factory.mktemp("lived") / "data"
    with cluster_on(data, "--workers", "1") as cluster:
        cluster.submit("true", name="/done").wait()
    return data


@pytest.mark.parametrize("harm", [harm for harm in HARMS if harm != "empty"])
@pytest.mark.parametrize("file", REFUSED)
def test_a_damaged_file_ends_the_start_at_once_by_its_name(
    tmp_path: Path, lived: Path, file: str, harm: str
):
    data = shutil.copytree(lived, tmp_path / "data", ignore=SOCKETS)
    HARMS[harm](data / file)
    began = time.monotonic()
    failed = iris("up", "--data", data, "--http", "127.0.0.1:0", "--workers", "1", "--detach")
    assert (failed.code, str(data / file) in failed.err) == (1, True), failed
    remedies = REFUSED[file].format(path=data / file, data=data).split("|")
    assert any(remedy in failed.err for remedy in remedies), failed
    assert time.monotonic() - began < AT_ONCE_S


def test_files_that_a_start_makes_anew_may_be_damaged(tmp_path: Path, lived: Path):
    data = shutil.copytree(lived, tmp_path / "data", ignore=SOCKETS)
    for harm in HARMS.values():
        for file in filter(Path.exists, (data / name for name in MADE_AGAIN)):
            if file.stat().st_size > 3:
                harm(file)
    for file in REFUSED:
        empty(data / file)
    cluster = start(data, "--workers", "1")
    try:
        assert cluster.client.job("/done").state == "succeeded"
    finally:
        stop(cluster)
    assert iris("admin", "verify", "--data", data).code == 0


def test_verify_is_content_after_a_start_that_wrote_keys_anew(tmp_path: Path, lived: Path):
    data = shutil.copytree(lived, tmp_path / "data", ignore=SOCKETS)
    damage.flip_value(data / "nats", subjects.KEYS_BUCKET)
    assert iris("admin", "verify", "--data", data).code == 65
    stop(start(data, "--workers", "1"))
    verified = iris("admin", "verify", "--data", data)
    assert (verified.code, "everything that is needed is whole" in verified.out) == (0, True)


def test_a_damaged_cluster_file_is_named_while_the_cluster_runs(tmp_path: Path):
    with cluster_on(tmp_path / "data", "--workers", "1") as cluster:
        halve(cluster.data / "cluster.json")
        asked = iris("ls", IRIS_DATA=str(cluster.data))
        assert (asked.code, f"{cluster.data}/cluster.json is damaged" in asked.err) == (2, True)
