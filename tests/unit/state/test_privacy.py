"""Which data only the owner of a job and admins may read. docs/design/reliability.md#security."""

import json

import pytest

from iris_core.messages.gateway_state import Caller
from iris_core.messages.state_worker import Artifact, Ended, Stage
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.states import Cause, KernelStatus
from tests.support import first_fit
from tests.support.world import Host, World

ANN, BOB, ROOT = Caller("ann", "user"), Caller("bob", "user"), Caller("root", "admin")
VIEWS = [
    ("job", {"job": "/a"}),
    ("jobs", {}),
    ("tree", {"job": "/a"}),
    ("task", {"task": "/a/0"}),
    ("tasks", {"job": "/a"}),
    ("attempts", {"task": "j1/0"}),
    ("why", {"job": "/a"}),
]


@pytest.fixture
def world() -> World:
    world = World()
    world.submit(JobSpec(name="/a", command=("true",), env={"MODE": "plain"}), ANN)
    world.register(Host("w0", Amount(1000, 0, 0, 0), {}))
    world.plan(first_fit.plan(world.snapshot()))
    (order,) = world.hosts["w0"].orders
    (ref,) = order.run
    artifact = Artifact("u1", 5, 1, "left out: leaves")
    ended = Ended(Cause.EXITED, exit_code=3, stderr_tail="printed", artifact=artifact)
    world.say("w0", Stage(ref, KernelStatus.TERMINATED, world.now_ms, ended))
    return world


@pytest.mark.parametrize(("view", "arguments"), VIEWS)
def test_environment_and_output_are_for_the_owner_and_admins(world, view, arguments):
    seen = {}
    for caller in (ANN, BOB, ROOT, Caller("w", "worker"), Caller()):
        world.reader = caller
        text = json.dumps(world.query(view, **arguments))
        seen[caller.user] = "plain" in text or "printed" in text or "leaves" in text
    assert seen == {"ann": True, "bob": False, "root": True, "w": False, "": False}


def test_the_record_of_an_attempt_names_its_artifact(world):
    world.reader = ANN
    [attempt] = world.query("task", task="j1/0")["attempts"]
    assert attempt["artifact"] == {
        "bytes": 5,
        "files": 1,
        "note": "left out: leaves",
        "upload": "u1",
    }


def test_why_tells_the_causes_also_of_a_task_that_succeeded():
    world = World()
    world.submit(JobSpec(name="/b", command=("x",), replicas=3, max_task_failures=3), ANN)
    world.register(Host("w0", Amount(3000, 0, 0, 0), {}))
    world.plan(first_fit.plan(world.snapshot()))
    (order,) = world.hosts["w0"].orders
    for ref in order.run:
        code = 3 if ref.index else 0
        ended = Ended(Cause.EXITED, exit_code=code, stderr_tail="out of data" if code else "")
        world.say("w0", Stage(ref, KernelStatus.TERMINATED, world.now_ms, ended))
    world.reader = ANN
    for asked in ({"task": "/b/0"}, {"task": "/b/1"}, {"job": "/b"}):
        found = world.query("why", **asked)
        (cause,) = found["causes"]
        assert (cause["line"], cause["indexes"]) == ("out of data", [1, 2])
    world.reader = BOB
    (cause,) = world.query("why", job="/b")["causes"]
    assert (cause["indexes"], cause["last_lines"]) == ([1, 2], [])
    assert "owner" in cause["line"]
