"""Limits of groups: which of a user's limits count, and when the state service knows the groups."""

import json
from typing import Any

from iris_core.messages.gateway_state import Answer, Caller
from iris_core.quota import Quota, of_groups
from iris_core.spec.jobs import JobSpec
from iris_scheduler.mirror.mirror import Mirror
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.snapshots import snapshot
from tests.support.world import ADMIN, World, picture


def ann(*groups: str) -> Caller:
    """Ann with a token of the issuer."""
    return Caller("ann", "user", token="issuer", groups=groups)


def job(name: str, replicas: int = 1, **fields: Any) -> JobSpec:
    return JobSpec(name=name, command=("true",), replicas=replicas, **fields)


def said(answer: Answer) -> tuple[str, str]:
    return answer.status, json.loads(answer.body).get("detail", "")


def test_of_several_groups_each_limit_is_the_most_generous():
    small = Quota("@small", max_running_cpu=4, max_pending_tasks=9, max_band=3)
    large = Quota("@large", max_running_cpu=8, max_pending_tasks=0, max_band=2)
    found = of_groups("ann", [small, large])
    assert (found.max_running_cpu, found.max_pending_tasks, found.max_band) == (8, 0, 2)
    assert {found.sources[name] for name in ("max_running_cpu", "max_band")} == {"@large"}
    assert found.sources["max_pending_tasks"] == "@large"


def test_a_members_limits_are_those_of_the_group_unless_own_ones_are_set():
    world = World(Policy(max_pending_tasks=50))
    world.admin("set_quota", "@ml", max_pending_tasks=3)
    assert world.submit(job("/a", 4), Caller("bob")).status == "created"
    refused = "ann may have 3 pending tasks (limit of @ml), has 0 and asks for 4 more"
    assert said(world.submit(job("/a", 4), ann("ml"))) == ("over_quota", refused)
    world.admin("set_quota", "ann", max_pending_tasks=5)
    assert world.submit(job("/a", 4), ann("ml")).status == "created"


def test_the_default_is_named_too():
    world = World(Policy(max_pending_tasks=1))
    answer = world.submit(job("/a", 2), Caller("ann"))
    assert "ann may have 1 pending tasks (the default)" in said(answer)[1]


def test_a_change_without_groups_is_judged_by_those_that_are_known():
    """With a token of the file, or when nobody asks, as for the next route of a deployment."""
    world = World()
    world.admin("set_quota", "@ml", max_band=3)
    band = "ann may ask for band batch at best (limit of @ml), not interactive"
    assert world.submit(job("/a", band="batch"), ann("ml")).status == "created"
    patch = b'{"band": "interactive"}'
    for caller in (ann("ml"), Caller("ann", "user", token="laptop")):
        status, words = said(world.amend("/a", caller, patch=patch))
        assert (status, words.startswith(band)) == ("forbidden", True)
    assert world.amend("/a", ADMIN, patch=patch).status == "accepted"


def test_who_leaves_a_group_has_its_limits_no_more():
    world = World()
    world.admin("set_quota", "@ml", max_pending_tasks=1)
    assert world.submit(job("/a", 2), ann("ml")).status == "over_quota"
    assert world.submit(job("/a", 2), ann()).status == "created"
    assert world.ledger.groups == {}


def test_limits_say_where_they_come_from():
    world = World()
    world.admin("set_quota", "@ml", max_running_cpu=8000)
    world.submit(job("/a"), ann("ml", "other"))
    shown = world.query("quota", user="ann")
    assert (shown["max_running_cpu"], shown["sources"]["max_running_cpu"]) == (8000, "@ml")
    assert shown["groups"] == ["ml", "other"]
    assert world.query("quota", user="bob")["sources"]["max_running_cpu"] == "default"
    world.admin("set_quota", "ann", max_running_cpu=1)
    assert world.query("quota", user="ann")["sources"] == {}


def test_schedulers_get_a_members_limits_as_the_users_own():
    world = World()
    world.submit(job("/a"), ann("ml"))
    world.mirror = Mirror.of([world.snapshot()])
    world.admin("set_quota", "@ml", max_running_cpu=8000)
    world.admin("set_quota", "@none", max_running_cpu=1)
    changed = world.mirror.quotas["ann"]
    assert (changed.max_running_cpu, changed.sources["max_running_cpu"]) == (8000, "@ml")
    assert {user for user in world.mirror.quotas if user} == {"ann"}
    whole = world.snapshot()
    assert [quota for quota in whole.quotas if quota.user] == [changed]
    world.admin("set_quota", "ann", max_running_cpu=5)
    world.admin("set_quota", "@ml", max_running_cpu=1)
    assert world.mirror.quotas["ann"].max_running_cpu == 5
    world.submit(job("/b"), ann())
    assert world.mirror.quotas["ann"].max_running_cpu == 5


def test_groups_outlive_a_snapshot():
    world = World()
    world.admin("set_quota", "@ml", max_pending_tasks=1)
    world.submit(job("/a"), ann("ml", "other"))
    before = picture(world.machine, world.now_ms)
    data = snapshot.cut(world.ledger, world.machine.sequence, world.machine.last_ms)
    again = Machine(Policy(), "again")
    again.restore(snapshot.read(data))
    assert picture(again, world.now_ms)["groups"] == before["groups"] == {"ann": ("ml", "other")}
    assert again.ledger.quota_of("ann").max_pending_tasks == 1
