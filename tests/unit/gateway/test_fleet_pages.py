"""The pages of the fleet: what pools have and need, what hinders them, and what an admin does about
it.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from iris_core.codec import to_json
from iris_core.messages.gateway_state import Answer
from iris_core.states import SliceCause, SliceStatus
from iris_gateway.auth.bearer import parse_tokens
from iris_gateway.dashboard import fleet_words
from iris_gateway.dashboard.drawings.pools import MOST, boxes
from iris_gateway.dashboard.fleet_data import HOSTS
from iris_gateway.dashboard.page_reads import ROWS
from iris_gateway.streams.event import WORDS
from iris_state.records import fleet_changes as f
from iris_state.records.fleet.records import Growth
from tests.support.example_cluster import WAITING, show_example
from tests.support.example_fleet import (
    CPU_POOL,
    EXHAUSTED_POOL,
    FULL_POOL,
    FleetStory,
    pool_of,
    show_usual,
)
from tests.support.fake_state import refusal
from tests.support.gateway import House, house
from tests.support.pages import CHANGE, FLEET, POOL, SLICE, fill

TOKENS = "\n".join(
    f"{who} {role} {sha256(who.encode()).hexdigest()}"
    for who, role in (("mia", "admin"), ("ada", "user"))
)
EXHAUSTED = SliceCause.EXHAUSTED
AS_FORM = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
POOL_CHANGE, SLICE_DRAIN = "/fleet/pools/cpu/change", "/fleet/slices/s7/drain"


@pytest.fixture
async def iris(iris: House) -> House:
    await fill(iris)
    iris.state.scripted["FleetCommand"] = Answer("ok", to_json({"name": "cpu", "version": 4}))
    return iris


@pytest.fixture
async def story() -> AsyncIterator[FleetStory]:
    """The example cluster with pools that have slices."""
    async with house() as made:
        now_ms = time.time_ns() // 1_000_000
        ledger = await show_example(made, now_ms)
        story = FleetStory(made, ledger, now_ms)
        await show_usual(story)
        yield story


async def page(iris: House, path: str) -> str:
    response = await iris.http.get(path)
    assert response.status_code == 200, response.text
    return response.text


def words_of(text: str) -> str:
    """What a reader sees of markup, on one line."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def row_of(text: str, name: str) -> str:
    """What the page of the fleet says of a pool."""
    _, _, rest = text.partition(f'<li id="pool-{name}">')
    return words_of(rest.partition("</li>")[0])


def section(text: str, name: str) -> str:
    found = re.search(rf'<section [^>]*id="{name}".*?</section>', text, re.DOTALL)
    assert found is not None, text
    return found[0]


# ── all pools ─────────────────────────────────────────────────────────────────────────────────────


async def test_each_pool_has_a_box_for_each_slice_and_says_what_they_do(story: FleetStory):
    text = await page(story.iris, "/fleet")
    row = row_of(text, CPU_POOL)
    assert "11 busy, 2 idle, 1 draining, 1 being deleted, 25 may be made; idle for up to" in row
    assert "9.60 an hour" in row
    assert "boots in 3 min" in row
    _, _, drawn = text.partition(f'<li id="pool-{CPU_POOL}">')
    paths = dict(re.findall(r'<path class="box-(\w+)" d="([^"]*)"', drawn.partition("</li>")[0]))
    assert {kind: path.count("M") for kind, path in paths.items()} == {
        "busy": 11,
        "idle": 2,
        "draining": 1,
        "deleting": 1,
        "free": 25,
    }


