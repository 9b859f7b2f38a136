"""Projects: who may set them and submit to them, what they limit, and what becomes of their jobs.

Source: docs/design/team.md#projects.
"""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from iris_core.codec import to_json
from iris_core.messages.gateway_state import Answer, Caller
from iris_core.messages.message import AttemptRef
from iris_core.spec.jobs import JobSpec
from iris_core.spec.projects import MAX_DEPTH, ProjectSpec
from iris_core.spec.resources import Amount, ResourceLimits, ResourceRequest
from iris_scheduler.mirror.mirror import Mirror
from iris_state.check.records import check
from iris_state.effects.orders import template
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.projects_in_words import changes_in_words
from iris_state.snapshots import snapshot
from tests.support import first_fit
from tests.support.serving import Serving, spec
from tests.support.world import ADMIN, Host, World

ADA, BOB, LIN = (Caller(name, "user") for name in ("ada", "bob", "lin"))


def body(answer: Answer) -> Any:
    return json.loads(answer.body)


def said(answer: Answer) -> tuple[str, str]:
    return answer.status, body(answer).get("detail", "")


def mistake(answer: Answer) -> tuple[str, str, str]:
    """Where, what kind, and what would be right."""
    assert answer.status == "invalid"
    (one,) = body(answer)["errors"]
    return one["pointer"], one["code"], one["hint"]


def job(name: str, tasks: int = 1, cpu: int = 1000, **fields: Any) -> JobSpec:
    resources = ResourceRequest(cpu_millis=cpu)
    return JobSpec(name=name, command=("true",), replicas=tasks, resources=resources, **fields)


def team() -> World:
    """Ada is a member of /research/nlp, lin an admin of /research, bob in nothing."""
    world = World()
    world.change_project("/research", admins=("lin",))
    world.change_project("/research/nlp", members=("ada", "@nlp"))
    return world


def project_of(world: World, name: str) -> str:
    found: str = world.query("job", job=name)["project"]
    return found


# ── the tree ──────────────────────────────────────────────────────────────────────────────────────


def test_a_project_is_made_changed_and_removed():
    world = World()
    made = world.change_project("research", members=("ada",), limit=ResourceLimits(chips=64))
    assert (made.status, body(made)["path"], body(made)["version"]) == ("created", "/research", 1)
    changed = world.change_project("/research", members=("ada", "bob"), version=1)
    assert (changed.status, body(changed)["members"], body(changed)["version"]) == (
        "ok",
        ["ada", "bob"],
        2,
    )
    assert body(changed)["limit"] == {}
    gone = world.change_project("/research", action="remove")
    assert (gone.status, body(gone)) == ("ok", {"path": "/research", "state": "removed"})
    assert [one["path"] for one in world.query("projects")["items"]] == ["/"]


def test_the_root_is_there_takes_limits_and_stays():
    world = World()
    assert world.query("project", project="/")["parent"] is None
    assert world.change_project("/", max_pending_tasks=10).status == "ok"
    assert said(world.change_project("/", action="remove")) == (
        "conflict",
        "/ is everybody's and stays",
    )
    assert mistake(world.change_project("/", members=("ada",)))[:2] == ("/members", "unexpected")


def test_each_project_is_listed_right_before_those_below_it():
    world = World()
    for path in ("/b", "/a", "/a-b", "/a/x", "/a/x/y"):
        world.change_project(path)
    listed = [one["path"] for one in world.query("projects")["items"]]
    assert listed == ["/", "/a", "/a/x", "/a/x/y", "/a-b", "/b"]
    first = world.query("projects", limit=3)
    rest = world.query("projects", cursor=first["next_cursor"])
    assert [one["path"] for one in first["items"] + rest["items"]] == listed
    assert world.query("project", project="/a")["children"] == ["/a/x"]


def test_a_parent_must_exist_so_that_no_cycle_can_be_named():
    world = team()
    answer = world.change_project("/reserch/vision")
    assert mistake(answer) == ("", "unknown_project", "set /research first")
    assert world.query("project", project="/reserch/vision") is None
    for path in ("/a/../a", "/a/.", "//", "/a//b", "/" + "/".join("x" * (MAX_DEPTH + 1))):
        assert world.change_project(path).status == "invalid"
    assert len(world.ledger.projects) == 2


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"members": ("ada", "ada")}, "/members/1", "duplicate"),
        ({"members": ("@",)}, "/members/0", "bad_user"),
        ({"members": ("",)}, "/members/0", "bad_user"),
        ({"default_for": ("@nlp",)}, "/default_for/0", "bad_user"),
        ({"max_pending_tasks": -1}, "/max_pending_tasks", "out_of_range"),
        ({"limit": ResourceLimits(chips=-1)}, "/limit/chips", "out_of_range"),
        ({"default_for": ("bob",)}, "/default_for/0", "no_member"),
    ],
)
def test_a_mistake_in_a_project_is_named_and_changes_nothing(fields, pointer, code):
    world = team()
    assert mistake(world.change_project("/research/nlp", **fields))[:2] == (pointer, code)
    assert world.ledger.projects.find("/research/nlp").version == 1


