"""Who did it: every command's caller is in the records, the events, the audit, and in what a
restore brings back.
"""

import json

import pytest

from iris_core import subjects
from iris_core.messages.gateway_state import Caller, DeployCommand
from iris_core.messages.message import AttemptRef
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.spec.serving import DeploymentSpec, RouteTemplate
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.audit import AuditLog
from iris_state.snapshots import snapshot
from tests.support import first_fit
from tests.support.world import Host, World

MIA = Caller("mia", "admin", token="laptop", address="10.0.0.3")
ANN = Caller("ann", "user", token="ci", address="10.0.0.4")
BOB = Caller("bob", "user", token="home", address="10.0.0.5")
WHOLE = {
    "name": "mia",
    "user": "mia",
    "role": "admin",
    "task": None,
    "token": "laptop",
    "address": "10.0.0.3",
}
PUBLIC = {**WHOLE, "token": None, "address": None}


@pytest.fixture
def world() -> World:
    world = World()
    world.register(Host("w0", Amount(1000, 0, 0, 0), {}))
    world.submit(JobSpec(name="/a", command=("true",), replicas=2), ANN)
    world.plan(first_fit.plan(world.snapshot()))
    return world


def as_(world: World, caller: Caller) -> World:
    world.reader = caller
    return world


def rows(world: World, **arguments: object) -> list[str]:
    """``who did kind name: detail`` of each entry, newest first."""
    items = world.query("audit", **arguments)["items"]
    return [
        f"{row['by']['name']} {row['action']} {row['kind']} {row['name']}: {row['detail']}"
        for row in items
    ]


def deploy(world: World, action: str, caller: Caller, **fields: object) -> str:
    command = DeployCommand(
        action, "chat", caller, f"{action}{world.now_ms}", world.now_ms, **fields
    )
    return world.command(subjects.CMD_DEPLOY, command).status


def test_a_job_names_who_submitted_and_who_killed_it(world):
    world.cancel("/a", MIA, "it burns")
    job, why = world.query("job", job="/a"), world.query("why", job="/a")
    task = world.query("task", task="/a/0")
    assert job["error"] == why["error"] == "task 0 killed by mia: it burns"
    assert (job["submitted_by"]["name"], job["ended_by"]) == ("ann", WHOLE)
    assert task["by"] == task["attempts"][0]["by"] == why["by"] == WHOLE
    assert [
        row["by"]["name"] for row in world.query("history", job="/a")["items"] if row["by"]
    ] == ["mia", "mia"]


def test_events_name_who_caused_them_and_no_others(world):
    world.cancel("/a", MIA)
    named = [
        (subject.partition("iris.event.")[2] or subject, event.get("by"))
        for subject, event in world.events
    ]
    assert {by for subject, by in named if subject.endswith("killed")} == {"mia"}
    assert {by for subject, by in named if subject.endswith("pending")} == {"ann"}
    assert {by for subject, by in named if subject.endswith("assigned")} == {None}


def test_each_command_is_in_the_audit_once(world):
    world.admin("drain", "w0", MIA, reason="a new disk")
    world.admin("undrain", "w0", MIA)
    world.admin("set_quota", "ann", MIA, max_pending_tasks=7)
    world.cancel("/a", ANN, "enough", request="r")
    world.cancel("/a", ANN, "enough", request="r")
    world.rerun("/a", ANN)
    world.cancel("/a", ANN)
    changes = {
        "env": {"LR": "0.01", "HF_TOKEN": "hf_geheim"},
        "resources": {"memory_bytes": 8 << 30},
    }
    world.rerun("j1", ANN, failed_only=True, tasks="1", **changes)
    world.admin("mark_lost", "w0", MIA)
    assert rows(world) == [
        "mia mark_lost worker w0: ",
        "ann rerun job /a: as j3, tasks 1, what did not succeed, memory 8GiB, other variables: HF_TOKEN, LR",
        "ann cancel job /a: ",
        "ann rerun job /a: as j2",
        "ann cancel job /a: enough",
        "mia set_quota user ann: max_pending_tasks 7",
        "mia undrain worker w0: ",
        "mia drain worker w0: a new disk",
    ]


def test_a_refused_command_and_one_without_effect_are_not_in_the_audit(world):
    world.cancel("/a", BOB)
    world.cancel("/nope", MIA)
    world.admin("drain", "w9", MIA)
    world.admin("undrain", "w0", MIA)
    world.cancel("/a", ANN)
    world.cancel("/a", ANN)
    assert rows(world) == ["ann cancel job /a: "]


def test_submissions_are_in_the_audit_when_they_do_something_to_others(world):
    world.submit(JobSpec(name="/b", command=("true",)), ANN)
    world.submit(JobSpec(name="/c", command=("true",), user="ann"), MIA)
    world.submit(JobSpec(name="/a", command=("true",), user="ann"), MIA, if_exists="replace")
    assert rows(world) == ["mia replace job /a: by j4", "mia submit job /c: for ann"]
    assert world.query("job", job="j1")["ended_by"] == WHOLE