async def test_what_a_provider_refuses_stands_beside_its_pool_and_since_when(story: FleetStory):
    hindered = Growth(
        put_off_ms=story.now_ms + 150_000, wait_ms=240_000, cause=EXHAUSTED, detail="STOCKOUT in a"
    )
    await story.happen(420, f.PoolGrowth(EXHAUSTED_POOL, hindered))
    longer = msgspec.structs.replace(hindered, put_off_ms=story.now_ms + 185_000)
    await story.happen(60, f.PoolGrowth(EXHAUSTED_POOL, longer))
    text = await page(story.iris, "/fleet")
    said = "exhausted since 7 min ago : STOCKOUT in a; next try in"
    assert said in row_of(text, EXHAUSTED_POOL)
    assert "<title>v5e-spot: put off · Iris</title>" in text
    assert "1 of 3 pools needs attention: v5e-spot (put off)" in words_of(text)
    assert "v5e-spot was put off: its provider has no capacity: STOCKOUT in a" in words_of(
        section(text, "changes")
    )
    assert EXHAUSTED_POOL in section(await page(story.iris, "/"), "attention")


async def test_a_pause_by_an_admin_is_said_and_needs_no_attention(story: FleetStory):
    await story.happen(700, f.PoolSet(pool_of("night", 3, paused=True), reason="at night only"))
    text = await page(story.iris, "/fleet")
    assert "paused since 11 min ago : at night only" in row_of(text, "night")
    own = words_of(section(await page(story.iris, "/fleet/pools/night"), "slices"))
    assert "It has no slice now, and is paused." in own
    assert "Nothing hinders a pool." in text
    assert "night" not in section(await page(story.iris, "/"), "attention")


async def test_work_for_which_no_slice_comes_says_why_of_each_pool(iris: House):
    text = section(await page(iris, "/fleet"), "unmet")
    assert "/a 12 tasks of its kind: cpu at its maximum (6)" in words_of(text)
    assert 'href="/jobs/%2Fa"' in text
    assert 'href="/fleet/pools/cpu"' in text


async def test_what_is_odd_about_the_whole_fleet_is_said(iris: House):
    text = words_of(await page(iris, "/fleet"))
    assert "It only decides what it would do" in text
    assert "No provisioner has said yet what providers have" in text
    assert "Providers have 1 slice without a record" in text
    iris.state.pages["fleet"] = {
        **FLEET,
        "dry_run": False,
        "orphans": 0,
        "listed_at": "2026-01-31T08:00:00Z",
    }
    text = words_of(await page(iris, "/fleet"))
    assert "only decides" not in text
    assert "No provisioner" not in text
    assert "without a record" not in text


async def test_without_pools_the_page_says_what_one_is_and_how_to_make_it():
    async with house(parse_tokens(TOKENS)) as made:
        await fill(made, token="ada")
        made.state.pages["fleet"] = {**FLEET, "pools": [], "unmet": [], "changes": []}
        made.state.pages["pools"] = {"items": [], "next_cursor": None}
        said = {}
        for who in ("mia", "ada"):
            made.http.cookies.set("iris_token", who)
            said[who] = words_of(await page(made, "/fleet"))
            overview = await page(made, "/")
    assert "A pool is a kind of host that the cluster makes when work waits" in said["mia"]
    assert "iris pool set cpu --provider process --max 4" in said["mia"]
    assert [who for who in said if "An admin makes pools." in said[who]] == ["ada"]
    assert 'id="pools"' not in overview


def many(count: int, **more: Any) -> dict[str, Any]:
    slices = dict.fromkeys(POOL["slices"], 0) | {"ready": count}
    return {**POOL, "idle": 0, "max": 10_000, "slices": slices, **more}


def test_boxes_of_a_pool_are_bounded_however_many_slices_it_has():
    drawn = {count: boxes(many(count)) for count in (0, 3, 40, MOST, 10_000)}
    elements = {count: shape.drawing.count("<path") for count, shape in drawn.items()}
    assert elements == {0: 1, 3: 2, 40: 2, MOST: 2, 10_000: 1}
    assert max(len(shape.drawing) for shape in drawn.values()) < 25 * MOST
    assert [shape.each for shape in drawn.values()] == [1, 1, 1, 1, 25]
    assert drawn[10_000].words == "10,000 busy"
    assert boxes({**many(0), "max": 0}).words == "it may make none"