def test_a_change_based_on_an_older_version_is_refused():
    world = team()
    world.change_project("/research/nlp", members=("bob",))
    stale = world.change_project("/research/nlp", members=(), version=1)
    assert said(stale) == (
        "precondition_failed",
        "/research/nlp has been changed since: it is at version 2, not 1",
    )
    assert world.change_project("/new", version=3).status == "precondition_failed"


# ── who may set what ──────────────────────────────────────────────────────────────────────────────


def test_an_admin_of_a_project_sets_what_is_below_it_and_its_own_members():
    world = team()
    below = {"limit": ResourceLimits(chips=8), "admins": ("ada",), "members": ("bob",)}
    assert world.change_project("/research/nlp/small", LIN, **below).status == "created"
    assert world.change_project("/research/nlp", LIN, members=("ada", "bob")).status == "ok"
    own = {"admins": ("lin",), "members": ("bob",), "default_for": ("bob",)}
    assert world.change_project("/research", LIN, **own).status == "ok"
    raised = world.change_project("/research", LIN, **own, limit=ResourceLimits(chips=999))
    assert said(raised) == (
        "forbidden",
        "lin is an admin of /research and sets its members and defaults; an admin of a project "
        "above it sets its guarantee, weight, limits and admins",
    )
    for path, action in (("/research", "remove"), ("/", "set"), ("/other", "set")):
        assert world.change_project(path, LIN, action=action).status == "forbidden"
    assert world.change_project("/research/nlp/small", LIN, action="remove").status == "ok"


def test_a_member_sets_nothing():
    world = team()
    for path in ("/research/nlp", "/research/nlp/x", "/research"):
        assert world.change_project(path, ADA, members=("ada",)).status == "forbidden"


def test_an_admin_of_a_project_changes_its_jobs_and_runs_none_again():
    world = team()
    world.submit(job("/a", project="/research/nlp"), ADA)
    world.register(Host("w0", Amount(4000), {}))
    assert world.amend("/a@ada", LIN, hold=True).status == "accepted"
    assert world.amend("/a@ada", LIN, hold=False).status == "accepted"
    assert world.amend("/a@ada", LIN, patch=b'{"band": "batch"}').status == "accepted"
    world.plan(first_fit.plan(world.snapshot()))
    assert world.requeue("/a@ada", LIN).status == "accepted"
    assert world.cancel("/a@ada", LIN).status == "accepted"
    assert said(world.rerun("/a@ada", LIN)) == (
        "forbidden",
        "/a belongs to ada; only its owner or an admin may rerun it",
    )
    world.submit(job("/b"), ADA)
    assert world.cancel("/b@ada", LIN).status == "forbidden"
    assert said(world.cancel("/a@ada", BOB)) == (
        "forbidden",
        "/a belongs to ada; only its owner, an admin of /research/nlp or an admin of the cluster may cancel it",
    )
    acts = [(one["by"]["user"], one["action"]) for one in world.query("audit", limit=5)["items"]]
    assert ("lin", "cancel") in acts


# ── in which project a job is ─────────────────────────────────────────────────────────────────────


def test_a_job_is_in_the_project_it_names_else_in_its_users_default():
    world = team()
    world.submit(job("/none"), ADA)
    world.submit(job("/named", project="research/nlp"), ADA)
    world.change_project("/research/nlp", members=("ada",), default_for=("ada",))
    world.submit(job("/default"), ADA)
    world.submit(job("/root", project="/"), ADA)
    found = {name: project_of(world, name) for name in ("/none", "/named", "/default", "/root")}
    assert found == {
        "/none": "/",
        "/named": "/research/nlp",
        "/default": "/research/nlp",
        "/root": "/",
    }
    assert template(world.ledger.job_of("ada", "/default")).project == "/research/nlp"


