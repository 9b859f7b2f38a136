"""Several machines, each a worker in namespaces of its own: gangs of programs that take a machine for themselves."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.machines import Machines, machines_on, refusal

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
RAY = shutil.which("ray", path=f"{os.environ['PATH']}:{ROOT}/.venv-peers/bin")
RAYS_DIRECTORY = Path("/tmp/ray")
RAY_S = 120


@pytest.fixture(scope="module")
def with_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two machines on which `ray` is a program that tasks find."""
    if RAY is None:
        pytest.skip("no ray: put it on PATH, or `make bench-peers`")
    if why := refusal():
        pytest.skip(f"no namespaces here: {why}")
    RAYS_DIRECTORY.mkdir(exist_ok=True)
    path, own = str(Path(RAY).parent), [str(RAYS_DIRECTORY)]
    with machines_on(tmp_path_factory.mktemp("ray") / "data", 2, path=path, own_directories=own) as machines:
        yield machines
    with contextlib.suppress(OSError):  # it has been there before, and is not empty
        RAYS_DIRECTORY.rmdir()


def documented() -> list[str]:
    """The command of the page on gangs that runs a Ray program, without its `iris`."""
    found = re.search(
        r"^\$ iris (run .* -- sh node\.sh python pi\.py)$", (ROOT / "docs/gangs.md").read_text(), re.MULTILINE
    )
    assert found
    return shlex.split(found[1])


def left(machines: Machines) -> list[int]:
    """How many processes each machine has beside its worker."""
    return [len(machine.processes()) - 1 for machine in machines.machines]


def test_a_ray_program_runs_once_on_a_node_per_task_and_the_gang_succeeds_together(with_ray: Machines):
    done = with_ray.iris(*documented(), timeout=RAY_S)
    job = with_ray.client.job("/pi")
    head, other = job.tasks()

    assert done.code == 0, done.out + done.err
    assert done.out.count("2 nodes of Ray computed pi = 3.141592654") == 1
    assert [task.state for task in (head, other)] == ["succeeded", "succeeded"]
    assert (head.cause, other.cause) == ("exited", "leader_done")
    assert {head.worker, other.worker} == {"machine-0", "machine-1"}
    until(lambda: left(with_ray) == [0, 0], "nothing of Ray is left")


def test_a_ray_program_that_fails_fails_its_gang_and_one_failure_is_charged(with_ray: Machines):
    words = documented()
    words[words.index("pi")] = "broken"
    done = with_ray.iris(*words[:-2], "sh", "-c", "exit 9", timeout=RAY_S)
    head, other = with_ray.client.job("/broken").tasks()

    assert (done.code, head.state, other.state) == (3, "failed", "worker_failed"), done.out + done.err
    assert (head.exit_code, head.failure_count, other.failure_count) == (9, 1, 0)
    assert (other.cause, head.preemption_count, other.preemption_count) == ("coscheduled_sibling", 0, 0)
    until(lambda: left(with_ray) == [0, 0], "nothing of Ray is left")