async def test_a_page_of_many_large_pools_is_bounded_and_says_what_a_box_is(iris: House):
    counts = dict.fromkeys(POOL["slices"], 0) | {"ready": MOST, "creating": MOST}
    pools = [many(0, slices=counts, name=f"pool-{number:03}") for number in range(ROWS)]
    iris.state.pages["fleet"] = {**FLEET, "pools": pools}
    text = await page(iris, "/fleet")
    assert len(text) < 400_000
    assert "400 busy, 400 coming, 9,200 may be made; a box is 10 slices" in row_of(text, "pool-007")


async def test_a_page_shows_some_pools_and_leads_to_the_others(iris: House):
    pools = [{**POOL, "name": f"pool-{number:03}"} for number in range(ROWS + 10)]
    iris.state.pages["fleet"] = {**FLEET, "pools": pools}
    first = await page(iris, "/fleet")
    assert first.count('<li id="pool-') == ROWS
    [onward] = re.findall(r'rel="next" class="button" href="([^"]*)"', first)
    second = await page(iris, f"/fleet{onward}")
    assert re.findall(r'<li id="pool-([^"]*)"', second) == [one["name"] for one in pools[ROWS:]]
    assert 'rel="next"' not in second


def test_every_status_cause_and_event_has_words():
    assert set(fleet_words.ENTERED) == {status.value for status in SliceStatus}
    assert set(fleet_words.CAUSES) == {cause.value for cause in SliceCause}
    assert set(fleet_words.HAPPENED) == set(WORDS["fleet.pool"])
    unknown = {"to": "melted", "cause": "too_hot", "detail": "90 degrees"}
    assert fleet_words.said(unknown) == "melted: too hot: 90 degrees"


# ── one pool ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_pool_lists_its_slices_by_status_page_by_page(story: FleetStory):
    await story.slices(CPU_POOL, ROWS, SliceStatus.CREATING, 30)
    path = f"/fleet/pools/{CPU_POOL}"
    live = await page(story.iris, path)
    shown = re.findall(r'<tr id="(s\d+)">', section(live, "slices"))
    [onward] = re.findall(r'rel="next" class="button" href="([^"]*)"', section(live, "slices"))
    rest = re.findall(r'<tr id="(s\d+)">', section(await page(story.iris, path + onward), "slices"))
    known = story.ledger.fleet.of_pool(CPU_POOL)
    assert [*shown, *rest] == [one.id for one in reversed(known) if not one.is_over]
    deleted = section(await page(story.iris, f"{path}?status=deleted"), "slices")
    assert len(re.findall(r'<tr id="s\d+">', deleted)) == 3
    assert "No slice is failed." in await page(story.iris, f"{path}?status=failed")


async def test_the_page_of_a_pool_has_its_facts_and_what_happened(iris: House):
    text = await page(iris, "/fleet/pools/cpu")
    facts = words_of(section(text, "facts"))
    for words in (
        "cost 1.50 an hour",
        "a slice 0.50 an hour",
        "boots in 2 min 50 s (p50), 4 min (p90)",
        "given back after 10 min without work",
        "reservation bought, 64 chips",
        "for any work",
        "program &lt;b&gt;cloud&lt;/b&gt;",
    ):
        assert words in facts
    changes = words_of(section(text, "changes"))
    assert "cpu-0 drains: an admin gave it back: &lt;b&gt;repairs&lt;/b&gt; by mia" in changes
    assert "The newest ones. The API has all" in changes
    assert "2 of 6 slots have no keys and are not used" in text
    assert "<b>stockout</b>" not in text