def test_an_unknown_project_is_refused_with_the_nearest_path():
    world = team()
    answer = world.submit(job("/a", project="/research/npl"), ADA)
    assert mistake(answer) == ("/project", "unknown_project", "/research/nlp")
    assert world.query("job", job="/a") is None


def test_submitting_needs_membership_and_the_refusal_names_who_can_help():
    world = team()
    assert said(world.submit(job("/a", project="/research/nlp"), BOB)) == (
        "forbidden",
        "bob is no member of project /research/nlp; its admins are lin, and an admin of the cluster "
        "may add members",
    )
    by_group = Caller("bob", "user", groups=("nlp",))
    assert world.submit(job("/a", project="/research/nlp"), by_group).status == "created"
    assert world.submit(job("/b", project="/research/nlp"), BOB).status == "created"  # last said
    left = Caller("bob", "user", groups=())
    assert world.submit(job("/c", project="/research/nlp"), left).status == "forbidden"
    assert world.submit(job("/d", project="/research/nlp"), LIN).status == "created"
    assert world.submit(job("/e", project="/research/nlp"), ADMIN).status == "created"


def test_a_default_that_its_user_may_no_longer_use_is_said():
    world = team()
    world.change_project("/research", members=("bob",), admins=("lin",))
    world.change_project("/research/nlp", default_for=("bob",))
    world.change_project("/research", admins=("lin",))
    shown = world.query("project", project="/research/nlp")
    assert shown["warnings"] == ["it is the default of bob, who may not submit to it"]
    assert "/research/nlp, the default project of bob" in said(world.submit(job("/a"), BOB))[1]


def test_a_user_has_one_default_and_setting_another_takes_it_from_there():
    world = team()
    world.change_project("/research/nlp", members=("ada",), default_for=("ada",))
    other = world.change_project("/other", members=("ada",), default_for=("ada",))
    assert body(other)["warnings"] == ["ada has this default now, and no more /research/nlp"]
    assert world.query("project", project="/research/nlp")["default_for"] == []
    world.submit(job("/a"), ADA)
    assert project_of(world, "/a") == "/other"
    detail = world.query("audit", limit=1)["items"][0]["detail"]
    assert "ada had /research/nlp as default" in detail


def test_children_and_what_is_beside_are_in_the_project_of_their_root():
    world = team()
    world.submit(job("/a", project="/research/nlp"), ADA)
    world.submit(job("/a/b"), ADA)
    world.submit(job("/a/b/c", project="/research/nlp"), ADA)
    moved = world.submit(job("/a/d", project="/"), ADA)
    assert mistake(moved) == ("/project", "not_of_parent", "leave project out")
    assert {project_of(world, name) for name in ("/a/b", "/a/b/c")} == {"/research/nlp"}
    world.register(Host("w0", Amount(4000), {}))
    world.plan(first_fit.plan(world.snapshot()))
    token = Caller("ada", "task", attempt=AttemptRef(1, 0, 0), worker="w0")
    assert world.submit(job("/next"), token, beside=True).status == "created"
    assert project_of(world, "/next") == "/research/nlp"


def test_a_dry_run_is_made_in_the_project_that_the_job_would_get():
    world = team()
    world.change_project("/research/nlp", members=("ada",), default_for=("ada",))
    world.reader = ADA
    planned = [job("/a"), job("/a", project="/")]
    found = [world.query("closed_gate", spec=to_json(one).decode()) for one in planned]
    assert [one["project"] for one in found] == ["/research/nlp", ""]
    world.reader = BOB
    refused = job("/a", project="/research/nlp")
    assert world.query("closed_gate", spec=to_json(refused).decode()) is None


def test_a_child_is_judged_by_membership_too():
    world = team()
    world.submit(job("/a", project="/research/nlp"), ADA)
    world.change_project("/research/nlp")
    assert world.submit(job("/a/b"), ADA).status == "forbidden"


def test_a_rerun_stays_in_its_project_and_needs_membership():
    world = team()
    world.submit(job("/a", project="/research/nlp"), ADA)
    world.cancel("/a", ADA)
    assert world.rerun("/a", ADA).status == "created"
    assert project_of(world, "/a") == "/research/nlp"
    world.cancel("/a", ADA)
    world.change_project("/research/nlp")
    assert world.rerun("/a", ADA).status == "forbidden"
    world.change_project("/research/nlp", action="remove")
    assert mistake(world.rerun("/a", ADA))[:2] == ("/project", "unknown_project")


