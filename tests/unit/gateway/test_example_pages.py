"""Pages of a cluster in the middle of a day: what has failed comes first, filters, hosts as tiles,
events.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from iris_gateway.dashboard.decisions import DECISIONS
from tests.support.example_cluster import GANG, PIPELINE, SWEEP, WAITING, show_example
from tests.support.gateway import House, house


@pytest.fixture
async def iris() -> AsyncIterator[House]:
    async with house() as made:
        await show_example(made, time.time_ns() // 1_000_000)
        yield made


async def page(iris: House, path: str) -> str:
    response = await iris.http.get(path)
    assert response.status_code == 200, response.text
    return response.text


def job(name: str) -> str:
    return f"/jobs/{quote(name, safe='')}"


def rows(text: str) -> list[str]:
    return re.findall(r'<tr id="[^"]*">', text)


@pytest.mark.parametrize("path", ["/", "/jobs?state=failed"])
async def test_lists_of_jobs_tell_what_failed_ones_printed_last(iris: House, path: str):
    text = await page(iris, path)
    assert "<code>FileNotFoundError: /data/shards/0041.tar</code>" in text
    assert "<code>ValueError: loss is nan at step" in text


async def test_a_job_with_failures_shows_its_failed_tasks_first(iris: House):
    text, everything = await page(iris, job(SWEEP)), await page(iris, f"{job(SWEEP)}?state=all")
    shown = [len(re.findall(r'<tr id="t\d+"', one)) for one in (text, everything)]
    assert shown == [33, 50]
    assert "state=all&amp;cursor=" in everything


async def test_failures_are_grouped_by_the_line_that_tasks_share(iris: House):
    groups = re.findall(r"<li><b>(\d+)</b> <code>(\w+\.?\w*)", await page(iris, job(SWEEP)))
    assert [name for _, name in groups] == ["ValueError", "torch.OutOfMemoryError"]
    assert sum(int(count) for count, _ in groups) == 33


async def test_peak_memory_stands_beside_what_the_job_requests(iris: House):
    assert re.search(
        r"<dt>peak memory</dt><dd><a [^>]*>[\d.]+[MG]iB</a> of 4GiB asked</dd>",
        await page(iris, job(SWEEP)),
    )
    assert "peak memory" in await page(iris, f"/tasks/{quote(SWEEP + '/4', safe='')}")


async def test_what_a_job_has_used_at_most_is_said_once(iris: House):
    text = await page(iris, job(SWEEP))
    assert [text.count(words) for words in ("<dt>peak memory</dt>", "<dt>most memory</dt>")] == [
        1,
        0,
    ]


async def test_users_have_bars_of_their_limits_and_without_one_of_the_cluster(iris: House):
    text = await page(iris, "/users")
    assert re.search(r'<svg class="bar use" role="img" aria-label="\d+ of 64"', text)
    assert "of the cluster&#39;s 2032" in text
    assert "unlimited" not in text


async def test_a_gang_is_shown_as_one_and_a_plain_job_is_not(iris: House):
    assert ['class="gantt gang"' in await page(iris, job(name)) for name in (GANG, SWEEP)] == [
        True,
        False,
    ]


async def test_a_parent_shows_the_tree_of_its_child_jobs(iris: House):
    text = await page(iris, job(PIPELINE))
    children = text[text.index('id="children"') :]
    assert [f">{name}</a>" in children for name in ("tokenize", "train", "evaluate")] == [True] * 3


async def test_jobs_are_filtered_by_when_they_were_submitted():
    async with house() as later:
        await show_example(later, time.time_ns() // 1_000_000 - 1_800_000)
        shown = [
            await page(later, f"/jobs?name_prefix=/ada/sweep&since={since}")
            for since in ("hour", "day", "")
        ]
        assert [SWEEP in text for text in shown] == [False, True, True]
        assert WAITING in await page(later, "/jobs?since=hour")
        assert '<option value="hour" selected>' in shown[0]


def named(text: str) -> list[str]:
    return re.findall(r'<td class="c-job"><a class="name" href="[^"]*" title="([^"]*)"', text)


async def test_jobs_are_sorted_by_column_links_which_keep_the_filters(iris: House):
    text = await page(iris, "/jobs?state=failed&user=ada")
    assert re.findall(r'<th class="c-when num" aria-sort="(\w+)">', text) == ["descending"]
    link = re.search(r'<th class="c-job"><a href="\?([^"]*)">Job</a>', text)
    assert link is not None
    by_name = await page(iris, "/jobs?" + link[1].replace("&amp;", "&"))
    assert named(by_name) == sorted(named(text))
    assert (
        '<th class="c-job" aria-sort="ascending"><a href="?state=failed&amp;user=ada&amp;order=-name">'
        in by_name
    )
    assert 'href="?user=ada&amp;order=name">All' in by_name
    assert '<option value="name" selected>' in by_name


async def test_sorted_jobs_go_on_to_the_next_page_and_leave_none_out(iris: House):
    url, found = "/jobs?order=-duration", list[str]()
    while url:
        text = await page(iris, url)
        found += named(text)
        onward = re.search(r'href="(\?order=-duration&amp;cursor=\w+)"', text)
        url = f"/jobs{onward[1].replace('&amp;', '&')}" if onward else ""
    every = (await iris.http.get("/v1/jobs?limit=500&order=-duration")).json()["items"]
    assert found == [one["name"] for one in every]
    assert len(found) > 50


async def test_the_way_up_from_a_job_leads_to_its_parent_or_its_siblings(iris: House):
    assert '<p class="crumb"><a href="/jobs?name_prefix=/ada/">/ada</a>' in await page(
        iris, job(SWEEP)
    )
    assert re.search(
        r'<p class="crumb"><a href="/jobs/j\d+">/lin/nightly',
        await page(iris, job(f"{PIPELINE}/train")),
    )


async def test_what_a_whole_job_waits_for_is_said_once(iris: House):
    assert (await page(iris, job(WAITING))).count("<code>gang_needs_group</code>") == 1


async def test_sessions_are_those_of_gangs(iris: House):
    text = await page(iris, "/sessions")
    assert len(rows(text)) == 3
    assert [name in text for name in (GANG, WAITING, SWEEP)] == [True, True, False]


async def test_sessions_say_in_words_why_they_wait_and_why_they_began_again(iris: House):
    text = await page(iris, "/sessions")
    assert (
        '<p class="reason">slice-b, slice-c and slice-d have hosts in use; it needs 4 free hosts of one'
        in text
    )
    assert '<p class="reason">began again: task 2 had a worker failure</p>' in text
    history = (await page(iris, job(GANG))).partition('id="history"')[2]
    assert "the gang waits for hosts again" in history
    assert [name for name in DECISIONS if name in text + history] == []


async def test_a_lost_host_says_what_it_ran_and_what_became_of_it(iris: House):
    text = await page(iris, "/workers/slice-d-w2")
    lost = text[text.index('id="lost"') : text.index('id="tasks"')]
    told = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", lost))
    assert re.search(rf"{GANG}/2 was running until \d+ min ago; now running on slice-a-w2", told), (
        told
    )
    assert 'id="lost"' not in await page(iris, "/workers/slice-a-w0")


async def test_hosts_are_tiles_and_a_table_by_state(iris: House):
    text = await page(iris, "/workers")
    assert [len(re.findall(rf'<a class="{kind} ', text)) for kind in ("tile", "host")] == [12, 16]
    assert re.search(
        r'<a class="tile level-0 off draining" href="/workers/cpu-12" title="cpu-12: draining, 0 tasks, 0 % held"',
        text,
    )
    assert re.search(r'href="\?state=lost#hosts">lost <b>1</b>', text)
    assert rows(await page(iris, "/workers?state=lost")) == ['<tr id="w-slice-d-w2">']


async def test_a_slice_is_one_shape_whose_hosts_show_held_and_lost(iris: House):
    text = await page(iris, "/workers")
    planes = re.findall(r'<div class="plane w-2">(.*?)</div>', text, re.DOTALL)
    held, broken = (re.findall(r'class="host ([^"]*)"', plane) for plane in (planes[0], planes[3]))
    assert (len(planes), held) == (4, ["of-4 on-4"] * 4)
    assert broken == ["of-4 on-0", "of-4 on-0", "of-4 on-0 off lost", "of-4 on-0"]
    assert re.search(r'none free, held by <a href="/jobs/j\d+">/grace/llama-7b</a>', text)
    assert "3 of 4 hosts free, 1 lost" in text
    assert '<div class="plane w-2">' in await page(iris, "/")


async def test_usage_of_the_last_hour_is_drawn_for_cluster_and_host(iris: House):
    for path in ("/", "/workers/slice-a-w0"):
        text = await page(iris, path)
        assert re.findall(r'<svg class="area" role="img" aria-label="(\w+): ', text) == [
            "cpu",
            "memory",
            "chips",
        ]
    assert "0% to 100% held in the last hour" in await page(iris, "/workers/slice-a-w0")


async def test_a_worker_shows_what_has_happened_on_it(iris: House):
    text = await page(iris, "/workers/slice-a-w0")
    events = text[text.index('id="events"') :]
    assert "/grace/llama-7b/0" in events
    assert "cpu-01" not in events


async def test_events_are_filtered_and_go_on_to_older_ones(iris: House):
    text = await page(iris, "/events?kind=task&state=failed&within=/ada")
    assert len(rows(text)) == 33
    assert "/mia/" not in text
    assert 'name="within" value="/ada"' in text
    first = await page(iris, "/events?worker=cpu-01")
    onward = re.search(r'href="(\?worker=cpu-01&amp;cursor=\d+)"', first)
    assert onward is not None
    older = await page(iris, "/events" + onward[1].replace("&amp;", "&"))
    assert not {*rows(first)} & {*rows(older)}
    assert len(rows(older)) == 100


async def test_the_queue_tells_what_decides_its_order(iris: House):
    text = await page(iris, "/queue")
    assert "the deeper child first" in text
    assert "what projects are guaranteed before what they borrow" in text
    assert "who has had less of a fair share" in text


async def test_many_jobs_are_looked_up_by_one_question_before_they_are_cancelled(iris: House):
    told = len(iris.state.queries)
    text = await page(
        iris, "/cancel?job=/ken/tokenize&job=/hedy/vit-huge&job=/mia/augment&job=/ada/gone"
    )
    assert [query.what for query in iris.state.queries[told:]] == ["named_jobs"]
    assert "Cancel 3 jobs?" in text
    assert "there is no such job" in text