def test_admins_read_all_and_others_what_concerns_them(world):
    world.admin("drain", "w0", MIA)
    world.admin("set_quota", "bob", MIA, max_pending_tasks=7)
    world.cancel("/a", ANN)
    assert rows(as_(world, ANN)) == ["ann cancel job /a: "]
    assert rows(as_(world, BOB)) == ["mia set_quota user bob: max_pending_tasks 7"]
    assert rows(as_(world, Caller("", "user"))) == []
    assert rows(as_(world, MIA), by="mia", of="w0") == ["mia drain worker w0: "]


def test_a_child_is_found_by_what_was_done_above_it(world):
    world.submit(JobSpec(name="/a/b", command=("true",)), ANN)
    world.cancel("/a", MIA)
    assert rows(world, of="/a/b") == rows(world, of="j2") == ["mia cancel job /a: "]
    assert rows(world, of="ann") == ["mia cancel job /a: "]
    assert rows(world, since_ms=world.now_ms + 1) == []
    assert world.query("job", job="/a/b")["ended_by"] == WHOLE


def test_addresses_and_names_of_tokens_are_for_admins_and_oneself(world):
    world.cancel("/a", MIA)
    job = as_(world, ANN).query("job", job="/a")
    assert (job["ended_by"], job["submitted_by"]["address"]) == (PUBLIC, "10.0.0.4")
    for what in ("job", "jobs", "tree", "tasks", "why", "history"):
        seen = json.dumps(as_(world, BOB).query(what, **({} if what == "jobs" else {"job": "/a"})))
        assert ("mia" in seen, "10.0.0" in seen, "laptop" in seen) == (True, False, False), what


def test_a_task_is_named_with_its_attempt(world):
    task = Caller("ann", "task", AttemptRef(1, 0, 0), "w0", address="10.1.0.1")
    world.submit(JobSpec(name="/a/b", command=("true",)), task)
    world.cancel("/a/b", task)
    assert rows(world) == ["task j1/0 of ann cancel job /a/b: "]
    assert world.query("job", job="/a/b")["submitted_by"]["task"] == "j1/0"


def test_without_authentication_an_address_is_all_that_is_known(world):
    somebody = Caller("mia", "admin", address="127.0.0.1", claimed=True)
    world.cancel("/a", somebody)
    by = world.query("job", job="/a")["ended_by"]
    assert (by["name"], by["user"], by["role"]) == ("anonymous at 127.0.0.1", None, None)


def test_a_host_says_who_drained_it_also_while_it_is_lost(world):
    world.admin("drain", "w0", MIA, reason="a new disk")
    host = world.query("worker", id="w0")
    assert (host["detail"], host["by"]) == ("drained by mia: a new disk", WHOLE)
    world.hosts["w0"].silent = True
    world.wait(60)
    lost = world.query("worker", id="w0")
    assert (lost["state"], lost["by"]) == ("lost", WHOLE)
    world.restart("w0")
    assert world.query("worker", id="w0")["by"] == WHOLE
    world.admin("undrain", "w0", ANN)
    assert world.query("worker", id="w0")["by"] == WHOLE  # only an admin undrains


def test_an_attempt_says_who_gave_its_host_up(world):
    world.admin("mark_lost", "w0", MIA, reason="on fire")
    [attempt] = world.query("task", task="/a/0")["attempts"]
    assert (attempt["cause"], attempt["by"]) == ("worker_lost", WHOLE)
    assert [
        row["by"]["name"] for row in world.query("history", job="/a")["items"] if row["by"]
    ] == ["mia"]


def test_the_history_of_a_deployment_says_who_changed_it():
    world, template = World(), RouteTemplate(command=("serve",), ports=("http",))
    assert (
        deploy(
            world, "create", ANN, spec=DeploymentSpec(name="chat", template=template, replicas=2)
        )
        == "created"
    )
    for action, fields in (
        ("scale", {"replicas": 3}),
        ("pause", {}),
        ("resume", {}),
        ("delete", {}),
    ):
        assert deploy(world, action, MIA, **fields) == "accepted"
    history = world.query("deployment_history", deployment="chat")["items"]
    told = [(row["handler"], row["reason"]) for row in history if row["by"] == WHOLE]
    assert told == [
        ("ChangeDeployment", "3 routes instead of 2"),
        ("PauseDeployment", "paused"),
        ("PauseDeployment", "resumed"),
        ("DestroyDeployment", ""),
    ]
    assert world.query("deployment", deployment="chat")["changed_by"] == WHOLE
    assert [row.split(":")[0] for row in rows(world, of="chat")] == [
        *(f"mia {action} deployment chat" for action in ("delete", "resume", "pause", "scale")),
        "ann create deployment chat",
    ]
    assert world.query("jobs")["items"][0]["submitted_by"] is None  # a route is submitted by Iris