def test_a_repeated_submission_finds_its_job_with_another_default():
    world = team()
    spec = job("/a")
    world.submit(spec, ADA, idempotency_key="k")
    world.change_project("/research/nlp", members=("ada",), default_for=("ada",))
    assert world.submit(spec, ADA, idempotency_key="k").status == "replayed"
    other = job("/a", project="/research/nlp")
    refused = world.submit(other, ADA, idempotency_key="k")
    assert said(refused)[0] == "idempotency_mismatch"
    assert "project" in said(refused)[1]


def test_the_project_of_a_submitted_job_does_not_change():
    world = team()
    world.submit(job("/a"), ADA)
    answer = world.amend("/a", ADA, patch=b'{"project": "/research/nlp"}')
    assert mistake(answer)[:2] == ("/project", "unchangeable")


def test_routes_are_in_the_project_of_their_deployment():
    world = Serving()
    world.change_project("/web", members=("ada",))
    wanted = replace(spec(1), project="/web")
    assert world.deploy("create", BOB, spec=wanted).status == "forbidden"
    assert world.deploy("create", ADA, spec=wanted).status == "created"
    world.go(5)
    (route,) = world.ledger.jobs.values()
    assert route.spec.project == "/web"
    assert world.deploy("update", ADA, patch=b'{"replicas": 2}').status == "accepted"
    moved = world.deploy("update", ADA, patch=b'{"project": "/"}')
    assert mistake(moved)[:2] == ("/project", "unchangeable")
    kept = world.change_project("/web", action="remove")
    assert kept.status == "conflict"
    assert "deployment chat" in said(kept)[1]


# ── removal ───────────────────────────────────────────────────────────────────────────────────────


def test_a_project_with_jobs_or_children_is_not_removed():
    world = team()
    world.submit(job("/a", project="/research/nlp"), ADA)
    assert said(world.change_project("/research/nlp", action="remove")) == (
        "conflict",
        "/research/nlp has 1 job that has not ended: /a; cancel or wait for what is in it first",
    )
    assert said(world.change_project("/research", action="remove")) == (
        "conflict",
        "/research has 1 project below it: /research/nlp; remove those first",
    )
    world.cancel("/a", ADA)
    assert world.change_project("/research/nlp", action="remove").status == "ok"
    assert project_of(world, "/a") == "/research/nlp"
    listed = world.query("jobs", project="/research/nlp")["items"]
    assert [one["name"] for one in listed] == ["/a"]


def test_jobs_are_listed_by_project_with_those_below_it():
    world = team()
    world.submit(job("/a", project="/research/nlp"), ADA)
    world.submit(job("/b"), ADA)
    for path, names in (("/research", ["/a"]), ("/research/nlp", ["/a"]), ("/", ["/b", "/a"])):
        assert [one["name"] for one in world.query("jobs", project=path)["items"]] == names
    assert world.query("jobs", project="/unknown") is None


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


def test_every_limit_of_waiting_tasks_on_the_way_to_the_root_holds():
    world = team()
    world.change_project("/research", admins=("lin",), max_pending_tasks=3)
    world.change_project("/research/nlp", members=("ada", "bob"), max_pending_tasks=5)
    assert world.submit(job("/a", 2, project="/research/nlp"), ADA).status == "created"
    refused = world.submit(job("/b", 2, project="/research/nlp"), BOB)
    assert said(refused) == (
        "over_quota",
        "project /research may have 3 pending tasks, has 2, and 2 more are asked for",
    )
    assert world.submit(job("/b", 2), BOB).status == "created"
    assert world.submit(job("/b", 1, project="/research/nlp"), LIN).status == "created"
    again = world.submit(job("/a", 2, project="/research/nlp"), ADA, if_exists="replace")
    assert again.status == "created"
    world.change_project("/", max_pending_tasks=6)
    assert "project / may have 6" in said(world.submit(job("/c", 2), BOB))[1]


def test_schedulers_follow_limits_and_projects_by_deltas():
    world = team()
    mirror = world.mirror = Mirror.of([world.snapshot()])
    world.change_project("/research", limit=ResourceLimits(chips=8))
    world.submit(job("/a", project="/research/nlp"), ADA)
    assert mirror.snapshot() == Mirror.of([world.snapshot()]).snapshot()
    assert mirror.projects["/research"].limit.chips == 8
    world.change_project("/research")
    assert mirror.projects == {}


