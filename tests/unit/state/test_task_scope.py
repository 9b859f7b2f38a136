"""What the token of a task reaches, by the records. docs/adr/0040-tokens-of-attempts.md."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from iris_core import codec
from iris_core.access import task_tokens
from iris_core.access.task_tokens import SigningKey
from iris_core.messages.gateway_state import Answer, Caller, DeployCommand, Query
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Order, Stage
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount
from iris_core.spec.serving import DeploymentSpec, RouteTemplate
from iris_core.states import Cause, KernelStatus
from iris_core.subjects import CMD_DEPLOY
from iris_state.decide import lineage
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger
from iris_state.snapshots import snapshot
from iris_state.views import KINDS
from iris_state.views.reads import answer
from tests.support import first_fit
from tests.support.world import ADMIN, Host, World

ANN, BOB = Caller("ann", "user"), Caller("bob", "user")
KEY = SigningKey("k1", b"1" * 32, 0)
HOUR_MS = 3_600_000
READABLE = {
    "job": {"job", "tree", "tasks", "why", "history", "sessions", "job_usage"},
    "task": {"task", "attempts", "why", "history"},
}
"""The views that a task may read, by the argument that names what of its subtree it reads."""


@dataclass
class Story:
    """/a of ann runs on w0, with a child and a grandchild; beside it are another job of hers and
    one of bob's.
    """

    world: World
    task: Caller
    ref: AttemptRef

    def asks(self, what: str, **arguments: Any) -> str:
        """The status of an answer; a view is asked with the arguments that it has."""
        has = KINDS[what].__struct_encode_fields__
        query = Query(
            what, {name: value for name, value in arguments.items() if name in has}, self.task
        )
        return codec.unpack(answer(self.world.ledger, query, 1), Answer).status

    def submits(self, name: str, **fields: Any) -> str:
        placed = ("parent", "if_exists", "beside")
        options = {key: fields.pop(key) for key in placed if key in fields}
        return self.world.submit(spec(name, **fields), self.task, **options).status

    def ends(self) -> None:
        ended = Ended(Cause.EXITED, exit_code=3)
        self.world.say("w0", Stage(self.ref, KernelStatus.TERMINATED, self.world.now_ms, ended))


def spec(name: str, **fields: Any) -> JobSpec:
    return JobSpec(name=name, command=("true",), **fields)


def host(name: str) -> Host:
    return Host(name, Amount(1000, 0, 0, 0), {})


def tokens(order: Order) -> Iterator[Caller]:
    """The callers that the tokens of an order's attempts are verified as."""
    grants = {template.job: template.grant for template in order.templates}
    for ref in order.run:
        granted = grants[ref.job]
        assert granted is not None
        yield task_tokens.verified(task_tokens.token(granted, ref), {"k1": KEY}, 0)


@pytest.fixture
def story() -> Story:
    world = World()
    world.machine.round.orders.keys = (KEY,)
    world.register(host("w0"))
    world.submit(spec("/a", band="batch", max_retries_failure=1), ANN)
    world.plan(first_fit.plan(world.snapshot()))
    (order,) = world.hosts["w0"].orders
    (caller,) = tokens(order)
    for name in ("/a/b", "/a/b/c", "/other"):
        world.submit(spec(name), ANN)
    world.submit(spec("/bobs"), BOB)
    return Story(world, caller, order.run[0])


def test_an_order_holds_a_token_for_the_attempt_that_it_starts(story: Story):
    assert story.task == Caller("ann", "task", AttemptRef(1, 0, 0), "w0")


@pytest.mark.parametrize("name", ["/a", "/a/b", "/a/b/c", "j1", "j2", "j3"])
def test_a_task_reads_its_own_subtree(story: Story, name: str):
    for view in READABLE["job"]:
        assert story.asks(view, job=name) == "ok"
    for view in READABLE["task"]:
        assert story.asks(view, task=f"{name}/0") == "ok"


