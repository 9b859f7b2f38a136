"""The opening of a chaos run strikes whatever has a target, and says what has none."""

import random
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from iris_bus.connection.connection import Credentials
from tests.chaos import killer as faults
from tests.chaos.killer import Killer
from tests.chaos.moments import Moments
from tests.chaos.places import Harm, Place

pytestmark = pytest.mark.integration


class IdleHost(Place):
    """A host on which nothing runs."""

    def harm(self, how: Harm) -> None: ...

    def mend(self) -> None: ...

    def pids(self) -> set[int]:
        return set()

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ends here, so no end is waited for."""
    monkeypatch.setattr(faults, "_MOMENT_S", 0.0)


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as running:
        yield running.pid
        running.kill()


def opened(tmp_path: Path, process: int, *, clones: bool) -> Killer:
    """A killer that has tried its opening on hosts on which nothing runs."""
    cluster = SimpleNamespace(pid_of_worker=lambda name: process, pids=lambda service: [process])
    hosts = [IdleHost(tmp_path / f"worker-{n}") for n in range(4)]
    ill = tmp_path / "ill"
    killer = Killer(
        cluster,
        hosts,
        lost_s=4.0,
        expires_s=2.0,
        rng=random.Random(1),
        probe=lambda: None,
        any_lost=lambda: True,
        ill=ill,
        moments=Moments("", Credentials()),
        clones=clones,
        looks=40,
    )
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(killer.run)
        killer.opened.wait()
        killer.enough.set()
        running.result()
    return killer


def test_a_fault_without_a_target_does_not_keep_others_from_theirs(tmp_path: Path, process: int):
    killer = opened(tmp_path, process, clones=True)
    assert {"stop worker", "stop proxy", "kill -9 proxy"} <= set(killer.faults)
    assert not {"kill -9 busy worker", "kill -9 template", "kill -9 copy"} & set(killer.faults)
    assert [sentence.partition(":")[0] for sentence in killer.wrong] == ["wrong", "wrong"]
    assert "kill template (LookupError(" in killer.wrong[0]


def test_hosts_that_clone_nothing_have_no_template_to_strike(tmp_path: Path, process: int):
    killer = opened(tmp_path, process, clones=False)
    assert "kill template" not in "".join(killer.wrong)
