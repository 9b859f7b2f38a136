"""Several machines as namespaces, each with a worker: programs that need one each, and one
partitioned.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.machines import Machine, Machines, machines_on
from tests.support.needs import needs

pytestmark = [pytest.mark.integration, pytest.mark.needs("ip", "network namespaces")]

ROOT = Path(__file__).parents[2]
RAY = ROOT / ".venv-peers/bin/ray"
RAYS_DIRECTORY = Path("/tmp/ray")
RAY_S = 240
SHORT_GRACE = """
[state]
heartbeat_interval_s = 0.5
worker_grace_s = 5.0
suspect_wait_s = 1.0
[worker]
heartbeat_interval_s = 0.5
"""


@pytest.fixture(scope="module")
@needs("ray")
def with_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two machines on which `ray` is a program that tasks find."""
    RAYS_DIRECTORY.mkdir(exist_ok=True)
    path, own = str(RAY.parent), [str(RAYS_DIRECTORY)]
    with machines_on(
        tmp_path_factory.mktemp("ray") / "data", 2, path=path, own_directories=own
    ) as machines:
        yield machines
    with contextlib.suppress(OSError):  # it has been there before, and is not empty
        RAYS_DIRECTORY.rmdir()


def documented() -> list[str]:
    """The command of the page on gangs that runs a Ray program, without its `iris`; Ray waits
    longer for its nodes.
    """
    found = re.search(
        r"^\$ iris (run .* -- sh node\.sh python pi\.py)$",
        (ROOT / "docs/gangs.md").read_text(),
        re.MULTILINE,
    )
    assert found
    run, *words = shlex.split(found[1])
    return [run, "--env", f"RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT={RAY_S}", *words]


def left(machines: Machines) -> list[int]:
    """How many processes of tasks each machine has."""
    return [len(machine.tasks()) for machine in machines.machines]


@pytest.mark.soak
def test_a_ray_program_runs_once_on_a_node_per_task_and_its_gang_succeeds(with_ray: Machines):
    done = with_ray.iris(*documented(), timeout=RAY_S)
    job = with_ray.client.job("/pi")
    head, other = job.tasks()

    assert done.code == 0, done.out + done.err
    assert done.out.count("2 nodes of Ray computed pi = 3.141592654") == 1
    assert [task.state for task in (head, other)] == ["succeeded", "succeeded"]
    assert (head.cause, other.cause) == ("exited", "leader_done")
    assert {head.worker, other.worker} == {"machine-0", "machine-1"}
    until(lambda: left(with_ray) == [0, 0], "nothing of Ray is left")


@pytest.mark.soak
def test_a_failed_ray_program_fails_its_gang_with_one_failure(with_ray: Machines):
    words = documented()
    words[words.index("pi")] = "broken"
    done = with_ray.iris(*words[:-2], "sh", "-c", "exit 9", timeout=RAY_S)
    head, other = with_ray.client.job("/broken").tasks()

    assert (done.code, head.state, other.state) == (3, "failed", "worker_failed"), (
        done.out + done.err
    )
    assert (head.exit_code, head.failure_count, other.failure_count) == (9, 1, 0)
    assert (other.cause, head.preemption_count, other.preemption_count) == (
        "coscheduled_sibling",
        0,
        0,
    )
    until(lambda: left(with_ray) == [0, 0], "nothing of Ray is left")


def test_tasks_of_a_cut_off_machine_run_elsewhere_and_it_comes_back(tmp_path: Path):
    runs, gate = tmp_path / "runs", tmp_path / "gate"
    script = (
        f"echo $IRIS_TASK_INDEX.$IRIS_ATTEMPT >> {runs}; until [ -e {gate} ]; do sleep 0.1; done"
    )

    with machines_on(tmp_path / "data", 3, SHORT_GRACE) as cluster:

        def state_of(machine: Machine) -> str:
            return next(
                worker.state for worker in cluster.client.workers() if worker.id == machine.name
            )

        def all_run() -> bool:
            return all(task.state == "running" for task in job.tasks())

        def noted() -> list[str]:
            return runs.read_text().split() if runs.exists() else []

        job = cluster.client.run(["sh", "-c", script], name="three", replicas=3, cpu=0.3)
        until(lambda: all_run() and len(noted()) == 3, "all tasks run, and have noted it")
        first = {task.index: task.worker for task in job.tasks()}
        victim = next(machine for machine in cluster.machines if machine.name == first[0])
        moved = [index for index, worker in first.items() if worker == victim.name]

        victim.cut()
        until(lambda: state_of(victim) == "lost", "the machine is given up")
        until(
            lambda: all(len(task.attempts) == 1 + (task.index in moved) for task in job.tasks()),
            "they are placed",
        )
        until(all_run, "all tasks run again")
        assert victim.tasks()  # nobody could stop what it ran
        victim.mend()
        until(lambda: state_of(victim) == "healthy", "the machine is back")
        until(lambda: not victim.tasks(), "what it ran has been stopped")
        gate.touch()
        ended = job.wait(60)
        tasks = list(job.tasks())
        everywhere = cluster.client.run(["true"], name="everywhere", replicas=3, group_by="zone")

        assert everywhere.wait(60).state == "succeeded"
        assert len({task.worker for task in everywhere.tasks()}) == 3

    assert ended.state == "succeeded"
    assert victim.name not in {task.worker for task in tasks}
    assert {task.index: task.preemption_count for task in tasks} == {
        n: int(n in moved) for n in range(3)
    }
    assert {task.attempts[0].cause for task in tasks if task.index in moved} == {"worker_lost"}
    assert sorted(noted()) == sorted([f"{n}.0" for n in range(3)] + [f"{n}.1" for n in moved])
