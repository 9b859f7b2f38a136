"""The page of notifications: what each person sees of targets, subscriptions and messages, and what
they may change there.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pytest

from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.dashboard.page_reads import ROWS
from iris_notifier.senders import SendResult
from tests.support.gateway import House, house
from tests.support.notifier import SECRET, KeptMessages, notifier_of
from tests.support.pages import fill

PEOPLE = {"mia": "admin", "ada": "user", "bob": "user"}
TOKENS = "\n".join(
    f"{who} {role} {sha256(who.encode()).hexdigest()}" for who, role in PEOPLE.items()
)
AS_FORM = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
TARGETS = "/v1/notify/targets"
HOOK = "https://hooks.example.org/services/T0"


@dataclass
class Team:
    """A gateway and a notifier, and people with and without the role of an admin."""

    iris: House
    sender: KeptMessages

    async def api(self, who: str, method: str, path: str, **body: Any) -> Any:
        answer = await self.iris.http.request(
            method, path, json=body or None, headers={"authorization": f"Bearer {who}"}
        )
        assert answer.is_success, answer.text
        return answer.json()

    async def page(self, who: str, path: str = "/notifications") -> str:
        answer = await self.iris.http.get(path, headers={"cookie": f"iris_token={who}"})
        assert answer.status_code == 200, answer.text
        return answer.text

    async def send(self, who: str, path: str, **fields: str) -> tuple[int, str]:
        """Send a form; the status of the answer, and where it leads or what it says."""
        answer = await self.iris.http.post(
            path, data=fields, headers={**AS_FORM, "cookie": f"iris_token={who}", **HTML}
        )
        return answer.status_code, answer.headers.get("location", "") or answer.text

    async def state(self, who: str, name: str) -> tuple[str, str]:
        found = await self.api(who, "GET", f"{TARGETS}/{name}")
        return found["state"], found["detail"]


HTML = {"accept": "text/html"}


@pytest.fixture
async def team() -> AsyncIterator[Team]:
    """ada has a target, a subscription of each kind and a message; mia shares a target."""
    async with AsyncExitStack() as stack:
        iris = await stack.enter_async_context(house(parse_tokens(TOKENS)))
        await fill(iris, token="ada")
        sender = await stack.enter_async_context(notifier_of(iris.memory))
        made = Team(iris, sender)
        await made.api("ada", "POST", TARGETS, name="pager", webhook=HOOK, secret=SECRET)
        await made.api("mia", "POST", TARGETS, name="all", webhook=HOOK, secret=SECRET, shared=True)
        for of in ({"job": "/a"}, {"project": "/research"}, {"all_mine": True}):
            await made.api(
                "ada", "POST", "/v1/notify/subscriptions", to="pager", on=["failed", "ended"], **of
            )
        yield made


def section(text: str, name: str) -> str:
    found = re.search(rf'<section [^>]*id="{name}".*?</section>', text, re.DOTALL)
    assert found is not None, text
    return found[0]


def words_of(text: str) -> str:
    """What a reader sees of markup, on one line."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def buttons(text: str) -> set[str]:
    return set(re.findall(r'aria-label="((?:Test|Pause|Resume|Remove) [^"]*)"', text))


async def test_the_page_shows_own_and_shared_targets_subscriptions_and_messages(team: Team):
    text = await team.page("ada")
    targets = words_of(section(text, "targets"))
    assert f"pager {HOOK} active" in targets
    assert "all active waiting 0 user mia shared" in targets
    subscriptions = words_of(section(text, "subscriptions"))
    for of in ("j1", "/research", "all jobs of ada"):
        assert f"{of} target pager when failed, ended user ada" in subscriptions
    assert "target pager test delivered tries 1" in words_of(section(text, "deliveries"))
    assert SECRET not in text