@pytest.mark.parametrize("name", ["/other", "/bobs", "j4", "j5", "/nobody", "j99", "", "/", "/ab"])
def test_a_task_reads_nothing_of_other_jobs(story: Story, name: str):
    for view in READABLE["job"]:
        assert story.asks(view, job=name) == "forbidden"
    for view in READABLE["task"]:
        assert story.asks(view, task=f"{name}/0") == "forbidden"
    for view in READABLE["job"] & READABLE["task"]:
        assert story.asks(view, job="/a", task=f"{name}/0") == "forbidden"
        assert story.asks(view, job=name or "/other", task="/a/0") == "forbidden"


def test_a_job_that_is_not_there_is_told_within_the_subtree_only(story: Story):
    assert story.asks("job", job="/a/nobody") == "not_found"
    assert story.asks("task", task="/a/nobody/0") == "not_found"


@pytest.mark.parametrize("view", sorted(KINDS.keys() - READABLE["job"] - READABLE["task"]))
def test_a_task_reads_no_other_view(story: Story, view: str):
    """A view that is added is refused until its query says that tasks may ask it."""
    arguments = {"job": "/a", "parent": "/a", "user": "ann", "id": "w0", "deployment": "chat"}
    assert story.asks(view, **arguments) == "forbidden"


def test_a_task_submits_children_of_its_own_job_as_its_user(story: Story):
    assert story.submits("/a/new") == "created"
    assert story.submits("/a/new/below") == "created"
    assert story.submits("/a/b/new", if_exists="replace", user="ann") == "created"
    assert {
        story.world.ledger.find_job(f"/a/{name}").user for name in ("new", "new/below", "b/new")
    } == {"ann"}


def test_a_child_gets_at_best_the_band_of_its_parent(story: Story):
    story.submits("/a/new", band="production")
    assert story.world.ledger.find_job("/a/new").spec.band == "batch"


@pytest.mark.parametrize("name", ["/new", "/a", "/other/new", "/bobs/new", "/ab", "/nobody/new"])
@pytest.mark.parametrize("if_exists", ["error", "keep", "replace"])
def test_a_task_submits_nothing_elsewhere(story: Story, name: str, if_exists: str):
    before = len(story.world.ledger.jobs)
    assert story.submits(name, if_exists=if_exists) == "forbidden"
    assert len(story.world.ledger.jobs) == before


def beside(story: Story, name: str, **fields: Any) -> Job | None:
    """The job that a task submitted beside its own, if it was admitted."""
    if story.submits(name, beside=True, **fields) != "created":
        return None
    return story.world.ledger.find_job(name)


def test_a_job_beside_a_task_is_a_root_that_outlives_it(story: Story):
    link = beside(story, "/link", band="production", labels={"x": "y"})
    assert link is not None
    assert (link.user, link.spec.user, link.parent, link.depth) == ("ann", "ann", 0, 1)
    assert (link.spec.band, link.lineage, link.root_submitted_ms) == ("batch", 1, link.submitted_ms)
    story.world.cancel("/a", ANN)
    assert not link.is_terminal


def test_a_job_beside_a_task_has_its_project_unless_it_names_one():
    world = World()
    world.machine.round.orders.keys = (KEY,)
    world.register(host("w0"))
    world.submit(spec("/a", labels={"project": "vision", "x": "y"}), ANN)
    world.plan(first_fit.plan(world.snapshot()))
    (order,) = world.hosts["w0"].orders
    story = Story(world, next(tokens(order)), order.run[0])
    found = [beside(story, "/b"), beside(story, "/c", labels={"project": "speech"})]
    assert [job and job.spec.labels for job in found] == [
        {"project": "vision"},
        {"project": "speech"},
    ]


def runs(story: Story, name: str) -> Story:
    """The story as a task of another job sees it, once all others have ended."""
    world = story.world
    for number in list(world.ledger.jobs):
        if world.ledger.jobs[number].name != name:
            world.cancel(f"j{number}", ADMIN)
    story.ends()
    world.plan(first_fit.plan(world.snapshot()))
    order = world.hosts["w0"].orders[-1]
    return Story(world, next(tokens(order)), order.run[0])


def test_the_jobs_of_a_lineage_have_no_end_at_a_number_of_levels(story: Story):
    for number in range(40):
        link = beside(story, f"/link{number}")
        assert link is not None
        assert (link.depth, link.lineage) == (1, 1)
        story = runs(story, link.name)
    assert story.world.ledger.index.of(("lineage", 1)) == [link.number]