async def test_pausing_resuming_and_draining_send_one_command(iris: House):
    sent: dict[tuple[str, str], dict[str, str]] = {
        (POOL_CHANGE, "pause"): {"action": "pause", "reason": "repairs"},
        (POOL_CHANGE, "resume"): {"action": "resume", "reason": "done"},
        (SLICE_DRAIN, "drain"): {"minutes": "10", "reason": "old"},
    }
    for (path, action), form in sent.items():
        before = len(iris.state.commands)
        for _ in range(2):
            answer = await iris.http.post(path, data={**form, "key": "k"}, headers=AS_FORM)
            assert answer.status_code == 303, answer.text
            assert answer.headers["location"] == path.rpartition("/")[0]
        first, second = iris.state.commands[before:]
        assert (first.action, first.reason) == (action, form["reason"])
        assert first.request_id == second.request_id
    assert iris.state.commands[-1].deadline_s == 600
    await iris.http.post(SLICE_DRAIN, data={"minutes": "", "key": "n"}, headers=AS_FORM)
    assert iris.state.commands[-1].deadline_s is None


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (POOL_CHANGE, {"key": "k"}),
        (POOL_CHANGE, {"action": "explode"}),
        (SLICE_DRAIN, {"minutes": "-1"}),
        (SLICE_DRAIN, {"minutes": "soon"}),
    ],
)
async def test_a_form_that_says_no_change_is_refused(iris: House, path: str, form: dict[str, str]):
    before = len(iris.state.commands)
    assert (await iris.http.post(path, data=form, headers=AS_FORM)).status_code == 400
    right = {"action": "pause", "minutes": "1"}
    assert (await iris.http.post(path, data=right)).status_code == 403  # no form of ours
    assert len(iris.state.commands) == before


async def test_what_the_state_service_refuses_is_a_page_with_the_reason(iris: House):
    iris.state.scripted["FleetCommand"] = refusal("conflict", "cpu-0 is deleting already")
    sent = {**AS_FORM, "accept": "text/html"}
    answer = await iris.http.post(SLICE_DRAIN, data={"key": "k"}, headers=sent)
    assert (answer.status_code, "is deleting already" in answer.text) == (409, True)


async def test_only_admins_are_offered_changes():
    async with house(parse_tokens(TOKENS)) as made:
        await fill(made, token="ada")
        offered = {}
        for who in ("mia", "ada"):
            made.http.cookies.set("iris_token", who)
            texts = [await page(made, path) for path in ("/fleet/pools/cpu", "/fleet/slices/s7")]
            offered[who] = [text.count('method="post" action="/fleet/') for text in texts]
    assert offered == {"mia": [2, 1], "ada": [0, 0]}


# ── one slice ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_slice_shows_its_hosts_boot_cost_and_history(story: FleetStory):
    text = await page(story.iris, f"/fleet/slices/{FULL_POOL}-0")
    hosts = section(text, "hosts")
    assert re.findall(r'href="/workers/([^"]*)"', hosts) == [
        f"{FULL_POOL}-0-{index}" for index in range(4)
    ]
    facts = words_of(section(text, "facts"))
    assert re.search(r"booted in [23] min", facts)
    assert re.search(r"cost 17\d\.\d\d", facts)
    assert re.findall(r"(requested|boots|ready): ?", words_of(section(text, "history")))
    steps = re.findall(r'<td class="text">([^<]*)</td>', section(text, "history"))
    assert steps == [
        "was requested for work that waits",
        "boots: its provider has begun to make it",
        "is ready: all of its hosts have registered",
    ]


async def test_hosts_that_are_not_well_come_first_and_a_cut_is_said(iris: House):
    text = section(await page(iris, "/fleet/slices/cpu-0"), "hosts")
    assert re.findall(r'<tr id="h-([^"]*)"', text) == ["cpu-0-1", "cpu-0-0"]
    assert "cpu_millis 1000, not 2000" in text
    some = [{"name": f"h{n}", "state": "healthy", "differs": []} for n in range(HOSTS + 5)]
    iris.state.pages["fleet_slice"] = {**SLICE, "hosts": some}
    text = section(await page(iris, "/fleet/slices/cpu-0"), "hosts")
    assert "5 more hosts. The API has all" in words_of(text)
    iris.state.pages["fleet_slice"] = {**SLICE, "hosts": [], "status": "deleted"}
    text = await page(iris, "/fleet/slices/cpu-0")
    assert "It has ended, and has no hosts any more." in text
    assert SLICE_DRAIN not in text