async def test_of_another_user_neither_name_nor_address_is_shown(team: Team):
    text = await team.page("bob")
    for word in ("pager", HOOK, ">ada<", "/research"):
        assert word not in text
    assert "all active" in words_of(section(text, "targets"))
    assert "No subscription." in section(text, "subscriptions")
    assert "Nobody was told of anything yet." in section(text, "deliveries")


async def test_buttons_are_offered_to_whom_the_matrix_gives_them(team: Team):
    offered = {who: buttons(await team.page(who)) for who in PEOPLE}
    own = {"Test pager", "Pause pager", "Remove pager"}
    of = {f"Remove the subscription of pager to {word}" for word in ("j1", "/research", "all jobs")}
    shared = {"Test all", "Pause all", "Remove all"}
    assert offered == {"ada": own | of, "mia": own | of | shared, "bob": set()}


async def test_a_target_is_paused_resumed_and_tested_on_the_page(team: Team):
    change = "/notifications/targets/pager/change"
    for action, state in (("pause", "paused"), ("resume", "active"), ("test", "active")):
        found = await team.send("ada", change, action=action, user="ada")
        assert found == (303, "/notifications#targets")
        assert (await team.state("ada", "pager"))[0] == state
        assert f">{state}</span>" in section(await team.page("ada"), "targets")
    team.sender.results.append(SendResult(False, "500 from the receiver"))
    await team.send("ada", change, action="test", user="ada")
    assert "500 from the receiver" in section(await team.page("ada"), "targets")
    await team.send("mia", change, action="pause", user="ada")
    assert await team.state("ada", "pager") == ("paused", "by mia")


async def test_a_target_is_removed_after_a_question_and_takes_its_subscriptions(team: Team):
    path = "/notifications/targets/pager/remove"
    question = await team.page("ada", f"{path}?user=ada")
    assert "Its user&#39;s subscriptions" in question or "Its user's subscriptions" in question
    assert "0 messages that wait for it are not sent" in words_of(question)
    assert (await team.send("ada", path, user="ada"))[0] == 303
    text = await team.page("ada")
    assert "pager" not in words_of(section(text, "targets"))
    assert "No subscription." in section(text, "subscriptions")


async def test_a_subscription_is_removed_on_the_page(team: Team):
    text = section(await team.page("ada"), "subscriptions")
    paths = re.findall(r'action="(/notifications/subscriptions/[^"]*)"', text)
    assert len(paths) == 3
    assert await team.send("ada", paths[0], action="remove") == (
        303,
        "/notifications#subscriptions",
    )
    assert section(await team.page("ada"), "subscriptions").count("<form") == 2


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/notifications/targets/pager/change", {"action": "pause", "user": "ada"}, 404),
        ("/notifications/targets/pager/remove", {"user": "ada"}, 404),
        ("/notifications/targets/all/change", {"action": "pause", "user": ""}, 403),
        ("/notifications/targets/all/remove", {"user": ""}, 403),
        ("/notifications/subscriptions/none/remove", {"action": "remove"}, 404),
        ("/notifications/targets/all/change", {"action": "explode"}, 400),
    ],
)
async def test_a_stranger_changes_nothing(
    team: Team, path: str, fields: dict[str, str], status: int
):
    before = await team.page("mia")
    assert (await team.send("bob", path, **fields))[0] == status
    assert buttons(await team.page("mia")) == buttons(before)


async def test_a_form_of_another_site_changes_nothing(team: Team):
    answer = await team.iris.http.post(
        "/notifications/targets/pager/change",
        data={"action": "pause", "user": "ada"},
        headers={"cookie": "iris_token=ada"},
    )
    assert answer.status_code == 403
    assert await team.state("ada", "pager") == ("active", "")