def test_the_audit_says_to_what_a_deployment_was_set():
    world, template = World(), RouteTemplate(command=("serve",), ports=("http",))
    deploy(world, "create", ANN, spec=DeploymentSpec(name="chat", template=template, replicas=2))
    deploy(world, "scale", ANN, replicas=1)
    deploy(world, "update", ANN, patch=b'{"template": {"command": ["other"]}}')
    assert deploy(world, "rollback", ANN) == "accepted"
    told = [row.partition(": ")[2] for row in rows(world, of="chat")]
    assert told == ["to the revision before", "", "to 1 route", ""]


def test_the_audit_has_limits_in_the_units_in_which_they_are_set(world):
    limits = {
        "max_band": 3,
        "max_pending_tasks": 7,
        "max_running_cpu": 500,
        "max_running_memory": 4 << 30,
    }
    world.admin("set_quota", "ann", MIA, **limits)
    told = "max_band batch, max_pending_tasks 7, max_running_cpu 0.5, max_running_memory 4GiB"
    assert rows(world, of="ann")[0] == f"mia set_quota user ann: {told}"


def test_everything_survives_a_restart_and_a_restore(world):
    world.cancel("/a", MIA, "it burns")
    world.admin("drain", "w0", MIA)
    told = [world.query(what, **arguments) for what, arguments in READS]
    replayed = world.replayed()
    cut = snapshot.cut(world.ledger, world.machine.sequence, world.now_ms)
    world.machine = replayed
    assert [world.query(what, **arguments) for what, arguments in READS] == told
    restored = Machine(world.policy, "restored")
    restored.restore(snapshot.read(cut))
    world.machine = restored
    assert [world.query(what, **arguments) for what, arguments in READS] == told


READS = (
    ("audit", {}),
    ("job", {"job": "/a"}),
    ("history", {"job": "/a"}),
    ("task", {"task": "/a/0"}),
    ("worker", {"id": "w0"}),
)


def audited(policy: Policy, commands: int, pause_s: float = 0.0) -> World:
    world = World(policy)
    world.register(Host("w0", Amount(1000, 0, 0, 0), {}))
    for number in range(commands):
        world.admin("set_quota", f"u{number}", MIA, max_pending_tasks=number)
        world.wait(pause_s)
    return world


def test_the_audit_is_bounded_by_bytes():
    world = audited(Policy(keep_audit_bytes=2000), 20)
    assert world.ledger.audit.bytes <= 2000
    assert rows(world)[0] == "mia set_quota user u19: max_pending_tasks 19"
    assert 2 <= len(rows(world)) < 20


def hold_and_release(world: World, caller: Caller, times: int, reason: str = "") -> None:
    for number in range(times):
        world.amend("/a", caller, hold=True, reason=reason.format(number))
        world.amend("/a", caller, hold=False, reason=reason.format(number))


def test_the_same_command_again_is_counted_where_it_is_on_record(world):
    hold_and_release(world, ANN, 49)
    world.wait(5)
    hold_and_release(world, ANN, 1)
    found = as_(world, MIA).query("audit")["items"]
    assert [(row["action"], row["times"]) for row in found] == [("release", 50), ("hold", 50)]
    assert found[0]["first_at"] < found[0]["at"]
    hold_and_release(world, BOB, 1)
    assert len(as_(world, MIA).query("audit")["items"]) == 2, "bob may not"


def test_no_user_fills_the_audit_for_admins_or_others():
    world = World(Policy(keep_audit_bytes=8000))
    world.register(Host("w0", Amount(1000, 0, 0, 0), {}))
    world.admin("set_quota", "bob", MIA, max_pending_tasks=7)
    world.submit(JobSpec(name="/a", command=("true",)), ANN)
    world.submit(JobSpec(name="/b", command=("true",)), BOB)
    world.cancel("/b", BOB)
    hold_and_release(world, ANN, 30, reason="for reason {}")
    world.wait(1)
    assert world.ledger.audit.bytes <= 8000
    found = rows(as_(world, MIA))
    assert found[-2:] == ["bob cancel job /b: ", "mia set_quota user bob: max_pending_tasks 7"]
    assert 2 < len(found) < 30
    assert found[0].startswith("ann release job /a: for")
    again = AuditLog()
    again.restore(world.ledger.audit.stored(), world.ledger.audit.next_number)
    assert again.surplus(4000, 0, 99) == world.ledger.audit.surplus(4000, 0, 99) != []


def test_the_audit_is_bounded_by_age():
    world = audited(Policy(keep_audit_days=10 / 86_400), 5, pause_s=4.0)
    assert [row.split()[3] for row in rows(world)] == ["u4:", "u3:"]


def test_pages_of_the_audit_follow_each_other():
    world = audited(Policy(), 5)
    first = world.query("audit", limit=3)
    second = world.query("audit", limit=3, cursor=first["next_cursor"])
    assert [row["number"] for row in first["items"] + second["items"]] == [5, 4, 3, 2, 1]
    assert second["next_cursor"] is None
