"""What people may ask of the notifier, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from iris_core.messages.gateway_notifier import NotifyVerb
from iris_core.views.notify import NewSubscription, NewTarget
from iris_notifier.requests import MAX_TARGETS
from tests.support.notifier import OPS, SECRET
from tests.unit.notifier.conftest import Stage

URL = "https://hooks.example.org/x"


@pytest.mark.parametrize(
    ("asked", "pointer", "code"),
    [
        ({"name": "x"}, "", "unexpected"),
        ({"name": "x", "webhook": URL, "smtp": "a@b.org", "secret": SECRET}, "", "unexpected"),
        ({"name": "x", "webhook": URL, "secret": "short"}, "/secret", "too_short"),
        ({"name": "x", "webhook": "ftp://a", "secret": SECRET}, "/webhook", "bad_webhook"),
        ({"name": "No!", "webhook": URL, "secret": SECRET}, "/name", "bad_target"),
        ({"name": "x", "smtp": "a@b.org"}, "/smtp", "no_mail"),
        ({"name": "x", "smtp": "a@b.org\nBcc: c@d.org"}, "/smtp", "bad_address"),
        ({"name": "x", "smtp": "a@b.org, c@d.org"}, "/smtp", "bad_address"),
    ],
)
async def test_a_bad_target_is_refused_with_the_place(
    stage: Stage, asked: dict[str, Any], pointer: str, code: str
) -> None:
    status, body = await stage.ask(NotifyVerb.ADD_TARGET, asked)
    assert status == "invalid"
    assert (pointer, code) in [(one["pointer"], one["code"]) for one in body["errors"]]


async def test_a_secret_is_never_answered(stage: Stage) -> None:
    for verb in (NotifyVerb.SHOW_TARGET, NotifyVerb.LIST_TARGETS, NotifyVerb.TEST_TARGET):
        assert SECRET not in str(await stage.ask(verb, name="ops"))


async def test_a_request_that_arrives_twice_adds_once(stage: Stage) -> None:
    assert (await stage.ask(NotifyVerb.ADD_TARGET, OPS))[0] == "ok"
    other = NewTarget(name="ops", webhook="https://elsewhere.example.org", secret=SECRET)
    assert (await stage.ask(NotifyVerb.ADD_TARGET, other))[0] == "conflict"
    wanted = NewSubscription(to="ops", on=("ended",), all_mine=True)
    made = [await stage.ask(NotifyVerb.SUBSCRIBE, wanted, key="k1") for _ in range(2)]
    assert [status for status, _ in made] == ["created", "ok"]
    assert made[0][1]["id"] == made[1][1]["id"]


async def test_targets_of_others_are_not_there(stage: Stage) -> None:
    verbs = (NotifyVerb.SHOW_TARGET, NotifyVerb.PAUSE_TARGET, NotifyVerb.REMOVE_TARGET)
    for verb in verbs:
        assert (await stage.ask(verb, name="ops", user="bob"))[0] == "not_found"
        assert (await stage.ask(verb, {"user": "ann"}, name="ops", user="bob"))[0] == "not_found"
    assert (await stage.ask(NotifyVerb.LIST_TARGETS, user="bob"))[1]["items"] == []
    assert (await stage.ask(NotifyVerb.LIST_DELIVERIES, user="bob"))[1]["items"] == []
    status, shown = await stage.ask(
        NotifyVerb.SHOW_TARGET, {"user": "ann"}, name="ops", user="root", role="admin"
    )
    assert (status, shown["webhook"]) == ("ok", OPS.webhook)


async def test_of_a_shared_target_only_the_name_is_shown(stage: Stage) -> None:
    shared = {"name": "all", "webhook": URL, "secret": SECRET, "shared": True}
    assert (await stage.ask(NotifyVerb.ADD_TARGET, shared))[0] == "forbidden"
    assert (await stage.ask(NotifyVerb.ADD_TARGET, shared, user="root", role="admin"))[
        0
    ] == "created"
    status, shown = await stage.ask(NotifyVerb.SHOW_TARGET, name="all")
    assert (status, shown["webhook"], shown["user"]) == ("ok", None, "root")
    assert (await stage.ask(NotifyVerb.PAUSE_TARGET, name="all"))[0] == "forbidden"


@pytest.mark.parametrize(
    ("asked", "status", "pointer"),
    [
        ({"to": "nobody", "on": ["ended"], "all_mine": True}, "invalid", "/to"),
        ({"to": "ops", "on": [], "all_mine": True}, "invalid", "/on"),
        ({"to": "ops", "on": ["sometimes"], "all_mine": True}, "invalid", "/on/0"),
        ({"to": "ops", "on": ["ended"]}, "invalid", ""),
        ({"to": "ops", "on": ["ended"], "job": "j1", "all_mine": True}, "invalid", ""),
        ({"to": "ops", "on": ["ended"], "job": "j9"}, "invalid", "/job"),
        ({"to": "ops", "on": ["ended"], "project": "/x", "job": "j1"}, "invalid", ""),
        ({"to": "ops", "on": ["ended"], "project": "/nowhere"}, "invalid", "/project"),
        ({"to": "ops", "on": ["ended"], "project": "/a b"}, "invalid", "/project"),
        ({"to": "ops", "on": ["time_50"], "job": "j1"}, "invalid", "/on"),
        ({"to": "ops", "on": ["ended"], "job": "j2"}, "conflict", None),
    ],
)
async def test_a_bad_subscription_is_refused(
    stage: Stage, asked: dict[str, Any], status: str, pointer: str | None
) -> None:
    stage.state.add("j1", "/train")
    stage.state.add("j2", "/over", state="failed")
    found, body = await stage.ask(NotifyVerb.SUBSCRIBE, asked)
    assert found == status
    if pointer is not None:
        assert pointer in [one["pointer"] for one in body["errors"]]
    assert (await stage.ask(NotifyVerb.LIST_SUBSCRIPTIONS))[1]["items"] == []


async def test_a_subscription_ends_with_its_job_and_by_its_user(stage: Stage) -> None:
    stage.state.add("j1", "/train")
    of_job = NewSubscription(to="ops", on=("ended",), job="/train")
    to_all = NewSubscription(to="ops", on=("failed",), all_mine=True)
    await stage.ask(NotifyVerb.SUBSCRIBE, of_job)
    _, made = await stage.ask(NotifyVerb.SUBSCRIBE, to_all)
    await stage.state.publish("j1", "succeeded", "running")
    await stage.sender.has_sent(1)
    items = (await stage.ask(NotifyVerb.LIST_SUBSCRIPTIONS))[1]["items"]
    assert [one["id"] for one in items] == [made["id"]]
    assert (await stage.ask(NotifyVerb.UNSUBSCRIBE, name=made["id"], user="bob"))[0] == "not_found"
    assert (await stage.ask(NotifyVerb.UNSUBSCRIBE, name=made["id"]))[0] == "ok"
    assert (await stage.ask(NotifyVerb.LIST_SUBSCRIPTIONS))[1]["items"] == []


async def test_targets_of_one_user_are_bounded_and_listed_in_pages(stage: Stage) -> None:
    for number in range(1, MAX_TARGETS):
        made = NewTarget(name=f"t{number:02d}", webhook=URL, secret=SECRET)
        assert (await stage.ask(NotifyVerb.ADD_TARGET, made))[0] == "created"
    more = NewTarget(name="more", webhook=URL, secret=SECRET)
    assert (await stage.ask(NotifyVerb.ADD_TARGET, more))[0] == "over_quota"
    assert (await stage.ask(NotifyVerb.ADD_TARGET, more, user="bob"))[0] == "created"
    names: list[str] = []
    query: dict[str, Any] = {"limit": 6}
    while True:
        page = (await stage.ask(NotifyVerb.LIST_TARGETS, query))[1]
        names += [one["name"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert names == ["ops", *(f"t{number:02d}" for number in range(1, MAX_TARGETS))]


async def test_deliveries_are_listed_newest_first_in_pages(stage: Stage) -> None:
    for number in range(4):
        await stage.ask(NotifyVerb.TEST_TARGET, name="ops")
        stage.state.add(f"j{number}", f"/{number}")
    first = (await stage.ask(NotifyVerb.LIST_DELIVERIES, {"limit": 3}))[1]
    rest = (await stage.ask(NotifyVerb.LIST_DELIVERIES, {"cursor": first["next_cursor"]}))[1]
    every = (await stage.ask(NotifyVerb.LIST_DELIVERIES))[1]["items"]
    assert [*first["items"], *rest["items"]] == every
    assert len(every) == 5
    times = [one["created_at"] for one in every]
    assert times == sorted(times, reverse=True)


async def test_names_in_a_job_are_checked(stage: Stage) -> None:
    asked = {"user": "ann", "names": ["ops", "opps"]}
    assert (await stage.ask(NotifyVerb.CHECK, asked))[1] == {"unknown": ["opps"], "known": ["ops"]}


async def test_each_change_is_one_line_of_the_log_with_names_only(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.state.add("j1", "/train")
    caplog.set_level("INFO", "iris_notifier.requests")
    made = NewTarget(name="night", webhook=URL, secret=SECRET)
    await stage.ask(NotifyVerb.ADD_TARGET, made)
    await stage.ask(NotifyVerb.ADD_TARGET, made)
    for verb in (
        *(NotifyVerb.TEST_TARGET, NotifyVerb.PAUSE_TARGET, NotifyVerb.PAUSE_TARGET),
        *(NotifyVerb.RESUME_TARGET, NotifyVerb.RESUME_TARGET),
    ):
        await stage.ask(verb, {"user": "ann"}, name="night", user="root", role="admin")
    await stage.ask(NotifyVerb.PAUSE_TARGET, {"user": "ann"}, name="night", user="bob")
    ids = []
    for wanted in (
        NewSubscription(to="night", on=("ended",), job="/train"),
        NewSubscription(to="night", on=("ended",), all_mine=True),
    ):
        ids.append((await stage.ask(NotifyVerb.SUBSCRIBE, wanted))[1]["id"])
    await stage.ask(NotifyVerb.UNSUBSCRIBE, name=ids[0])
    await stage.ask(NotifyVerb.REMOVE_TARGET, name="night")
    lines = [one.getMessage() for one in caplog.records if one.name == "iris_notifier.requests"]
    assert lines == [
        "audit: ann (user): set target night of ann",
        *(
            f"audit: root (admin): {action} target night of ann"
            for action in ("test", "pause", "resume")
        ),
        f"audit: ann (user): set subscription {ids[0]} of ann: night of j1",
        f"audit: ann (user): set subscription {ids[1]} of ann: night of all jobs",
        f"audit: ann (user): remove subscription {ids[0]} of ann: night of j1",
        "audit: ann (user): remove target night of ann",
    ]
    assert not [word for word in (URL, SECRET) if word in caplog.text]