def test_a_project_shows_what_runs_and_waits_in_it_and_below_it(script):
    world = script.world
    world.register(Host("w0", Amount(1000), {}))
    world.change_project("/research")
    world.change_project("/research/nlp", members=("ada",))
    world.submit(job("/a", 2, project="/research/nlp"), ADA)
    world.submit(job("/b"), BOB)
    script.play("place /a/0 w0")
    shown = {one["path"]: one for one in world.query("projects")["items"]}
    for path, waiting in (("/", 2), ("/research", 1), ("/research/nlp", 1)):
        assert shown[path]["used"] == {"cpu_millis": 1000, "memory_bytes": 0, "chips": 0}
        assert (shown[path]["running_tasks"], shown[path]["pending_tasks"]) == (1, waiting)


# ── usage ─────────────────────────────────────────────────────────────────────────────────────────


def test_usage_is_summed_by_project_with_its_own_part(script):
    world = script.world
    world.register(Host("w0", Amount(4000), {}))
    world.change_project("/research", members=("ada", "bob"))
    world.change_project("/research/nlp")
    for name, user, path in (
        ("/a", ADA, "/research/nlp"),
        ("/b", BOB, "/research"),
        ("/c", BOB, ""),
    ):
        world.submit(job(name, project=path, labels={"project": "label"}), user)
    script.play("schedule")
    for task in ("/a/0", "/b/0", "/c/0"):
        script.play(f"{task} running")
    script.play("wait 10\n/c/0 exit 0")
    world.reader = ADMIN
    rows = world.query("usage", by="project")["items"]
    sums = {row["project"]: (row["total"]["attempts"], row["own"]["attempts"]) for row in rows}
    assert sums == {"/": (3, 1), "/research": (2, 1), "/research/nlp": (1, 1)}
    total = {row["project"]: row["total"]["cpu_seconds"] for row in rows}
    assert total == {"/": 30.0, "/research": 20.0, "/research/nlp": 10.0}
    users = world.query("usage", project="/research")["items"]
    assert [(row["user"], row["total"]["cpu_seconds"]) for row in users] == [
        ("ada", 10.0),
        ("bob", 10.0),
    ]
    days = world.query("usage", project="/research", by="day")["items"]
    assert [row["total"]["cpu_seconds"] for row in days] == [20.0]
    jobs = world.query("usage", project="/research/nlp", by="job")["items"]
    assert [(row["job"], row["project"], row["label"]) for row in jobs] == [
        ("/a", "/research/nlp", "label")
    ]
    labels = world.query("usage", by="label")["items"]
    assert [(row["label"], row["project"], row["total"]["cpu_seconds"]) for row in labels] == [
        ("label", None, 30.0)
    ]
    world.reader = ADA
    own = world.query("usage", by="project")["items"]
    assert {row["project"]: row["total"]["attempts"] for row in own} == {
        "/": 1,
        "/research": 1,
        "/research/nlp": 1,
    }


# ── records ───────────────────────────────────────────────────────────────────────────────────────


def test_projects_and_their_usage_survive_a_snapshot(script):
    world = script.world
    world.register(Host("w0", Amount(4000), {}))
    world.change_project("/research", members=("ada",), default_for=("ada",))
    world.submit(job("/a", 2), ADA)
    world.submit(job("/b"), ADA)
    script.play("schedule")
    for task in ("/a/0", "/a/1", "/b/0"):
        script.play(f"{task} running")
    script.play("wait 10\n/b/0 exit 0")
    image = snapshot.read(snapshot.cut(world.ledger, world.machine.sequence, world.now_ms))
    restored = Machine(Policy(), "other")
    snapshot.restore(restored.ledger, image)
    check(restored.ledger)
    again = restored.ledger
    assert list(again.projects) == list(world.ledger.projects)
    assert again.projects.default_of == {"ada": "/research"}
    assert again.project_usage.stored() == world.ledger.project_usage.stored()
    assert again.running_in_projects.sums() == world.ledger.running_in_projects.sums()


def test_a_change_of_a_project_is_an_event_with_its_words():
    world = World()
    world.change_project("/research", members=("ada",), limit=ResourceLimits(chips=64))
    world.change_project("/research", members=("ada", "bob"), limit=ResourceLimits(chips=64))
    world.change_project("/research", members=("ada", "bob"), limit=ResourceLimits(chips=64))
    world.change_project("/research", action="remove")
    told = [
        (subject, body["changes"], body["by"])
        for subject, body in world.events
        if subject.startswith("project.")
    ]
    assert told == [
        (
            "project.state.set",
            ["limit chips 64, was none", "members ada, was nobody"],
            "root",
        ),
        ("project.state.set", ["members ada, bob, was ada"], "root"),
        ("project.state.removed", [], "root"),
    ]