def test_a_task_reaches_what_was_submitted_beside_it_and_not_its_own_root(story: Story):
    assert beside(story, "/link") is not None
    assert beside(story, "/next") is not None
    assert story.asks("job", job="/link") == story.asks("tasks", job="/next") == "ok"
    assert story.submits("/link/below") == "forbidden"
    assert story.world.cancel("/next", story.task).status == "accepted"
    late = runs(story, "/link")
    assert late.asks("job", job="/a") == late.asks("job", job="/other") == "forbidden"
    assert late.submits("/link/below") == "created"
    assert beside(late, "/last") is not None
    assert late.world.cancel("/last", late.task).status == "accepted"


@pytest.mark.parametrize("if_exists", ["keep", "replace"])
def test_a_job_beside_a_task_takes_no_name_of_another_job(story: Story, if_exists: str):
    assert story.submits("/other", beside=True, if_exists=if_exists) == "forbidden"
    assert story.submits("/other", beside=True) == "conflict"
    assert beside(story, "/link") is not None
    assert story.submits("/link", beside=True, if_exists="replace") == "created"


def test_a_job_beside_a_task_has_no_parent(story: Story):
    for fields in ({"name": "/a/b/new"}, {"name": "/new", "parent": "/a"}):
        assert story.submits(**fields, beside=True) == "invalid"
    assert story.submits("/new", beside=True, user="bob") == "created"
    assert story.world.ledger.find_job("/new").user == "ann"


def test_a_person_submits_a_root_beside_nothing(story: Story):
    assert story.world.submit(spec("/new"), ANN, beside=True).status == "created"
    assert story.world.ledger.find_job("/new").lineage == 0


def test_the_live_jobs_of_a_lineage_are_bounded(story: Story, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lineage, "MAX_LIVE", 2)
    links = [beside(story, f"/link{number}") for number in range(3)]
    assert [link is not None for link in links] == [True, True, False]
    assert story.submits("/link2", beside=True) == "over_quota"
    story.world.cancel("/link0", ANN)
    assert beside(story, "/link2") is not None


def test_the_lineage_of_jobs_survives_a_snapshot(story: Story):
    beside(story, "/link")
    kept = Ledger()
    snapshot.restore(kept, snapshot.read(snapshot.cut(story.world.ledger, 1, story.world.now_ms)))
    assert kept.index.of(("lineage", 1))
    assert kept.index.fields() == story.world.ledger.index.fields()


def test_a_task_submits_for_nobody_else_and_below_no_unknown_parent(story: Story):
    assert story.submits("/a/new", user="bob") == "forbidden"
    assert story.submits("/a/nobody/new") == "not_found"


def test_a_task_cancels_its_own_subtree_only(story: Story):
    for name in ("/other", "/bobs", "j4", "/nobody"):
        assert story.world.cancel(name, story.task).status == "forbidden"
    assert story.world.cancel("/a/b", story.task).status == "accepted"
    assert story.world.cancel("j1", story.task).status == "accepted"


def test_a_task_runs_again_what_is_below_its_job(story: Story):
    story.world.cancel("/a/b", ANN)
    assert story.world.rerun("/a/b", story.task).status == "created"
    assert story.world.rerun("/a", story.task).status == "forbidden"
    assert story.world.rerun("/other", story.task).status == "forbidden"


def test_a_task_is_no_operator_and_deploys_nothing(story: Story):
    assert story.world.admin("drain", "w0", story.task).status == "forbidden"
    assert story.world.admin("set_quota", "ann", story.task).status == "forbidden"
    deploy = DeployCommand(
        "create",
        "chat",
        story.task,
        "r1",
        1,
        DeploymentSpec(name="chat", template=RouteTemplate(command=("true",))),
    )
    assert story.world.command(CMD_DEPLOY, deploy).status == "forbidden"


def test_a_token_ends_with_its_attempt(story: Story):
    story.ends()
    assert story.asks("job", job="/a") == "forbidden"
    assert story.submits("/a/new") == "forbidden"
    assert story.world.cancel("/a/b", story.task).status == "forbidden"