# ── links from elsewhere ──────────────────────────────────────────────────────────────────────────


async def test_a_host_leads_to_its_slice_and_its_pool(story: FleetStory):
    text = await page(story.iris, f"/workers/{FULL_POOL}-0-2")
    assert f'href="/fleet/slices/{FULL_POOL}-0"' in text
    assert f'href="/fleet/pools/{FULL_POOL}"' in text


async def test_a_waiting_job_leads_to_the_slice_that_comes(story: FleetStory):
    path = f"/jobs/{WAITING.replace('/', '%2F')}"
    text = await page(story.iris, path)
    assert "waits for slice v5e-spot-" in text
    assert re.search(r'href="/fleet/slices/v5e-spot-\d"', text)
    task = await page(story.iris, f"/tasks/{WAITING.replace('/', '%2F')}%2F0")
    assert re.search(r'href="/fleet/slices/v5e-spot-\d"', task)


async def test_a_waiting_job_says_why_no_pool_makes_a_slice(iris: House):
    reason = {
        "code": "no_match",
        "message": "no host",
        "facts": {"pools": FLEET["unmet"][0]["pools"]},
    }
    iris.state.pages["why"] = {"ahead": 4, "pending_reason": reason}
    for path in ("/jobs/%2Fa", "/tasks/%2Fa%2F1"):
        text = await page(iris, path)
        assert "Pool cpu : at its maximum (6)" in words_of(text)
        assert 'href="/fleet/pools/cpu"' in text


async def test_events_and_audit_lead_to_pools_and_slices(story: FleetStory):
    text = await page(story.iris, "/events?kind=slice&state=draining")
    assert re.findall(r'<a href="/fleet/slices/(s\d+)">(cpu-\d+)</a>', text)
    assert "it had no work" in text
    ids = re.findall(r'<tr id="(e[^"]*)">', text)
    assert len(ids) == len(set(ids)) > 1
    assert 'href="/fleet/pools/cpu"' in await page(story.iris, "/events?kind=pool&state=set")


@pytest.mark.parametrize(
    ("kind", "name", "link"),
    [("pool", "cpu", "/fleet/pools/cpu"), ("slice", "cpu-0", "/fleet/slices/s7")],
)
async def test_the_audit_leads_to_what_was_changed(iris: House, kind: str, name: str, link: str):
    [row] = iris.state.pages["audit"]["items"]
    changed = {**row, "kind": kind, "id": "s7" if kind == "slice" else name, "name": name}
    iris.state.pages["audit"] = {"items": [changed], "next_cursor": None}
    assert f'<a class="name" href="{link}">{name}</a>' in await page(iris, "/audit")


@pytest.mark.parametrize(
    ("there", "path"), [("pool", "/fleet/pools/cpu"), ("fleet_slice", "/fleet/slices/cpu")]
)
async def test_a_search_finds_a_pool_and_a_slice(iris: House, there: str, path: str):
    others = {"worker", "deployment", "pool", "fleet_slice"} - {there}
    iris.state.scripted |= {what: refusal("not_found", "there is none") for what in others}
    response = await iris.http.get("/search", params={"q": "cpu"})
    assert (response.status_code, response.headers["location"]) == (303, path)


async def test_the_overview_says_what_each_pool_has(story: FleetStory):
    text = words_of(section(await page(story.iris, "/"), "pools"))
    assert "cpu 11 busy, 2 idle, 1 draining, 1 being deleted" in text


async def test_an_unknown_pool_or_slice_is_a_page_that_says_so(story: FleetStory):
    for path in ("/fleet/pools/nope", "/fleet/slices/nope-7"):
        answer = await story.iris.http.get(path, headers={"accept": "text/html"})
        assert (answer.status_code, "nope" in answer.text) == (404, True)


def test_a_change_of_the_fake_has_the_words_of_a_change():
    assert fleet_words.said(CHANGE) == "drains: an admin gave it back: <b>repairs</b>"