def test_a_specification_in_words_says_what_it_changes():
    before = ProjectSpec(limit=ResourceLimits(cpu_millis=500_000), max_pending_tasks=4)
    assert list(changes_in_words(before, ProjectSpec())) == [
        "limit none, was cpu 500",
        "max pending tasks unlimited, was 4",
    ]


# ── guarantees ────────────────────────────────────────────────────────────────────────────────────


def chips(count: int) -> ResourceLimits:
    return ResourceLimits(chips=count)


def hosts(world: World, chip_hosts: int = 1, each: int = 64) -> None:
    for number in range(chip_hosts):
        world.register(Host(f"w{number}", Amount(64_000, 64 << 30, 0, each), {}))


def test_guarantees_of_projects_are_within_that_of_the_one_above():
    world = World()
    hosts(world, 2)
    world.change_project("/research", guarantee=chips(64))
    assert world.change_project("/research/nlp", guarantee=chips(48)).status == "created"
    pointer, code, hint = mistake(world.change_project("/research/vision", guarantee=chips(32)))
    assert (pointer, code) == ("/guarantee/chips", "over_parent")
    assert hint == "raise that of /research first, or ask for at most 16"
    refused = body(world.change_project("/research", guarantee=chips(40)))["errors"]
    assert refused == [
        {
            "pointer": "/guarantee/chips",
            "code": "over_parent",
            "message": "projects right below /research would be guaranteed 48 chips together, "
            "and /research is guaranteed 40",
            "hint": "lower those first",
        }
    ]
    assert world.query("project", project="/research")["guarantee"] == {"chips": 64}
    assert world.query("project", project="/research/vision") is None
    assert world.change_project("/research/vision", guarantee=chips(16)).status == "created"
    assert world.change_project("/research/nlp", guarantee=chips(40)).status == "ok"
    assert mistake(world.change_project("/research/nlp", guarantee=chips(49)))[1] == "over_parent"


def test_the_root_has_no_weight_for_nothing_is_beside_it():
    refused = World().change_project("/", weight=2.0)
    assert mistake(refused)[:2] == ("/weight", "unexpected")


def test_the_root_has_no_guarantee_and_bounds_none():
    world = World()
    refused = world.change_project("/", guarantee=chips(8))
    assert mistake(refused)[:2] == ("/guarantee", "unexpected")
    for path in ("/a", "/b"):
        assert world.change_project(path, guarantee=chips(1000)).status == "created"


def test_a_guarantee_that_no_host_could_hold_is_taken_with_a_warning():
    world = World()
    hosts(world, 2, each=8)
    taken = body(world.change_project("/a", guarantee=ResourceLimits(chips=17, cpu_millis=1000)))
    assert taken["warnings"][-1] == (
        "its guarantee of 17 chips cannot be held: all registered hosts and pools at their largest "
        "have 16 together"
    )
    fits = body(world.change_project("/a", guarantee=chips(16)))
    assert not any("guarantee" in warning for warning in fits["warnings"])
    bare = World()
    none = body(bare.change_project("/a", guarantee=chips(1)))["warnings"]
    assert none[-1].endswith("pools at their largest have none")


def test_a_project_shows_what_it_borrows_and_may_start_as_near_work():
    world = World()
    hosts(world)
    world.change_project("/a", members=("ada",))
    world.change_project("/a/b", members=("ada",))
    world.submit(job("/j", 3, project="/a/b"), ADA)
    world.plan(first_fit.plan(world.snapshot()))
    before = world.query("project", project="/a/b")
    assert (before["guarantee"], before["borrowed"], before["near"]) == ({}, {}, {})
    world.change_project("/a", guarantee=ResourceLimits(cpu_millis=2000, chips=8))
    world.change_project("/a/b", guarantee=ResourceLimits(cpu_millis=1000))
    inner = world.query("project", project="/a/b")
    assert inner["borrowed"] == {"cpu_millis": 2000, "memory_bytes": 0, "chips": 0}
    assert inner["near"] == {"cpu_millis": 0, "chips": 8}
    assert world.query("project", project="/a")["borrowed"]["cpu_millis"] == 1000
    root = world.query("project", project="/")
    assert (root["borrowed"], root["near"]) == ({}, {})


def test_a_guarantee_is_in_the_audit_in_words():
    world = World()
    hosts(world)
    world.change_project("/a", guarantee=chips(8))
    world.change_project("/a", guarantee=chips(4))
    assert "guarantee chips 4, was chips 8" in world.query("audit", limit=1)["items"][0]["detail"]
