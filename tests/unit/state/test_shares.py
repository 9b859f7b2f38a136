"""Fair share: what projects and users have used of late, and the order that follows from it.

Source: docs/design/team.md#fair-share.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from iris_core import codec
from iris_core.messages.gateway_scheduler import PlanRequest
from iris_core.messages.gateway_state import Caller
from iris_core.placement.priority import LEAST_STEP, MOST_STEP, packed_steps
from iris_core.spec.jobs import JobSpec
from iris_core.spec.projects import ProjectSpec
from iris_core.spec.resources import Amount
from iris_scheduler.cycle.cache import Cache
from iris_scheduler.preview import preview
from iris_scheduler.settings import SchedulerSettings
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records import shares
from iris_state.records.projects_in_words import changes_in_words
from iris_state.records.shares import ShareKey, Shares, next_step, step_of
from iris_state.snapshots import snapshot
from tests.support.sharing import SharedCluster
from tests.support.world import World, picture

HOUR_S = 3600
CPU = Amount(cpu_millis=1000)
HALF_LIFE_MS = 3_600_000


def two_projects(chips: int = 16, **options: Any) -> SharedCluster:
    cluster = SharedCluster(chips, **options)
    cluster.change_project("/nlp", weight=3.0)
    cluster.change_project("/prod", weight=1.0)
    return cluster


def counting(*weights: tuple[str, float]) -> Shares:
    found = Shares(HALF_LIFE_MS)
    found.begin(0)
    found.weigh(dict(weights))
    return found


def renewed(found: Shares, now_ms: int) -> dict[tuple[str, str], int]:
    """Who has other steps."""
    moved = found.renew(now_ms, lambda: Amount(10_000, 1 << 30, chips=10))
    return {tuple(move.key): move.steps for move in moved}


# ── what is counted ───────────────────────────────────────────────────────────────────────────────


def test_what_was_used_counts_half_after_a_half_life():
    found = counting()
    found.hold("/nlp", "ada", CPU, 1)
    found.now_ms = 100_000
    found.hold("/nlp", "ada", CPU, -1)
    renewed(found, 100_000)
    ada = ShareKey("/nlp", "ada")
    used_s = found.used_s(ada, 100_000)
    assert used_s == pytest.approx(100 / 10, rel=0.02)  # of ten processors one, for 100 s
    assert found.used_s(ada, 100_000 + HALF_LIFE_MS) == pytest.approx(used_s / 2, rel=1e-12)
    assert found.used_s(ShareKey("/", ""), 100_000) == used_s


def test_it_is_the_same_however_often_one_looks_or_something_begins():
    once, often = counting(), counting()
    for found in (once, often):
        found.hold("/nlp", "ada", CPU, 1)
    for minute in range(1, 50):
        renewed(often, minute * 60_000)
        often.now_ms = minute * 60_000
        often.hold("/nlp", "ada", CPU, 1)
        often.hold("/nlp", "ada", CPU, -1)
    renewed(once, 50 * 60_000)
    renewed(often, 50 * 60_000)
    ada = ShareKey("/nlp", "ada")
    assert often.used_s(ada, 3_000_000) == pytest.approx(once.used_s(ada, 3_000_000), rel=1e-9)


def test_the_largest_resource_against_the_clusters_counts():
    found = counting()
    found.hold("", "cpu", Amount(cpu_millis=5000), 1)
    found.hold("", "chips", Amount(cpu_millis=1000, chips=8), 1)
    found.hold("", "memory", Amount(memory_bytes=1 << 28), 1)
    renewed(found, 1000)
    assert [found.running(ShareKey("/", user)) for user in ("cpu", "chips", "memory")] == [
        0.5,
        0.8,
        0.25,
    ]


def test_what_starts_counts_at_once():
    found = counting()
    for user in ("ada", "bob"):
        found.wait("", user, 1, 5)
    renewed(found, 1000)
    assert found.step(ShareKey("/", "ada")) == LEAST_STEP
    found.now_ms = 2000
    found.hold("", "ada", CPU, 1)
    moved = renewed(found, 2000)
    assert list(moved) == [("/", "ada")]
    assert found.share(ShareKey("/", "ada")) == 2.0


def test_siblings_without_work_take_no_part_from_others():
    found = counting(("/nlp", 3.0), ("/prod", 1.0), ("/idle", 100.0))
    for path in ("/nlp", "/prod", "/idle"):
        found.hold(path, "ada", CPU, 1)
    found.now_ms = 1000
    found.hold("/idle", "ada", CPU, -1)
    renewed(found, 1000)
    assert [found.share(ShareKey(path, "")) for path in ("/nlp", "/prod")] == [2 / 3, 2.0]


def test_what_had_no_work_for_long_is_forgotten():
    found = counting()
    found.hold("/nlp", "ada", CPU, 1)
    found.hold("/nlp", "ada", CPU, -1)
    found.hold("", "bob", CPU, 1)
    renewed(found, 1000)
    renewed(found, 21 * HALF_LIFE_MS)
    assert found.users("/nlp") == []
    assert found.users("/") == ["bob"]


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_is_the_whole_part_of_log2():
    assert [step_of(share) for share in (0.25, 0.49, 0.5, 1.0, 1.99, 2.0)] == [-2, -2, -1, 0, 0, 1]
    assert (step_of(0.0), step_of(1e9)) == (LEAST_STEP, MOST_STEP)


def test_a_step_is_not_left_at_its_border():
    for share in (0.999, 1.001):
        assert [next_step(step, share) for step in (-1, 0)] == [-1, 0]
    assert [next_step(step, 0.98) for step in (-1, 0)] == [-1, -1]
    assert [next_step(step, 1.02) for step in (-1, 0)] == [0, 0]
    assert next_step(-5, 8.5) == 3
    assert next_step(5, 0.3) == -2


def test_the_outermost_step_decides_first():
    ascending = [[-1, 7], [0, -8, 7], [0, -1], [0, 0], [0, 1, -8], [1, -8]]
    packed = [packed_steps(steps) for steps in ascending]
    assert packed == sorted(packed)
    assert packed_steps([0]) == packed_steps([0, 0, 0])


def test_a_child_never_goes_before_the_standing_of_its_parent():
    found = counting(("/a", 1.0), ("/b", 1.0))
    found.hold("/a/x", "ada", Amount(cpu_millis=3000), 1)
    found.hold("/b/y", "bob", CPU, 1)
    found.wait("/a/new", "cyd", 3, 1)
    found.wait("/b/y", "bob", 4, 1)
    renewed(found, 1000)
    assert found.steps_of("/a/new", "cyd") > found.steps_of("/b/y", "bob")
    assert found.steps_of("/a/new", "cyd") < found.steps_of("/a/x", "ada")


# ── on and off ────────────────────────────────────────────────────────────────────────────────────


def order(world: World) -> list[str]:
    assert world.mirror is not None
    mine = [world.ledger.jobs[number].name for number in world.ledger.queue.jobs()]
    assert mine == [world.mirror.jobs[number].name for number in world.mirror.queue.jobs()]
    return mine


def test_it_begins_with_the_second_weight_and_ends_with_it():
    cluster = SharedCluster(4)
    cluster.want("/ada", "ada", 10)
    cluster.cycle()
    cluster.want("/ada2", "ada", 10)
    cluster.want("/bob", "bob", 10)
    assert order(cluster) == ["/ada", "/ada2", "/bob"]
    assert all(row.steps == 0 for row in cluster.snapshot().jobs)
    cluster.change_project("/nlp", weight=3.0)
    assert not cluster.ledger.shares.enabled
    cluster.change_project("/prod", weight=3.0)
    assert order(cluster) == ["/bob", "/ada", "/ada2"]
    cluster.change_project("/prod")
    assert order(cluster) == ["/ada", "/ada2", "/bob"]
    assert all(row.steps == 0 for row in cluster.snapshot().jobs)


@pytest.mark.parametrize(
    ("user", "project"), [("ada", "/nlp"), ("new", "/nlp"), ("ada", "/prod"), ("new", "")]
)
def test_a_dry_run_has_the_place_that_the_job_would_have(user: str, project: str):
    """Also of somebody who has no job: the scheduler does not know such a share."""
    cluster = two_projects(8)
    cluster.want("/ada", "ada", 40, "/nlp")
    cluster.want("/bob", "bob", 40, "/prod")
    cluster.run(1800)
    spec = JobSpec(name="/next", command=("true",), project=project, user=user)
    gate = cluster.query("closed_gate", spec=codec.to_json(spec).decode())
    request = PlanRequest(
        replace(spec, project=gate["project"]), Caller(user), cluster.now_ms, gate["steps"]
    )
    assert cluster.mirror is not None
    said = preview(cluster.mirror, Cache(), request, cluster.now_ms, SchedulerSettings())
    cluster.want("/next", user, 1, project)
    job = cluster.ledger.job_of(user, "/next")
    assert job is not None
    assert gate["steps"] == cluster.ledger.key_of(job).steps
    assert said.ahead == cluster.ledger.queue.position(job.number, 0)


def test_it_is_off_and_on_as_set():
    off = two_projects(policy=Policy(fair_share=False))
    assert not off.ledger.shares.enabled
    assert SharedCluster(1, Policy(fair_share=True)).ledger.shares.enabled


def test_a_cluster_without_weights_plans_and_says_what_it_did():
    """Every delta and every plan is the same, byte for byte, but for what is said of projects."""
    found = []
    for policy in (Policy(max_building=1000), Policy(max_building=1000, fair_share=False)):
        cluster = SharedCluster(4, policy)
        for number, user in enumerate(("ada", "ada", "bob")):
            cluster.want(f"/job{number}", user, 6)
        cluster.run(2 * HOUR_S)
        found.append((cluster.commits, cluster.started))
    assert found[0] == found[1]
    firsts = [times[0] for times in found[0][1].values()]
    assert len(firsts) == 3
    assert firsts == sorted(firsts)


def test_a_project_shows_its_weight_and_share():
    cluster = two_projects(8)
    cluster.want("/ada", "ada", 6, "/nlp")
    cluster.want("/bob", "bob", 2, "/prod")
    cluster.run(60)
    cluster.change_project("/idle")
    found = {path: cluster.query("project", project=path) for path in ("/", "/nlp", "/idle")}
    assert [(one["weight"], one["share"]) for one in found.values()] == [
        (None, 1.0),
        (3.0, 1.0),
        (None, 0.0),
    ]
    assert World().query("project", project="/")["share"] is None


@pytest.mark.parametrize("weight", [0.0, -1.0, 1_000_001.0, float("nan"), float("inf")])
def test_a_weight_is_more_than_0_and_at_most_a_million(weight: float):
    world = World()
    refused = world.change_project("/nlp", weight=weight)
    assert (refused.status, b'"/weight"' in refused.body) == ("invalid", True)
    assert world.query("project", project="/nlp") is None


def test_the_audit_says_what_became_of_a_weight():
    before, after = ProjectSpec(), ProjectSpec(weight=2.5)
    assert list(changes_in_words(before, after)) == ["weight 2.5, was unset"]
    assert list(changes_in_words(after, before)) == ["weight unset, was 2.5"]


# ── records ───────────────────────────────────────────────────────────────────────────────────────


def test_replay_and_a_snapshot_bring_back_every_number():
    cluster = two_projects(8)
    random = Random(1)
    cluster.length_ms = lambda: random.randrange(20_000, 90_000)
    for number, (user, project) in enumerate(
        [("ada", "/nlp"), ("bob", "/nlp"), ("cyd", "/prod"), ("dan", "")]
    ):
        cluster.want(f"/job{number}", user, 30, project)
    cluster.run(300)
    mine = picture(cluster.machine, cluster.now_ms)
    assert picture(cluster.replayed(), cluster.now_ms)["shares"] == mine["shares"]
    data = snapshot.cut(cluster.ledger, cluster.machine.sequence, cluster.now_ms)
    restored = Machine(cluster.policy, "other")
    restored.restore(snapshot.read(data))
    assert picture(restored, cluster.now_ms)["shares"] == mine["shares"]
    assert list(restored.ledger.queue) == list(cluster.ledger.queue)
    cluster.take_over(30)
    cluster.run(300)
    assert len(cluster.commits) > 20


def test_a_snapshot_of_before_counts_from_when_it_is_read():
    cluster = SharedCluster(8)
    cluster.want("/ada", "ada", 30)
    cluster.run(60)
    data = snapshot.cut(cluster.ledger, cluster.machine.sequence, cluster.now_ms)
    restored = Machine(Policy(fair_share=True), "other")
    restored.restore(snapshot.read(data))
    ada = ShareKey("/", "ada")
    restored.ledger.renew_shares(cluster.now_ms)
    assert restored.ledger.shares.running(ada) == 1.0
    assert restored.ledger.shares.used_s(ada, cluster.now_ms) == 0.0


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────

PARTS = {("/nlp/a", "ada"): 0.25, ("/nlp/a", "bob"): 0.25, ("/nlp/b", "cyd"): 0.25}
PARTS[("/prod", "dan")] = 0.25


def in_days(days: int) -> dict[tuple[str, str], float]:
    """Which part of so many days each user has had, when all want more than there is: /nlp has weight 3
    beside 1 of /prod, and in it /nlp/a 2 beside 1 of /nlp/b.
    """
    cluster = two_projects(16, is_checked=False)
    cluster.change_project("/nlp/a", weight=2.0)
    cluster.change_project("/nlp/b")
    random = Random(7)
    cluster.length_ms = lambda: random.randrange(1800, 7200) * 1000
    for project, user in PARTS:
        cluster.want(f"/{user}", user, 3000, project)
    cluster.run(days * 24 * HOUR_S)
    return cluster.parts()


def judge(days: int, within: float) -> None:
    parts = in_days(days)
    for key, just in PARTS.items():
        assert parts[key] == pytest.approx(just, rel=within), (key, parts)


def judge_a_day() -> None:
    judge(days=1, within=0.1)


def judge_a_newcomer() -> None:
    """Ten tasks beside a flood of 20,000, all of ten minutes."""
    cluster = two_projects(16, is_checked=False)
    for part in range(2):
        cluster.want(f"/flood{part}", "ada", 10_000, "/nlp")
    cluster.run(1000)
    for minute in range(10):  # the ends are spread over the length of a task
        cluster.run(60 + minute)
    at_ms = cluster.now_ms
    cluster.want("/new", "bob", 10, "/nlp")
    cluster.run(1200)
    started = cluster.started.get("/new", [])
    assert len(started) == 10
    assert max(started) - at_ms <= 600_000


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_in_a_week_everybody_has_the_part_of_its_weight():
    judge(days=7, within=0.02)


def test_in_a_day_everybody_has_about_the_part_of_its_weight():
    judge_a_day()


def test_a_newcomer_waits_no_longer_than_one_task():
    judge_a_newcomer()


def test_the_queue_shows_steps_and_why_says_who_has_had_less():
    cluster = two_projects(8)
    cluster.want("/ada", "ada", 20, "/nlp")
    cluster.run(60)
    cluster.want("/bob", "bob", 3, "/prod")
    cluster.want("/cyd", "cyd", 3, "/nlp")
    rows = {row["job"]: (row["project"], row["step"]) for row in cluster.query("queue")["items"]}
    assert rows == {
        "/bob": ("/prod", [-8, -8]),
        "/cyd": ("/nlp", [0, -8]),
        "/ada": ("/nlp", [0, -1]),
    }
    assert cluster.query("why", job="/cyd")["ahead_note"] == (
        "behind 3 tasks: 3 of bob, as /prod has had 0 of its share, /nlp 1.3"
    )
    assert (
        "3 of cyd, as cyd has had 0 of its share, ada 2"
        in (cluster.query("why", job="/ada")["ahead_note"])
    )


def behind(cluster: SharedCluster, job: str) -> dict[str, Any]:
    reason = cluster.query("why", job=job)["pending_reason"]
    assert reason["code"] == "behind", reason
    return {name: reason["facts"][name] for name in ("share", "ahead") if name in reason["facts"]}


def shares_of(cluster: SharedCluster) -> dict[str, float]:
    """By project, or by user."""
    rows = cluster.query("shares")["items"]
    return {row["user"] or row["project"]: round(row["share"], 3) for row in rows}


def test_a_reason_names_the_projects_that_go_first():
    cluster = two_projects(8)
    cluster.want("/ada", "ada", 20, "/nlp")
    cluster.run(60)
    cluster.want("/bob", "bob", 9, "/prod")
    cluster.run(541)  # those of ada have ended, and as many of bob have begun
    share = shares_of(cluster)
    assert behind(cluster, "/ada") == {"share": share["/nlp"], "ahead": {"/prod": share["/prod"]}}


def test_a_reason_names_the_users_of_a_project_that_go_first():
    cluster = two_projects(8)
    cluster.want("/ada", "ada", 20, "/nlp")
    cluster.run(60)
    cluster.want("/cyd", "cyd", 9, "/nlp")
    cluster.run(541)
    share = shares_of(cluster)
    assert behind(cluster, "/ada") == {"share": share["ada"], "ahead": {"cyd": share["cyd"]}}


def test_while_nothing_is_free_why_says_so_and_whose_share_is_lower():
    """Of three projects with nine tasks each: nobody who is first would find a chip either."""
    cluster = two_projects(8)
    cluster.change_project("/vis", weight=2.0)
    for user, project in (("ada", "/nlp"), ("bob", "/prod"), ("cyd", "/vis")):
        cluster.want(f"/{user}", user, 9, project)
    cluster.run(601)  # those of ada have ended, and as many of bob have begun
    assert behind(cluster, "/ada")["ahead"].keys() == {"/prod", "/vis"}
    cluster.cycle()
    share = shares_of(cluster)
    for job in ("/ada", "/bob", "/cyd"):
        reason = cluster.query("why", job=job)["pending_reason"]
        facts = reason["facts"]
        assert (reason["code"], facts["best_free"]) == ("not_enough_chips", 0), job
        assert not {"share", "ahead"} & facts.keys()
    assert cluster.query("why", job="/bob")["ahead_note"] == (
        f"behind 9 tasks: 9 of cyd, as /vis has had 0 of its share, /prod {share['/prod']:.2g}"
    )


@pytest.mark.parametrize("is_set", [False, True])
def test_while_it_is_off_no_reason_has_shares(is_set: bool):
    """Because nothing has a weight, and because it is set so."""
    if is_set:
        cluster = two_projects(8, policy=Policy(fair_share=False))
    else:
        cluster = SharedCluster(8)
        for path in ("/nlp", "/prod"):
            cluster.change_project(path)
    cluster.want("/ada", "ada", 20, "/nlp")
    cluster.run(60)
    cluster.want("/bob", "bob", 9, "/prod")
    cluster.run(541)  # the next of ada have begun: she came first
    assert cluster.query("shares")["enabled"] is False
    reason = cluster.query("why", job="/bob")["pending_reason"]
    assert (reason["code"], reason["facts"].keys()) == ("behind", {"tasks"})
    assert behind(cluster, "/bob") == {}
    assert cluster.query("why", job="/bob")["ahead_note"] == (
        "behind 4 tasks: 4 of ada, submitted before"
    )


def _together(self: Shares, key: ShareKey) -> int:
    """Only the steps of projects."""
    return packed_steps(self.step(one) for one in self._down(*key) if not one.user)


MUTANTS = [
    (
        shares,
        "_decayed",
        lambda ms, _: (1.0, ms / 1000),
        test_what_was_used_counts_half_after_a_half_life,
    ),
    (Shares, "_weight", lambda *_: 1, judge_a_day),
    (Shares, "_steps", _together, judge_a_newcomer),
    (Shares, "_steps", lambda *_: 0, judge_a_newcomer),
    (shares, "next_step", lambda *_: 0, judge_a_newcomer),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("where", "name", "wrong", "story"), MUTANTS)
def test_a_wrong_share_is_found(
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    wrong: Callable[..., Any],
    story: Callable[[], None],
):
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(AssertionError):
        story()