async def test_messages_are_filtered_by_target_and_status(team: Team):
    team.sender.results += [SendResult(False, "<b>no route</b>")] * 2
    await team.api("ada", "POST", TARGETS, name="mail", webhook=HOOK, secret=SECRET)
    listed = {}
    for query in ("", "?target=mail", "?target=pager", "?status=delivered", "?status=pending"):
        text = section(await team.page("ada", f"/notifications{query}"), "deliveries")
        listed[query] = re.findall(r'<span class="narrow">target</span> (\w+)</td>', text)
    assert set(listed["?target=mail"]) == {"mail"}
    assert set(listed["?target=pager"]) == {"pager"}
    assert listed["?status=pending"] == []
    assert "No message of that kind." in text
    whole = await team.page("ada")
    assert "&lt;b&gt;no route&lt;/b&gt;" in section(whole, "targets")
    assert 'value="mail"' in await team.page("ada", "/notifications?target=mail")


async def test_a_jobs_page_shows_who_is_told_of_it(team: Team):
    job = {"name": "/b", "command": ["true"], "notify": [{"to": "pager", "on": ["time_80"]}]}
    job["timeout_s"] = 60
    made = await team.api("ada", "POST", "/v1/jobs", **job)
    told = {}
    for who in PEOPLE:
        for path in ("/jobs/j1", f"/jobs/{made['id']}"):
            text = await team.page(who, path)
            if 'id="notify"' in text:
                told[who, path] = words_of(section(text, "notify"))
    both = "pager is told: failed, ended"
    own = f"Notifications pager is told: time_80 {both} What became of messages"
    assert told == {
        **{
            (who, "/jobs/j1"): f"Notifications {both} {both} What became of messages"
            for who in ("ada", "mia")
        },
        **{(who, "/jobs/j2"): own for who in ("ada", "mia")},
        ("bob", "/jobs/j2"): "Notifications pager is told: time_80 What became of messages",
    }


async def test_a_jobs_page_says_that_nobody_is_told_while_no_notifier_runs():
    async with house(parse_tokens(TOKENS)) as iris:
        await fill(iris, token="ada")
        text = (await iris.http.get("/jobs/j1", headers={"cookie": "iris_token=ada"})).text
        assert 'id="notify"' not in text
        job = {"name": "/b", "command": ["true"], "notify": [{"to": "pager", "on": ["ended"]}]}
        await iris.http.post("/v1/jobs", json=job, headers={"authorization": "Bearer ada"})
        text = (await iris.http.get("/jobs/j2", headers={"cookie": "iris_token=ada"})).text
        said = words_of(section(text, "notify"))
        assert (
            "pager is told: ended No notifier is running: subscriptions to it are not known" in said
        )


async def test_long_listings_continue_on_a_next_page(team: Team):
    for number in range(ROWS - 2):
        await team.api(
            "ada",
            "POST",
            "/v1/notify/subscriptions",
            to="pager",
            on=["failed"],
            project=f"/p{number}",
        )
    first = section(await team.page("ada", "/notifications?target=pager"), "subscriptions")
    [onward] = re.findall(r'rel="next" class="button" href="([^"]*)"', first)
    assert "target=pager" in onward
    second = section(
        await team.page("ada", f"/notifications{onward.replace('&amp;', '&')}"), "subscriptions"
    )
    ids = [re.findall(r'<tr id="s-([^"]*)"', text) for text in (first, second)]
    assert (len(ids[0]), len(set(ids[0] + ids[1]))) == (ROWS, ROWS + 1)
    assert 'rel="next"' not in second


async def test_the_page_says_that_no_notifier_answers():
    async with house(parse_tokens(TOKENS)) as iris:
        answer = await iris.http.get("/notifications", headers={"cookie": "iris_token=ada"})
        assert answer.status_code == 200
        said = words_of(section(answer.text, "unavailable"))
        assert said.startswith("No notifier is running: targets and messages can be neither read")
        assert "<table" not in answer.text
        changed = await iris.http.post(
            "/notifications/targets/pager/change",
            data={"action": "pause"},
            headers={**AS_FORM, **HTML, "cookie": "iris_token=ada"},
        )
        assert (changed.status_code, "o notifier is running" in changed.text) == (503, True)