def test_the_token_of_an_earlier_attempt_is_refused_while_a_later_one_runs(story: Story):
    for name in ("/a/b", "/other", "/bobs"):
        story.world.cancel(name)
    story.ends()
    story.world.plan(first_fit.plan(story.world.snapshot()))
    (second,) = tokens(story.world.hosts["w0"].orders[-1])
    assert second.attempt == AttemptRef(1, 0, 1)
    assert story.asks("job", job="/a") == "forbidden"
    story.task = second
    assert story.asks("job", job="/a") == "ok"


@pytest.mark.parametrize(
    "caller",
    [
        Caller("ann", "task"),
        Caller("ann", "task", AttemptRef(1, 0, 0), "w1"),
        Caller("ann", "task", AttemptRef(1, 0, 1), "w0"),
        Caller("ann", "task", AttemptRef(1, 7, 0), "w0"),
        Caller("ann", "task", AttemptRef(2, 0, 0), "w0"),
        Caller("ann", "task", AttemptRef(99, 0, 0), "w0"),
    ],
)
def test_a_worker_makes_no_token_for_what_does_not_run_there(story: Story, caller: Caller):
    story.task = caller
    assert story.asks("job", job="/a") == "forbidden"
    assert story.submits("/a/new") == "forbidden"


def test_tokens_are_renewed_several_times_before_they_expire(story: Story):
    world, host_ = story.world, story.world.hosts["w0"]
    host_.orders.clear()
    for _ in range(12):
        world.wait(HOUR_MS / 1000 / 12)
    renewals = [grant for order in host_.orders for grant in order.renewals]
    assert 3 <= len(renewals) <= 5
    newest = task_tokens.token(renewals[-1], story.ref)
    assert task_tokens.verified(newest, {"k1": KEY}, world.now_ms + HOUR_MS // 2) == story.task


def test_a_new_leader_renews_all_tokens_at_once(story: Story):
    story.world.hosts["w0"].orders.clear()
    story.world.machine.ledger.presence["w0"].renew_ms = 0
    story.world.heartbeat("w0")
    assert [grant.job for order in story.world.hosts["w0"].orders for grant in order.renewals] == [
        1
    ]


def test_no_key_is_in_a_commit_or_a_snapshot(story: Story):
    world = story.world
    assert all(KEY.secret not in commit for _, commit in world.commits)
    grants = [template.grant for order in world.hosts["w0"].orders for template in order.templates]
    assert grants
    assert all(
        grant.key not in commit
        for grant in grants
        if grant is not None
        for _, commit in world.commits
    )


def test_without_keys_orders_go_out_without_tokens():
    world = World()
    world.register(host("w0"))
    world.submit(spec("/a"), ANN)
    world.plan(first_fit.plan(world.snapshot()))
    (order,) = world.hosts["w0"].orders
    assert [template.grant for template in order.templates] == [None]
    world.heartbeat("w0")
    assert not any(order.renewals for order in world.hosts["w0"].orders)
    assert msgspec.structs.asdict(order)["run"]


def test_a_task_does_not_learn_who_has_a_name_elsewhere(story: Story):
    for user in ("bob", "eve"):
        story.world.submit(JobSpec(name="/both", command=("true",)), Caller(user))
    asked = Query("job", {"job": "/both"}, story.task)
    given = codec.unpack(answer(story.world.ledger, asked, 1), Answer)
    cancelled = story.world.cancel("/both", story.task)
    for refused in (given, cancelled):
        assert refused.status == "forbidden"
        assert b"bob" not in refused.body
        assert refused.note == ""


def test_a_task_reaches_its_own_job_whoever_has_its_name(story: Story):
    """Jobs of others with the names of its subtree are not in the way of its children."""
    for name in ("/a", "/a/new"):
        assert story.world.submit(JobSpec(name=name, command=("true",)), BOB).status == "created"
    assert story.asks("job", job="/a") == "ok"
    assert story.submits("/a/new", user="ann") == "created"
    assert story.world.cancel("/a/new", story.task).status == "accepted"
